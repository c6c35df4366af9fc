"""Expected verdicts by level, suite, target and claim; a gap is told once for each place."""

import pytest

from assay.model.verdict import Count, Coverage, Gap, Reached, Slot, gaps
from assay.model.workload import Level


def slot(claim: str = "compiles", suite: str = "mine", target: str = "cpu:8") -> Slot:
    return Slot("jax", suite, target, claim)


def all_judged(counts: dict[Slot, int]) -> dict[Slot, Count]:
    return {slot: Count(number, number) for slot, number in counts.items()}


def reached(counts: dict[Slot, Count], *, not_run: tuple[str, ...] = ()) -> Reached:
    return Reached(
        counts=counts,
        not_run=not_run,
        reasons={slot: "no compiler" for slot, count in counts.items() if count.judged == 0},
        suites={"mine"},
        targets=("cpu:8",),
        folders={"mine": "suites/mine"},
    )


BOTH = Coverage(
    counts={
        Level.QUICK: all_judged({slot(): 2}),
        Level.FULL: all_judged({slot(): 5, slot("temp-bytes"): 1}),
    },
    folders={"mine": "suites/mine"},
)


def test_a_level_expects_the_counts_of_the_highest_one_up_to_it() -> None:
    assert BOTH.at(Level.QUICK) == BOTH.counts[Level.QUICK]
    assert BOTH.at(Level.DEVICE) == BOTH.counts[Level.FULL]
    assert Coverage(counts={Level.FULL: all_judged({slot(): 5})}).at(Level.QUICK) == {}


@pytest.mark.parametrize("found", [Count(2, 1), Count(2, 2), Count(3, 1)])
def test_as_many_as_expected_is_no_gap_and_more_is_none_either(found: Count) -> None:
    assert not list(gaps({slot(): Count(2, 1)}, reached({slot(): found})))


@pytest.mark.parametrize("found", [Count(1, 1), Count(2, 1)])
def test_one_verdict_too_few_is_a_gap_and_one_that_judges_nothing_too(found: Count) -> None:
    expected = all_judged({slot(): 2, slot("temp-bytes"): 1})
    (gap,) = gaps(expected, reached({**expected, slot(): found}))
    assert gap == Gap("jax", "mine", "cpu:8", 3, 2, "", ("compiles",))


def test_a_gap_says_why_a_verdict_judged_nothing() -> None:
    (gap,) = gaps(all_judged({slot(): 2}), reached({slot(): Count(2, 0)}))
    assert (gap.judged, gap.reason) == (0, "no compiler")


def test_what_another_claim_says_is_not_the_reason() -> None:
    found = reached({slot("other"): Count(2, 0)})
    (gap,) = gaps({slot(): Count(1, 1), slot("other"): Count(2, 0)}, found)
    assert (gap.reason, gap.claims) == ("", ("compiles",))


def test_nothing_at_all_is_a_gap_on_each_target() -> None:
    expected = all_judged({slot(): 2, slot(target="tpu-v4"): 2})
    assert [gap.target for gap in gaps(expected, reached({}))] == ["cpu:8", "tpu-v4"]


def test_new_never_lowers_a_count_and_all_does() -> None:
    fewer = reached({slot(): Count(1, 0), slot("new"): Count(4, 3)})
    new = BOTH.recording(fewer, level=Level.QUICK, replaces=False)
    assert new.counts[Level.QUICK] == {slot(): Count(2, 2), slot("new"): Count(4, 3)}
    every = BOTH.recording(fewer, level=Level.QUICK, replaces=True)
    assert every.counts[Level.QUICK] == fewer.counts
    assert every.counts[Level.FULL] == BOTH.counts[Level.FULL]


@pytest.mark.parametrize(("collected", "judged"), [(6, 4), (5, 3), (1, 0)])
def test_what_is_only_collected_keeps_how_many_judge_nothing(collected: int, judged: int) -> None:
    before = Coverage(counts={Level.QUICK: {slot(): Count(5, 3)}}, folders={"mine": "m"})
    found = reached(all_judged({slot(): collected, slot("new"): 2}), not_run=("jax",))
    after = before.recording(found, level=Level.QUICK, replaces=True)
    assert after.counts[Level.QUICK] == {slot(): Count(collected, judged), slot("new"): Count(2, 2)}


def test_all_leaves_other_suites_and_targets_as_they_are() -> None:
    other = all_judged({slot(suite="other"): 1, slot(target="tpu-v4"): 3})
    before = Coverage(
        counts={Level.QUICK: {slot(): Count(2, 2), **other}}, folders={"other": "o", "mine": "m"}
    )
    after = before.recording(reached({}), level=Level.QUICK, replaces=True)
    assert after.counts == {Level.QUICK: other}
    gone = BOTH.recording(reached({}), level=Level.QUICK, replaces=True)
    assert set(gone.counts) == {Level.FULL}
