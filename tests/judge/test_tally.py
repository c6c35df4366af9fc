"""Tallies: counts differ or they do not, and the lines that account for it are named."""

from assay.judge.differences.operations import Change, Item, changes


def items(*sources: str | None, nbytes: int | None = 8) -> list[Item[str]]:
    return [Item(kind="copy", nbytes=nbytes, source=source) for source in sources]


def only(before: list[Item[str]], after: list[Item[str]]) -> Change[str]:
    (change,) = changes(before, after)
    return change


def test_equal_counts_are_no_change_wherever_the_lines_went() -> None:
    assert list(changes(items("a:1", "a:2"), items("a:5", "a:6"))) == []


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


def test_a_change_counts_what_was_gained() -> None:
    assert only(items("a:1", "a:2", "a:3"), items("a:1")).gained == -2
