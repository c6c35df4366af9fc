"""Every verdict has its label, text is made harmless, the last sentence follows the exit code."""

from collections.abc import Callable

import pytest
from _pytest.mark.expression import Expression
from hypothesis import given
from hypothesis import strategies as st

from assay.model.verdict import Ending, ExitCode, Missing, Outcome, Record, Relation
from assay.report.labels import (
    LABELS,
    SIMILAR,
    closing_sentence,
    expected,
    failure_line,
    headline,
    name_of,
    plain,
    rerun,
    toolchain_versions,
    uncontrolled_lines,
)

RecordOf = Callable[..., Record]
MISSING = Missing(target="cpu:8", reason="cpu:8: none collected")


def test_every_verdict_has_a_word_of_its_own() -> None:
    assert set(LABELS) == set(Outcome)
    assert {name_of(verdict).lower() for verdict in Outcome} == {each.value for each in Outcome}
    assert {each for each in Outcome if name_of(each).isupper()} == {
        each for each in Outcome if each.fails
    }


@given(st.text())
def test_plain_text_steers_no_terminal(text: str) -> None:
    assert all(letter.isprintable() or letter == "\n" for letter in plain(text))


def test_plain_leaves_words_lines_and_signs_as_they_are() -> None:
    assert plain("16 GiB ≤ 8 GiB\nsecond line") == "16 GiB ≤ 8 GiB\nsecond line"
    assert plain("\x1b[31mred\ttab") == "\N{REPLACEMENT CHARACTER}[31mred tab"


def test_the_rerun_keyword_is_one_that_pytest_reads(record_of: RecordOf) -> None:
    command = rerun([record_of(variant="two words@once", claim="bytes=0.negative-control")])
    assert command == (
        "pytest suites --assay-target gpu-h100:8 "
        "-k 'scan_stack/two and words and once and negative-control'"
    )
    Expression.compile(command.split("'")[1])


def test_the_rerun_is_of_what_was_run(record_of: RecordOf) -> None:
    told = rerun([record_of(variant="two")], ("pytest", "my suites", "--assay-level", "full"))
    assert told.startswith("pytest 'my suites' --assay-level full --assay-target gpu-h100:8 -k ")


def test_one_command_repeats_several_verdicts(record_of: RecordOf) -> None:
    places = {"block": "tpu", "block-full": "gpu-h100:8"}
    told = rerun([record_of(workload=name, target=where) for name, where in places.items()])
    assert told.endswith(
        "--assay-target tpu,gpu-h100:8 -k 'block/offload-hidden or block-full/offload-hidden'"
    )
    Expression.compile(told.split("'")[1])


@pytest.mark.parametrize(
    ("relation", "words"),
    [
        ("=", "expected exactly 16.0 GiB"),
        ("≤", "expected at most 16.0 GiB"),
        ("≥", "expected at least 16.0 GiB"),
        (None, "limit 16.0 GiB"),
    ],
)
def test_a_limit_says_on_which_side_it_lies(
    record_of: RecordOf, relation: Relation | None, words: str
) -> None:
    assert expected(record_of(relation=relation)) == words


@pytest.mark.parametrize(
    ("outcomes", "begins"),
    [
        ([Outcome.PASSED, Outcome.UNSUPPORTED], "Nothing regressed (exit 0)"),
        ([Outcome.PASSED, Outcome.KNOWN_DEFECT, Outcome.IMPROVED], "Nothing regressed (exit 0)"),
        ([Outcome.PASSED, Outcome.FAILED], "The run fails (exit 1)"),
        ([Outcome.PASSED, Outcome.FIXED_UPSTREAM], "The run fails (exit 1)"),
        ([Outcome.FAILED, Outcome.ERROR], "Assay itself failed (exit 3)"),
        ([Outcome.UNSUPPORTED], "The run judged nothing, which is not a pass (exit 1)"),
        ([], "The run judged nothing, which is not a pass (exit 1)"),
    ],
)
def test_the_last_sentence_follows_the_fixed_rule(
    record_of: RecordOf, outcomes: list[Outcome], begins: str
) -> None:
    records = [record_of(verdict=outcome) for outcome in outcomes]
    assert closing_sentence(records).startswith(begins)


