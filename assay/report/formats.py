"""Formats that other tools read: JUnit XML, annotations, SARIF, badges, benchmarks, metrics."""

import hashlib
import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

from assay.model.qualification import own_version
from assay.model.units import Unit
from assay.model.verdict import ExitCode, Invocation, Outcome, Record
from assay.report.causes import stands_alone
from assay.report.labels import (
    LABELS,
    RANK,
    closing_sentence,
    counts,
    coverage_lines,
    plain,
    plural,
    rerun,
    result,
    title,
)

_CHILD = {
    Outcome.ERROR: "error",
    Outcome.FAILED: "failure",
    Outcome.FIXED_UPSTREAM: "failure",
    Outcome.KNOWN_DEFECT: "skipped",
    Outcome.INCONCLUSIVE: "skipped",
    Outcome.UNSUPPORTED: "skipped",
}
_TOTALS = {"errors": "error", "failures": "failure", "skipped": "skipped"}
_ANNOTATIONS = 10
"""The most of a level in a step; more are dropped (``_maxCountPerIssueType``, ExecutionContext)."""


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
    file, line = _place(record)
    where = {"file": plain(file), "line": line} if file else {}
    case = ET.Element("testcase", {**names, **where, "time": f"{record.seconds:.6f}"})
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
    """GitHub's workflow commands: what fails the run, and what improved."""
    BADGE = "badge"
    """JSON for https://shields.io/badges/endpoint-badge."""
    BENCHER = "bencher"
    """Bencher Metric Format, https://bencher.dev/docs/reference/bencher-metric-format."""
    BENCHMARK_ACTION = "benchmark-action"
    """``customSmallerIsBetter`` of https://github.com/benchmark-action/github-action-benchmark."""
    PROMETHEUS = "prometheus"
    """A text file for the textfile collector of Prometheus' node exporter."""
    SARIF = "sarif"
    """SARIF 2.1.0 as GitHub's code scanning reads it: what fails the run, or improved."""


def formatted(wanted: Format, records: Sequence[Record], invocation: Invocation) -> str:
    """The run in a format, with a newline at its end; empty if there is nothing to annotate."""
    return _WRITERS[wanted](records, invocation)


def _annotations(records: Sequence[Record], invocation: Invocation) -> str:
    lines, alerts, ending = [], _alerts(records), invocation.ending
    if not alerts["error"] and ending.code(records) is not ExitCode.PASSED:
        name = _escaped(result(records, ending), ",:")
        why = "\n".join((closing_sentence(records, ending), *coverage_lines(ending)))
        lines.append(f"::error title={name}::{_escaped(why)}\n")
    for level, found in alerts.items():
        shown = found[: _ANNOTATIONS if len(found) <= _ANNOTATIONS else _ANNOTATIONS - 1]
        for record in shown:
            meaning = f"{LABELS[record.verdict].meaning}: {title(record)}"
            message = "\n".join(filter(None, (record.reason, record.advice))) or meaning
            file, line = _place(record)
            where = f"file={_escaped(file, ',:')},line={line}," if file else ""
            lines.append(f"::{level} {where}title={_escaped(meaning, ',:')}::{_escaped(message)}\n")
        if more := len(found) - len(shown):
            name = _escaped(plural(more, "more verdict"), ",:")
            lines.append(f"::{level} title={name}::see the summary\n")
    return "".join(lines)


def _alerts(records: Iterable[Record]) -> dict[str, list[Record]]:
    """What fails the run, worst first, and what improved, by GitHub's level."""
    found = [record for record in records if stands_alone(record.verdict)]
    found.sort(key=lambda record: RANK[record.verdict])
    return {
        "error": [record for record in found if record.verdict.fails],
        "notice": [record for record in found if not record.verdict.fails],
    }


def _place(record: Record) -> tuple[str, str]:
    """The file and line of the record's test; both empty if an older version wrote the record."""
    file, _, line = record.test.rpartition(":")
    return (file, line) if re.fullmatch("[0-9]+", line) else ("", "")


def _escaped(text: str, also: str = "") -> str:
    """Percent-encoded, as actions/toolkit does (packages/core/src/command.ts)."""
    for character in ("%", "\r", "\n", *also):
        text = text.replace(character, f"%{ord(character):02X}")
    return plain(text)


def _badge(records: Sequence[Record], invocation: Invocation) -> str:
    colours = {ExitCode.PASSED: "brightgreen", ExitCode.FAILED: "red"}
    ending = invocation.ending
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


