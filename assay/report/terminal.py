"""A report on the terminal: paragraphs, entries and tables, no wider than the console."""

from collections.abc import Iterable, Sequence
from math import ceil

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from assay.model.history import Trend
from assay.model.rerun import Rerun
from assay.model.timing import Times
from assay.model.verdict import USUAL, Invocation, Record
from assay.report.causes import Entry
from assay.report.document import Table as Cells
from assay.report.document import document
from assay.report.labels import DASH, LABELS, Styled, plain

_INDENT = "  "


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

    def table(self, table: Table) -> None:
        """Write a table, its widest columns narrowed to fit."""
        options = self._console.options.update(width=self.width - len(_INDENT))
        for line in self._console.render_lines(table, options, pad=False):
            parts = ((part.text, part.style or "") for part in line)
            self.line(Text.assemble(_INDENT, *parts))

    def fits(self, table: Table) -> bool:
        """Whether no column of the table has to be shortened."""
        options = self._console.options.update(width=10 * self.width)
        return Measurement.get(self._console, options, table).maximum <= self.width - len(_INDENT)


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

    Texts that do not fit are wrapped, or with ``shorten`` cut off, so that each row is one line.
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
    history: Sequence[Trend] = (),
    *,
    verbose: bool = False,
) -> None:
    """Write the report; readable without colour, and no wider than the console.

    ``verbose`` adds the verdict of each variant on each target, and every cause. Only commands and
    links, which a reader copies, can be wider.
    """
    page = Page(console)
    sections = document(records, times, reruns, invocation, history, everything=verbose)
    for number, section in enumerate(sections):
        if number:
            page.line()
        if section.title and not section.entries:
            page.text((section.title, "bold"))
        for index, entry in enumerate(section.entries):
            if entry.verdict and index:
                page.line()
            page.entry(entry)
        if section.table:
            _print_table(section.table, page)
        for line in section.lines:
            page.text(line)


def _print_table(table: Cells, page: Page) -> None:
    """Write it in parts if it has short heads; else whole, or a paragraph per row if too wide."""
    whole = table_of(table.heads, table.rows, shorten=False)
    if table.short_heads:
        for part in _parts(table, page):
            page.table(part)
    elif page.fits(whole):
        page.table(whole)
    else:
        for name, *cells in table.rows:
            pairs = zip(table.heads[1:], cells, strict=True)
            numbers = ", ".join(f"{head} {cell}" for head, cell in pairs if cell != DASH)
            page.text(name, f": {numbers}", indent=2)


def _parts(table: Cells, page: Page) -> list[Table]:
    """The table in the fewest even parts that fit; one column is shown however wide it is."""
    names, *columns = zip(table.short_heads, *table.rows, strict=True)
    for number in range(1, len(columns) + 1):
        size = ceil(len(columns) / number)
        parts = []
        for start in range(0, len(columns), size):
            heads, *rows = zip(names, *columns[start : start + size], strict=True)
            parts.append(table_of(heads, rows, gap=1))
        if size == 1 or all(map(page.fits, parts)):
            return parts
    return []
