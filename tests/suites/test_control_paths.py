"""Each path of a detector has a negative control: with the path disabled, that control notices."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from assay import Check, Outcome
from assay.frameworks.installed import framework
from assay.hlo import (
    full_buffer_writes,
    host_transfers,
    summary,
    trip_count,
    value_provenance,
)
from assay.hlo.assignment import BufferAssignment, Slice
from assay.hlo.schema import split
from assay.hlo.summary import read
from assay.judge.case import judge, judge_negative_control
from assay.model import summary as records
from assay.model.claim import Case
from assay.model.evidence import Evidence, Memory, Toolchain
from assay.model.target import TargetName
from assay.model.workload import Workload
from assay.targets import known, prepare, resolve
from suites.dus_remat import test_copies
from suites.dus_remat.workloads import EXECUTED
from suites.scan_offload import test_compile, test_transfers
from suites.scan_offload.workloads import COMPILED
from tests.hlo.compilers import installed

COPIES = test_copies.test_iteration_writes_no_whole_stack
OUTSIDE = test_copies.test_nothing_copies_the_stack_before_or_after_the_loop
REUSED = test_copies.test_donated_stack_is_reused
FITS = test_compile.test_step_fits_the_device
BLOCK = COMPILED[1]

Patch = tuple[Any, str, Any]
"""An object, the name of its part that a path needs, and what to put in place of it."""

PATHS: dict[str, tuple[Check, str, Patch]] = {
    "copies": (
        COPIES,
        "negative-duplicate",
        (value_provenance, "_RETILES", value_provenance._RETILES - {"copy", "copy-start"}),
    ),
    "the in-place check": (
        COPIES,
        "negative-duplicate",
        (BufferAssignment, "slice_of", lambda *_: Slice(allocation=0, offset=0, nbytes=0)),
    ),
    "elements in another order": (
        COPIES,
        "negative-reads-turned-round",
        (value_provenance, "_REARRANGES", frozenset()),
    ),
    "arrays side by side": (
        COPIES,
        "negative-reads-shifted",
        (value_provenance, "_is_joined", lambda _: False),
    ),
    "a choice by place": (
        COPIES,
        "negative-by-mask",
        (value_provenance._Search, "_chosen", lambda *_: {}),
    ),
    "what a loop carries on": (
        COPIES,
        "negative-by-mask",
        (full_buffer_writes, "_carried", lambda *_: ()),
    ),
    "branches": (
        COPIES,
        "negative-turned-round-in-a-branch",
        (full_buffer_writes, "_RUNS_OTHERS", frozenset()),
    ),
    "copies outside of loops": (
        OUTSIDE,
        "negative-difference",
        (records, "full_buffer_writes_outside_loops", lambda *_: ()),
    ),
    "copies of what is donated": (
        REUSED,
        "negative-difference",
        (full_buffer_writes, "_copies", lambda *_: ()),
    ),
}


@cache
def _compiled(name: str, variant: str, target: str) -> tuple[bytes, bytes, Memory]:
    prepare(map(TargetName.parse, known()))
    tools = framework("jax", resolve(target))
    workload = next(each for each in (EXECUTED, BLOCK) if each.name == name)
    program = workload.variant(variant).program(tools.devices)
    compiled = tools.compile(tools.lower(tools.trace(program)))
    return *split(compiled.hlo_proto()), compiled.memory()


def _judged(check: Check, workload: Workload, control: str, target: str) -> Outcome:
    """The verdict on a negative control, analysed anew."""
    return judge_negative_control(check.claim, _case(workload, control, target)).outcome


def _case(workload: Workload, variant: str, target: str) -> Case:
    module, assignment, memory = _compiled(workload.name, variant, target)
    model = resolve(target).model
    evidence = Evidence(
        workload=workload.name,
        variant=variant,
        target=target,
        toolchain=Toolchain(versions={}),
        device_count=8,
        device_memory_bytes=model.memory_bytes if model else None,
        memory=memory,
        module=read(module, assignment),
    )
    return Case(workload=workload, variant=workload.variant(variant), evidence=evidence)


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", PATHS)
def test_a_disabled_path_is_noticed_by_its_control(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, control, patch = PATHS[path]
    assert _judged(check, EXECUTED, control, "cpu:8") is Outcome.PASSED
    monkeypatch.setattr(*patch)
    assert _judged(check, EXECUTED, control, "cpu:8") is Outcome.FAILED


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")  # as it must
@pytest.mark.parametrize("check", [COPIES, OUTSIDE, REUSED], ids=["in", "outside", "reused"])
def test_every_control_fails_its_claim(check: Check) -> None:
    outcomes = {name: _judged(check, EXECUTED, name, "cpu:8") for name in check.negative_controls}
    assert set(outcomes.values()) == {Outcome.PASSED}, outcomes


def test_every_control_on_copies_has_a_path() -> None:
    paths = {(id(check), control) for check, control, _ in PATHS.values()}
    assert {(id(COPIES), name) for name in COPIES.negative_controls} <= paths


TO_HOST = test_transfers.test_activation_goes_to_the_host_once_a_step
TO_DEVICE = test_transfers.test_activation_comes_back_once_a_step
TRANSFERS: dict[str, tuple[Check, Patch]] = {
    "what is started asynchronously": (TO_HOST, (host_transfers, "_inside", lambda *_: ())),
    "updates in host memory": (TO_HOST, (host_transfers, "_by_update", lambda *_: ())),
    "slices of host memory": (TO_DEVICE, (host_transfers, "_by_operation", lambda *_: ())),
    "trips of loops": (TO_DEVICE, (trip_count.Executions, "times", lambda each, *_, **__: each)),
}
"""A claim of an equal number of bytes needs no control of its own for a path: where a detector is
blind on it, the variants that move the bytes fail the claim."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", installed("gpu-h100:8"))
@pytest.mark.parametrize("path", TRANSFERS)
def test_a_disabled_path_of_transfers_fails_the_claim_of_a_variant_that_offloads(
    path: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, patch = TRANSFERS[path]
    assert judge(check.claim, _case(BLOCK, "offload-hidden", target)).outcome is Outcome.PASSED
    monkeypatch.setattr(*patch)
    assert judge(check.claim, _case(BLOCK, "offload-hidden", target)).outcome is Outcome.FAILED


WITHOUT: dict[str, Callable[[Memory], int]] = {
    "negative-oversized": lambda memory: memory.temp_bytes,
    "negative-oversized-temporaries": lambda memory: memory.argument_bytes + memory.output_bytes,
}
"""What is left of a program's memory without the part that each control is made of."""


@pytest.mark.parametrize("target", installed("gpu-h100:8"))
@pytest.mark.parametrize("control", FITS.negative_controls)
def test_each_kind_of_memory_that_is_not_counted_is_noticed(
    control: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _judged(FITS, BLOCK, control, target) is Outcome.PASSED
    monkeypatch.setattr(summary, "peak", lambda *_: None)  # it would tell of the same bytes
    monkeypatch.setattr(Memory, "device_bytes", property(WITHOUT[control]))
    assert _judged(FITS, BLOCK, control, target) is Outcome.FAILED
