"""``junit.xml``: one test case a record, as continuous-integration servers read it."""

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
_COUNTED = {"errors": "error", "failures": "failure", "skipped": "skipped"}


def junit(records: Iterable[Record]) -> bytes:
    """A UTF-8 XML document: one test suite for each suite, in order of first appearance."""
    suites: dict[str, list[Record]] = {}
    for record in records:
        suites.setdefault(record.suite, []).append(record)
    everything = [record for group in suites.values() for record in group]
    root = ET.Element("testsuites", {"name": "assay", **_totals(everything)})
    for name, group in suites.items():
        suite = ET.SubElement(root, "testsuite", {"name": plain(name), **_totals(group)})
        suite.extend(map(_case, group))
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _totals(records: list[Record]) -> dict[str, str]:
    children = [_CHILD.get(record.verdict) for record in records]
    return {
        "tests": str(len(records)),
        **{total: str(children.count(child)) for total, child in _COUNTED.items()},
        "time": f"{sum(record.seconds for record in records):.6f}",
    }


def _case(record: Record) -> ET.Element:
    case = ET.Element(
        "testcase",
        {
            "classname": plain(f"{record.suite}.{record.workload}"),
            "name": plain(f"{record.claim}[{record.variant}@{record.target}]"),
            "time": f"{record.seconds:.6f}",
        },
    )
    properties = ET.SubElement(case, "properties")
    for name, value in _properties(record).items():
        ET.SubElement(properties, "property", {"name": name, "value": plain(value)})
    if record.verdict in _CHILD:
        case.append(_child(record))
    return case


def _properties(record: Record) -> dict[str, str]:
    numbers = {"measured": record.measured, "limit": record.limit}
    return {
        "verdict": record.verdict.value,
        **{name: str(value) for name, value in numbers.items() if value is not None},
        "unit": record.unit.value,
        **({"upstream": record.upstream} if record.upstream else {}),
    }


def _child(record: Record) -> ET.Element:
    kind = "known defect" if record.verdict is Outcome.KNOWN_DEFECT else record.verdict.value
    child = ET.Element(
        _CHILD[record.verdict],
        {"message": plain(f"{kind}: {record.reason}"), "type": record.verdict.value},
    )
    next_step = record.advice or LABELS[record.verdict].next_step
    lines = [record.reason, next_step and f"next: {next_step}"]
    if record.verdict.judged:
        lines.append(record.upstream)
    child.text = plain("\n".join(line for line in lines if line))
    return child
