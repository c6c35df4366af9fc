"""A qualification in words: why each feature is decided, the pages, and what a check found."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from assay.judge.qualification import dropped
from assay.model.qualification import (
    CERTIFICATE_SCHEMA,
    Certificate,
    Check,
    Decision,
    Demand,
    Mismatch,
    Producer,
    Qualification,
    RulesUsed,
    Strictness,
)
from assay.model.verdict import ExitCode, Outcome, Record
from assay.report.qualification import (
    SIGNED,
    UNSIGNED,
    demands,
    explain,
    mismatch,
    pages,
    print_qualification,
    print_verification,
    result,
    sources_line,
)
from tests.qualified import (
    PASSING,
    TARGET,
    control,
    known_defect,
    qualification,
    record,
    requirement,
    rule,
)

LIMITED = rule(requirement(at_most={"host-bytes": 256}))
STRICT = rule(requirement(known_defects={}))
UNABLE = tuple(replace(each, verdict=Outcome.UNSUPPORTED, reason="no torch") for each in PASSING)
FAILED = (
    record(verdict=Outcome.FAILED, reason="0 B"),
    known_defect(verdict=Outcome.FAILED),
    control(),
)
FEATURE = "offload.rows"
DROPPED = RulesUsed(
    sha256="b" * 64,
    packaged_sha256="c" * 64,
    dropped=(
        Demand(Strictness.VERDICT, FEATURE, "stack/a: x"),
        Demand(Strictness.VERDICT, FEATURE, "stack/b: x"),
    ),
)


def words(made: Qualification) -> str:
    text = StringIO()
    print_qualification(Console(file=text, width=200, highlight=False), made)
    return " ".join(text.getvalue().split())


@pytest.mark.parametrize(
    ("records", "rules", "text"),
    [
        (
            PASSING,
            rule(),
            (
                "1 claim held; every negative control failed; 1 known defect with a remedy: output "
                "(use input)"
            ),
        ),
        (FAILED, rule(), "2 of 2 verdicts failed: stack/input, host-bytes: 0 B (and 1 more)"),
        (
            PASSING,
            STRICT,
            (
                "known defect that the rules do not accept: stack/output, host-bytes: the name is "
                "ignored; seen: host memory: 0 B"
            ),
        ),
        (
            PASSING,
            LIMITED,
            (
                "above the limit of the rules: stack/input, host-bytes: measured 512 B, at most "
                "256 B allowed"
            ),
        ),
        (
            PASSING[:1],
            rule(),
            (
                "coverage is missing, 2 of 2 verdicts not reached: stack/input, host-bytes: no "
                "verdict on negative control save (and 1 more)"
            ),
        ),
        (
            PASSING[1:],
            rule(),
            "coverage is missing, 1 of 2 verdicts not reached: stack/input, host-bytes",
        ),
        (
            (*PASSING[:2], control(verdict=Outcome.FAILED, reason="it passes")),
            rule(),
            "a negative control did not fail: stack/input, host-bytes: it passes (and 1 more)",
        ),
        (
            (record(verdict=Outcome.INCONCLUSIVE, reason="noise"), *PASSING[1:]),
            rule(),
            "1 of 2 verdicts inconclusive: stack/input, host-bytes: noise",
        ),
        (
            (UNABLE[0], *PASSING[1:]),
            rule(),
            "coverage is missing, 1 of 2 verdicts not judged: stack/input, host-bytes: no torch",
        ),
        (UNABLE, rule(), "no torch"),
        (
            (record(verdict=Outcome.ERROR, reason="KeyError"), *PASSING[1:]),
            rule(),
            "Assay failed at stack/input, host-bytes: KeyError",
        ),
        ((), rule(requirement(targets=("tpu",))), "one memory"),
    ],
)
def test_each_cause_has_a_sentence(records: tuple[Record, ...], rules: object, text: str) -> None:
    (feature,) = qualification(records, (rules,)).features  # type: ignore[arg-type]
    assert explain(feature) == text


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ExitCode.PASSED, "Qualified at level 1"),
        (ExitCode.FAILED, "Not qualified at level 1"),
        (ExitCode.MISUSE, "Not qualified at level 1: the run was interrupted"),
        (ExitCode.CRASHED, "Not qualified at level 1: Assay itself failed"),
    ],
)
def test_the_result_is_that_of_the_exit_code(code: ExitCode, text: str) -> None:
    assert result(replace(qualification(), exit_code=code)) == text


def test_the_terminal_shows_a_line_for_each_feature() -> None:
    text = words(qualification())
    assert f"{TARGET}: Qualified at level 1 (exit 0)" in text
    assert "1 feature: 1 passed; as strict as the rules of Assay" in text
    assert f"passed Host offload of rows [{FEATURE}] 1 claim held" in text
    assert "not required" not in text


def test_an_optional_feature_and_a_later_one_say_so() -> None:
    made = qualification(rules=(rule(required=False), rule(requirement(level=3), id="a.b")))
    assert "(not required)" in words(made)
    assert "later a.b is decided from level 3 on" in words(made)


def test_looser_rules_are_on_the_face_of_all() -> None:
    made = qualification(used=DROPPED)
    line = f"{FEATURE}: a verdict is not needed (stack/a: x) and 1 more"
    assert "LESS STRICT than the rules of Assay" in words(made)
    assert line in words(made)
    for page in pages(made, "0" * 64).values():
        face = page.decode().partition("Annex")[0]
        assert "LESS STRICT" in face
        assert line in face


def test_stricter_rules_say_what_they_add() -> None:
    added = dropped((STRICT,), (rule(),), target=TARGET, level=1)
    used = RulesUsed(sha256="b" * 64, packaged_sha256="c" * 64, added=added)
    assert "stricter than the rules of Assay: 1 demand added" in words(qualification(used=used))
    page = pages(qualification(used=used), "0" * 64)["certificate.html"].decode()
    assert "a known defect is not accepted (scan_offload/stack/output: host-bytes)" in page


@pytest.mark.parametrize("kind", Strictness)
def test_each_demand_has_a_sentence_in_both_directions(kind: Strictness) -> None:
    demand = Demand(kind, FEATURE, "")
    sentences = {*demands((demand,)), *demands((demand,), added=True)}
    assert all(each.startswith(f"{FEATURE}: ") for each in sentences)


def test_the_pages_hold_decision_environment_and_hashes() -> None:
    evidence = {"records.jsonl": "d" * 64, "evidence/a.json": "e" * 64}
    made = pages(qualification(FAILED, evidence=evidence), "f" * 64)
    face, annex, _ = made["certificate.html"].decode().split("Annex", 2)
    for text in ("Not qualified at level 1", "0 B (and 1 more)", "jax 0.12.0", "f" * 64, UNSIGNED):
        assert text in face
    assert "<td>save</td>" in annex
    assert "d" * 64 in made["certificate.html"].decode()
    assert "e" * 64 in made["qualification.html"].decode()
    assert "@page" in face


def test_a_timed_certificate_names_the_machine() -> None:
    made = qualification()
    timed = replace(made.environment, machine="device NVIDIA H100, driver 580")
    for page in pages(replace(made, environment=timed), "0").values():
        assert "Python 3.12.1; device NVIDIA H100, driver 580" in page.decode()
    assert "Python 3.12.1<" in pages(made, "0")["certificate.html"].decode()


def test_a_signed_certificate_names_its_key() -> None:
    page = pages(qualification(public_key="ab12" * 16), "0" * 64)["certificate.html"].decode()
    assert "ab12 ab12" in page
    assert SIGNED in page
    assert UNSIGNED not in page


def test_a_control_that_did_not_fail_says_so() -> None:
    blind = (record(), known_defect(), control(verdict=Outcome.FAILED))
    for records, text in ((blind, "save: not detected (failed)"), (PASSING[:2], "save: missing")):
        for page in pages(qualification(records), "0").values():
            assert text in page.decode()


def test_foreign_text_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    broken = record(verdict=Outcome.FAILED, reason=evil)
    made = qualification((broken, known_defect(reason=evil), control(variant=evil)))
    environment = replace(made.environment, platform=evil)
    for page in pages(replace(made, environment=environment), "0").values():
        assert evil not in page.decode()
        assert "&lt;script&gt;" in page.decode()


def test_a_link_that_is_no_address_is_no_link() -> None:
    bad = known_defect(upstream="javascript:alert(1)")
    page = pages(qualification((record(), bad, control())), "0")["certificate.html"].decode()
    assert "javascript:alert(1)" in page
    assert 'href="javascript' not in page


def checked(*mismatches: Mismatch, public_key: str = "", authentic: bool = False) -> str:
    made = qualification(public_key=public_key)
    certificate = Certificate(
        schema=CERTIFICATE_SCHEMA, qualification=made, pages={}, sha256="", signature=""
    )
    text = StringIO()
    console = Console(file=text, width=300, highlight=False)
    print_verification(
        console, certificate, "ab" * 32, mismatches, here=made.producer, authentic=authentic
    )
    return text.getvalue()


def test_a_check_says_what_hashes_alone_do_not_show() -> None:
    text = checked()
    assert "The certificate matches its evidence" in text
    assert f"Number of the certificate: {'ab' * 32}" in text
    assert UNSIGNED in text


def test_a_check_of_a_signature_says_whose_it_is() -> None:
    assert "Give --public-key" in checked(public_key="ab12" * 16)
    assert "The given key signed it: ab12 ab12" in checked(public_key="ab12" * 16, authentic=True)
    assert SIGNED in checked(public_key="ab12" * 16)
    broken = Mismatch(check=Check.SIGNATURE, subjects=("ab12",))
    assert "Give --public-key" not in checked(broken, public_key="ab12" * 16)


def test_a_check_says_whether_other_sources_reached_the_verdicts() -> None:
    then = Producer(version="0.1.0", commit="abc", sha256="1", suites_sha256="2")
    assert "by the Assay and the suites that are here" in sources_line(then, then)
    other = sources_line(then, replace(then, sha256="3"))
    assert other.endswith("other sources than those here: Assay (version 0.1.0, commit abc).")
    assert sources_line(then, replace(then, suites_sha256="")).endswith("here: suites.")
    unknown = replace(then, suites_sha256="")
    assert sources_line(unknown, unknown).endswith("here: suites.")


def test_each_mismatch_has_a_sentence_of_its_own() -> None:
    found = [Mismatch(check=each, subjects=("a file",)) for each in Check]
    found += [
        Mismatch(check=Check.SIGNATURE, subjects=(), is_missing=True),
        Mismatch(check=Check.SIGNATURE, subjects=("key",), is_missing=True),
        Mismatch(check=Check.SIGNATURE, subjects=("key", "other")),
        Mismatch(check=Check.DECISIONS, subjects=(), is_missing=True),
        Mismatch(check=Check.EVIDENCE, subjects=("a file",), is_missing=True),
    ]
    sentences = {mismatch(each) for each in found}
    assert len(sentences) == len(found)
    text = checked(*found)
    assert "matches its evidence" not in text
    assert all(sentence in text for sentence in sentences)


def test_every_decision_is_counted() -> None:
    made = qualification()
    features = tuple(replace(made.features[0], decision=each) for each in Decision)
    text = words(replace(made, features=features))
    assert "4 features: 1 passed, 1 failed, 1 unsupported, 1 inconclusive" in text
