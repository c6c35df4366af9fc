"""Measured numbers of a run as one Markdown table: variants × targets, one column a target."""

from collections.abc import Iterable, Sequence

from assay.model.units import Unit, format_bytes
from assay.model.verdict import Outcome, Record
from assay.report.grid import in_order
from assay.report.labels import DASH, LABELS
from assay.report.markdown import code, escape, table

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
            *(_cell([found.get((variant, target, c)) for c in claims]) for target in targets),
        ]
        for variant in dict.fromkeys(r.variant for r in mine)
    ]
    return table(head, rows)


def _cell(records: Sequence[Record | None]) -> str:
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
