"""Each cause is read once, what fails is read in full, and nothing but what passed is left out."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from assay.model.verdict import BaselineNumber, Outcome, Record
from assay.report.causes import Detail, causes, explain

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


def test_failed_claims_of_one_reason_still_stand_alone(record_of: RecordOf) -> None:
    assert len(causes([record_of(verdict=Outcome.FAILED)] * 3)) == 3


def test_a_failed_test_is_one_cause_named_by_its_number(record_of: RecordOf) -> None:
    def failed(**fields: object) -> Record:
        return record_of(verdict=Outcome.FAILED, **fields)

    number = failed(workload="test_a", claim="temp_bytes")
    own = failed(workload="test_a", claim="assertions")
    again = failed(workload="test_a-2", claim="assertions")
    other = failed(workload="test_b", claim="assertions")
    first, second = causes([number, other, own, again])
    assert (first, second) == ([number, own, again], [other])
    explanation = explain(first)
    assert explanation.text.startswith("temp_bytes · ")
    program = "offload-hidden on gpu-h100:8"
    programs = f"assertions of {program}, {program}, in the same test"
    assert Detail("with", programs) in explanation.details


def test_two_numbers_that_failed_in_a_test_are_two_causes(record_of: RecordOf) -> None:
    claims = ("temp_bytes", "peak_bytes", "assertions")
    failed = [record_of(verdict=Outcome.FAILED, workload="test_a", claim=name) for name in claims]
    assert [len(cause) for cause in causes(failed)] == [2, 1]


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
    assert ": 7 B ·" in example.text


def test_a_failed_claim_says_measured_limit_cause_next_and_rerun(record_of: RecordOf) -> None:
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
        "measured": "2.0 GiB · limit 1.0 GiB · baseline 1.0 GiB on jax 0.10.2",
        "since": "the baseline's toolchain: jax 0.10.2 → 0.12.0, jaxlib none → 0.12.0",
        "cause": "too much",
        "next": "shard it",
        "upstream": LINK,
        "rerun": "pytest suites --assay-target gpu-h100:8 -k scan_stack/offload-hidden",
    }


def test_a_number_of_this_toolchain_changed_with_the_program(record_of: RecordOf) -> None:
    baseline = BaselineNumber(value=7, toolchain={"jax": "0.12.0", "jaxlib": "0.12.0"})
    failed = record_of(verdict=Outcome.FAILED, measured=8, baseline=baseline)
    assert details_of(failed)["since"].endswith("the program changed, not the compiler")
    assert "since" not in details_of(record_of(verdict=Outcome.FAILED))


def test_a_failed_claim_without_advice_still_says_what_to_do(record_of: RecordOf) -> None:
    assert details_of(record_of(verdict=Outcome.FAILED, advice=""))["next"]


def test_what_was_never_judged_points_at_no_upstream_defect(record_of: RecordOf) -> None:
    for verdict in (Outcome.UNSUPPORTED, Outcome.INCONCLUSIVE, Outcome.ERROR):
        assert "upstream" not in details_of(record_of(verdict=verdict, upstream=LINK))


def test_a_failure_without_numbers_claims_none(record_of: RecordOf) -> None:
    details = details_of(record_of(verdict=Outcome.ERROR, measured=None, limit=None))
    assert "measured" not in details
