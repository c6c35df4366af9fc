"""A known defect names workloads, variants, claims, targets and toolchains, and no others."""

from dataclasses import replace

import pytest

from assay.judge.case import known_defects
from assay.model.claim import Case
from assay.model.defect import Expected, Fails, KnownDefect, Measures, Upstream, exactly
from assay.model.evidence import Evidence, Failure, FailureKind, Toolchain
from assay.model.units import Quantity, Unit
from assay.model.workload import Program, Role, Variant, Workload

DEFECT = KnownDefect(
    variants=("offload-*", "nested"),
    expects={"host-bytes": exactly(0)},
    targets=("gpu*", "tpu-v5?:*"),
    workloads=("block*",),
    toolchain={"jaxlib": ">=0.10,<0.12"},
    reason="it is dropped",
    upstream=Upstream(link="https://example.org/1"),
    last_seen="2026-11-20",
)


def found(
    *defects: KnownDefect,
    workload: str = "block-full",
    variant: str = "offload-hidden",
    claim: str = "host-bytes",
    target: str = "gpu-h100:8",
    jaxlib: str = "0.10.2",
) -> KnownDefect | None:
    seen = Variant(name=variant, role=Role.POLICY, program=lambda _: Program())
    evidence = Evidence(
        workload=workload,
        variant=variant,
        target=target,
        toolchain=Toolchain(versions={"jaxlib": jaxlib} if jaxlib else {}),
    )
    among = Workload(
        suite="suite", name=workload, variants=(seen,), known_defects=defects or (DEFECT,)
    )
    entries = known_defects(claim, Case(workload=among, variant=seen, evidence=evidence))
    return next(iter(entries), None)


def test_an_entry_that_matches_in_everything_is_found() -> None:
    assert found() is DEFECT


@pytest.mark.parametrize(
    ("variant", "speaks"),
    [("offload-", True), ("nested", True), ("nested-offload-x", False), ("OFFLOAD-x", False)],
)
def test_variant_patterns_match_the_whole_name(*, variant: str, speaks: bool) -> None:
    assert (found(variant=variant) is DEFECT) is speaks


def test_workload_patterns_match_the_whole_name() -> None:
    assert found(workload="flax-block") is None


def test_an_entry_that_names_no_workload_speaks_of_all() -> None:
    everywhere = KnownDefect(
        variants=DEFECT.variants,
        expects=DEFECT.expects,
        targets=DEFECT.targets,
        reason="",
        upstream=Upstream(link=""),
        last_seen="2026-11-20",
    )
    assert found(everywhere, workload="flax-block") is everywhere


@pytest.mark.parametrize("claim", ["host", "host-bytes-2", "to-host-bytes"])
def test_claim_patterns_match_the_whole_name(claim: str) -> None:
    assert found(claim=claim) is None


@pytest.mark.parametrize(
    ("target", "speaks"),
    [("gpu", True), ("tpu-v5e:2x4", True), ("tpu-v5e", False), ("tpu-v6e:2x4", False)],
)
def test_target_patterns_match_the_whole_name(*, target: str, speaks: bool) -> None:
    assert (found(target=target) is DEFECT) is speaks


@pytest.mark.parametrize(
    ("jaxlib", "speaks"),
    [
        ("0.9.2", False),
        ("0.10.0", True),
        ("0.11.9", True),
        ("0.12.0", False),
        ("0.11.0.dev20260701", True),
        ("", False),
    ],
)
def test_an_entry_ends_with_its_toolchains(*, jaxlib: str, speaks: bool) -> None:
    assert (found(jaxlib=jaxlib) is DEFECT) is speaks


def test_an_entry_without_a_range_holds_for_every_toolchain() -> None:
    always = replace(DEFECT, toolchain={})
    assert found(always, jaxlib="") is always


def test_the_first_of_two_entries_speaks() -> None:
    second = replace(DEFECT, reason="another")
    assert found(DEFECT, second) is DEFECT
    assert found(replace(DEFECT, variants=("none",)), second) is second


KILLED = Failure(kind=FailureKind.CRASH, message="the process ended by SIGKILL")
TOO_LARGE = Failure(kind=FailureKind.OUT_OF_MEMORY, message="17 GB", needed_bytes=17)


@pytest.mark.parametrize(
    ("way", "measured", "failure", "holds"),
    [
        (Measures(least=1, most=3), 1, None, True),
        (Measures(least=1, most=3), 3, None, True),
        (Measures(least=1, most=3), 4, None, False),
        (Measures(least=1, most=3), 0.5, None, False),
        (Measures(least=1), 10**9, None, True),
        (Measures(most=3), -5, None, True),
        (Measures(least=1, most=3), None, None, False),
        (Measures(least=1, most=3), 2, KILLED, False),
        (Measures(least=1, most=20), 17, TOO_LARGE, True),
        (Measures(), float("nan"), None, False),
        (Measures(), float("inf"), None, False),
        (exactly(2), 2, None, True),
        (exactly(2), 2.5, None, False),
        (exactly(lambda sizes: sizes * 2), 8, None, True),
        (exactly(lambda sizes: Quantity(sizes, Unit.BYTES)), 4, None, True),
        (Fails(kind=FailureKind.CRASH, message="SIGKILL"), None, KILLED, True),
        (Fails(kind=FailureKind.CRASH, message="SIGABRT"), None, KILLED, False),
        (Fails(kind=FailureKind.COMPILER, message="SIGKILL"), None, KILLED, False),
        (Fails(kind=FailureKind.CRASH, message="SIGKILL"), 1, None, False),
    ],
)
def test_what_is_expected_holds_for_nothing_else(
    *, way: Expected, measured: float | None, failure: Failure | None, holds: bool
) -> None:
    assert way.holds(measured, failure, 4) is holds


def test_a_fragment_that_every_message_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="wanted a part of the failure's message"):
        Fails(kind=FailureKind.CRASH, message=" ")


@pytest.mark.parametrize("expects", [{}, {"host-bytes": ()}])
def test_an_entry_that_expects_nothing_is_refused(expects: dict[str, Expected]) -> None:
    with pytest.raises(ValueError, match="expects nothing"):
        replace(DEFECT, expects=expects)


def test_a_pattern_of_claims_may_be_any_shell_pattern() -> None:
    some = replace(DEFECT, expects={"host-[br]*": exactly(1)})
    assert some.ways("host-rows") == (exactly(1),)
    assert some.ways("host-temp") == ()


def test_the_first_pattern_that_matches_a_claim_says_how_it_fails() -> None:
    both = replace(DEFECT, expects={"host-bytes": exactly(1), "host-*": (exactly(2), exactly(3))})
    assert both.ways("host-bytes") == (exactly(1),)
    assert both.ways("host-rows") == (exactly(2), exactly(3))
    assert both.ways("temp-bytes") == ()
