"""A suite's lines are composed from records: another record, another line."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from assay.model.defect import RemedyEffect, Upstream, UpstreamIssue, UpstreamState
from assay.model.verdict import Outcome, Record
from assay.report.causes import Entry
from assay.report.document import suite_statuses

RecordOf = Callable[..., Record]

ISSUE = UpstreamIssue(
    problem="The offload is ignored",
    upstream=Upstream(link="https://example.org/1"),
    variants=("output",),
    claims=("host-bytes",),
    remedy="Name the input",
    effects=(
        RemedyEffect(
            quantity="temporaries",
            workload="block",
            claim="temp-bytes",
            without="output",
            remedied="input",
            targets=("gpu-h100*", "tpu*"),
        ),
    ),
)
TARGETS = ("gpu-l4", "gpu-h100:8", "tpu-v5e:2x4")


@pytest.fixture
def records(record_of: RecordOf) -> list[Record]:
    """The defect on two GPU compilers and a TPU compiler, and the remedy on all."""
    numbers = {"output": 20166222648, "input": 2986354488}
    memory = [
        record_of(
            workload="block", variant=variant, claim="temp-bytes", target=target, measured=number
        )
        for variant, number in numbers.items()
        for target in TARGETS
    ]
    broken = [
        record_of(workload="block", variant="output", target=target, verdict=Outcome.KNOWN_DEFECT)
        for target in TARGETS
    ]
    return [*memory, *broken]


def status(records: list[Record], *issues: UpstreamIssue) -> Entry:
    (found,) = suite_statuses(records, {"scan_offload": issues})
    return found


def details(records: list[Record], issue: UpstreamIssue = ISSUE) -> dict[str, str]:
    return {detail.label: detail.text for detail in status(records, issue).details}


def changed(records: list[Record], fields: dict[str, Any], **to: Any) -> list[Record]:
    """The records, of which those with the fields given are changed."""
    assert any(all(getattr(r, k) == v for k, v in fields.items()) for r in records)
    return [
        replace(each, **to) if all(getattr(each, k) == v for k, v in fields.items()) else each
        for each in records
    ]


def test_an_issue_is_told_with_its_state_and_the_effect_of_its_remedy(
    records: list[Record],
) -> None:
    assert details(records) == {
        "today": "The offload is ignored on 3 of 3 compilers (GPU 2 of 2, TPU 1 of 1).",
        "remedy": "Name the input; temporaries on gpu-h100:8: 18.8 GiB → 2.8 GiB.",
        "upstream": "https://example.org/1",
    }
    assert status(records, ISSUE).text == "9 verdicts: 6 passed, 3 known defects"


def test_another_number_is_another_line(records: list[Record]) -> None:
    input_on_h100 = {"variant": "input", "target": "gpu-h100:8"}
    assert (
        "18.8 GiB → 1.0 GiB." in details(changed(records, input_on_h100, measured=2**30))["remedy"]
    )


def test_a_number_is_shown_where_the_remedy_holds(records: list[Record]) -> None:
    fails = changed(records, {"variant": "input", "target": "gpu-h100:8"}, verdict=Outcome.FAILED)
    assert "temporaries on tpu-v5e:2x4: 18.8 GiB → 2.8 GiB." in details(fails)["remedy"]
    assert details(changed(records, {"variant": "input"}, verdict=Outcome.FAILED))["remedy"] == (
        "Name the input ('input' FAILED in this run on gpu-h100:8, gpu-l4, tpu-v5e:2x4)."
    )


def test_a_remedy_without_a_verdict_is_said_to_be_untested(records: list[Record]) -> None:
    without = [each for each in records if each.variant != "input"]
    assert details(without)["remedy"] == "Name the input ('input' not tested in this run)."


def test_a_number_that_a_remedy_does_not_change_is_not_shown(records: list[Record]) -> None:
    same = changed(records, {"claim": "temp-bytes", "target": "gpu-h100:8"}, measured=2**30)
    assert "temporaries on tpu-v5e:2x4: 18.8 GiB → 2.8 GiB." in details(same)["remedy"]


def test_the_number_of_a_negative_control_is_one_without_a_remedy(records: list[Record]) -> None:
    named = changed(
        records, {"variant": "output", "claim": "temp-bytes"}, claim="temp-bytes.negative-control"
    )
    assert "18.8 GiB → 2.8 GiB" in details(named)["remedy"]


def test_what_is_fixed_upstream_is_said_to_be(records: list[Record]) -> None:
    h100 = {"claim": "host-bytes", "target": "gpu-h100:8"}
    fixed = changed(records, h100, verdict=Outcome.FIXED_UPSTREAM)
    assert details(fixed)["today"] == (
        "The offload is ignored on 2 of 3 compilers (GPU 1 of 2, TPU 1 of 1); "
        "fixed upstream on gpu-h100:8."
    )


def test_a_defect_that_fails_in_another_way_is_not_gone(records: list[Record]) -> None:
    other = changed(records, {"claim": "host-bytes"}, verdict=Outcome.FAILED)
    assert "on 3 of 3 compilers" in details(other)["today"]


@pytest.mark.parametrize("outcome", [Outcome.UNSUPPORTED, Outcome.INCONCLUSIVE, Outcome.ERROR])
def test_what_was_not_judged_is_not_claimed(records: list[Record], outcome: Outcome) -> None:
    on_tpu = {"claim": "host-bytes", "target": "tpu-v5e:2x4"}
    assert details(changed(records, on_tpu, verdict=outcome))["today"] == (
        "The offload is ignored on 2 of 2 compilers (GPU 2 of 2)."
    )
    nowhere = changed(records, {"claim": "host-bytes"}, verdict=outcome)
    assert details(nowhere)["today"] == "The offload is ignored: not tested in this run."


def test_a_target_family_that_is_missing_is_not_claimed(records: list[Record]) -> None:
    gpu = [record for record in records if record.target.startswith("gpu")]
    assert details(gpu)["today"].endswith("on 2 of 2 compilers (GPU 2 of 2).")


def test_a_negative_control_shows_no_defect(records: list[Record]) -> None:
    controls = changed(records, {"claim": "host-bytes"}, claim="host-bytes.negative-control")
    every = replace(ISSUE, claims=("*.negative-control",))
    assert "not tested" in details(controls, every)["today"]


def test_a_suite_without_an_issue_gets_its_counts_and_reasons(record_of: RecordOf) -> None:
    reasons = ("rare", "usual; seen: 1 B", "usual; seen: 2 B")
    known = [record_of(verdict=Outcome.KNOWN_DEFECT, reason=reason) for reason in reasons]
    cannot = record_of(verdict=Outcome.UNSUPPORTED, reason="no library " * 20)
    found = status([*known, cannot, record_of(), record_of(verdict=Outcome.FAILED)])
    assert found.text.startswith(
        "6 verdicts: 1 passed, 1 failed, 3 known defects (2: usual; 1: rare), "
        "1 unsupported (no library no "
    )
    assert found.text.endswith("…)")
    assert not found.details


def test_each_reason_of_what_was_not_judged_is_told_with_its_count(record_of: RecordOf) -> None:
    def unsupported(reason: str, number: int) -> list[Record]:
        return [record_of(verdict=Outcome.UNSUPPORTED, reason=reason)] * number

    records = [*unsupported("no device", 2), *unsupported("no torch_xla", 3)]
    text = "5 verdicts: 5 unsupported (3: no torch_xla; 2: no device)"
    assert status(records).text == text
    more = [record for n in range(4) for record in unsupported(f"rare {n}", 1)]
    assert status([*records, *more]).text.endswith("; 1: rare 0; 3 other reasons)")


def test_a_verdict_without_a_reason_is_counted(record_of: RecordOf) -> None:
    def unsupported(reason: str) -> Record:
        return record_of(verdict=Outcome.UNSUPPORTED, reason=reason)

    assert status([unsupported("")]).text == "1 verdict: 1 unsupported"
    assert status([unsupported("why")]).text == "1 verdict: 1 unsupported (why)"
    both = [unsupported(""), unsupported("why")]
    assert status(both).text == "2 verdicts: 2 unsupported (1: no reason; 1: why)"


def test_many_suites_with_nothing_to_tell_share_a_line(record_of: RecordOf) -> None:
    silent = [record_of(suite=f"test_{number}") for number in range(9)]
    told = record_of(suite="mine", verdict=Outcome.KNOWN_DEFECT)
    assert [each.name for each in suite_statuses([*silent, told], {})] == ["mine", "9 other suites"]
    assert len(list(suite_statuses(silent[1:], {}))) == 8


@pytest.mark.parametrize(
    ("closed", "words"),
    [("", "; closed upstream, still present."), ("2025-03-01", "; closed upstream on 2025-03-01,")],
)
def test_a_closed_report_of_a_problem_that_remains_is_told(
    records: list[Record], closed: str, words: str
) -> None:
    upstream = Upstream(link="https://example.org/1", state=UpstreamState.CLOSED, closed=closed)
    issue = replace(ISSUE, upstream=upstream)
    assert words in details(records, issue)["today"]
    fixed = [each for each in records if each.verdict is not Outcome.KNOWN_DEFECT]
    assert "closed" not in details(fixed, issue)["today"]
