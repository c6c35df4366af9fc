"""``junit.xml``: one test case for each record, as continuous-integration servers read it."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable

from assay.model.verdict import Outcome, Record
from assay.report.labels import LABELS, plain

_CHILD = {
    Outcome.ERROR: "error",
    Outcome.FAILED: "failure",
    Outcome.FIXED_UPSTREAM: "failure",
    Outcome.KNOWN_DEFECT: "skipped",
    Outcome.INCONCLUSIVE: "skipped",
    Outcome.UNSUPPORTED: "skipped",
}
_TOTALS = {"errors": "error", "failures": "failure", "skipped": "skipped"}


def junit(records: Iterable[Record]) -> bytes:
    """A UTF-8 XML document: one test suite for each suite, in order of first appearance."""
    seen = tuple(records)
    root = ET.Element("testsuites", {"name": "assay", **_totals(seen)})
    for name in dict.fromkeys(record.suite for record in seen):
        group = [record for record in seen if record.suite == name]
        suite = ET.SubElement(root, "testsuite", {"name": plain(name), **_totals(group)})
        suite.extend(map(_case, group))
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _totals(records: Iterable[Record]) -> dict[str, str]:
    seen = tuple(records)
    children = [_CHILD.get(record.verdict) for record in seen]
    return {
        "tests": str(len(seen)),
        **{total: str(children.count(child)) for total, child in _TOTALS.items()},
        "time": f"{sum(record.seconds for record in seen):.6f}",
    }


def _case(record: Record) -> ET.Element:
    names = {
        "classname": plain(f"{record.suite}.{record.workload}"),
        "name": plain(f"{record.claim}[{record.variant}@{record.target}]"),
    }
    case = ET.Element("testcase", {**names, "time": f"{record.seconds:.6f}"})
    properties = ET.SubElement(case, "properties")
    values = {
        "verdict": record.verdict.value,
        "measured": record.measured,
        "limit": record.limit,
        "unit": record.unit.value,
        "upstream": record.upstream or None,
    }
    for name, value in values.items():
        if value is not None:
            ET.SubElement(properties, "property", {"name": name, "value": plain(str(value))})
    if record.verdict in _CHILD:
        kind = record.verdict.value
        words = "known defect" if record.verdict is Outcome.KNOWN_DEFECT else kind
        message = {"message": plain(f"{words}: {record.reason}"), "type": kind}
        next_step = record.advice or LABELS[record.verdict].next_step
        lines = [record.reason, next_step and f"next: {next_step}"]
        if record.verdict.judged:
            lines.append(record.upstream)
        child = ET.SubElement(case, _CHILD[record.verdict], message)
        child.text = plain("\n".join(filter(None, lines)))
    return case
