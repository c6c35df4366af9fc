"""Measured numbers of a run as one Markdown table: arms × targets, one column a target."""

from collections.abc import Iterable, Sequence

from assay.model.units import Unit, format_bytes
from assay.model.verdict import Outcome, Record
from assay.report.grid import in_order
from assay.report.markdown import code, escape, table
from assay.report.words import DASH, WORDS

_SURPRISING = (Outcome.BROKEN, Outcome.ERROR, Outcome.FIXED_UPSTREAM, Outcome.KNOWN_DEFECT)


def measured_table(records: Iterable[Record], *, workload: str, claims: Sequence[str]) -> str:
    """What was measured for these claims, arm by arm, and the verdict where it is no pass.

    Numbers of one cell stand in the order of ``claims``; a dash stands where none was measured.
    """
    mine = [r for r in records if r.workload == workload and not r.must_fail]
    found = {(r.arm, r.target, r.claim): r for r in mine}
    targets = in_order(dict.fromkeys(r.target for r in mine))
    head = ["arm", *(escape(target) for target in targets)]
    rows = [
        [code(arm), *(_cell([found.get((arm, target, c)) for c in claims]) for target in targets)]
        for arm in dict.fromkeys(r.arm for r in mine)
    ]
    return table(head, rows)


def _cell(records: Sequence[Record | None]) -> str:
    return " / ".join(_number(record) for record in records)


def _number(record: Record | None) -> str:
    if record is None or record.measured is None:
        return _word(record) or DASH
    amount = format_bytes(record.measured) if record.unit is Unit.BYTES else f"{record.measured:g}"
    word = _word(record)
    return f"{amount} **{word}**" if word else amount


def _word(record: Record | None) -> str:
    if record is None or record.verdict not in _SURPRISING:
        return ""
    return WORDS[record.verdict].text
