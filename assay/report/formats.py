"""Formats that other tools read: JUnit XML, annotations, badges, benchmark and metric files."""

import json
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from assay.model.units import Unit
from assay.model.verdict import Ending, ExitCode, Outcome, Record
from assay.report.labels import LABELS, counts, plain, result

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


class Format(Enum):
    """The formats of ``assay report --format``."""

    ANNOTATIONS = "annotations"
    """GitHub's workflow commands: a line for each verdict that fails the run, or improved."""
    BADGE = "badge"
    """JSON for https://shields.io/badges/endpoint-badge."""
    BENCHER = "bencher"
    """Bencher Metric Format, https://bencher.dev/docs/reference/bencher-metric-format."""
    BENCHMARK_ACTION = "benchmark-action"
    """``customSmallerIsBetter`` of https://github.com/benchmark-action/github-action-benchmark."""
    PROMETHEUS = "prometheus"
    """A text file for the textfile collector of Prometheus' node exporter."""


def formatted(wanted: Format, records: Sequence[Record], ending: Ending) -> str:
    """The run in a format, with a newline at its end."""
    return _WRITERS[wanted](records, ending)


def _annotations(records: Sequence[Record], _: Ending) -> str:
    levels = {Outcome.IMPROVED: "notice"}
    lines = []
    for record in records:
        if record.verdict.fails or record.verdict in levels:
            title = f"{record.claim} · {_program(record)} on {record.target}"
            message = "\n".join(filter(None, (record.reason, record.advice)))
            level = levels.get(record.verdict, "error")
            name = f"{LABELS[record.verdict].meaning}: {title}"
            lines.append(f"::{level} title={_escaped(name, ',:')}::{_escaped(message)}\n")
    return "".join(lines)


def _escaped(text: str, also: str = "") -> str:
    """Percent-encoded, as actions/toolkit does (packages/core/src/command.ts)."""
    for character in ("%", "\r", "\n", *also):
        text = text.replace(character, f"%{ord(character):02X}")
    return plain(text)


def _badge(records: Sequence[Record], ending: Ending) -> str:
    colours = {ExitCode.PASSED: "brightgreen", ExitCode.FAILED: "red"}
    code = ending.code(records)
    passed = counts(records).get(Outcome.PASSED, "0 passed")
    return _json(
        {
            "schemaVersion": 1,
            "label": "XLA",
            "message": passed if code is ExitCode.PASSED else result(records, ending),
            "color": colours.get(code, "lightgrey"),
        }
    )


def _bencher(records: Sequence[Record], _: Ending) -> str:
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for record in _tracked(records):
        measures = benchmarks.setdefault(f"{_program(record)} on {record.target}", {})
        measures[record.claim] = {"value": record.measured or 0}
    return _json(benchmarks)


def _benchmark_action(records: Sequence[Record], _: Ending) -> str:
    return _json(
        [
            {
                "name": f"{record.claim} · {_program(record)} on {record.target}",
                "unit": record.unit.value,
                "value": record.measured,
                "extra": record.reason,
            }
            for record in _tracked(records)
        ]
    )


def _prometheus(records: Sequence[Record], ending: Ending) -> str:
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    exit_code = Gauge("assay_exit_code", "Exit code of the run", registry=registry)
    exit_code.set(ending.code(records).value)
    verdicts = Gauge(
        "assay_verdicts",
        "Number of verdicts",
        ("suite", "target", "verdict"),
        registry=registry,
    )
    for labels, number in Counter((r.suite, r.target, r.verdict.value) for r in records).items():
        verdicts.labels(*map(plain, labels)).set(number)
    names = ("suite", "workload", "variant", "claim", "target")
    gauges = {
        unit: Gauge(f"assay_measured_{unit.value}", "Measured number", names, registry=registry)
        for unit in Unit
    }
    for record in records:
        if record.measured is not None:
            values = [plain(getattr(record, name)) for name in names]
            gauges[record.unit].labels(*values).set(record.measured)
    return generate_latest(registry).decode()


def _tracked(records: Iterable[Record]) -> Iterator[Record]:
    """The records whose number is compared with a stored one, of which less is better."""
    for record in records:
        if record.baseline is not None and record.measured is not None and not record.must_fail:
            yield record


def _program(record: Record) -> str:
    return f"{record.suite}/{record.workload}/{record.variant}"


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


_WRITERS: Final[Mapping[Format, Callable[[Sequence[Record], Ending], str]]] = MappingProxyType(
    {
        Format.ANNOTATIONS: _annotations,
        Format.BADGE: _badge,
        Format.BENCHER: _bencher,
        Format.BENCHMARK_ACTION: _benchmark_action,
        Format.PROMETHEUS: _prometheus,
    }
)
