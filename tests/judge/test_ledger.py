"""The ranges of known defects are compared with verdicts of several releases."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from assay.judge.case import judge_variant
from assay.judge.ledger import Judged, check_ranges, with_advice
from assay.model.claim import Case, Check, Claim, Trial
from assay.model.defect import KnownDefect, Measures, Upstream
from assay.model.evidence import Evidence, Memory, Toolchain
from assay.model.matrix import LedgerNote
from assay.model.units import Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Program, Role, Variant, Workload

RELEASES = ("0.8.0", "0.9.2", "0.10.2", "0.12.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoTemporaries(Claim):
    name: str = "no-temporaries"

    @property
    def unit(self) -> Unit:
        return Unit.BYTES

    def judge(self, case: Case) -> Finding:
        assert case.evidence.memory
        seen = case.evidence.memory.temp_bytes
        outcome = Outcome.FAILED if seen else Outcome.PASSED
        return Finding(outcome=outcome, measured=seen, limit=0, reason=f"{seen} bytes")


ENTRY = KnownDefect(
    variants=("slow",),
    expects={"no-temporaries": Measures(least=2, most=2)},
    targets=("cpu*",),
    reason="it copies",
    upstream=Upstream(link="https://example.org/1"),
    last_seen="2026-11-20",
)


def judged(
    temp_bytes: Mapping[str, int], *entries: KnownDefect, variant: str = "slow"
) -> list[Judged]:
    """The verdicts on a program that needs so many temporaries on each release."""
    slow = Variant(name=variant, role=Role.DEFECT, program=lambda _: Program())
    workload = Workload(suite="s", name="w", variants=(slow,), known_defects=entries)
    claim = NoTemporaries()
    check = Check(claim=claim, workloads=(workload,))
    trial = Trial(check=check, workload=workload, variant=slow, target="cpu:8")
    found = []
    for release, needed in temp_bytes.items():
        memory = Memory(
            temp_bytes=needed, argument_bytes=0, output_bytes=0, alias_bytes=0, host_temp_bytes=0
        )
        toolchain = Toolchain(versions={"jax": release, "jaxlib": release})
        evidence = Evidence(
            workload="w", variant=variant, target="cpu:8", toolchain=toolchain, memory=memory
        )
        case = Case(workload=workload, variant=slow, evidence=evidence)
        finding, entry = judge_variant(claim, case)
        found.append(Judged(release=release, trial=trial, case=case, finding=finding, entry=entry))
    return found


def on(*needed: int) -> dict[str, int]:
    return dict(zip(RELEASES, needed, strict=True))


def note(needed: dict[str, int], toolchain: dict[str, str]) -> LedgerNote | None:
    notes = check_ranges(judged(needed, replace(ENTRY, toolchain=toolchain)))
    return next(iter(notes), None)


@pytest.mark.parametrize(
    ("needed", "toolchain"),
    [
        (on(2, 2, 2, 2), {}),
        (on(2, 2, 2, 0), {"jaxlib": "<0.12"}),
        (on(0, 0, 2, 2), {"jaxlib": ">=0.10"}),
        (on(0, 0, 0, 0), {"jaxlib": ">=0.13"}),
    ],
)
def test_a_range_that_the_verdicts_confirm_has_no_note(
    needed: dict[str, int], toolchain: dict[str, str]
) -> None:
    assert note(needed, toolchain) is None


@pytest.mark.parametrize(
    ("needed", "toolchain", "ranges"),
    [
        # It passes on a release that is listed.
        (on(2, 2, 2, 0), {}, ("<0.12.0",)),
        (on(2, 2, 0, 0), {"jaxlib": "<0.12"}, ("<0.10.2",)),
        (on(0, 2, 2, 0), {"jaxlib": "<0.12"}, (">=0.9.2,<0.12",)),
        # It fails as expected on a release that is not listed.
        (on(2, 2, 2, 2), {"jaxlib": "<0.12"}, ("",)),
        (on(0, 2, 2, 2), {"jaxlib": ">=0.10"}, (">=0.9.2",)),
        # It fails in another way on a release that is listed.
        (on(1, 1, 2, 2), {}, (">=0.10.2",)),
        # It is gone in between.
        (on(2, 0, 2, 0), {"jaxlib": "<0.12"}, ("<0.9.2", ">=0.10.2,<0.12")),
        # Nowhere: no range can be written.
        (on(0, 0, 0, 0), {"jaxlib": "<0.9"}, ()),
    ],
)
def test_the_range_to_write_is_that_of_the_verdicts(
    needed: dict[str, int], toolchain: dict[str, str], ranges: tuple[str, ...]
) -> None:
    found = note(needed, toolchain)
    assert found is not None
    assert (found.package, found.ranges) == ("jaxlib" if ranges else "jax", ranges)


def test_a_note_says_where_it_holds_and_what_to_write() -> None:
    found = note(on(1, 2, 2, 0), {"jaxlib": "<0.12"})
    assert found is not None
    assert found.sentence == (
        "known defect of slow holds on 0.9.2–0.10.2, passes on 0.12.0, fails in another way on "
        "0.8.0; listed for jaxlib <0.12; write toolchain={'jaxlib': '>=0.9.2,<0.12'}"
    )


def test_two_entries_that_share_the_releases_have_a_note_each() -> None:
    first = replace(ENTRY, toolchain={"jaxlib": "<0.12"})
    second = replace(
        ENTRY,
        toolchain={"jaxlib": ">=0.12"},
        expects={"no-temporaries": Measures(least=1, most=1)},
    )
    notes = check_ranges(judged(on(1, 2, 2, 1), first, second))
    assert [each.ranges for each in notes] == [(">=0.9.2,<0.12",), ("<0.9.2", ">=0.12")]
    assert check_ranges(judged(on(2, 2, 2, 1), first, second)) == ()


def test_failing_verdicts_name_the_entry_and_the_range() -> None:
    rows = judged(on(2, 2, 0, 2), replace(ENTRY, toolchain={"jaxlib": "<0.12"}))
    advised = with_advice(rows, check_ranges(rows))
    assert [each.finding.outcome for each in advised] == [
        Outcome.KNOWN_DEFECT,
        Outcome.KNOWN_DEFECT,
        Outcome.FIXED_UPSTREAM,
        Outcome.FAILED,
    ]
    for each in advised[2:]:
        assert "listed for jaxlib <0.12; write toolchain=" in each.finding.advice
    assert "write toolchain" not in advised[0].finding.advice


def test_a_formula_of_another_size_is_no_match() -> None:
    def raises(_case: Case) -> int:
        raise KeyError("no such size")

    entry = replace(
        ENTRY,
        toolchain={"jaxlib": ">=9"},
        expects={"no-temporaries": Measures(least=raises)},
    )
    assert check_ranges(judged(on(2, 2, 2, 2), entry)) == ()
