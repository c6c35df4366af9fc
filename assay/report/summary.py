"""``summary.md``, and the table of measured numbers, from the records of a run."""

from collections.abc import Iterable, Iterator, Sequence

from assay.model.invocation import USUAL, Invocation
from assay.model.rerun import Rerun
from assay.model.timing import Times
from assay.model.units import Unit, format_bytes
from assay.model.verdict import Outcome, Record
from assay.report.explanation import Cause, Detail, Explanation, causes, explain, programs
from assay.report.labels import (
    DASH,
    LABELS,
    closing_sentence,
    code,
    coverage_lines,
    escape,
    headline,
    plural,
    table,
)
from assay.report.suite_status import SuiteStatus, suite_statuses
from assay.report.tables import (
    RERUNS_HEAD,
    TIMES_HEAD,
    Cell,
    Grid,
    Row,
    grid,
    in_order,
    rerun_lines,
    time_rows,
)

_SURPRISING = (Outcome.FAILED, Outcome.ERROR, Outcome.FIXED_UPSTREAM, Outcome.KNOWN_DEFECT)


def measured_table(records: Iterable[Record], *, workload: str, claims: Sequence[str]) -> str:
    """What was measured for these claims, variant by variant, and the verdict where it is no pass.

    Numbers of one cell stand in the order of ``claims``; a dash stands where none was measured.
    """
    mine = [r for r in records if r.workload == workload and not r.must_fail]
    found = {(r.variant, r.target, r.claim): r for r in mine}
    targets = in_order(dict.fromkeys(r.target for r in mine))
    head = ["variant", *(escape(target) for target in targets)]
    rows = [
        [
            code(variant),
            *(
                _measured_cell([found.get((variant, target, c)) for c in claims])
                for target in targets
            ),
        ]
        for variant in dict.fromkeys(r.variant for r in mine)
    ]
    return table(head, rows)


def _measured_cell(records: Sequence[Record | None]) -> str:
    return " / ".join(_number(record) for record in records)


def _number(record: Record | None) -> str:
    if record is None or record.measured is None:
        return _label(record) or DASH
    amount = format_bytes(record.measured) if record.unit is Unit.BYTES else f"{record.measured:g}"
    label = _label(record)
    return f"{amount} **{label}**" if label else amount


def _label(record: Record | None) -> str:
    if record is None or record.verdict not in _SURPRISING:
        return ""
    return LABELS[record.verdict].text


_UNJUDGED = (Outcome.INCONCLUSIVE, Outcome.UNSUPPORTED)


def summary(
    records: Iterable[Record],
    times: Iterable[Times] = (),
    reruns: Iterable[Rerun] = (),
    invocation: Invocation = USUAL,
) -> str:
    """The whole page: result, suites, grid, every cause worst first, then what was timed."""
    all_records = tuple(records)
    timed = (*_times_blocks(times), *_reruns_blocks(reruns))
    return "\n\n".join((*_blocks(all_records, invocation), *timed)) + "\n"


def _blocks(records: tuple[Record, ...], invocation: Invocation) -> Iterator[str]:
    yield "# Assay"
    yield f"**{escape(closing_sentence(records, invocation.ending))}**"
    yield from map(escape, coverage_lines(invocation.ending))
    yield escape(headline(records))
    statuses = tuple(suite_statuses(records, invocation.upstream_issues))
    if statuses:
        yield "## Suites"
        yield "\n".join(map(_status_item, statuses))
    yield from _grid_blocks(grid(records))
    found = causes(records)
    judged = [cause for cause in found if cause.verdict not in _UNJUDGED]
    if judged:
        yield "## What needs a reader"
        explained = (explain(cause, invocation.command) for cause in judged)
        yield from map(_explanation_block, explained)
    unjudged = [cause for cause in found if cause.verdict in _UNJUDGED]
    if unjudged:
        yield "## What could not be judged"
        head = ("verdict", "how many", "programs", "claims", "on", "cause", "next")
        yield table(head, map(_unjudged_row, unjudged))


def _times_blocks(times: Iterable[Times]) -> Iterator[str]:
    found = [tuple(map(escape, row)) for row in time_rows(times)]
    if found:
        yield "## Times"
        yield table(TIMES_HEAD, found)


def _reruns_blocks(reruns: Iterable[Rerun]) -> Iterator[str]:
    found = [f"- {escape(line)}" for line in rerun_lines(reruns)]
    if found:
        yield f"## {RERUNS_HEAD}"
        yield "\n".join(found)


def _grid_blocks(shown: Grid) -> Iterator[str]:
    for suite in dict.fromkeys(row.suite for row in shown.rows):
        yield f"## {escape(suite)}"
        head = ("workload", "variant", *map(escape, shown.targets))
        rows = (
            (escape(row.workload), escape(row.variant), *_cells(shown, row))
            for row in shown.rows
            if row.suite == suite
        )
        yield table(head, rows)


def _cells(shown: Grid, row: Row) -> Iterator[str]:
    return (_cell(shown.cell(row, target)) for target in shown.targets)


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if cell.partly_measured:
        return f"passed {cell.passed} of {cell.measurable}"
    label = LABELS[cell.verdict].text
    return f"**{label}**" if cell.verdict.fails else label


def _status_item(status: SuiteStatus) -> str:
    head = f"- **{escape(status.name)}**: {escape(status.verdicts)}"
    return "\n".join((head, *(f"  {_detail_item(detail)}" for detail in status.details)))


def _explanation_block(explanation: Explanation) -> str:
    head = f"### {LABELS[explanation.verdict].text} · {escape(explanation.title)}"
    return "\n".join((head, "", *map(_detail_item, explanation.details)))


def _detail_item(detail: Detail) -> str:
    text = code(detail.text) if detail.label in ("rerun", "run") else _text_or_link(detail.text)
    return f"- {detail.label}: {text}"


def _text_or_link(text: str) -> str:
    is_link = text.startswith(("https://", "http://")) and not set(text) & set(" <>\n")
    return f"<{text}>" if is_link else escape(text)


def _unjudged_row(cause: Cause) -> tuple[str, ...]:
    return (
        escape(LABELS[cause.verdict].meaning),
        plural(len(cause.records), "verdict"),
        escape(programs(cause)),
        escape(", ".join(cause.claims)),
        escape(", ".join(cause.targets)),
        escape(cause.example.reason),
        escape(cause.example.advice),
    )
