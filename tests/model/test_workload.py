"""A workload is checked when it is written, and says where each arm is tried."""

from collections.abc import Sequence
from typing import Any

import pytest

from assay.model.claim import Case, Check, MeasurementMissing
from assay.model.evidence import Evidence, Toolchain
from assay.model.workload import Arm, Level, Program, Role, Scope, Workload, matches_any


def _program(devices: Sequence[Any]) -> Program:
    raise AssertionError(devices)


def arm(name: str, role: Role = Role.POLICY, reference: str = "") -> Arm:
    return Arm(name=name, role=role, program=_program, reference=reference)


def workload(*arms: Arm, **fields: Any) -> Workload:
    return Workload(suite="suite", name="stack", arms=arms, **fields)


def test_two_arms_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"several arms named \['a'\]"):
        workload(arm("a"), arm("b"), arm("a"))


def test_a_reference_to_no_arm_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got references to \['b'\], wanted one of \['a'\]"):
        workload(arm("a", reference="b"))


def test_an_arm_is_found_by_its_name() -> None:
    second = arm("b")
    assert workload(arm("a"), second).arm("b") is second


def test_an_unknown_arm_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(LookupError, match="got arm 'c', wanted one of a, b"):
        workload(arm("a"), arm("b")).arm("c")


def test_a_workload_is_tried_everywhere_unless_it_says_where() -> None:
    assert workload(arm("a")).tries(arm("a"), "tpu-v5e:2x4", Level.QUICK)


@pytest.mark.parametrize(
    ("name", "target", "level", "tried"),
    [
        ("offload-a", "gpu-h100:8", Level.FULL, True),
        ("offload-a", "gpu-h100:8", Level.SOAK, True),
        ("offload-a", "gpu-h100:8", Level.QUICK, False),
        ("save-a", "gpu-h100:8", Level.FULL, False),
        ("offload-a", "tpu-v5e:2x4", Level.FULL, False),
    ],
)
def test_a_scope_holds_for_its_arms_and_targets_from_its_level_on(
    *, name: str, target: str, level: Level, tried: bool
) -> None:
    scope = Scope(level=Level.FULL, targets=("gpu*",), arms=("offload-*",))
    assert workload(arm(name), scopes=(scope,)).tries(arm(name), target, level) is tried


def test_any_scope_suffices_and_none_tries_nothing() -> None:
    scopes = (Scope(level=Level.SOAK, targets=("*",)), Scope(level=Level.QUICK, targets=("cpu",)))
    assert workload(arm("a"), scopes=scopes).tries(arm("a"), "cpu", Level.QUICK)
    assert not workload(arm("a"), scopes=()).tries(arm("a"), "cpu", Level.SOAK)


def test_a_twin_is_never_tried_by_itself() -> None:
    twin = arm("twin", Role.TWIN)
    assert not workload(twin).tries(twin, "cpu", Level.SOAK)


@pytest.mark.parametrize("level", list(Level))
def test_a_level_is_read_by_its_name_in_any_case(level: Level) -> None:
    assert Level.parse(level.name.lower()) is level is Level.parse(level.name)


def test_an_unknown_level_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(
        ValueError, match="got level 'deep', wanted one of quick, full, device, soak"
    ):
        Level.parse("deep")


def test_patterns_match_whole_names_and_case() -> None:
    assert matches_any("offload-a", ("save", "offload-?"))
    assert not matches_any("offload-a", ("offload", "OFFLOAD-A"))
    assert not matches_any("offload-a", ())


def test_a_case_without_the_other_arm_says_how_to_get_it() -> None:
    mine = Evidence(workload="stack", arm="a", target="cpu", toolchain=Toolchain(versions={}))
    case = Case(workload=workload(arm("a")), arm=arm("a"), evidence=mine, others={"b": mine})
    assert case.other("b") is mine
    with pytest.raises(MeasurementMissing, match=r"list it in the claim's needs\(\)"):
        case.other("c")


def test_a_check_covers_the_arms_it_names_and_by_default_all() -> None:
    from assay.claims import Compiles

    some = Check(claim=Compiles(), workloads=(), arms=("offload-*",))
    assert some.covers("offload-a")
    assert not some.covers("save-a")
    assert Check(claim=Compiles(), workloads=()).covers("anything")
