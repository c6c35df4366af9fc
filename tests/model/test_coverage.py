"""Expected verdicts by level, suite, target and claim; a gap is told once for each place."""

from assay.model.coverage import Coverage, Gap, Reached, Slot, gaps
from assay.model.workload import Level


def slot(claim: str = "compiles", suite: str = "mine", target: str = "cpu:8") -> Slot:
    return Slot("jax", suite, target, claim)


def reached(counts: dict[Slot, int], judged: set[Slot] | None = None) -> Reached:
    return Reached(
        counts=counts,
        judged=set(counts) if judged is None else judged,
        reasons=dict.fromkeys(counts, "no compiler"),
        suites={"mine"},
        targets=("cpu:8",),
        folders={"mine": "suites/mine"},
    )


BOTH = Coverage(
    counts={Level.QUICK: {slot(): 2}, Level.FULL: {slot(): 5, slot("temp-bytes"): 1}},
    folders={"mine": "suites/mine"},
)


def test_a_level_expects_the_counts_of_the_highest_one_up_to_it() -> None:
    assert BOTH.at(Level.QUICK) == {slot(): 2}
    assert BOTH.at(Level.DEVICE) == {slot(): 5, slot("temp-bytes"): 1}
    assert Coverage(counts={Level.FULL: {slot(): 5}}).at(Level.QUICK) == {}


def test_as_many_as_expected_is_no_gap_and_more_is_none_either() -> None:
    for count in (2, 3):
        assert not list(gaps({slot(): 2}, reached({slot(): count})))


def test_one_verdict_too_few_is_a_gap() -> None:
    (gap,) = gaps({slot(): 2, slot("temp-bytes"): 1}, reached({slot(): 1, slot("temp-bytes"): 1}))
    assert gap == Gap("jax", "mine", "cpu:8", 3, 2, "", ("compiles",))


def test_verdicts_that_judge_nothing_are_a_gap() -> None:
    (gap,) = gaps({slot(): 2}, reached({slot(): 2}, judged=set()))
    assert (gap.reached, gap.reason) == (2, "no compiler")


def test_nothing_at_all_is_a_gap_on_each_target() -> None:
    expected = {slot(): 2, slot(target="tpu-v4"): 2}
    assert [gap.target for gap in gaps(expected, reached({}))] == ["cpu:8", "tpu-v4"]


def test_new_never_lowers_a_count_and_all_does() -> None:
    fewer = reached({slot(): 1, slot("new"): 4})
    new = BOTH.recording(fewer, level=Level.QUICK, replaces=False)
    assert new.counts[Level.QUICK] == {slot(): 2, slot("new"): 4}
    every = BOTH.recording(fewer, level=Level.QUICK, replaces=True)
    assert every.counts[Level.QUICK] == {slot(): 1, slot("new"): 4}
    assert every.counts[Level.FULL] == BOTH.counts[Level.FULL]


def test_all_leaves_other_suites_and_targets_as_they_are() -> None:
    other = {slot(suite="other"): 1, slot(target="tpu-v4"): 3}
    before = Coverage(
        counts={Level.QUICK: {slot(): 2, **other}}, folders={"other": "o", "mine": "m"}
    )
    after = before.recording(reached({}), level=Level.QUICK, replaces=True)
    assert after.counts == {Level.QUICK: other}
    gone = BOTH.recording(reached({}), level=Level.QUICK, replaces=True)
    assert set(gone.counts) == {Level.FULL}
