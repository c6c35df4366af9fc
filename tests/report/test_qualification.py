"""Each rule of qualification, beside the smallest change that turns its decision round."""

from collections.abc import Callable

import msgspec
import pytest

from assay.model.verdict import Ending, ExitCode, Outcome, Record
from assay.report.qualification import (
    Decision,
    Detector,
    Feature,
    Qualification,
    qualify,
    to_json,
    vendor_page,
)

RecordOf = Callable[..., Record]

LINK = "https://github.com/jax-ml/jax/issues/25010"
UNJUDGED = {"measured": None, "limit": None}


def qualified(*records: Record) -> Qualification:
    return qualify(
        records, target="gpu-h100:8", platform="Linux x86_64", python="3.12.1", date="2026-11-20"
    )


def feature(*records: Record) -> Feature:
    """The feature of the variant ``offload-hidden``."""
    (found,) = (item for item in qualified(*records).features if item.variant == "offload-hidden")
    return found


@pytest.fixture
def negative_control(record_of: RecordOf) -> Record:
    return record_of(
        variant="useless", claim="host-bytes.negative-control", reason="breaks, as it must"
    )


def test_passed_with_a_control_that_failed_passes(
    record_of: RecordOf, negative_control: Record
) -> None:
    passed = feature(record_of(), negative_control)
    assert (passed.decision, passed.known) == (Decision.PASS, False)
    assert passed.claims[0].detector is Detector.SOUND
    assert [(seen.variant, seen.verdict) for seen in passed.claims[0].negative_controls] == [
        ("useless", Outcome.PASSED)
    ]


def test_better_than_the_baseline_passes_too(record_of: RecordOf, negative_control: Record) -> None:
    assert feature(record_of(verdict=Outcome.IMPROVED), negative_control).decision is Decision.PASS


def test_passed_without_any_control_is_inconclusive(record_of: RecordOf) -> None:
    found = feature(record_of())
    assert found.decision is Decision.INCONCLUSIVE
    assert found.reason == "no negative control of host-bytes failed in this run"


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"run": "2026-11-19"},
        {"suite": "dus_remat"},
        {"target": "tpu"},
        {"claim": "device-bytes-fall.negative-control"},
        {"verdict": Outcome.UNSUPPORTED},
        {"verdict": Outcome.INCONCLUSIVE},
    ],
)
def test_a_control_that_did_not_fail_here_vouches_for_nothing(
    record_of: RecordOf, elsewhere: dict[str, object]
) -> None:
    fields = {"variant": "useless", "claim": "host-bytes.negative-control", **elsewhere}
    found = feature(record_of(), record_of(**fields))
    assert found.decision is Decision.INCONCLUSIVE
    assert found.claims[0].detector is Detector.UNPROVEN


def test_every_control_of_a_claim_must_have_failed(
    record_of: RecordOf, negative_control: Record
) -> None:
    unmeasured = record_of(
        variant="other", claim=negative_control.claim, verdict=Outcome.INCONCLUSIVE
    )
    found = feature(record_of(), negative_control, unmeasured)
    assert found.claims[0].detector is Detector.UNPROVEN
    assert found.decision is Decision.INCONCLUSIVE


@pytest.mark.parametrize("verdict", [Outcome.FAILED, Outcome.ERROR])
def test_a_blind_control_outweighs_a_sound_one(
    record_of: RecordOf, negative_control: Record, verdict: Outcome
) -> None:
    blind = record_of(variant="useless-too", claim="host-bytes.negative-control", verdict=verdict)
    found = feature(record_of(), negative_control, blind)
    assert found.decision is Decision.INCONCLUSIVE
    assert found.reason == "the negative control of host-bytes did not fail in this run"


