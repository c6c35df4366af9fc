"""The suite's own soundness: negative controls, formulas, and that red means what it should."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from assay import Check, Outcome
from assay.isolate import Observer
from assay.judge.case import judge, judge_negative_control
from assay.model.claim import Case
from assay.model.evidence import Evidence
from assay.model.target import TargetName
from assay.model.workload import Role, Workload, matches_any
from suites.scan_offload.formulas import BlockWorkload
from suites.scan_offload.programs import Budget
from suites.scan_offload.workloads import (
    COMPILED,
    EXECUTED_WORKLOADS,
    SMALL_BUDGET,
    WORKLOADS,
)

SUITE = Path(__file__).parents[2] / "suites" / "scan_offload"
TARGETS = ("gpu-h100:8", "tpu-v5p:2x2x2", "cpu:8")
BLOCK = next(workload for workload in WORKLOADS if workload.name == "block")
EXECUTED = next(workload for workload in WORKLOADS if workload.name == "block-executed")


def _modules() -> Iterator[ModuleType]:
    for path in sorted(SUITE.glob("test_*.py")):
        yield import_module(f"suites.scan_offload.{path.stem}")


CHECKS = [
    pytest.param(check, id=name)
    for module in _modules()
    for name, check in vars(module).items()
    if isinstance(check, Check)
]


class Seen:
    """Evidence of the suite's variants, each observed once."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._seen: dict[tuple[str, str, str], Evidence] = {}

    def case(self, check: Check, workload: Workload, variant: str, target: str) -> Case:
        names = (variant, *check.claim.needs(workload.variant(variant)))
        evidence = {name: self._of(workload, name, target) for name in names}
        return Case(
            workload=workload,
            variant=workload.variant(variant),
            evidence=evidence[variant],
            others=evidence,
        )

    def _of(self, workload: Workload, variant: str, target: str) -> Evidence:
        key = (workload.name, variant, target)
        if key not in self._seen:
            self._seen[key] = self._observer.observe(workload, workload.variant(variant), target)
        return self._seen[key]


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    names = [TargetName.parse(target) for target in TARGETS]
    with Observer(names, timeout_seconds=600) as observer:
        yield Seen(observer)


def _workload_on(target: str) -> Workload:
    return EXECUTED if target == "cpu:8" else BLOCK


# A claim held against a baseline is put to its negative control in tests/run.
JUDGED = [
    pytest.param(check, control, target, id=f"{parameter.id}-{control}-{target}")
    for parameter in CHECKS
    for target in TARGETS
    if isinstance(check := parameter.values[0], Check)
    and not check.claim.uses_baseline
    and _workload_on(target) in check.workloads
    for control in check.negative_controls
]


def test_there_are_checks_to_be_sound() -> None:
    assert len(CHECKS) >= 9


@pytest.mark.parametrize("check", CHECKS)
def test_every_check_has_a_control_in_all_its_workloads(check: Check) -> None:
    assert check.negative_controls
    for workload in check.workloads:
        assert all(workload.variant(control) for control in check.negative_controls)


@pytest.mark.exhaustive
@pytest.mark.xdist_group("observed")
@pytest.mark.parametrize(("check", "control", "target"), JUDGED)
def test_the_control_fails_its_claim(check: Check, control: str, target: str, seen: Seen) -> None:
    case = seen.case(check, _workload_on(target), control, target)
    finding = judge_negative_control(check.claim, case)
    assert finding.outcome is Outcome.PASSED, finding.reason


@pytest.mark.exhaustive
@pytest.mark.xdist_group("observed")
@pytest.mark.parametrize("target", ["gpu-h100:8", "tpu-v5p:2x2x2"])
def test_swapping_the_name_from_input_to_output_turns_exactly_the_right_claims_red(
    target: str, seen: Seen
) -> None:
    red: dict[str, set[str]] = {"offload-residual-input": set(), "offload-residual-output": set()}
    for parameter in CHECKS:
        check = parameter.values[0]
        assert isinstance(check, Check)
        if BLOCK not in check.workloads or check.claim.uses_baseline:
            continue
        for variant, names in red.items():
            if check.covers(variant):
                finding = judge(check.claim, seen.case(check, BLOCK, variant, target))
                assert finding.outcome in (Outcome.PASSED, Outcome.FAILED), finding.reason
                if finding.outcome is Outcome.FAILED:
                    names.add(check.claim.name)
    assert red == {
        "offload-residual-input": set(),
        "offload-residual-output": {
            "host-bytes",
            "device-bytes-fall",
            "to-host-bytes",
            "to-device-bytes",
            "residuals-on-host",
        },
    }


def test_the_upstream_report_moves_sixteen_gibibytes_a_device() -> None:
    full = next(workload for workload in COMPILED if workload.name == "block-full")
    assert isinstance(full, BlockWorkload)
    assert full.block.activation_elements("hidden") * 4 / 8 == 16 * 2**30
    assert full.block.activation_elements("residual") * 4 / 8 == 16 * 2**30


def test_hidden_and_residual_can_be_told_apart_by_size_where_they_are_small() -> None:
    for workload in (*EXECUTED_WORKLOADS, BLOCK):
        assert isinstance(workload, BlockWorkload)
        assert workload.block.activation_elements("hidden") == (
            2 * workload.block.activation_elements("residual")
        )


def _claims() -> set[str]:
    checks = [parameter.values[0] for parameter in CHECKS]
    return {check.claim.name for check in checks if isinstance(check, Check)}


@pytest.mark.parametrize("defect", BLOCK.known_defects, ids=lambda defect: defect.reason[:40])
def test_a_known_defect_speaks_of_variants_claims_and_workloads_that_exist(
    defect: object,
) -> None:
    entry = next(known for known in BLOCK.known_defects if known is defect)
    variants = {variant.name for workload in WORKLOADS for variant in workload.variants}
    assert all(
        any(matches_any(variant, [pattern]) for variant in variants) for pattern in entry.variants
    )
    assert set(entry.expects) <= _claims()
    names = {workload.name for workload in WORKLOADS}
    assert all(any(matches_any(name, [w]) for name in names) for w in entry.workloads)
    assert entry.upstream.link.startswith("https://")


def test_a_known_defect_excuses_no_remedy() -> None:
    for workload in WORKLOADS:
        for variant in workload.variants:
            if variant.role is Role.REMEDY:
                assert not any(
                    matches_any(variant.name, defect.variants)
                    and matches_any(workload.name, defect.workloads)
                    for defect in workload.known_defects
                ), variant.name


def test_fewer_devices_have_the_same_budget_together() -> None:
    budget = Budget(each=100, devices=8)
    assert [budget.of(devices) for devices in (1, 2, 8, 16)] == [800, 400, 100, 100]


@pytest.mark.exhaustive
def test_memsafe_fits_the_small_block_on_one_gpu_and_the_plain_one_does_not() -> None:
    target, limit = "gpu-h100:1", SMALL_BUDGET.of(1)
    with Observer([TargetName.parse(target)], 300) as observer:
        needed = {
            name: observer.observe(BLOCK, BLOCK.variant(name), target).memory
            for name in ("memsafe", "nothing")
        }
    assert needed["memsafe"] is not None
    assert needed["nothing"] is not None
    assert needed["memsafe"].device_bytes <= limit < needed["nothing"].device_bytes
