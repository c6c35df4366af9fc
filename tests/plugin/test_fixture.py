"""The ``assay`` fixture: a plain test's programs, its assertions as records, and its baselines."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.store import baselines, records
from tests.plugin.project import Ended, Project

TESTS = """
import jax, jax.numpy as jnp, pytest

X = jax.ShapeDtypeStruct((SIZE, 64), jnp.float32)

def step(x):
    return jnp.sort(x * 2)[::-1] @ x.T

def test_temp(assay):
    step_ = assay.compile(step, X, target="cpu")
    assert step_.memory.temp_bytes <= assay.baseline("temp_bytes")
"""


def project(root: Path, size: int = 256, more: str = "") -> Project:
    return Project(root, {"test_step.py": TESTS.replace("SIZE", str(size)) + more})


def verdicts(ended: Ended) -> dict[str, str]:
    return {f"{one.workload}:{one.claim}": one.verdict.value for one in ended.records}


@pytest.fixture
def stored(tmp_path: Path) -> Project:
    """A project whose number is stored."""
    made = project(tmp_path)
    first = made.pytest("--assay-update-baselines=new", target="")
    assert first.exit_code == 0, first.output
    assert "baselines/cpu/test_step.json" in first.changed
    return made


def test_a_number_that_is_not_stored_fails(tmp_path: Path) -> None:
    ended = project(tmp_path).pytest(target="")
    assert ended.exit_code == 1
    assert "assert 65536 <= Baseline('temp_bytes')" in ended.output
    assert "store it with --assay-update-baselines=new" in ended.output
    assert verdicts(ended) == {"test_temp:temp_bytes": "failed", "test_temp:assertions": "failed"}
    assert ended.output.count("\nFAILED  ") == 1  # One failed test is one cause.


def test_the_stored_number_passes_and_is_recorded(stored: Project) -> None:
    ended = stored.pytest(target="")
    assert (ended.exit_code, verdicts(ended)) == (
        0,
        {"test_temp:temp_bytes": "passed", "test_temp:assertions": "passed"},
    ), ended.output
    record = ended.record("step", "temp_bytes")
    assert record.measured == record.limit == 65536
    assert record.toolchain["jax"]


def test_a_larger_number_fails_with_both_numbers(stored: Project) -> None:
    project(stored.root, size=512)
    ended = stored.pytest(target="")
    assert ended.exit_code == 1
    assert "<= Baseline('temp_bytes': 64.0 KiB)" in ended.output
    assert "more than the baseline" in ended.output


def test_a_regression_says_what_changed_in_the_program(stored: Project) -> None:
    doubled = TESTS.replace("SIZE", "256").replace("x * 2)[::-1]", "x.T @ jnp.ones((256, 512)))")
    stored.write({"test_step.py": doubled.replace("@ x.T", "@ jnp.ones((512, 256))")})
    ended = stored.pytest(target="")
    record = ended.record("step", "temp_bytes")
    assert (ended.exit_code, record.verdict.value) == (1, "failed"), ended.output
    assert "; changed since: temporaries " in record.reason
    command = record.advice.partition("compare the two programs: assay ")[2].split()
    page = stored.assay(*command)
    assert (page.exit_code, "DIFFERENCES" in page.output) == (0, True), page.output
    again = stored.pytest("--assay-update-baselines=new", target="")  # It stores nothing.
    assert again.record("step", "temp_bytes").reason == record.reason


def test_a_regression_without_the_old_program_says_how_to_get_it(stored: Project) -> None:
    (kept,) = (stored.root / ".cache/assay/baselines").iterdir()
    kept.unlink()
    project(stored.root, size=512)
    record = stored.pytest(target="").record("step", "temp_bytes")
    assert "changed since" not in record.reason
    assert "the program of the baseline is not kept on this machine" in record.advice
    assert "check out the commit that stored it" in record.advice


def test_a_renamed_test_does_not_find_the_old_number(stored: Project) -> None:
    stored.write({"test_step.py": TESTS.replace("SIZE", "256").replace("test_temp", "test_new")})
    ended = stored.pytest(target="")
    assert ended.exit_code == 1
    assert verdicts(ended)["test_new:temp_bytes"] == "failed"


def test_a_number_that_no_test_asks_for_fails_until_it_is_removed(stored: Project) -> None:
    stored.write({"test_step.py": TESTS.replace("SIZE", "256").replace(
        "    assert step_.memory.temp_bytes <= assay.baseline", "    assert step_, assay.baseline"
    )})  # fmt: skip
    ended = stored.pytest(target="")
    assert ended.exit_code == 1, ended.output
    assert verdicts(ended)["test_temp:temp_bytes.unused"] == "failed"
    removed = stored.pytest("--assay-update-baselines=all", target="")
    assert removed.exit_code == 0, removed.output
    assert list(baselines.load_all(stored.root / "baselines")) == []


def test_a_part_of_a_file_says_nothing_of_unused_numbers(stored: Project) -> None:
    project(stored.root, more="\ndef test_other(assay):\n    assay.compile(step, X)\n")
    ended = stored.pytest("-k", "other", target="")
    assert ended.exit_code == 0, ended.output


def test_an_expected_failure_is_a_known_defect(tmp_path: Path) -> None:
    marked = TESTS.replace("def test_temp", '@pytest.mark.xfail(reason="jax#1")\ndef test_temp')
    ended = Project(tmp_path, {"test_step.py": marked.replace("SIZE", "8")}).pytest(target="")
    assert set(verdicts(ended).values()) == {"known-defect"}
    assert "jax#1" in ended.record("step", "assertions").reason


NOTHING_COMPILED = """
import jax.numpy as jnp, numpy as np, pytest