def test_a_control_of_another_workload_vouches_for_nothing(
    record_of: RecordOf, negative_control: Record
) -> None:
    blind_elsewhere = record_of(
        workload="flax_encoder", claim="host-bytes.negative-control", verdict=Outcome.FAILED
    )
    assert feature(record_of(), negative_control, blind_elsewhere).decision is Decision.PASS
    assert feature(record_of(), blind_elsewhere).decision is Decision.INCONCLUSIVE
    assert (
        feature(record_of(workload="flax_encoder"), negative_control).decision
        is Decision.INCONCLUSIVE
    )


def test_one_claim_without_a_control_blocks_the_pass_of_all(
    record_of: RecordOf, negative_control: Record
) -> None:
    found = feature(record_of(), record_of(claim="temp-bytes"), negative_control)
    assert found.decision is Decision.INCONCLUSIVE
    assert "temp-bytes" in found.reason
    assert "host-bytes" not in found.reason


@pytest.mark.parametrize("verdict", [Outcome.FAILED, Outcome.FIXED_UPSTREAM])
def test_one_failed_claim_fails_the_feature(
    record_of: RecordOf, negative_control: Record, verdict: Outcome
) -> None:
    broken = record_of(workload="flax_encoder", verdict=verdict, reason="0 B")
    found = feature(record_of(), broken, negative_control)
    assert (found.decision, found.known) == (Decision.FAIL, False)
    assert found.reason == "host-bytes in flax_encoder: 0 B"


def test_a_known_defect_fails_as_known_with_its_link(
    record_of: RecordOf, negative_control: Record
) -> None:
    known = record_of(claim="temp-bytes", verdict=Outcome.KNOWN_DEFECT, upstream=LINK)
    found = feature(record_of(), known, negative_control)
    assert (found.decision, found.known, found.upstream) == (Decision.FAIL, True, (LINK,))


def test_a_defect_that_could_not_be_looked_for_is_not_cited(record_of: RecordOf) -> None:
    unable = record_of(verdict=Outcome.UNSUPPORTED, upstream=LINK, **UNJUDGED)
    assert feature(unable).upstream == ()


def test_a_failed_claim_beside_a_known_defect_is_not_known(record_of: RecordOf) -> None:
    known = record_of(verdict=Outcome.KNOWN_DEFECT, upstream=LINK)
    found = feature(known, record_of(verdict=Outcome.FAILED))
    assert (found.decision, found.known) == (Decision.FAIL, False)


def test_an_error_leaves_the_feature_unmeasured_whatever_else_it_did(record_of: RecordOf) -> None:
    failed = record_of(verdict=Outcome.ERROR, reason="KeyError: 'while'")
    found = feature(record_of(verdict=Outcome.FAILED), failed)
    assert found.decision is Decision.INCONCLUSIVE
    assert "KeyError: 'while'" in found.reason


def test_a_feature_cannot_run_only_if_no_claim_could(
    record_of: RecordOf, negative_control: Record
) -> None:
    unable = record_of(verdict=Outcome.UNSUPPORTED, reason="no PTX", **UNJUDGED)
    missing = record_of(verdict=Outcome.INCONCLUSIVE, reason="unknown trip count", **UNJUDGED)
    assert feature(unable, unable).decision is Decision.UNSUPPORTED
    assert feature(unable, unable).reason == "no PTX"
    assert feature(unable, missing).decision is Decision.INCONCLUSIVE
    assert feature(unable, missing).reason == "unknown trip count"
    passed = feature(unable, missing, record_of(), negative_control)
    assert passed.decision is Decision.PASS
    assert "2 more could not be judged" in passed.reason


def test_a_variant_that_is_only_a_control_is_no_feature(
    record_of: RecordOf, negative_control: Record
) -> None:
    assert [item.variant for item in qualified(record_of(), negative_control).features] == [
        "offload-hidden"
    ]


def test_records_of_other_targets_are_ignored(
    record_of: RecordOf, negative_control: Record
) -> None:
    elsewhere = record_of(target="tpu", verdict=Outcome.ERROR)
    assert qualified(record_of(), negative_control, elsewhere) == qualified(
        record_of(), negative_control
    )