def test_an_interrupted_run_never_says_that_nothing_regressed(record_of: RecordOf) -> None:
    for outcome in (Outcome.PASSED, Outcome.FAILED):
        said = closing_sentence([record_of(verdict=outcome)], Ending(cut_short=ExitCode.MISUSE))
        assert said.startswith("Interrupted: the remaining tests did not run (exit 2)")


def test_a_lost_process_is_named_as_it_is(record_of: RecordOf) -> None:
    ending = Ending(
        cut_short=ExitCode.CRASHED, lost_process="process 1 on Node-A was ended by SIGKILL"
    )
    said = closing_sentence([record_of(verdict=Outcome.PASSED)], ending)
    assert said.startswith("Process 1 on Node-A was ended by SIGKILL; the remaining tests did not")


@pytest.mark.parametrize(
    ("ending", "begins"),
    [
        (Ending(failed_elsewhere=True), "A test or a worker failed (exit 1)"),
        (
            Ending(lost=("test_a[w/a@cpu:8]",)),
            "The run is incomplete (exit 1): 1 passed; 1 item rea",
        ),
        (Ending(missing=(MISSING,)), "Expected verdicts are missing (exit 1)"),
        (Ending(verdicts=27), "records.jsonl holds 1 of 27 verdicts (exit 1)"),
        (Ending(unwritten="no space"), "The results are incomplete: not everything"),
    ],
)
def test_passed_verdicts_alone_are_no_pass(
    record_of: RecordOf, ending: Ending, begins: str
) -> None:
    assert closing_sentence([record_of()], ending).startswith(begins)
    assert ending.code([record_of()]).value == (3 if ending.unwritten else 1)
    assert ending.code([record_of(verdict=Outcome.ERROR)]) is ExitCode.CRASHED


def test_the_headline_names_run_verdicts_work_and_toolchain(record_of: RecordOf) -> None:
    records = [record_of(), record_of(toolchain={"jax": "0.12.0", "libtpu": "0.0.51"})]
    assert headline(records) == (
        "2026-11-20 · 2 verdicts · 0.5 s of work · jax 0.12.0, jaxlib 0.12.0, libtpu 0.0.51"
    )


def test_a_headline_names_second_attempts(record_of: RecordOf) -> None:
    retried = record_of(retries=("the process ended by SIGKILL",))
    assert headline([retried, record_of()]).endswith(" · 1 verdict at a second attempt")
    assert "attempt" not in headline([record_of()])


def test_a_headline_of_cached_programs_names_no_seconds(record_of: RecordOf) -> None:
    cached = record_of(cached=True)
    assert "2 verdicts, 2 on programs from the cache · jax" in headline([cached, cached])
    some = "2 verdicts, 1 on programs from the cache · 0.5 s of work · jax"
    assert some in headline([cached, record_of()])


def test_checks_without_a_control_are_named_and_counted() -> None:
    assert list(uncontrolled_lines(())) == []
    (line,) = uncontrolled_lines(tuple("abcde"))
    assert line.startswith("5 checks have no negative control: a, b, c and 2 more; a check without")


def test_two_versions_of_one_package_are_both_named(record_of: RecordOf) -> None:
    records = [record_of(toolchain={"jax": version}) for version in ("0.12", "0.10")]
    assert toolchain_versions(records) == {"jax": "0.10, 0.12"}


def test_a_failure_is_one_short_line_whatever_its_text(record_of: RecordOf) -> None:
    reason = "first\nsecond\x1b[31m\u2028third " + "long " * 100
    line = failure_line(record_of(verdict=Outcome.FAILED, reason=reason, variant="a\nb"))
    start = "FAILED  host-bytes · scan_offload/scan_stack/a b on gpu-h100:8: first second"
    assert line.startswith(start)
    assert line.endswith(" …")
    assert line.isprintable()
    assert len(line) < len(start) + 200


def test_what_a_stream_cannot_encode_is_written_similarly() -> None:
    text = "12 µs ≤ 3 × 4 – 5 · a → b ← c − d ≥ e … é"
    similar = "12 us <= 3 x 4 - 5 - a -> b <- c - d >= e ... ?"
    assert text.encode("ascii", SIMILAR).decode() == similar
    assert text.encode("latin-1", SIMILAR).decode("latin-1") == (
        "12 µs <= 3 × 4 - 5 · a -> b <- c - d >= e ... é"
    )
    with pytest.raises(UnicodeDecodeError):
        b"\xff".decode("ascii", SIMILAR)
