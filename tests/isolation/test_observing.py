"""Observing in this process: whose fault a failing stage is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from assay import Program, Role, SizedVariant, Variant, Workload
from assay.model.evidence import Evidence, FailureKind, Memory, Traced
from assay.model.target import DeviceModel, TargetName
from assay.observe import observe, unseen
from assay.targets.jax_internals import InternalsMoved, ModuleUnreadable


class Device:
    """Stands for a target and its one device."""

    name = TargetName.parse("gpu-h100")
    model: DeviceModel | None = None
    platform = "cuda"
    executes = False

    def devices(self) -> tuple[object, ...]:
        return (object(),)


class Tools:
    """A framework whose compiler, or whose way to hand over the module, fails as told."""

    devices = (object(),)

    def __init__(self, compiling: Exception | None, handing_over: Exception | None) -> None:
        self._compiling = compiling
        self._handing_over = handing_over

    def machine(self) -> AbstractContextManager[None]:
        return nullcontext()

    def trace(self, program: Program) -> object:
        return program

    def lower(self, traced: object) -> object:
        return traced

    def describe(self, program: Program, traced: object, lowered: object) -> Traced:
        return Traced(names=(), host_placements_traced=0, placements_lowered=0, residuals=None)

    def compile(self, lowered: object) -> Tools:
        if self._compiling is not None:
            raise self._compiling
        return self

    def memory(self) -> Memory:
        return Memory(
            temp_bytes=1, argument_bytes=0, output_bytes=0, alias_bytes=0, host_temp_bytes=0
        )

    def hlo_proto(self) -> bytes:
        if self._handing_over is not None:
            raise self._handing_over
        return b""


Seen = Callable[..., Evidence]


def no_program(_devices: Any) -> Program:
    return Program(function=lambda: None)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    def see(compiling: Exception | None = None, handing_over: Exception | None = None) -> Evidence:
        monkeypatch.setattr("assay.observe.resolve", lambda _name: Device())
        monkeypatch.setattr("assay.observe.framework", lambda *_: Tools(compiling, handing_over))

        variant = Variant(name="plain", role=Role.CONTROL, program=no_program)
        return observe(Workload(suite="s", name="w", variants=(variant,)), variant, "gpu-h100")

    return see


@pytest.mark.parametrize("sign", ["No PTX compilation provider", "libdevice not found at ./x"])
def test_an_installation_without_an_assembler_is_unavailable_not_broken(
    seen: Seen, sign: str
) -> None:
    evidence = seen(compiling=RuntimeError(f"UNAVAILABLE: {sign}"))
    assert evidence.failure is None
    assert evidence.unavailable is not None
    assert evidence.unavailable.remedy == "pip install nvidia-cuda-nvcc nvidia-nvvm"


def test_any_other_fault_of_the_compiler_is_its_own(seen: Seen) -> None:
    evidence = seen(compiling=RuntimeError("INTERNAL: during context"))
    assert evidence.unavailable is None
    assert evidence.failure is not None
    assert evidence.failure.kind is FailureKind.COMPILER


@pytest.mark.parametrize(
    ("message", "needed", "capacity"),
    [
        ("RESOURCE_EXHAUSTED: Used 27.02G of 15.75G hbm. Exceeded", 27.02, 15.75),
        (
            (
                "RESOURCE_EXHAUSTED: the total memory required for HLO temporaries (2.88T) exceeds "
                "available HBM (95.73G)."
            ),
            2.88 * 1024,
            95.73,
        ),
    ],
)
def test_an_out_of_memory_error_gives_the_sizes_it_names(
    seen: Seen, message: str, needed: float, capacity: float
) -> None:
    failure = seen(compiling=RuntimeError(message)).failure
    assert failure is not None
    assert failure.kind is FailureKind.OUT_OF_MEMORY
    assert failure.needed_bytes == round(needed * 2**30)
    assert failure.capacity_bytes == round(capacity * 2**30)


@pytest.mark.parametrize(
    "message",
    [
        "RESOURCE_EXHAUSTED: Allocation would exceed memory :: #allocation3 [space=vmem, scoped]",
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 16.5M of 16.0M vmem.",
        "RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 294912, available 232448",
    ],
)
def test_a_kernel_that_exceeds_on_chip_memory_does_not_compile(seen: Seen, message: str) -> None:
    failure = seen(compiling=RuntimeError(message)).failure
    assert failure is not None
    assert failure.kind is FailureKind.COMPILER


def test_a_module_that_is_not_handed_over_is_told_of_and_memory_is_kept(seen: Seen) -> None:
    evidence = seen(handing_over=ModuleUnreadable("INTERNAL: RET_CHECK failure"))
    assert evidence.failure is None
    assert evidence.memory is not None
    assert "RET_CHECK" in evidence.module_unreadable


@pytest.mark.parametrize("fault", [AttributeError("name"), RuntimeError("INTERNAL: no")])
def test_any_other_fault_of_reading_the_module_is_assays(seen: Seen, fault: Exception) -> None:
    with pytest.raises(type(fault)):
        seen(handing_over=fault)


def test_an_adapter_that_no_longer_fits_jaxlib_is_assays_fault(seen: Seen) -> None:
    with pytest.raises(InternalsMoved):
        seen(handing_over=InternalsMoved("hlo_modules()"))


def test_the_evidence_of_a_sized_program_has_its_size() -> None:
    plain = Variant(name="plain", role=Role.CONTROL, program=no_program)
    sized = SizedVariant(name="a", role=Role.CONTROL, program=no_program, size=7)
    workload = Workload(suite="s", name="w", variants=(plain, sized))
    assert [unseen(workload, each, Device()).size for each in (plain, sized)] == [None, 7]