def test_a_variant_of_which_every_item_was_lost_is_inconclusive(record_of: RecordOf) -> None:
    lost = ("test_a[scan_stack/gone@gpu-h100:8]", "test_a[scan_stack/gone@tpu]")
    made = qualify(
        [record_of()],
        target="gpu-h100:8",
        platform="Linux x86_64",
        python="3.12.1",
        date="2026-11-20",
        ending=Ending(lost=(*lost, "test_a[scan_stack/offload-hidden@gpu-h100:8]")),
    )
    (seen, gone) = made.features
    assert (seen.variant, seen.decision) == ("offload-hidden", Decision.INCONCLUSIVE)
    assert gone == Feature(
        suite="scan_offload",
        variant="gone",
        decision=Decision.INCONCLUSIVE,
        known=False,
        reason="an item reached no verdict: its worker was lost, or the run ended before it",
        upstream=(),
        claims=(),
    )
    assert made.exit_code is ExitCode.FAILED


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (Outcome.PASSED, ExitCode.PASSED),
        (Outcome.KNOWN_DEFECT, ExitCode.PASSED),
        (Outcome.FAILED, ExitCode.FAILED),
        (Outcome.UNSUPPORTED, ExitCode.FAILED),
        (Outcome.ERROR, ExitCode.CRASHED),
    ],
)
def test_the_exit_code_follows_the_fixed_rule(
    record_of: RecordOf, verdict: Outcome, code: ExitCode
) -> None:
    assert qualified(record_of(verdict=verdict)).exit_code is code


def test_a_blind_control_fails_the_exit_code_too(record_of: RecordOf) -> None:
    blind = record_of(claim="host-bytes.negative-control", verdict=Outcome.FAILED)
    assert qualified(record_of(), blind).exit_code is ExitCode.FAILED


def test_no_record_is_no_pass() -> None:
    assert qualified().exit_code is ExitCode.FAILED
    assert "0 features" in vendor_page(qualified())


def test_the_json_reads_back_as_the_same_value(
    record_of: RecordOf, negative_control: Record
) -> None:
    known = record_of(variant="tie", verdict=Outcome.KNOWN_DEFECT, upstream=LINK)
    made = qualified(record_of(), negative_control, known)
    text = to_json(made)
    assert text.endswith(b"}\n")
    assert msgspec.json.decode(text, type=Qualification) == made
    loose = msgspec.json.decode(text)
    assert (loose["schema"], loose["target"], loose["exit_code"]) == (1, "gpu-h100:8", 0)
    assert loose["environment"] == {
        "target": "gpu-h100:8",
        "toolchain": {"jax": "0.12.0", "jaxlib": "0.12.0"},
        "platform": "Linux x86_64",
        "python": "3.12.1",
        "date": "2026-11-20",
    }
    assert [item["decision"] for item in loose["features"]] == ["pass", "fail"]


def test_the_page_gives_headline_environment_decisions_and_numbers(
    record_of: RecordOf, negative_control: Record
) -> None:
    known = record_of(variant="tie", verdict=Outcome.KNOWN_DEFECT, upstream=LINK, reason="a | b")
    page = vendor_page(qualified(record_of(), negative_control, known))
    assert "**2 features: 1 pass, 1 fail, 0 unsupported, 0 inconclusive. Exit code 0.**" in page
    assert "| python | 3.12.1 |" in page
    assert "| scan\\_offload/offload-hidden | **pass** |" in page
    assert "| scan\\_offload/tie | **fail** (known) | host-bytes in scan\\_stack: a \\| b |" in page
    assert f"Upstream: `{LINK}`" in page
    assert (
        "| host-bytes | passed | 16.0 GiB | 16.0 GiB | sound (scan\\_stack/useless: passed) |"
        in page
    )
