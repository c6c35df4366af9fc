"""A run on the terminal: headline, grid, what needs a reader, and what it came to."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from assay.model.invocation import USUAL, Invocation
from assay.model.rerun import Rerun
from assay.model.timing import Times
from assay.model.verdict import Outcome, Record
from assay.report import reruns as rerun
from assay.report import times as timed
from assay.report.causes import causes
from assay.report.explanation import Detail, Explanation, explain
from assay.report.grid import Cell, Grid, Row, grid, short_names
from assay.report.words import DASH, WORDS, closing_sentence, coverage_lines, headline, plain

_INDENT = " " * 2
_LABEL_WIDTH = 10
_NOT_TRIED = "·"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Widths of a grid's columns in terminal cells, and what stands above them."""

    label: int
    heads: dict[str, str]
    widths: dict[str, int]


def print_run(
    console: Console,
    records: Iterable[Record],
    times: Iterable[Times] = (),
    reruns: Iterable[Rerun] = (),
    invocation: Invocation = USUAL,
) -> None:
    """Write the whole report; legible without colour, and no wider than the console.

    Only what is there to be copied, commands and links, runs past the edge.
    """
    all_records = tuple(records)
    _print(console, Text(headline(all_records), style="bold"))
    print_grid(console, grid(all_records))
    for cause in causes(all_records):
        print_explanation(console, explain(cause, invocation.command))
    print_times(console, times)
    print_reruns(console, reruns)
    console.print()
    ending = invocation.ending
    for line in coverage_lines(ending):
        _print(console, Text(line))
    style = "bold red" if ending.code(all_records).value else "bold green"
    closing = closing_sentence(all_records, ending)
    _print(console, Text(closing, style=style))


def print_grid(console: Console, shown: Grid) -> None:
    """Write the table, in as many even parts as the width asks for, and a legend."""
    layout = _layout(shown, console.width)
    for targets in _parts(shown.targets, layout, console.width):
        console.print()
        _copyable(console, _head_line(layout, targets))
        for title, rows in groupby(shown.rows, key=_title):
            _print(console, Text(title, style="bold"))
            for row in rows:
                _copyable(console, _row_line(shown, row, layout, targets))
    console.print()
    for line in _filled(_legend(shown), console.width):
        _print(console, line)


def print_times(console: Console, times: Iterable[Times]) -> None:
    """Write a table of what was timed, if anything was."""
    found = tuple(timed.rows(times))
    if not found:
        return
    columns = list(zip(timed.HEAD, *found, strict=True))
    told = [column for column in columns if set(column[1:]) != {DASH}]
    widths = [max(map(cell_len, map(plain, column))) for column in told]
    console.print()
    for number, line in enumerate(zip(*told, strict=True)):
        cells = (
            set_cell_size(plain(cell), width) for cell, width in zip(line, widths, strict=True)
        )
        text = Text("  ".join(cells), style="" if number else "bold")
        text.rstrip()
        _print(console, text)


def print_reruns(console: Console, reruns: Iterable[Rerun]) -> None:
    """Write a line for each program that was timed on two toolchains, if any was."""
    found = tuple(rerun.lines(reruns))
    if found:
        console.print()
        _print(console, Text(rerun.HEAD, style="bold"))
    for line in found:
        _print(console, Text(plain(line)))


def print_explanation(console: Console, explanation: Explanation) -> None:
    """Write one cause: the verdict's word and title, then its labelled lines."""
    word = WORDS[explanation.verdict]
    console.print()
    _print(console, Text.assemble((word.text, word.style), "  ", (explanation.title, "bold")))
    for detail in explanation.details:
        _print_detail(console, detail)


def _print_detail(console: Console, detail: Detail) -> None:
    margin = len(_INDENT) + _LABEL_WIDTH
    label = Text(_INDENT + detail.label.ljust(_LABEL_WIDTH), style="dim")
    text = Text(detail.text)
    wrapped = [text] if detail.verbatim else text.wrap(console, max(1, console.width - margin))
    for line in wrapped:
        line.rstrip()
        _copyable(console, Text.assemble(label, line))
        label = Text(" " * margin)


def _layout(shown: Grid, width: int) -> _Layout:
    longest = max((cell_len(_INDENT + plain(row.arm)) for row in shown.rows), default=0)
    heads = {target: plain(name) for target, name in short_names(shown.targets).items()}
    return _Layout(
        label=min(longest, width // 2),
        heads=heads,
        widths={target: _column_width(shown, target, head) for target, head in heads.items()},
    )


def _column_width(shown: Grid, target: str, head: str) -> int:
    texts = (_cell_text(shown.cell(row, target))[0] for row in shown.rows)
    return max(map(cell_len, (head, *texts)))


def _parts(targets: tuple[str, ...], layout: _Layout, width: int) -> list[tuple[str, ...]]:
    """The targets in the fewest even parts that fit; a column on its own is shown however wide."""
    for number in range(1, len(targets) + 1):
        size = -(-len(targets) // number)
        parts = [targets[start : start + size] for start in range(0, len(targets), size)]
        widest = max(sum(1 + layout.widths[target] for target in part) for part in parts)
        if size == 1 or layout.label + widest <= width:
            return parts
    return []


def _head_line(layout: _Layout, targets: tuple[str, ...]) -> Text:
    heads = (" " + set_cell_size(layout.heads[name], layout.widths[name]) for name in targets)
    line = Text(" " * layout.label + "".join(heads), style="bold")
    line.rstrip()
    return line


def _row_line(shown: Grid, row: Row, layout: _Layout, targets: tuple[str, ...]) -> Text:
    name = _INDENT + plain(row.arm)
    if cell_len(name) > layout.label:
        name = set_cell_size(name, layout.label - 1) + "…"
    line = Text(set_cell_size(name, layout.label))
    for target in targets:
        text, style = _cell_text(shown.cell(row, target))
        line.append(" ").append(text, style=style)
        line.append(" " * (layout.widths[target] - cell_len(text)))
    line.rstrip()
    return line


def _title(row: Row) -> str:
    return plain(f"{row.suite} / {row.workload}")


def _cell_text(cell: Cell | None) -> tuple[str, str]:
    if cell is None:
        return _NOT_TRIED, "dim"
    word = WORDS[cell.verdict]
    return (f"{cell.kept}/{cell.measurable}" if cell.partly_measured else word.text), word.style


def _legend(shown: Grid) -> Iterator[Text]:
    standing = {cell.verdict for cell in shown.cells.values()}
    for outcome, word in WORDS.items():
        if outcome is not Outcome.KEPT and outcome in standing:
            yield Text.assemble((word.text, word.style), f" {word.meaning}")
    style = WORDS[Outcome.KEPT].style
    if Outcome.KEPT in standing:
        yield Text.assemble((WORDS[Outcome.KEPT].text, style), " all that could be judged")
    if any(cell.partly_measured for cell in shown.cells.values()):
        yield Text.assemble(("3/5", style), " kept, the other 2 not measured")
    if len(shown.cells) < len(shown.rows) * len(shown.targets):
        yield Text.assemble((_NOT_TRIED, "dim"), " not tried")


def _filled(entries: Iterable[Text], width: int) -> Iterator[Text]:
    """The entries side by side, a new line where the next would cross the edge."""
    line = Text()
    for entry in entries:
        if line and line.cell_len + 3 + entry.cell_len > width:
            yield line
            line = Text()
        line = Text.assemble(line, "   ", entry) if line else entry
    yield line


def _print(console: Console, text: Text) -> None:
    for line in text.wrap(console, console.width):
        line.rstrip()
        _copyable(console, line)


def _copyable(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=True, highlight=False)
