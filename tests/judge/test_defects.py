"""A known defect speaks of some workloads, arms, claims, targets and toolchains, and no others."""

from dataclasses import replace

import pytest

from assay.judge.defects import known_defect
from assay.model.workload import KnownDefect

DEFECT = KnownDefect(
    arms=("offload-*", "nested"),
    claims=("host-bytes",),
    targets=("gpu*", "tpu-v5?:*"),
    workloads=("block*",),
    toolchain={"jaxlib": ">=0.10,<0.12"},
    reason="it is dropped",
    upstream="https://example.org/1",
    last_seen="2026-11-20",
)


def found(
    *defects: KnownDefect,
    workload: str = "block-full",
    arm: str = "offload-hidden",
    claim: str = "host-bytes",
    target: str = "gpu-h100:8",
    jaxlib: str = "0.10.2",
) -> KnownDefect | None:
    versions = {"jaxlib": jaxlib} if jaxlib else {}
    return known_defect(
        defects or (DEFECT,),
        workload=workload,
        arm=arm,
        claim=claim,
        target=target,
        versions=versions,
    )


def test_an_entry_that_matches_in_everything_is_found() -> None:
    assert found() is DEFECT


@pytest.mark.parametrize(
    ("arm", "speaks"),
    [("offload-", True), ("nested", True), ("nested-offload-x", False), ("OFFLOAD-x", False)],
)
def test_arm_patterns_match_the_whole_name(*, arm: str, speaks: bool) -> None:
    assert (found(arm=arm) is DEFECT) is speaks


def test_workload_patterns_match_the_whole_name() -> None:
    assert found(workload="flax-block") is None


def test_an_entry_that_names_no_workload_speaks_of_all() -> None:
    everywhere = KnownDefect(
        arms=DEFECT.arms,
        claims=DEFECT.claims,
        targets=DEFECT.targets,
        reason="",
        upstream="",
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
    assert found(replace(DEFECT, arms=("none",)), second) is second
