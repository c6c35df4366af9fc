"""A matrix as the terminal prints it, as one JSON object, and as an HTML page."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Final, NamedTuple

import msgspec
from rich.console import Console

from assay.model.matrix import Cell, Matrix, MatrixProgress
from assay.model.verdict import ExitCode, Outcome, Record
from assay.report.html_page import TONES, render
from assay.report.labels import LABELS, Styled, counts, in_order, name_of, plural
from assay.report.terminal import Page, table_of

_MINUTE: Final = 60
_RESULTS: Final = {
    ExitCode.PASSED: "Nothing unexpected on {}",
    ExitCode.FAILED: "Some of the verdicts on {} fail",
    ExitCode.CRASHED: "Assay itself failed on {}",
}


class Row(NamedTuple):
    """One claim on one variant and target, with a record for each release."""

    program: str
    claim: str
    records: tuple[Record, ...]

    @property
    def is_constant(self) -> bool:
        """Whether every release has the same verdict, and one that does not fail."""
        verdicts = {each.verdict for each in self.records}
        return len(verdicts) == 1 and not self.records[0].verdict.fails


class Explained(NamedTuple):
    """Verdicts of one kind with one reason: where they are, why, and what to do."""

    verdict: Outcome
    where: str
    reason: str
    advice: str
    upstream: str


def rows_of(matrix: Matrix) -> dict[str, list[Row]]:
    """The rows of each target; a negative control's follow those of its claim."""
    targets = in_order(cell.record.target for cell in matrix.cells)
    found: dict[str, dict[tuple[str, str], list[Record]]] = {target: {} for target in targets}
    for cell in matrix.cells:
        seen = cell.record
        key = (f"{seen.suite}/{seen.workload}/{seen.variant}", seen.claim)
        found[seen.target].setdefault(key, []).append(seen)
    return {
        target: [Row(*key, tuple(records)) for key, records in rows.items()]
        for target, rows in found.items()
    }


def explained(matrix: Matrix, *outcomes: Outcome) -> Iterator[Explained]:
    """The verdicts of these kinds, those with the same reason and advice together."""
    groups: dict[tuple[Outcome, str, str, str], list[Cell]] = {}
    for cell in matrix.cells:
        seen = cell.record
        if seen.verdict in outcomes:
            # The numbers of a known defect differ between programs, its cause does not.
            reason = seen.reason.partition("; seen: ")[0]
            key = (seen.verdict, reason, seen.advice, seen.upstream)
            groups.setdefault(key, []).append(cell)
    ordered = sorted(groups.items(), key=lambda group: outcomes.index(group[0][0]))
    for (verdict, reason, advice, upstream), cells in ordered:
        next_step = advice or LABELS[verdict].next_step
        yield Explained(verdict, _where(cells), reason, next_step, upstream)


def _where(cells: Sequence[Cell]) -> str:
    """``reshape (copied-bytes-per-iteration) on cpu:8 with 0.8.0, 0.9.2``."""
    records = [cell.record for cell in cells]
    variants, claims, releases = (
        ", ".join(dict.fromkeys(found))
        for found in (
            (f"{each.workload}/{each.variant}" for each in records),
            (each.claim for each in records),
            (cell.release for cell in cells),
        )
    )
    targets = ", ".join(in_order(each.target for each in records))
    return f"{variants} ({claims}) on {targets} with {releases}"


def headline(matrix: Matrix) -> str:
    """The result in one line, with the counts of verdicts, worst first."""
    counted = ", ".join(counts(cell.record for cell in matrix.cells).values())
    releases = f"{plural(len(matrix.releases), 'release')} of {matrix.component}"
    result = _RESULTS[matrix.exit_code].format(releases)
    return f"{result} (exit {matrix.exit_code.value}): {counted}."


def left_out(matrix: Matrix) -> str:
    """The checks that have no cell, or the empty string."""
    if not matrix.not_shown:
        return ""
    number = plural(sum(matrix.not_shown.values()), "check")
    claims = ", ".join(matrix.not_shown)
    return (
        f"A matrix compiles programs and runs none: {number} of jaxprs, values, times, steps, "
        f"baselines or other frameworks are not shown ({claims})."
    )


