"""``junit.xml`` parses whatever a compiler wrote, and maps every verdict to what servers know."""

import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.verdict import Outcome, Record
from assay.report.junit import junit

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
