"""Tallies: counts differ or they do not, and the lines that account for it are named."""

from assay.judge.differences.counts import Item, count_differences
from assay.model.inspection import Aspect, Difference


def items(*sources: str | None, nbytes: int | None = 8) -> list[Item]:
    return [Item(subject="copy", nbytes=nbytes, source=source) for source in sources]


def differences(before: list[Item], after: list[Item]) -> list[Difference]:
    return list(count_differences(Aspect.OPERATION, before, after))


def only(before: list[Item], after: list[Item]) -> Difference:
    (difference,) = differences(before, after)
    return difference


def test_equal_counts_are_no_change_wherever_the_lines_went() -> None:
    assert differences(items("a:1", "a:2"), items("a:5", "a:6")) == []


def test_a_surplus_names_its_own_lines() -> None:
    assert only(items("a:1"), items("a:1", "a:2")).source == "a:2"
    assert only(items("a:1", "a:2"), items("a:2")).source == "a:1"
    assert only(items("a:1"), items("a:1", "a:1")).source == "a:1"


def test_a_surplus_of_many_lines_names_the_first() -> None:
    four, five = items(*(f"a:{k}" for k in range(4))), items(*(f"a:{k}" for k in range(5)))
    assert only([], four).source == "a:0, a:1, a:2, 1 more line"
    assert only([], five).source == "a:0, a:1, a:2, 2 more lines"


def test_lines_that_all_moved_are_alternatives() -> None:
    assert only(items("a:1"), items("a:4", "a:5")).source == "a:4 or a:5"


def test_bytes_of_which_some_are_unknown_are_unknown() -> None:
    assert only([], items(None, None)).nbytes == 16
    assert only([], [*items(None), *items(None, nbytes=None)]).nbytes is None
    assert only(items(None, None, nbytes=None), items(None)).nbytes is None


def test_a_difference_has_both_counts() -> None:
    found = only(items("a:1", "a:2", "a:3"), items("a:1"))
    assert (found.before, found.after) == (3, 1)


def test_a_key_tells_kinds_apart_that_have_the_same_words() -> None:
    before, after = [Item(subject="copy of 1 MiB", key=2**20)], [Item(subject="copy of 1 MiB")]
    assert [(each.before, each.after) for each in differences(before, after)] == [(1, 0), (0, 1)]
