"""Each rule of qualification, next to the smallest change that turns its decision round."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.judge.qualification import demanded, dropped, exit_code, later, qualify
from assay.model.qualification import (
    AcceptedDefect,
    Cause,
    Cell,
    Decision,
    Demand,
    Feature,
    FeatureRule,
    Strictness,
)
from assay.model.verdict import USUAL, Ending, ExitCode, Outcome, Record
from tests.qualified import (
    LINK,
    PASSING,
    TARGET,
    control,
    known_defect,
    record,
    requirement,
    rule,
)

DEFECT_FREE = rule(requirement(known_defects={}))
TWO_CONTROLS = rule(requirement(claims={"host-bytes": ("save", "twice")}))
UNJUDGED = {"measured": None, "limit": None}


def feature(*records: Record, by: FeatureRule | None = None, level: int = 1) -> Feature:
    (found,) = qualify(records, (by or rule(),), target=TARGET, level=level)
    return found


def decided(*records: Record, by: FeatureRule | None = None) -> tuple[Decision, Cause]:
    found = feature(*records, by=by)
    return found.decision, found.cause


def test_claims_hold_and_controls_failed() -> None:
    found = feature(*PASSING)
    assert (found.decision, found.cause) == (Decision.PASSED, Cause.HOLDS)
    assert [(each.variant, each.verdict) for each in found.cells] == [
        ("input", Outcome.PASSED),
        ("output", Outcome.KNOWN_DEFECT),
    ]
    assert found.cells[0].negative_controls == {"save": Outcome.PASSED}


def test_an_accepted_defect_names_its_remedy() -> None:
    assert feature(*PASSING).known_defects == (
        AcceptedDefect(
            variant="output", remedy="input", reason="the name is ignored", upstream=LINK
        ),
    )


@pytest.mark.parametrize("verdict", [Outcome.IMPROVED, Outcome.FIXED_UPSTREAM, Outcome.PASSED])
def test_a_defect_that_is_gone_passes_without_a_note(verdict: Outcome) -> None:
    found = feature(record(), known_defect(verdict=verdict), control())
    assert (found.decision, found.known_defects) == (Decision.PASSED, ())


def test_a_defect_that_the_rule_does_not_accept_fails() -> None:
    assert decided(*PASSING, by=DEFECT_FREE) == (Decision.FAILED, Cause.DEFECT_NOT_ACCEPTED)


def test_a_known_defect_of_the_remedy_fails() -> None:
    broken = record(verdict=Outcome.KNOWN_DEFECT)
    assert decided(broken, known_defect(), control())[0] is Decision.FAILED


def test_a_defect_that_fails_otherwise_fails() -> None:
    other = known_defect(verdict=Outcome.FAILED)
    assert decided(record(), other, control()) == (Decision.FAILED, Cause.CLAIM_FAILED)


@pytest.mark.parametrize("missing", range(3))
def test_each_missing_record_fails(missing: int) -> None:
    kept = [each for number, each in enumerate(PASSING) if number != missing]
    assert decided(*kept) == (Decision.FAILED, Cause.NOT_REACHED)


def test_a_feature_without_any_record_fails() -> None:
    assert decided() == (Decision.FAILED, Cause.NOT_REACHED)


def test_each_named_control_is_needed() -> None:
    assert decided(*PASSING, by=TWO_CONTROLS) == (Decision.FAILED, Cause.NOT_REACHED)
    assert feature(*PASSING, by=TWO_CONTROLS).reason == "twice"
    assert decided(*PASSING, control("twice"), by=TWO_CONTROLS)[0] is Decision.PASSED


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"run": "20261124T000000-0000"},
        {"suite": "dus_remat"},
        {"workload": "flax"},
        {"target": "tpu"},
        {"claim": "temp-bytes"},
    ],
)
def test_a_control_elsewhere_proves_nothing(elsewhere: dict[str, str]) -> None:
    assert decided(record(), known_defect(), control(**elsewhere)) == (
        Decision.FAILED,
        Cause.NOT_REACHED,
    )


@pytest.mark.parametrize("verdict", [Outcome.FAILED, Outcome.INCONCLUSIVE, Outcome.UNSUPPORTED])
def test_a_control_that_did_not_fail_decides(verdict: Outcome) -> None:
    blind = control(verdict=verdict, reason="it passes")
    assert decided(record(), known_defect(), blind) == (Decision.INCONCLUSIVE, Cause.UNDETECTED)


def test_a_control_that_the_rule_does_not_name_counts_too() -> None:
    blind = control("other", verdict=Outcome.FAILED)
    assert decided(*PASSING, blind) == (Decision.INCONCLUSIVE, Cause.UNDETECTED)


def test_a_verdict_that_a_blind_control_made_inconclusive_says_so() -> None:
    unsure = record(verdict=Outcome.INCONCLUSIVE)
    blind = control(verdict=Outcome.FAILED, reason="it passes")
    found = feature(unsure, known_defect(), blind)
    assert (found.cause, found.reason) == (Cause.UNDETECTED, "it passes")


@pytest.mark.parametrize("broken", [record, control])
def test_an_error_outweighs_all_else(broken: object) -> None:
    error = broken(verdict=Outcome.ERROR, reason="KeyError")  # type: ignore[operator]
    others = [each for each in PASSING if each.claim != error.claim or each.variant == "output"]
    found = feature(*others, error)
    assert (found.decision, found.cause, found.reason) == (
        Decision.INCONCLUSIVE,
        Cause.ASSAY_FAILED,
        "KeyError",
    )


def test_noise_is_inconclusive() -> None:
    noisy = record(verdict=Outcome.INCONCLUSIVE, reason="too noisy")
    assert decided(noisy, known_defect(), control()) == (
        Decision.INCONCLUSIVE,
        Cause.INCONCLUSIVE,
    )


def test_nothing_judged_is_unsupported() -> None:
    unable = [replace(each, verdict=Outcome.UNSUPPORTED, reason="no torch") for each in PASSING]
    found = feature(*unable)
    assert (found.decision, found.reason) == (Decision.UNSUPPORTED, "no torch")


def test_a_part_that_cannot_be_judged_fails() -> None:
    unable = known_defect(verdict=Outcome.UNSUPPORTED, **UNJUDGED)
    assert decided(record(), unable, control()) == (Decision.FAILED, Cause.NOT_JUDGED)


@pytest.mark.parametrize(
    ("measured", "cause"),
    [(512, Cause.HOLDS), (513, Cause.LIMIT_EXCEEDED), (None, Cause.LIMIT_EXCEEDED)],
)
def test_the_limit_of_the_rules_applies(measured: int | None, cause: Cause) -> None:
    by = rule(requirement(at_most={"host-bytes": 512}))
    assert feature(record(measured=measured), *PASSING[1:], by=by).cause is cause


def test_the_worst_of_two_records_of_a_verdict_counts() -> None:
    assert decided(*PASSING, record(verdict=Outcome.FAILED)) == (
        Decision.FAILED,
        Cause.CLAIM_FAILED,
    )


def test_records_of_another_target_or_suite_are_ignored() -> None:
    other = [record(target="tpu", verdict=Outcome.ERROR), record(suite="b", verdict=Outcome.ERROR)]
    assert feature(*PASSING, *other) == feature(*PASSING)


def test_a_target_without_requirements_is_unsupported_and_not_required() -> None:
    found = feature(by=rule(requirement(targets=("tpu*",))))
    assert (found.decision, found.reason) == (Decision.UNSUPPORTED, "one memory")
    assert not found.required
    assert found.satisfies


def test_a_higher_level_adds_verdicts_and_features() -> None:
    more = rule(requirement(), requirement(level=2, variants=("input",), claims={"runs": ("x",)}))
    assert len(demanded(more, TARGET, 1)) == 2
    assert Cell("stack", "input", "runs") in demanded(more, TARGET, 2)
    only = (rule(requirement(level=2)),)
    assert qualify(PASSING, only, target=TARGET, level=1) == ()
    assert later(only, target=TARGET, level=1) == {"offload.rows": 2}
    twice = (rule(requirement(level=2), requirement(level=3)),)
    assert later(twice, target=TARGET, level=1) == {"offload.rows": 2}
    assert later(only, target=TARGET, level=2) == later(only, target="cpu", level=1) == {}


@pytest.mark.parametrize(
    ("decision", "required", "satisfies"),
    [
        (Decision.PASSED, True, True),
        (Decision.UNSUPPORTED, True, False),
        (Decision.INCONCLUSIVE, True, False),
        (Decision.FAILED, True, False),
        (Decision.UNSUPPORTED, False, True),
        (Decision.INCONCLUSIVE, False, True),
        (Decision.FAILED, False, False),
    ],
)
def test_only_a_failure_of_an_optional_feature_counts(
    decision: Decision, *, required: bool, satisfies: bool
) -> None:
    found = replace(feature(*PASSING), decision=decision, required=required)
    assert found.satisfies is satisfies
    expected = ExitCode.PASSED if satisfies else ExitCode.FAILED
    assert exit_code((feature(*PASSING), found), USUAL.ending) is expected


def test_no_feature_that_passed_is_no_qualification() -> None:
    assert exit_code((), USUAL.ending) is ExitCode.FAILED
    nowhere = feature(by=rule(requirement(targets=("tpu*",))))
    assert exit_code((nowhere,), USUAL.ending) is ExitCode.FAILED


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (Ending(cut_short=ExitCode.MISUSE), ExitCode.MISUSE),
        (Ending(cut_short=ExitCode.CRASHED), ExitCode.CRASHED),
        (Ending(unwritten="disk full"), ExitCode.CRASHED),
        (Ending(failed_elsewhere=True), ExitCode.PASSED),
    ],
)
def test_a_run_that_ended_early_is_no_qualification(ending: Ending, code: ExitCode) -> None:
    assert exit_code((feature(*PASSING),), ending) is code


def test_a_pass_that_rests_on_nothing_is_a_fault() -> None:
    passed, failed = feature(*PASSING), feature(*PASSING, by=DEFECT_FREE)
    for cells in ((), failed.cells):
        assert exit_code((replace(passed, cells=cells),), USUAL.ending) is ExitCode.CRASHED


def test_an_error_ends_with_3() -> None:
    broken = feature(record(verdict=Outcome.ERROR), *PASSING[1:])
    assert exit_code((broken,), USUAL.ending) is ExitCode.CRASHED


BASE = rule(requirement(at_most={"host-bytes": 512}))
PLACE = "scan_offload/stack/input: host-bytes"
STRICTER = {
    "a claim": (
        rule(
            requirement(
                at_most={"host-bytes": 512}, claims={"host-bytes": ("save",), "runs": ("x",)}
            )
        ),
        Strictness.VERDICT,
    ),
    "a variant": (
        rule(requirement(at_most={"host-bytes": 512}, variants=("input", "output", "third"))),
        Strictness.VERDICT,
    ),
    "a negative control": (
        rule(requirement(at_most={"host-bytes": 512}, claims={"host-bytes": ("save", "twice")})),
        Strictness.NEGATIVE_CONTROL,
    ),
    "a lower limit": (rule(requirement(at_most={"host-bytes": 511})), Strictness.LIMIT),
    "no accepted defect": (
        rule(requirement(at_most={"host-bytes": 512}, known_defects={})),
        Strictness.WITHOUT_DEFECT,
    ),
}


def changes(base: FeatureRule, own: FeatureRule) -> set[Strictness]:
    return {each.kind for each in dropped((base,), (own,), target=TARGET, level=1)}


@pytest.mark.parametrize("what", STRICTER)
def test_stricter_rules_drop_nothing_and_their_reverse_does(what: str) -> None:
    stricter, kind = STRICTER[what]
    assert changes(BASE, stricter) == set()
    assert kind in changes(stricter, BASE)


def test_the_same_rules_drop_nothing() -> None:
    assert dropped((BASE,), (BASE,), target=TARGET, level=1) == ()


def test_a_limit_that_is_left_out_is_dropped() -> None:
    assert dropped((BASE,), (rule(),), target=TARGET, level=1)[0] == Demand(
        Strictness.LIMIT, "offload.rows", PLACE
    )


@pytest.mark.parametrize(
    ("own", "kind"),
    [
        (replace(BASE, required=False), Strictness.REQUIRED),
        (replace(BASE, promise="Rows are stored."), Strictness.WORDING),
        (replace(BASE, name="Offload"), Strictness.WORDING),
        (replace(BASE, elsewhere="certified by other means"), Strictness.WORDING),
        (replace(BASE, id="other.rows"), Strictness.FEATURE),
        (rule(requirement(level=2, at_most={"host-bytes": 512})), Strictness.VERDICT),
        (rule(requirement(targets=("tpu*",), at_most={"host-bytes": 512})), Strictness.VERDICT),
        (rule(requirement(workloads=("other",))), Strictness.VERDICT),
    ],
)
def test_each_way_to_demand_less_is_seen(own: FeatureRule, kind: Strictness) -> None:
    assert kind in changes(BASE, own)


def test_what_another_target_or_level_demands_is_not_compared() -> None:
    looser = rule(requirement(at_most={"host-bytes": 512}), requirement(level=2))
    base = rule(
        requirement(at_most={"host-bytes": 512}),
        requirement(targets=("tpu*",), workloads=("a",)),
        requirement(level=2, workloads=("b",)),
    )
    # The second requirement of ``looser`` replaces the limit, from level 2 on.
    assert changes(base, looser) == set()
    assert {each.kind for each in dropped((base,), (looser,), target=TARGET, level=2)} == {
        Strictness.VERDICT,
        Strictness.WITHOUT_DEFECT,
        Strictness.NEGATIVE_CONTROL,
        Strictness.LIMIT,
    }
