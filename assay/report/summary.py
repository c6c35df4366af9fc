"""``summary.md``, and the table of measured numbers, from the records of a run."""

import re
from collections.abc import Iterable, Iterator, Sequence

from assay.model.invocation import USUAL, Invocation
from assay.model.rerun import Rerun
from assay.model.timing import Times
from assay.model.units import Unit, format_bytes
from assay.model.verdict import Outcome, Record
from assay.report.explanation import Detail, Entry, causes, explain, suite_statuses
from assay.report.labels import (
    DASH,
    LABELS,
    closing_sentence,
    coverage_lines,
    headline,
    plain,
    plural,
)
from assay.report.tables import (
    RERUNS_HEAD,
    TIMES_HEAD,
    Cell,
    grid,
    in_order,
    rerun_lines,
    time_rows,
)

_MARKED = (Outcome.FAILED, Outcome.ERROR, Outcome.FIXED_UPSTREAM, Outcome.KNOWN_DEFECT)
_UNJUDGED = (Outcome.INCONCLUSIVE, Outcome.UNSUPPORTED)

_ACTIVE = re.compile(r"([\\`*_{}\[\]<>#|~&$])")
"""Characters that GitHub reads as markup; a backslash escapes each of them (CommonMark 2.4)."""


def escape(text: str) -> str:
    """The text on one line, without characters that Markdown interprets."""
    return _ACTIVE.sub(r"\\\1", " ".join(plain(text).split()))


def code(text: str) -> str:
    """The text as a code span, to be copied; outside tables only."""
    line = " ".join(plain(text).split())
    ticks = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def measured_table(records: Iterable[Record], *, workload: str, claims: Sequence[str]) -> str:
    """The measured numbers of these claims, by variant and target, with verdicts that did not pass.

    Numbers of one cell are in the order of ``claims``; a dash means that none was measured.
    """
    mine = [each for each in records if each.workload == workload and not each.must_fail]
    found = {(each.variant, each.target, each.claim): each for each in mine}
    targets = in_order(each.target for each in mine)
    rows = []
    for variant in dict.fromkeys(each.variant for each in mine):
        cells = (
            " / ".join(_number(found.get((variant, target, claim))) for claim in claims)
            for target in targets
        )
        rows.append([code(variant), *cells])
    return table(["variant", *map(escape, targets)], rows)


def _number(record: Record | None) -> str:
    label = LABELS[record.verdict].text if record and record.verdict in _MARKED else ""
    if record is None or record.measured is None:
        return label or DASH
    amount = format_bytes(record.measured) if record.unit is Unit.BYTES else f"{record.measured:g}"
    return f"{amount} **{label}**" if label else amount


def summary(
    records: Iterable[Record],
    times: Iterable[Times] = (),
    reruns: Iterable[Rerun] = (),
    invocation: Invocation = USUAL,
) -> str:
    """The whole page: result, suites, grid, every cause worst first, then what was timed."""
    seen = tuple(records)
    blocks = (*_result(seen, invocation), *_grid(seen), *_causes(seen, invocation))
    return "\n\n".join((*blocks, *_timed(times, reruns))) + "\n"


def _result(records: tuple[Record, ...], invocation: Invocation) -> Iterator[str]:
    yield "# Assay"
    yield f"**{escape(closing_sentence(records, invocation.ending))}**"
    yield from map(escape, coverage_lines(invocation.ending))
    yield escape(headline(records))
    statuses = [_suite(each) for each in suite_statuses(records, invocation.upstream_issues)]
    if statuses:
        yield "## Suites"
        yield "\n".join(statuses)


def _suite(suite: Entry) -> str:
    head = f"- **{escape(suite.name)}**: {escape(suite.text)}"
    return "\n".join((head, *(f"  {_item(detail)}" for detail in suite.details)))


def _item(detail: Detail) -> str:
    text = plain(detail.text)
    is_link = text.startswith(("https://", "http://")) and not set(text) & set(" <>\n")
    shown = f"<{text}>" if is_link else escape(text)
    return f"- {detail.label}: {code(text) if detail.label in ('rerun', 'run') else shown}"


def _grid(records: Sequence[Record]) -> Iterator[str]:
    shown = grid(records)
    for suite in dict.fromkeys(row.suite for row in shown.rows):
        yield f"## {escape(suite)}"
        rows = [
            [
                escape(row.workload),
                escape(row.variant),
                *(_cell(shown.cells.get((row, target))) for target in shown.targets),
            ]
            for row in shown.rows
            if row.suite == suite
        ]
        yield table(("workload", "variant", *map(escape, shown.targets)), rows)


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if cell.partly_measured:
        return f"passed {cell.passed} of {cell.measurable}"
    label = LABELS[cell.verdict].text
    return f"**{label}**" if cell.verdict.fails else label


def _causes(records: Sequence[Record], invocation: Invocation) -> Iterator[str]:
    found = causes(records)
    judged = [cause for cause in found if cause.verdict not in _UNJUDGED]
    if judged:
        yield "## What needs a reader"
    for cause in judged:
        entry = explain(cause, invocation.command)
        yield f"### {entry.name} · {escape(entry.text)}"
        yield "\n".join(map(_item, entry.details))
    rows = [
        (
            LABELS[cause.verdict].meaning,
            plural(len(cause.records), "verdict"),
            cause.programs,
            ", ".join(cause.claims),
            ", ".join(cause.targets),
            cause.example.reason,
            cause.example.advice,
        )
        for cause in found
        if cause.verdict in _UNJUDGED
    ]
    if rows:
        yield "## What could not be judged"
        head = ("verdict", "how many", "programs", "claims", "on", "cause", "next")
        yield table(head, [tuple(map(escape, row)) for row in rows])


def _timed(times: Iterable[Times], reruns: Iterable[Rerun]) -> Iterator[str]:
    rows = [tuple(map(escape, row)) for row in time_rows(times)]
    if rows:
        yield "## Times"
        yield table(TIMES_HEAD, rows)
    lines = [f"- {escape(line)}" for line in rerun_lines(reruns)]
    if lines:
        yield f"## {RERUNS_HEAD}"
        yield "\n".join(lines)
