"""A workload is checked when it is written, and says where each variant is tried."""

from collections.abc import Sequence
from typing import Any

import pytest

from assay.model.claim import Case, Check, MeasurementMissing
from assay.model.evidence import Evidence, Toolchain
from assay.model.workload import Level, Program, Role, Scope, Variant, Workload, matches_any


def _program(devices: Sequence[Any]) -> Program:
    raise AssertionError(devices)


def variant(name: str, role: Role = Role.POLICY, reference: str = "") -> Variant:
    return Variant(name=name, role=role, program=_program, reference=reference)


def workload(*variants: Variant, **fields: Any) -> Workload:
    return Workload(suite="suite", name="stack", variants=variants, **fields)


def test_two_variants_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"several variants named \['a'\]"):
        workload(variant("a"), variant("b"), variant("a"))


def test_a_reference_to_no_variant_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got references to \['b'\], wanted one of \['a'\]"):
        workload(variant("a", reference="b"))


def test_a_variant_is_found_by_its_name() -> None:
    second = variant("b")
    assert workload(variant("a"), second).variant("b") is second


def test_an_unknown_variant_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(LookupError, match="got variant 'c', wanted one of a, b"):
        workload(variant("a"), variant("b")).variant("c")


def test_a_workload_is_tried_everywhere_unless_it_says_where() -> None:
    assert workload(variant("a")).tries(variant("a"), "tpu-v5e:2x4", Level.QUICK)


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
def test_a_scope_holds_for_its_variants_and_targets_from_its_level_on(
    *, name: str, target: str, level: Level, tried: bool
) -> None:
    scope = Scope(level=Level.FULL, targets=("gpu*",), variants=("offload-*",))
    assert workload(variant(name), scopes=(scope,)).tries(variant(name), target, level) is tried


def test_any_scope_suffices_and_none_tries_nothing() -> None:
    scopes = (Scope(level=Level.SOAK, targets=("*",)), Scope(level=Level.QUICK, targets=("cpu",)))
    assert workload(variant("a"), scopes=scopes).tries(variant("a"), "cpu", Level.QUICK)
    assert not workload(variant("a"), scopes=()).tries(variant("a"), "cpu", Level.SOAK)


def test_a_control_is_never_tried_by_itself() -> None:
    negative_control = variant("negative_control", Role.NEGATIVE_CONTROL)
    assert not workload(negative_control).tries(negative_control, "cpu", Level.SOAK)


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


def test_a_case_without_the_other_variant_says_how_to_get_it() -> None:
    mine = Evidence(workload="stack", variant="a", target="cpu", toolchain=Toolchain(versions={}))
    case = Case(
        workload=workload(variant("a")), variant=variant("a"), evidence=mine, others={"b": mine}
    )
    assert case.other("b") is mine
    with pytest.raises(MeasurementMissing, match=r"list it in the claim's needs\(\)"):
        case.other("c")


def test_a_check_covers_the_variants_it_names_and_by_default_all() -> None:
    from assay.claims import Compiles

    some = Check(claim=Compiles(), workloads=(), variants=("offload-*",))
    assert some.covers("offload-a")
    assert not some.covers("save-a")
    assert Check(claim=Compiles(), workloads=()).covers("anything")