@pytest.fixture
def sin(assay):
    return assay.compile(jnp.sin, np.zeros(8))

def test_nothing(assay):
    pass

def test_compiles(assay):
    assert assay.compile(jnp.sin, np.zeros(8)).memory.output_bytes

def test_another_fixture_compiles(assay, sin):
    assert sin.memory.output_bytes

def test_refuses_the_target(assay):
    with pytest.raises(ValueError, match="gpu-h10"):
        assay.compile(jnp.sin, np.zeros(8), target="gpu-h10")

def test_skipped(assay):
    pytest.skip("not here")
"""


def test_a_test_with_the_fixture_that_compiles_nothing_fails(tmp_path: Path) -> None:
    ended = Project(tmp_path, {"test_sin.py": NOTHING_COMPILED}).pytest(target="")
    assert ended.exit_code == 1
    assert ended.outcomes == {"passed": 3, "failed": 1, "skipped": 1}, ended.output
    assert "got a test with the fixture assay that compiles nothing, wanted a program" in (
        ended.output
    )


def test_one_name_stands_for_one_number(tmp_path: Path) -> None:
    twice = "    assert step_.memory.output_bytes <= assay.baseline('temp_bytes')\n"
    ended = project(tmp_path, more=twice).pytest("--assay-update-baselines=new", target="")
    assert ended.exit_code == 1
    assert "got assay.baseline('temp_bytes') twice" in ended.output


def test_a_baseline_needs_a_program(tmp_path: Path) -> None:
    alone = "def test_alone(assay):\n    assert 1 <= assay.baseline('count')\n"
    ended = Project(tmp_path, {"test_alone.py": alone}).pytest(target="")
    assert ended.exit_code == 1
    assert "before assay.compile, wanted a program first" in ended.output


NOT_COMPARED = {
    "assay.baseline('n')": "assay.baseline('n') without a comparison",
    "assert assay.baseline('n')": "assay.baseline('n') for true or false",
    "assert 1 == assay.baseline('n')": "1 == assay.baseline('n')",
    "assert 1 != assay.baseline('n')": "1 != assay.baseline('n')",
    "assert 1 < assay.baseline('n')": "1 < assay.baseline('n')",
    "assert 1 > assay.baseline('n')": "1 > assay.baseline('n')",
    "assert 1 >= assay.baseline('n')": "1 >= assay.baseline('n')",
}


@pytest.mark.parametrize("update", [(), ("--assay-update-baselines=new",)])
def test_a_baseline_that_is_not_compared_fails(tmp_path: Path, update: tuple[str, ...]) -> None:
    """Nothing is stored either."""
    head = TESTS.replace("SIZE", "8").partition("def test_temp")[0]
    for number, statement in enumerate(NOT_COMPARED):
        head += f"def test_{number}(assay):\n    assay.compile(step, X)\n    {statement}\n\n"
    ended = Project(tmp_path, {"test_step.py": head}).pytest(*update, target="")
    assert (ended.exit_code, ended.outcomes) == (1, {"failed": len(NOT_COMPARED)}), ended.output
    wanted = "wanted a comparison; do this: measured <= assay.baseline('n')"
    for number, given in enumerate(NOT_COMPARED.values()):
        (record,) = [one for one in ended.records if one.workload == f"test_{number}"]
        assert record.reason.endswith(f"got {given}, {wanted}")
    assert not list(baselines.load_all(tmp_path / "baselines"))


@pytest.mark.parametrize("update", ["new", "all"])
def test_a_test_that_fails_stores_none_of_its_numbers(tmp_path: Path, update: str) -> None:
    fails = "    assert step_.memory.output_bytes == 0\n\n"
    passes = TESTS[TESTS.index("def test_temp") :].replace("test_temp", "test_other")
    made = project(tmp_path, more=fails + passes)
    ended = made.pytest(f"--assay-update-baselines={update}", target="")
    assert ended.exit_code == 1
    assert verdicts(ended)["test_temp:temp_bytes"] == "inconclusive"
    assert "not stored, because the test failed" in ended.output
    ((_, stored),) = baselines.load_all(tmp_path / "baselines")
    assert [key[0] for key in stored.baselines] == ["test_other"]


def test_a_test_that_fails_leaves_the_stored_number(stored: Project) -> None:
    before = list(baselines.load_all(stored.root / "baselines"))
    project(stored.root, size=512, more="    assert False\n")
    ended = stored.pytest("--assay-update-baselines=all", target="")
    assert (ended.exit_code, verdicts(ended)["test_temp:temp_bytes"]) == (1, "inconclusive")
    assert list(baselines.load_all(stored.root / "baselines")) == before


EVERY_TARGET = """
import jax.numpy as jnp, numpy as np

