"""Each format is what its reader reads, whatever a compiler wrote."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from assay.model.units import Unit
from assay.model.verdict import BaselineNumber, Ending, Invocation, Outcome, Record
from assay.report.formats import Format, formatted, junit

RecordOf = Callable[..., Record]

TEXT = st.text(st.characters(codec=None))


def case_of(record: Record) -> ET.Element:
    case = ET.fromstring(junit([record])).find("testsuite/testcase")
    assert case is not None
    return case


@pytest.mark.parametrize(
    ("verdict", "tag"),
    [
        (Outcome.PASSED, None),
        (Outcome.IMPROVED, None),
        (Outcome.FAILED, "failure"),
        (Outcome.FIXED_UPSTREAM, "failure"),
        (Outcome.ERROR, "error"),
        (Outcome.KNOWN_DEFECT, "skipped"),
        (Outcome.UNSUPPORTED, "skipped"),
        (Outcome.INCONCLUSIVE, "skipped"),
    ],
)
def test_each_verdict_is_told_in_junits_words(
    record_of: RecordOf, verdict: Outcome, tag: str | None
) -> None:
    tags = [child.tag for child in case_of(record_of(verdict=verdict))]
    assert tags == (["properties", tag] if tag else ["properties"])


def test_a_case_names_claim_variant_and_target_and_carries_its_numbers(record_of: RecordOf) -> None:
    case = case_of(record_of(measured=3, limit=4))
    assert case.get("classname") == "scan_offload.scan_stack"
    assert case.get("name") == "host-bytes[offload-hidden@gpu-h100:8]"
    assert {item.get("name"): item.get("value") for item in case.iter("property")} == {
        "verdict": "passed",
        "measured": "3",
        "limit": "4",
        "unit": "bytes",
    }


def test_a_case_names_the_line_of_its_test_if_it_is_known(record_of: RecordOf) -> None:
    case = case_of(record_of(test="tests/a:b.py:3"))
    assert (case.get("file"), case.get("line")) == ("tests/a:b.py", "3")
    assert {"file", "line"}.isdisjoint(case_of(record_of()).keys())


def test_a_known_defect_says_so_and_where(record_of: RecordOf) -> None:
    record = record_of(verdict=Outcome.KNOWN_DEFECT, reason="no offload", upstream="https://x/1")
    skipped = case_of(record).find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "known defect: no offload"
    assert "https://x/1" in (skipped.text or "")


def test_totals_add_up_over_suites(record_of: RecordOf) -> None:
    records = [record_of(verdict=verdict, suite=suite) for verdict in Outcome for suite in "ab"]
    root = ET.fromstring(junit(records))
    totals = {"tests": "16", "errors": "2", "failures": "4", "skipped": "6"}
    assert {name: root.get(name) for name in totals} == totals
    for name, total in totals.items():
        assert sum(int(suite.get(name, "")) for suite in root) == int(total)


@given(TEXT, TEXT, TEXT, st.sampled_from(Outcome))
def test_any_text_gives_xml_that_parses(
    record_of: RecordOf, reason: str, advice: str, name: str, verdict: Outcome
) -> None:
    record = record_of(
        verdict=verdict,
        reason=reason,
        advice=advice,
        upstream=reason,
        suite=name,
        workload=name,
        variant=name,
        claim=name,
        target=name,
    )
    assert case_of(record).get("name")


def test_control_characters_and_surrogates_are_replaced(record_of: RecordOf) -> None:
    failure = case_of(record_of(verdict=Outcome.FAILED, reason="a\x00\x1b\ud800\uffffb")).find(
        "failure"
    )
    assert failure is not None
    assert failure.get("message") == "failed: a" + "\N{REPLACEMENT CHARACTER}" * 4 + "b"


STORED = BaselineNumber(value=2, toolchain={})


def written(wanted: Format, *records: Record, ending: Ending | None = None) -> str:
    return formatted(wanted, records, Invocation(ending=ending or Ending()))


def test_an_annotation_is_one_line_that_names_the_verdict(record_of: RecordOf) -> None:
    failed = record_of(verdict=Outcome.FAILED, reason="100% more\nthan 2", advice="fix it")
    better = record_of(verdict=Outcome.IMPROVED, reason="less")
    error, notice = written(Format.ANNOTATIONS, record_of(), failed, better).splitlines()
    name = "host-bytes · scan_offload/scan_stack/offload-hidden on gpu-h100%3A8"
    assert error == f"::error title=failed%3A {name}::100%25 more%0Athan 2%0Afix it"
    assert notice == f"::notice title=improved%3A {name}::less"


@pytest.mark.parametrize(
    ("verdict", "ending", "message", "colour"),
    [
        (Outcome.PASSED, Ending(), "1 passed", "brightgreen"),
        (Outcome.FAILED, Ending(), "The run fails", "red"),
        (Outcome.ERROR, Ending(), "Assay itself failed", "lightgrey"),
        (Outcome.PASSED, Ending(lost=("x",)), "The run is incomplete", "red"),
    ],
)
def test_a_badge_has_the_runs_result(
    record_of: RecordOf, verdict: Outcome, ending: Ending, message: str, colour: str
) -> None:
    badge = json.loads(written(Format.BADGE, record_of(verdict=verdict), ending=ending))
    # The required keys of https://shields.io/badges/endpoint-badge.
    assert badge == {"schemaVersion": 1, "label": "XLA", "message": message, "color": colour}


def test_benchmark_files_hold_numbers_of_which_less_is_better(record_of: RecordOf) -> None:
    at_least, stored = record_of(), record_of(claim="temp-bytes", measured=3, baseline=STORED)
    program = "scan_offload/scan_stack/offload-hidden on gpu-h100:8"
    action = json.loads(written(Format.BENCHMARK_ACTION, at_least, stored))
    assert [(each["name"], each["unit"], each["value"]) for each in action] == [
        (f"temp-bytes · {program}", "bytes", 3)
    ]
    bencher = json.loads(written(Format.BENCHER, at_least, stored))
    assert bencher == {program: {"temp-bytes": {"value": 3}}}


@given(text=TEXT)
def test_prometheus_reads_every_number(record_of: RecordOf, text: str) -> None:
    records = (
        record_of(measured=3, variant=text),
        record_of(measured=0.5, unit=Unit.SECONDS, variant="b", verdict=Outcome.FAILED),
        record_of(measured=None, variant="c"),
    )
    families = {
        each.name: each.samples
        for each in text_string_to_metric_families(written(Format.PROMETHEUS, *records))
    }
    assert [each.value for each in families["assay_exit_code"]] == [1]
    assert [each.value for each in families["assay_measured_bytes"]] == [3]
    assert [each.value for each in families["assay_measured_seconds"]] == [0.5]
    verdicts = {each.labels["verdict"]: each.value for each in families["assay_verdicts"]}
    assert verdicts == {"passed": 2, "failed": 1}
