"""A run on the terminal: result, what to act on, the state of each suite, and coverage."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from assay.model.invocation import USUAL, Ending, Invocation
from assay.model.rerun import Rerun
from assay.model.timing import Times
from assay.model.verdict import ExitCode, Outcome, Record
from assay.report.explanation import Cause, Detail, Explanation, causes, explain
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
from assay.report.suite_status import SuiteStatus, suite_statuses
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

_INDENT = " " * 2
_LABEL_WIDTH = 10
_NOT_TRIED = "·"
_MORE = "For every variant, known defect and reason, use -v or read summary.md."


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
    *,
    verbose: bool = False,
) -> None:
    """Write the report; legible without colour, and no wider than the console.

    ``verbose`` adds the grid of all variants and every cause. Only what is there to be copied,
    commands and links, runs past the edge.
    """
    all_records = tuple(records)
    ending = invocation.ending
    style = "bold red" if ending.code(all_records).value else "bold green"
    urgent, others = _causes(all_records, ending)
    _print(console, Text(_opening(all_records, ending, urgent), style=style))
    _print(console, Text(headline(all_records), style="dim"))
    for cause in urgent:
        print_explanation(console, explain(cause, invocation.command))
    console.print()
    for status in suite_statuses(all_records, invocation.upstream_issues):
        print_suite(console, status)
    if verbose:
        print_grid(console, grid(all_records))
        for cause in others:
            print_explanation(console, explain(cause, invocation.command))
    print_times(console, times)
    print_reruns(console, reruns)
    console.print()
    if others and not verbose:
        _print(console, Text(_MORE))
    for line in coverage_lines(ending):
        _print(console, Text(line))
    _print(console, Text(closing_sentence(all_records, ending), style=style))


def _opening(records: Sequence[Record], ending: Ending, urgent: Iterable[Cause]) -> str:
    """Whether anything regressed, and what."""
    concerned = counts(record for cause in urgent for record in cause.records)
    if not concerned and ending.code(records) is ExitCode.PASSED:
        return f"{result(records, ending)}; no action is needed."
    return ": ".join(filter(None, (result(records, ending), ", ".join(concerned.values())))) + "."


def _causes(records: Sequence[Record], ending: Ending) -> tuple[list[Cause], list[Cause]]:
    """The causes that ask for an action, and the others.

    What could not be judged asks for one where no verdict tells why the run fails.
    """
    fails = any(record.verdict.fails for record in records)
    unexplained = ending.code(records) is ExitCode.FAILED and not fails
    urgent: list[Cause] = []
    others: list[Cause] = []
    for cause in causes(records):
        unjudged = not cause.verdict.judged and unexplained
        acted_on = cause.verdict.fails or cause.verdict is Outcome.IMPROVED or unjudged
        (urgent if acted_on else others).append(cause)
    return urgent, others


def print_suite(console: Console, status: SuiteStatus) -> None:
    """Write what a suite came to, then the state of its upstream issues."""
    line = Text.assemble((status.name, "bold"), f"  {status.verdicts}")
    for number, part in enumerate(line.wrap(console, console.width - len(_INDENT))):
        part.rstrip()
        _copyable(console, Text.assemble(_INDENT if number else "", part))
    for detail in status.details:
        _print_detail(console, detail)


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
    found = tuple(time_rows(times))
    if not found:
        return
    columns = list(zip(TIMES_HEAD, *found, strict=True))
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
    found = tuple(rerun_lines(reruns))
    if found:
        console.print()
        _print(console, Text(RERUNS_HEAD, style="bold"))
    for line in found:
        _print(console, Text(plain(line)))


def print_explanation(console: Console, explanation: Explanation) -> None:
    """Write one cause: the verdict's label and title, then its labelled lines."""
    label = LABELS[explanation.verdict]
    console.print()
    _print(console, Text.assemble((label.text, label.style), "  ", (explanation.title, "bold")))
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
    longest = max((cell_len(_INDENT + plain(row.variant)) for row in shown.rows), default=0)
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
    name = _INDENT + plain(row.variant)
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
    label = LABELS[cell.verdict]
    return (f"{cell.passed}/{cell.measurable}" if cell.partly_measured else label.text), label.style


def _legend(shown: Grid) -> Iterator[Text]:
    standing = {cell.verdict for cell in shown.cells.values()}
    for outcome, label in LABELS.items():
        if outcome is not Outcome.PASSED and outcome in standing:
            yield Text.assemble((label.text, label.style), f" {label.meaning}")
    style = LABELS[Outcome.PASSED].style
    if Outcome.PASSED in standing:
        yield Text.assemble((LABELS[Outcome.PASSED].text, style), " all that could be judged")
    if any(cell.partly_measured for cell in shown.cells.values()):
        yield Text.assemble(("3/5", style), " passed, the other 2 inconclusive")
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