def test_bytes(assay, assay_target):
    step = assay.compile(jnp.sin, np.zeros(4096, np.float32), target=assay_target)
    assert step.memory.argument_bytes == 4 * 4096
"""


def test_a_test_is_run_for_every_target_of_the_command_line(tmp_path: Path) -> None:
    made = Project(tmp_path, {"test_sin.py": EVERY_TARGET})
    ended = made.pytest(target="cpu:8,tpu-v5e:2x4")
    assert ended.outcomes == {"passed": 2}, ended.output
    assert {(one.workload, one.target) for one in ended.records} == {
        ("test_bytes", "cpu:8"),
        ("test_bytes", "tpu-v5e:2x4"),
    }


def test_several_targets_need_one_to_be_named(tmp_path: Path) -> None:
    one = EVERY_TARGET.replace(", assay_target", "").replace(", target=assay_target", "")
    ended = Project(tmp_path, {"test_sin.py": one}).pytest(target="cpu:8,gpu-h100")
    assert ended.exit_code == 1
    assert "got 2 targets on the command line, wanted one" in ended.output
    assert Project(tmp_path, {}).pytest(target="gpu-h100").exit_code == 0


def test_a_target_that_is_not_there_is_unsupported(tmp_path: Path) -> None:
    ended = Project(tmp_path, {"test_sin.py": EVERY_TARGET}).pytest(target="tpu")
    assert ended.outcomes == {"skipped": 1}, ended.output
    assert ended.exit_code == 1  # Nothing was judged.
    assert [one.verdict.value for one in ended.records] == ["unsupported"]


def test_a_test_of_a_target_that_is_not_named_is_skipped_and_names_both(stored: Project) -> None:
    """The command line cannot deselect it: its target is known once it runs."""
    more = "\ndef test_any(assay):\n    assert assay.compile(step, X).memory.output_bytes\n"
    project(stored.root, more=more)
    ended = stored.pytest("-rs", target="gpu-h100")
    assert (ended.exit_code, ended.outcomes) == (0, {"passed": 1, "skipped": 1}), ended.output
    reason = "the test compiles for cpu, and --assay-target names gpu-h100"
    assert reason in " ".join(ended.output.split())
    assert {(one.workload, one.target): one.verdict.value for one in ended.records} == {
        ("test_temp", "cpu"): "unsupported",
        ("test_any", "gpu-h100"): "passed",
    }
    both = stored.pytest("-k", "temp", target="gpu-h100,cpu")
    assert verdicts(both)["test_temp:temp_bytes"] == "passed"


def test_workers_send_their_records(stored: Project) -> None:
    ended = stored.pytest("-n", "2", target="")
    assert ended.exit_code == 0, ended.output
    assert records.load(stored.newest())
    assert verdicts(ended) == {"test_temp:temp_bytes": "passed", "test_temp:assertions": "passed"}


REFUSED = """
import jax, jax.numpy as jnp

def scores(x):
    return jax.nn.softmax(x @ x.swapaxes(-1, -2), axis=-1)

def test_scores(assay):
    scores_ = assay.compile(
        scores, jax.ShapeDtypeStruct((8, 32768, 64), jnp.float32), target="tpu-v5e:2x4"
    )
"""


def test_a_refused_program_that_the_test_does_not_ask_about_fails_it(tmp_path: Path) -> None:
    made = Project(tmp_path, {"test_scores.py": REFUSED})
    ended = made.pytest(target="")
    assert (ended.exit_code, ended.outcomes) == (1, {"failed": 1}), ended.output
    record = ended.record("scores", "assertions")
    assert record.verdict.value == "failed"
    assert "is refused, and the test does not assert that it fits" in record.reason
    made.write({"test_scores.py": REFUSED + "    assert not scores_.fits\n"})
    assert made.pytest(target="").exit_code == 0


def test_what_could_not_be_measured_says_why(tmp_path: Path) -> None:
    transfers = "\ndef test_sent(assay):\n    assert not assay.compile(step, X).transfers\n"
    ended = project(tmp_path, more=transfers).pytest("-k", "sent", target="")
    assert ended.exit_code == 1
    assert ended.record("step", "assertions").reason.startswith("got cpu, which has one memory")


def test_a_run_that_ended_early_loses_no_number(stored: Project) -> None:
    """The second test's number is not asked for, because the first one fails."""
    second = TESTS[TESTS.index("def test_temp") :].replace("test_temp", "test_second")
    project(stored.root, more=second)
    assert stored.pytest("--assay-update-baselines=new", target="").exit_code == 0
    before = list(baselines.load_all(stored.root / "baselines"))
    failing = TESTS.replace("    assert", "    assert False\n    assert").replace("SIZE", "256")
    stored.write({"test_step.py": failing + second})
    ended = stored.pytest("-x", "--assay-update-baselines=all", target="")
    assert ended.exit_code == 1
    assert not [name for name in verdicts(ended) if "unused" in name]
    assert list(baselines.load_all(stored.root / "baselines")) == before
