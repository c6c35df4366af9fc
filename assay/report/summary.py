"""``summary.md``, and the table of measured numbers, from the records of a run."""

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate

from assay.model.history import Trend
from assay.model.rerun import Rerun
from assay.model.timing import Times
from assay.model.units import Unit, format_bytes
from assay.model.verdict import USUAL, Invocation, Outcome, Record
from assay.report.causes import Detail, Entry
from assay.report.document import document
from assay.report.labels import DASH, Styled, in_order, name_of, plain

_MARKED = (Outcome.FAILED, Outcome.ERROR, Outcome.FIXED_UPSTREAM, Outcome.KNOWN_DEFECT)

_MOST_BYTES = 1_000_000
"""GitHub refuses a step's summary above 1 MiB (AttachmentSizeLimit, FileCommandManager.cs)."""
_SHORTENED = "**The rest is left out, so that GitHub shows this page. report.html has all of it.**"

_ACTIVE = re.compile(r"([\\`*_{}\[\]<>#|~&$])")
"""Characters that GitHub reads as markup; a backslash escapes each of them (CommonMark 2.4)."""


def escape(text: str) -> str:
    """The text on one line, without characters that Markdown interprets."""
    return _ACTIVE.sub(r"\\\1", " ".join(plain(text).split()))


def code(text: str) -> str:
    """The text as a code span, to be copied; in a table, a ``|`` of the text would end the cell."""
    line = " ".join(plain(text).split())
    ticks = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def measured_table(records: Iterable[Record], *, workload: str, claims: Sequence[str]) -> str:
    """The measured numbers of these claims, by variant and target.

    Numbers of one cell are in the order of ``claims``, each with its verdict if it fails or is a
    known defect. A dash means that there is neither.
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
    label = name_of(record.verdict) if record and record.verdict in _MARKED else ""
    if record is None or record.measured is None:
        return label or DASH
    amount = format_bytes(record.measured) if record.unit is Unit.BYTES else f"{record.measured:g}"
    return f"{amount} **{label}**" if label else amount


def summary(
    records: Iterable[Record],
    times: Iterable[Times] = (),
    reruns: Iterable[Rerun] = (),
    invocation: Invocation = USUAL,
    history: Sequence[Trend] = (),
) -> str:
    """``summary.md``: the exit code and coverage first, then what fits of the rest."""
    *sections, last = document(records, times, reruns, invocation, history)
    *coverage, closing = last.lines
    blocks = ["# Assay", *map(_marked, (closing, *coverage))]
    for section in sections:
        blocks += [f"## {escape(section.title)}"] if section.title else []
        blocks += map(_entry, section.entries)
        if section.table:
            rows = ([_marked(cell) for cell in row] for row in section.table.rows)
            blocks.append(table([escape(head) for head in section.table.heads], rows))
        blocks += map(_marked, section.lines)
    sizes = accumulate(len(block.encode()) + len("\n\n") for block in blocks)
    kept = [block for block, size in zip(blocks, sizes, strict=True) if size <= _MOST_BYTES]
    return "\n\n".join(kept + [_SHORTENED] * (len(kept) < len(blocks))) + "\n"


def _marked(part: Styled) -> str:
    """The text as Markdown, bold if it is bold on the terminal."""
    text, style = (part, "") if isinstance(part, str) else part
    return f"**{escape(text)}**" if "bold" in style else escape(text)


def _entry(entry: Entry) -> str:
    if entry.verdict:
        head = f"### {entry.name} · {escape(entry.text)}\n"
        return "\n".join((head, *map(_item, entry.details)))
    head = f"- **{escape(entry.name)}**: {escape(entry.text)}"
    return "\n".join((head, *(f"  {_item(detail)}" for detail in entry.details)))


def _item(detail: Detail) -> str:
    text = plain(detail.text)
    is_link = text.startswith(("https://", "http://")) and not set(text) & set(" <>\n")
    shown = f"<{text}>" if is_link else escape(text)
    return f"- {detail.label}: {code(text) if detail.label in ('rerun', 'run') else shown}"
