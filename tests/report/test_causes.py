"""Each cause is read once, what fails is read in full, and nothing but what passed is left out."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.verdict import BaselineNumber, Outcome, Record
from assay.report.causes import Detail, causes, explain
from assay.report.since import Background

RecordOf = Callable[..., Record]

LINK = "https://github.com/jax-ml/jax/issues/25010"


def details_of(record: Record) -> dict[str, str]:
    (cause,) = causes([record])
    return {detail.label: detail.text for detail in explain(cause).details}


@given(st.lists(st.tuples(st.sampled_from(Outcome), st.sampled_from("ab"))))
def test_every_record_but_the_passed_is_in_exactly_one_cause(
    record_of: RecordOf, drawn: list[tuple[Outcome, str]]
) -> None:
    records = [record_of(verdict=verdict, reason=reason) for verdict, reason in drawn]
    explained = [id(record) for cause in causes(records) for record in cause]
    assert sorted(explained) == sorted(
        id(record) for record in records if record.verdict is not Outcome.PASSED
    )


def test_causes_come_worst_first(record_of: RecordOf) -> None:
    found = causes(record_of(verdict=outcome) for outcome in Outcome)
    assert [cause[0].verdict for cause in found] == [
        Outcome.ERROR,
        Outcome.FAILED,
        Outcome.FIXED_UPSTREAM,
        Outcome.IMPROVED,
        Outcome.KNOWN_DEFECT,
        Outcome.INCONCLUSIVE,
        Outcome.UNSUPPORTED,
    ]


def test_wrong_values_come_before_what_fails_otherwise(record_of: RecordOf) -> None:
    claims = ("temp-bytes", "values-equal", "host-bytes")
    failed = [record_of(verdict=Outcome.FAILED, claim=claim, variant=claim) for claim in claims]
    error = record_of(verdict=Outcome.ERROR, variant="d")
    found = [cause[0].claim for cause in causes([*failed, error])]
    assert found == [error.claim, "values-equal", "temp-bytes", "host-bytes"]


def test_a_known_defect_is_one_cause_over_targets_claims_and_workloads(record_of: RecordOf) -> None:
    known = [
        record_of(
            verdict=Outcome.KNOWN_DEFECT, target=target, claim=claim, workload=work, upstream=LINK
        )
        for target in ("tpu", "gpu")
        for claim in ("host-bytes", "device-bytes-fall")
        for work in ("scan_stack", "flax_encoder")
    ]
    (cause,) = causes(known)
    explanation = explain(cause)
    assert Detail("on", "gpu, tpu") in explanation.details
    assert "8 verdicts, 2 claims on 2 targets" in explanation.text
    assert [detail.text for detail in explanation.details].count(LINK) == 1


def test_a_cause_is_headed_by_the_verdict_s_own_name(record_of: RecordOf) -> None:
    heads = [explain(cause) for cause in causes(record_of(verdict=each) for each in Outcome)]
    assert [head.name for head in heads] == [
        *("ERROR", "FAILED", "FIXED-UPSTREAM"),
        *("improved", "known-defect", "inconclusive", "unsupported"),
    ]
    assert heads[-1].text == "scan_stack/offload-hidden · 1 verdict, 1 claim on 1 target"


def test_known_defects_of_different_links_or_variants_stay_apart(record_of: RecordOf) -> None:
    known = record_of(verdict=Outcome.KNOWN_DEFECT, upstream=LINK)
    others = {"upstream": LINK + "1", "variant": "tie", "suite": "dus_remat"}
    for field, value in others.items():
        fields = {"verdict": Outcome.KNOWN_DEFECT, "upstream": LINK, field: value}
        assert len(causes([known, record_of(**fields)])) == 2


def test_what_fails_on_one_variant_is_one_cause(record_of: RecordOf) -> None:
    def failed(**fields: object) -> Record:
        return record_of(verdict=Outcome.FAILED, **fields)

    one = [
        failed(workload=workload, claim=claim, target=target)
        for workload, target in (("block", "tpu"), ("block-full", "gpu-h100:8"))
        for claim in ("host-bytes", "temp-bytes")
    ]
    others = [failed(variant="tie"), failed(suite="dus_remat")]
    control = failed(claim="host-bytes.negative-control")
    error = record_of(verdict=Outcome.ERROR)
    found = causes([*one, *others, control, error])
    assert [len(cause) for cause in found] == [1, 4, 1, 1, 1]
    heading = explain(found[1]).text
    assert heading == (
        "scan_offload/{block, block-full}/offload-hidden · 4 verdicts, 2 claims on 2 targets"
    )


def test_the_claim_that_explains_the_others_comes_first(record_of: RecordOf) -> None:
    claims = ("time-ratio", "temp-bytes", "mine", "to-host-bytes", "residuals-on-host")
    failed = [record_of(verdict=Outcome.FAILED, claim=claim) for claim in (*claims, "names-match")]
    (cause,) = causes(failed)
    assert [each.claim for each in cause] == [
        *("names-match", "residuals-on-host", "to-host-bytes", "temp-bytes", "mine", "time-ratio")
    ]
    failed.append(record_of(verdict=Outcome.FAILED, claim="fits-device", measured=None))
    assert causes(failed)[0][0].claim == "fits-device"


def test_a_cause_tells_one_claim_in_full_and_all_numbers(record_of: RecordOf) -> None:
    def failed(claim: str, measured: int, target: str, reason: str = "") -> Record:
        fields = {"relation": "=", "limit": 7, "verdict": Outcome.FAILED, "reason": reason}
        return record_of(claim=claim, measured=measured, target=target, **fields)

    (cause,) = causes(
        [
            failed("host-bytes", 1, "tpu", "why"),
            failed("host-bytes", 2, "gpu", "why"),
            failed("names-match", 3, "tpu", "no name"),
            failed("names-match", 3, "gpu", "no name"),
        ]
    )
    details = [(each.label, each.text) for each in explain(cause).details]
    assert details[:3] == [
        ("on", "gpu, tpu"),
        ("measured", "names-match: 3 B, expected exactly 7 B"),
        ("finding", "no name"),
    ]
    numbers = ("scan_stack on tpu: 1 B, expected exactly 7 B", "scan_stack on gpu: 2 B")
    assert details[-2] == ("also", f"host-bytes of {'; '.join(numbers)}, expected exactly 7 B")
    assert details[-1][1].startswith("pytest suites --assay-target gpu,tpu -k ")


def test_a_failed_test_is_one_cause_named_by_its_number(record_of: RecordOf) -> None:
    def failed(**fields: object) -> Record:
        return record_of(verdict=Outcome.FAILED, **fields)

    number = failed(workload="test_a", claim="temp_bytes")
    own = failed(workload="test_a", claim="assertions")
    again = failed(workload="test_a-2", claim="assertions", variant="other")
    other = failed(workload="test_b", claim="assertions")
    first, second = causes([own, number, other, again])
    assert (first, second) == ([number, own, again], [other])
    explanation = explain(first)
    assert explanation.text.startswith("scan_offload/{test_a, test_a-2}/{offload-hidden, other} · ")
    assert explanation.details[1].text.startswith("temp_bytes: ")
    assert "measured" not in {each.label for each in explain(second).details}


@pytest.mark.parametrize(
    ("remedied", "words"),
    [
        ({"verdict": Outcome.FAILED}, "use variant 'b' (FAILED in this run on gpu-h100:8); open"),
        ({"verdict": Outcome.UNSUPPORTED}, "use variant 'b' (not tested in this run); open"),
        ({"variant": "c"}, "use variant 'b' (not tested in this run); open"),
        ({"verdict": Outcome.FIXED_UPSTREAM}, "use variant 'b'; open"),
        ({}, "use variant 'b'; open"),
    ],
)
def test_a_remedy_that_fails_or_is_not_tested_says_so(
    record_of: RecordOf, remedied: dict[str, object], words: str
) -> None:
    known = record_of(
        verdict=Outcome.KNOWN_DEFECT, remedy="b", advice="use variant 'b'; open upstream"
    )
    records = [known, record_of(**{"variant": "b", **remedied})]
    assert Detail("next", f"{words} upstream") in explain([known], Background(records)).details


def test_what_could_not_be_judged_is_grouped_by_reason(record_of: RecordOf) -> None:
    def unable(**fields: object) -> Record:
        return record_of(verdict=Outcome.UNSUPPORTED, **fields)

    records = [unable(reason="x"), unable(reason="y"), unable(reason="x", target="tpu")]
    assert [len(cause) for cause in causes(records)] == [2, 1]


def test_a_measured_record_is_the_example(record_of: RecordOf) -> None:
    blank = record_of(verdict=Outcome.KNOWN_DEFECT, measured=None)
    measured = record_of(verdict=Outcome.KNOWN_DEFECT, measured=7)
    (cause,) = causes([blank, measured])
    (example,) = (each for each in explain(cause).details if each.label == "example")
    assert ": 7 B, limit" in example.text


def test_each_finding_of_a_group_has_its_next_step_and_command(record_of: RecordOf) -> None:
    def failed(target: str, advice: str) -> Record:
        return record_of(verdict=Outcome.FAILED, target=target, advice=advice)

    compare = "compare the two programs: assay inspect before.hlo --diff after.hlo"
    mixed = [failed("cpu", "store it"), failed("gpu-h100", compare), failed("tpu", "store it")]
    steps = [each for each in explain(mixed).details if each.label in ("next", "run")]
    assert steps == [
        Detail("next", "scan_stack on cpu, scan_stack on tpu: store it"),
        Detail("next", "scan_stack on gpu-h100: compare the two programs"),
        Detail("run", "assay inspect before.hlo --diff after.hlo", verbatim=True),
    ]
    alike = [failed("cpu", "store it"), failed("tpu", "store it")]
    assert Detail("next", "store it") in explain(alike).details


def test_a_failed_claim_says_measured_limit_finding_next_and_rerun(record_of: RecordOf) -> None:
    baseline = BaselineNumber(value=2**30, toolchain={"jax": "0.10.2"})
    details = details_of(
        record_of(
            verdict=Outcome.FAILED,
            measured=2**31,
            limit=2**30,
            baseline=baseline,
            reason="too much",
            advice="shard it",
            upstream=LINK,
        )
    )
    assert details == {
        "measured": "2.0 GiB, limit 1.0 GiB, baseline 1.0 GiB on jax 0.10.2",
        "finding": "too much",
        "since": "the baseline is of another toolchain: jax 0.10.2 → 0.12.0, jaxlib none → 0.12.0; "
        "no earlier run is known; add --assay-history=default",
        "next": "shard it",
        "upstream": LINK,
        "rerun": "pytest suites --assay-target gpu-h100:8 -k scan_stack/offload-hidden",
    }


def test_a_number_of_this_toolchain_changed_with_the_program(record_of: RecordOf) -> None:
    baseline = BaselineNumber(value=7, toolchain={"jax": "0.12.0", "jaxlib": "0.12.0"})
    failed = record_of(verdict=Outcome.FAILED, measured=8, baseline=baseline)
    assert details_of(failed)["since"].startswith("the program changed, not the compiler: ")
    better = record_of(verdict=Outcome.IMPROVED, measured=6, baseline=baseline)
    assert details_of(better)["since"].startswith("the program changed, not the compiler: ")


def test_a_failed_claim_without_advice_still_says_what_to_do(record_of: RecordOf) -> None:
    assert details_of(record_of(verdict=Outcome.FAILED, advice=""))["next"]


def test_what_was_never_judged_points_at_no_upstream_defect(record_of: RecordOf) -> None:
    for verdict in (Outcome.UNSUPPORTED, Outcome.INCONCLUSIVE, Outcome.ERROR):
        assert "upstream" not in details_of(record_of(verdict=verdict, upstream=LINK))


def test_a_failure_without_numbers_claims_none(record_of: RecordOf) -> None:
    details = details_of(record_of(verdict=Outcome.ERROR, measured=None, limit=None))
    assert "measured" not in details