def constant_line(rows: Iterable[Row]) -> str:
    """The number of rows that have one verdict everywhere, and of which kind."""
    constant = [row.records[0] for row in rows if row.is_constant]
    if not constant:
        return ""
    counted = ", ".join(counts(constant).values())
    return f"{plural(len(constant), 'row')} with one verdict on all releases: {counted}"


_FAILING: Final = (Outcome.ERROR, Outcome.FAILED, Outcome.FIXED_UPSTREAM)
_UNJUDGED: Final = (Outcome.INCONCLUSIVE, Outcome.UNSUPPORTED)


def print_matrix(console: Console, matrix: Matrix, *, verbose: bool = False) -> None:
    """Write the tables, what explains them, and the result.

    Rows with one verdict on all releases are counted, and shown if ``verbose``.
    """
    page = Page(console)
    for target, rows in rows_of(matrix).items():
        page.text((target, "bold"))
        shown = [row for row in rows if verbose or not row.is_constant]
        if shown:
            heads = ("program", "claim", *matrix.releases)
            page.table(table_of(heads, map(_cells, shown)))
        if not verbose and (line := constant_line(rows)):
            page.text((f"  {line}; -v shows them", "dim"), indent=2)
        page.line()
    outcomes = (*_FAILING, *_UNJUDGED)
    for each in explained(matrix, *outcomes, *((Outcome.KNOWN_DEFECT,) if verbose else ())):
        page.text((name_of(each.verdict), LABELS[each.verdict].style), f"  {each.where}")
        for label, text in (("cause", each.reason), ("next", each.advice)):
            if text:
                page.text(text, first=f"  {label:10}", indent=12)
        if each.upstream:
            page.text(each.upstream, first=f"  {'upstream':10}", wrap=False)
    for note in matrix.notes:
        page.text(note.sentence, first="ledger  ", indent=8)
    if line := left_out(matrix):
        page.text((line, "dim"))
    style = "bold red" if matrix.exit_code.value else "bold green"
    page.text((headline(matrix), style))


def _cells(row: Row) -> tuple[Styled, ...]:
    verdicts = (each.verdict for each in row.records)
    return (row.program, row.claim, *((name_of(each), LABELS[each].style) for each in verdicts))


def progress_line(progress: MatrixProgress) -> str:
    """What is being measured, how much of it is done, and an estimate of what remains."""
    if not progress.total:
        return progress.doing
    line = f"{progress.done} of {progress.total} programs measured"
    if progress.seconds_left and progress.done < progress.total:
        seconds = round(progress.seconds_left)
        left = f"{seconds} s" if seconds < _MINUTE else f"{-(-seconds // _MINUTE)} min"
        line += f", about {left} left"
    return f"{line}; last: {progress.doing}"


def matrix_json(matrix: Matrix) -> str:
    """One object: the records with their release, the ledger's notes, and what is not shown."""
    records = [
        {"release": cell.release, **msgspec.to_builtins(cell.record)} for cell in matrix.cells
    ]
    found = {
        "component": matrix.component,
        "releases": matrix.releases,
        "exit_code": matrix.exit_code.value,
        "records": records,
        "ledger": [asdict(note) for note in matrix.notes],
        "not_shown": dict(matrix.not_shown),
    }
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()


def matrix_html(matrix: Matrix) -> str:
    """One page that needs no other file and no script: every row, its numbers and its causes."""
    targets = [
        (
            target,
            [row for row in rows if not row.is_constant],
            [row for row in rows if row.is_constant],
            constant_line(rows),
        )
        for target, rows in rows_of(matrix).items()
    ]
    return render(
        "matrix.html",
        matrix=matrix,
        targets=targets,
        headline=headline(matrix),
        left_out=left_out(matrix),
        explained=list(explained(matrix, *_FAILING, Outcome.KNOWN_DEFECT, *_UNJUDGED)),
        tones=TONES,
        names=name_of,
    )
