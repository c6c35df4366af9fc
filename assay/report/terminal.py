"""A run on the terminal: result, what to act on, the state of each suite, and coverage."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import ceil

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from assay.model.invocation import USUAL, Ending, Invocation
from assay.model.rerun import Rerun
from assay.model.timing import Times
from assay.model.verdict import ExitCode, Outcome, Record
from assay.report.explanation import Cause, Entry, causes, explain, suite_statuses
from assay.report.labels import (
    DASH,
    LABELS,
    closing_sentence,
    counts,
    coverage_lines,
    headline,
    plain,
    result,
)
from assay.report.tables import (
    RERUNS_HEAD,
    TIMES_HEAD,
    Cell,
    Grid,
    Row,
    grid,
    rerun_lines,
    short_names,
    time_rows,
)

_NOT_TRIED = "·"
_MORE = "For every variant, known defect and reason, use -v or read summary.md."

Styled = str | tuple[str, str]
"""A text, or a text with its style."""


class Page:
    """Lines on a console, no wider than ``width`` and without trailing spaces.

    No text can contain markup or control the terminal.
    """

    def __init__(self, console: Console, most: int | None = None) -> None:
        self._console = console
        self.width = min(console.width, most or console.width)

    def line(self, text: Text | str = "") -> None:
        """Write one line, however long."""
        text = Text.assemble(text)
        text.rstrip()
        self._console.print(text, soft_wrap=True, highlight=False)

    def text(self, *parts: Styled, first: str = "", indent: int = 0, wrap: bool = True) -> None:
        """Write one paragraph: ``first``, then the parts; ``indent`` is that of the other lines."""
        text = styled(*parts)
        start = Text(first, style="dim")
        for line in text.wrap(self._console, max(1, self.width - indent)) if wrap else [text]:
            self.line(Text.assemble(start, line))
            start = Text(" " * indent)

    def entry(self, entry: Entry) -> None:
        """Write a cause or a suite."""
        styles = (LABELS[entry.verdict].style, "bold") if entry.verdict else ("bold", "")
        self.text((entry.name, styles[0]), "  ", (entry.text, styles[1]), indent=2)
        for detail in entry.details:
            label = f"  {detail.label:10}"
            self.text(detail.text, first=label, indent=len(label), wrap=not detail.verbatim)

    def lines_of(self, table: Table, indent: int = 0) -> Iterator[Text]:
        """The lines of a table, one for each row; the widest columns are shortened to fit."""
        options = self._console.options.update(width=self.width - indent)
        for line in self._console.render_lines(table, options, pad=False):
            yield Text.assemble(" " * indent, *((part.text, part.style or "") for part in line))

    def fits(self, table: Table) -> bool:
        """Whether no column of the table has to be shortened."""
        options = self._console.options.update(width=10 * self.width)
        return Measurement.get(self._console, options, table).maximum <= self.width


def styled(*parts: Styled) -> Text:
    """The parts as one text."""
    pairs = ((part, "") if isinstance(part, str) else part for part in parts)
    return Text.assemble(*((plain(text), style) for text, style in pairs))


def table_of(
    heads: Iterable[str],
    rows: Iterable[Iterable[Styled]],
    *,
    numbers: int = 0,
    gap: int = 2,
    shorten: bool = True,
) -> Table:
    """A table; the first ``numbers`` columns are aligned to the right.

    Texts that do not fit are shortened, so that each row is one line, or else wrapped.
    """

    def cell(part: Styled) -> Text:
        text = styled(part)
        text.no_wrap, text.overflow = shorten, "ellipsis" if shorten else "fold"
        return text

    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for number, head in enumerate(heads):
        table.add_column(cell(head), justify="right" if number < numbers else "left")
    for row in rows:
        table.add_row(*map(cell, row))
    return table


def print_run(
    console: Console,
    records: Iterable[Record],
    times: Iterable[Times] = (),
    reruns: Iterable[Rerun] = (),
    invocation: Invocation = USUAL,
    *,
    verbose: bool = False,
) -> None:
    """Write the report; readable without colour, and no wider than the console.

    ``verbose`` adds the grid of all variants and every cause. Only commands and links, which a
    reader copies, can be wider.
    """
    page, seen, ending = Page(console), tuple(records), invocation.ending
    style = "bold red" if ending.code(seen).value else "bold green"
    urgent, others = _causes(seen, ending)
    page.text((_opening(seen, ending, urgent), style))
    page.text((headline(seen), "dim"))
    _print_causes(page, urgent, invocation)
    page.line()
    for status in suite_statuses(seen, invocation.upstream_issues):
        page.entry(status)
    if verbose:
        print_grid(console, grid(seen))
        _print_causes(page, others, invocation)
    _print_times(page, tuple(time_rows(times)))
    _print_reruns(page, tuple(rerun_lines(reruns)))
    page.line()
    if others and not verbose:
        page.text(_MORE)
    for line in coverage_lines(ending):
        page.text(line)
    page.text((closing_sentence(seen, ending), style))


def _opening(records: Sequence[Record], ending: Ending, urgent: Iterable[Cause]) -> str:
    """Whether anything regressed, and what."""
    words = result(records, ending)
    concerned = counts(record for cause in urgent for record in cause.records)
    if concerned:
        return f"{words}: {', '.join(concerned.values())}."
    passed = ending.code(records) is ExitCode.PASSED
    return f"{words}; no action is needed." if passed else f"{words}."


def _causes(records: Sequence[Record], ending: Ending) -> tuple[list[Cause], list[Cause]]:
    """The causes that require an action, and the others.

    What could not be judged requires one if the run fails and no verdict says why.
    """
    fails = any(record.verdict.fails for record in records)
    unexplained = ending.code(records) is ExitCode.FAILED and not fails
    urgent: list[Cause] = []
    others: list[Cause] = []
    for cause in causes(records):
        acted_on = cause.stands_alone or (unexplained and not cause.verdict.judged)
        (urgent if acted_on else others).append(cause)
    return urgent, others


def _print_causes(page: Page, found: Iterable[Cause], invocation: Invocation) -> None:
    for cause in found:
        page.line()
        page.entry(explain(cause, invocation.command))


def print_grid(console: Console, shown: Grid) -> None:
    """Write the grid, in as few even parts as fit the width, and a legend."""
    page = Page(console)
    for table in _parts(shown, page):
        page.line()
        head, *rows = page.lines_of(table)
        page.line(head)
        for (suite, workload), group in groupby(
            zip(shown.rows, rows, strict=True), key=lambda pair: pair[0][:2]
        ):
            page.text((f"{suite} / {workload}", "bold"))
            for _, line in group:
                page.line(line)
    page.line()
    for parts in _legend(shown):
        page.text(*parts)


def _parts(shown: Grid, page: Page) -> list[Table]:
    """The grid in the fewest even parts that fit; a single column is shown however wide it is."""
    heads = short_names(shown.targets)

    def row_of(row: Row, targets: Sequence[str]) -> list[Styled]:
        return [f"  {row.variant}", *(_cell(shown.cells.get((row, name))) for name in targets)]

    def part(targets: Sequence[str]) -> Table:
        rows = (row_of(row, targets) for row in shown.rows)
        return table_of(["", *(heads[name] for name in targets)], rows, gap=1)

    total = len(shown.targets)
    for number in range(1, total + 1):
        size = ceil(total / number)
        parts = [part(shown.targets[start : start + size]) for start in range(0, total, size)]
        if size == 1 or all(map(page.fits, parts)):
            return parts
    return []


def _cell(cell: Cell | None) -> Styled:
    if cell is None:
        return _NOT_TRIED, "dim"
    label = LABELS[cell.verdict]
    return (f"{cell.passed}/{cell.measurable}" if cell.partly_measured else label.text), label.style


def _legend(shown: Grid) -> Iterator[tuple[Styled, str]]:
    verdicts = {cell.verdict for cell in shown.cells.values()}
    for outcome, label in LABELS.items():
        if outcome in verdicts:
            means = "all that could be judged" if outcome is Outcome.PASSED else label.meaning
            yield (label.text, label.style), f" {means}"
    if any(cell.partly_measured for cell in shown.cells.values()):
        yield ("3/5", LABELS[Outcome.PASSED].style), " passed, the other 2 inconclusive"
    if len(shown.cells) < len(shown.rows) * len(shown.targets):
        yield (_NOT_TRIED, "dim"), " not tried"


def _print_times(page: Page, rows: Sequence[Sequence[str]]) -> None:
    """Write a table of the times; a column without any number is left out."""
    if not rows:
        return
    columns = [
        column for column in zip(TIMES_HEAD, *rows, strict=True) if set(column[1:]) != {DASH}
    ]
    heads, *shown = zip(*columns, strict=True)
    page.line()
    for line in page.lines_of(table_of(heads, shown, shorten=False)):
        page.line(line)


def _print_reruns(page: Page, lines: Sequence[str]) -> None:
    if lines:
        page.line()
        page.text((RERUNS_HEAD, "bold"))
    for line in lines:
        page.text(line)