def _bencher(records: Sequence[Record], _: Invocation) -> str:
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for record in _tracked(records):
        program = plain(f"{record.suite}/{record.workload}/{record.variant} on {record.target}")
        measures = benchmarks.setdefault(program, {})
        measures[plain(record.claim)] = {"value": record.measured or 0}
    return _json(benchmarks)


def _benchmark_action(records: Sequence[Record], _: Invocation) -> str:
    return _json(
        [
            {
                "name": title(record),
                "unit": record.unit.value,
                "value": record.measured,
                "extra": plain(record.reason),
            }
            for record in _tracked(records)
        ]
    )


def _prometheus(records: Sequence[Record], invocation: Invocation) -> str:
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    exit_code = Gauge("assay_exit_code", "Exit code of the run", registry=registry)
    exit_code.set(invocation.ending.code(records).value)
    verdicts = Gauge(
        "assay_verdicts",
        "Number of verdicts",
        ("suite", "target", "verdict"),
        registry=registry,
    )
    for labels, number in Counter((r.suite, r.target, r.verdict.value) for r in records).items():
        verdicts.labels(*map(plain, labels)).set(number)
    names = ("suite", "workload", "variant", "claim", "target")
    # The suffix _count is that of histograms.
    units = {unit: "number" if unit is Unit.COUNT else unit.value for unit in Unit}
    gauges = {
        unit: Gauge(f"assay_measured_{name}", "Measured number", names, registry=registry)
        for unit, name in units.items()
    }
    for record in records:
        if record.measured is not None:
            values = [plain(getattr(record, name)) for name in names]
            gauges[record.unit].labels(*values).set(record.measured)
    return generate_latest(registry).decode()


def _sarif(records: Sequence[Record], invocation: Invocation) -> str:
    alerts = _alerts(records)
    levels = {"error": alerts["error"], "note": alerts["notice"]}
    rules = dict.fromkeys(plain(each.claim) for found in levels.values() for each in found)
    code = invocation.ending.code(records)
    is_whole = invocation.ending.matches(records)
    run = {
        "tool": {
            "driver": {
                "name": "Assay",
                "version": own_version(),
                "rules": list(map(_rule, rules)),
            }
        },
        "invocations": [
            {
                "executionSuccessful": is_whole and code in (ExitCode.PASSED, ExitCode.FAILED),
                "exitCode": code.value,
            }
        ],
        "results": [
            _alert(record, level, invocation.command)
            for level, found in levels.items()
            for record in found
        ],
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return _json({"$schema": schema, "version": "2.1.0", "runs": [run]})


def _rule(claim: str) -> dict[str, Any]:
    text = {"text": f"The claim {claim} of a program that Assay compiles or runs"}
    advice = {"text": "Run the command of the alert. report.html of the run explains each verdict."}
    return {"id": claim, "shortDescription": text, "fullDescription": text, "help": advice}


def _alert(record: Record, level: str, command: Sequence[str]) -> dict[str, Any]:
    """A result; its fingerprint, unlike GitHub's own, does not depend on the line of the test."""
    lines = (
        f"{LABELS[record.verdict].meaning}: {title(record)}: {record.reason}",
        record.advice or LABELS[record.verdict].next_step,
        record.upstream,
        rerun([record], command),
    )
    alert: dict[str, Any] = {
        "ruleId": plain(record.claim),
        "level": level,
        "message": {"text": plain("\n".join(filter(None, lines)))},
        "partialFingerprints": {
            "primaryLocationLineHash": hashlib.sha256(title(record).encode()).hexdigest()
        },
    }
    file, line = _place(record)
    if file:
        region = {"startLine": int(line)}
        artifact = {"uri": quote(plain(file))}
        place = {"physicalLocation": {"artifactLocation": artifact, "region": region}}
        alert["locations"] = [place]
    return alert


def _tracked(records: Iterable[Record]) -> Iterator[Record]:
    """The records whose number is compared with a stored one, of which less is better."""
    for record in records:
        if record.baseline is not None and record.measured is not None and not record.must_fail:
            yield record


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


_WRITERS: Final[Mapping[Format, Callable[[Sequence[Record], Invocation], str]]] = MappingProxyType(
    {
        Format.ANNOTATIONS: _annotations,
        Format.BADGE: _badge,
        Format.BENCHER: _bencher,
        Format.BENCHMARK_ACTION: _benchmark_action,
        Format.PROMETHEUS: _prometheus,
        Format.SARIF: _sarif,
    }
)
