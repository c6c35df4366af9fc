"""``--assay-against`` reruns whatever is timed, alone, on another toolchain beside the present one.

The other toolchain is here this interpreter too, told apart by a flag that comes back with the
baseline; ``test_against_released.py`` has two released ones.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import jax
import pytest

from assay.model.rerun import Rerun
from assay.model.timing import Change, Ending
from assay.model.verdict import Outcome, Record
from assay.store import evidence, records
from tests.plugin.project import PREAMBLE, Ended, Project

pytestmark = pytest.mark.exhaustive

OLD = "--xla_cpu_enable_fast_math=false"
TIMED = (
    PREAMBLE
    + f"""
import numpy as np
from functools import partial

def rests(old, new, devices):
    seconds = old if "{OLD}" in os.environ.get("XLA_FLAGS", "") else new
    def rest(x):
        time.sleep(seconds)
        return x
    call = lambda x: jax.pure_callback(rest, X, x)
    return Program(function=call, arguments=(X,), values=lambda: (np.ones(8, np.float32),))

W = workload(
    variant("base", partial(rests, 0.02, 0.02)),
    variant("worse", partial(rests, 0.02, 0.06), reference="base"),
)
test_time = Check(claim=claims.TimeRatio(), workloads=(W,), variants=("worse",))
test_memory = Check(claim=claims.BaselineTempBytes(), workloads=(W,))
"""
)
HERE = """
import sys
from pathlib import Path
from assay.toolchains import environments

def here(recipe):
    return environments.Environment(folder=Path(sys.prefix), versions=dict(recipe.pins))

environments.environment = here
"""
NOWHERE = """
from assay.toolchains import environments
from assay.toolchains.environments import CannotMake

def nowhere(recipe):
    raise CannotMake("no package index can be reached", "connect to one")

environments.environment = nowhere
"""
BASELINE = {
    "schema": 1,
    "suite": "mine",
    "target": "cpu",
    "baselines": {
        f"small/{variant}/temp-bytes": [
            {"toolchain": {"jax": jax.__version__, "flags": f"XLA_FLAGS={OLD}"}, "value": 0}
        ]
        for variant in ("base", "worse")
    },
}
FILES = {
    "test_timed.py": TIMED,
    "conftest.py": HERE,
    "baselines/cpu/mine.json": json.dumps(BASELINE),
}


@pytest.fixture(autouse=True)
def own_environment() -> None:
    if not (Path(sys.prefix) / "pyvenv.cfg").exists():
        pytest.skip("this Python is in no environment of its own, which the test takes for uv's")


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A project whose one timed variant became three times slower, run with two workers."""

    ended: Ended
    folder: Path
    asked: Path

    def record(self, claim: str) -> Record:
        return self.ended.record("worse", claim)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    project = Project(tmp_path_factory.mktemp("against"), FILES)
    ended = project.pytest(
        "-n2", "--assay-against=baseline", "-k", "against", target="cpu", seconds=600
    )
    return Story(ended=ended, folder=project.newest(), asked=project.root)


def test_a_program_that_became_slower_fails_it_and_its_control_proves_the_detector(
    story: Story,
) -> None:
    broken, negative_control = (
        story.record("time-against"),
        story.record("time-against.negative-control"),
    )
    assert broken.verdict is Outcome.FAILED
    assert broken.measured == pytest.approx(3, rel=0.3)
    assert negative_control.verdict is Outcome.PASSED
    assert negative_control.measured == pytest.approx(2, rel=0.3)
    assert story.ended.exit_code == 1
    assert "nothing was compared" not in story.ended.output


def test_every_sample_of_both_toolchains_is_kept(story: Story) -> None:
    made, damaged = evidence.RERUNS.load_all(story.folder)
    assert not damaged
    (worse,) = [each for each in made if not each.negative_control]
    assert worse.old is not None
    assert OLD in worse.old.flags
    assert worse.ratio is not None
    assert worse.ratio.change is Change.SLOWER
    assert worse.ratio.ratio == story.record("time-against").measured
    for pair in worse.pairs:
        assert len(pair.old.samples) == len(pair.new.samples) >= 8
    assert len(made) == 2


def test_the_ratio_is_told_where_people_look(story: Story) -> None:
    told = story.record("time-against").reason
    assert "pairs of processes" in told
    assert told.endswith(": slower")
    words = " ".join(story.ended.output.split())
    assert f"Against another toolchain mine: small/worse@cpu: {told}" in words
    rerun = "pytest --assay-against=baseline --assay-target cpu -k small/worse"
    assert rerun in " ".join(story.ended.output.split())
    assert "## Against another toolchain" in (story.folder / "summary.md").read_text()
    shown = Project(story.asked, {}).assay("report", str(story.folder))
    assert f"mine: small/worse@cpu: {told}" in " ".join(shown.output.split())


def test_ctrl_c_keeps_the_pairs_that_were_measured(tmp_path: Path) -> None:
    project = Project(tmp_path, FILES)
    run = project.start("--assay-target=cpu", "--assay-against=baseline", "-k", "against")
    end = time.monotonic() + 240
    while not _made(project):
        assert time.monotonic() < end, "no pair of processes was measured"
        assert run.poll() is None
        time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    assert run.wait(timeout=60) == pytest.ExitCode.INTERRUPTED
    (kept,) = _made(project)
    assert kept.ended is Ending.UNFINISHED
    assert kept.pairs
    # The target that ``start`` adds has no baseline, and was soon done with.
    assert {one.target for one in records.load(project.newest())} == {"cpu:8"}


def _made(project: Project) -> tuple[Rerun, ...]:
    found = list((project.root / "results").glob("2*"))
    return evidence.RERUNS.load_all(found[0])[0] if found else ()


EACH = 'TimeRatio(against="base"), workloads=(W,), variants=("*e",)'
MANY = (
    TIMED.replace('TimeRatio(), workloads=(W,), variants=("worse",)', EACH)
    + """
test_again = Check(
    claim=claims.TimeRatio(name="again", against="base"), workloads=(W,), variants=("worse",)
)
test_asked = Check(claim=claims.TimeAgainst(), workloads=(W,), variants=("worse",))
V = workload(variant("untimed", partial(rests, 0.02, 0.02)), name="other")
test_untimed = Check(claim=claims.TimeAgainst(), workloads=(V,))
"""
)


def _asked(ended: Ended) -> list[tuple[str, str]]:
    return sorted((one.variant, one.claim) for one in ended.records if "against" in one.claim)


def test_a_verdict_is_asked_for_once_and_also_of_what_no_other_claim_times(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_timed.py": MANY, "conftest.py": NOWHERE})
    ended = project.pytest("--assay-against=0.1.2", "-k", "against", target="cpu")
    assert _asked(ended) == [
        ("base", "time-against"),
        ("base", "time-against.negative-control"),
        ("untimed", "time-against"),
        ("untimed", "time-against.negative-control"),
        ("worse", "time-against"),
        ("worse", "time-against.negative-control"),
    ]
    assert "test_asked[small/worse@cpu]" in _collected(project)
    assert "test_time-against[small/base@cpu]" in _collected(project)


def _collected(project: Project) -> str:
    return project.pytest("--assay-against=0.1.2", "--collect-only", "-q", target="cpu").output


def test_without_the_option_nothing_is_rerun(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_timed.py": MANY})
    ended = project.pytest("--collect-only", "-q", target="cpu")
    assert "test_time[small/worse@cpu]" in ended.output
    assert "against" not in ended.output
    assert "test_asked" not in ended.output


def test_a_toolchain_that_cannot_be_made_leaves_it_inconclusive(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_timed.py": TIMED, "conftest.py": NOWHERE})
    ended = project.pytest("--assay-against=0.1.2", "-k", "against or compiles", target="cpu")
    record = ended.record("worse", "time-against")
    assert record.verdict is Outcome.INCONCLUSIVE
    assert "no package index can be reached" in record.reason
    assert record.advice == "connect to one"
    assert "errors" not in ended.outcomes


def test_a_baseline_that_names_another_package_is_refused_first(tmp_path: Path) -> None:
    evil = json.dumps(BASELINE).replace('"jax"', '"evil"')
    files = {"test_timed.py": TIMED, "conftest.py": NOWHERE, "baselines/cpu/mine.json": evil}
    ended = Project(tmp_path, files).pytest(
        "--assay-against=baseline", "-k", "against", target="cpu"
    )
    assert ended.exit_code == 2
    assert "got the package 'evil' in a baseline toolchain" in " ".join(ended.output.split())
    assert not ended.records


def test_a_compile_only_target_cannot_run_it(tmp_path: Path) -> None:
    # A callback to this process's Python lowers for no other device.
    lowers = TIMED.replace("partial(rests, 0.02, 0.02)", "double")
    lowers = lowers.replace("partial(rests, 0.02, 0.06)", "double")
    project = Project(tmp_path, {"test_timed.py": lowers, "conftest.py": NOWHERE})
    ended = project.pytest("--assay-against=0.1.2", "-k", "against", target="gpu-h100")
    assert {one.verdict for one in ended.records} == {Outcome.UNSUPPORTED}
    assert len(ended.records) == 2


def test_a_program_that_fails_here_fails_and_found_by_last_failed(tmp_path: Path) -> None:
    fails = TIMED.replace(
        'variant("worse", partial(rests, 0.02, 0.06),', 'variant("worse", mismatched,'
    )
    project = Project(tmp_path, {"test_timed.py": fails, "conftest.py": NOWHERE})
    ended = project.pytest("--assay-against=0.1.2", "-k", "against", target="cpu")
    assert ended.record("worse", "time-against").verdict is Outcome.FAILED
    control = ended.record("worse", "time-against.negative-control")
    assert control.verdict is Outcome.FAILED
    assert "proves nothing" in control.reason
    assert ended.exit_code == 1
    assert "errors" not in ended.outcomes
    again = project.pytest("--assay-against=0.1.2", "--lf", target="cpu")
    assert set(_asked(again)) == {
        ("worse", "time-against"),
        ("worse", "time-against.negative-control"),
    }


def test_a_control_of_ones_own_is_misuse(tmp_path: Path) -> None:
    negative_control = TIMED + (
        "test_control = Check(claim=claims.TimeAgainst(), workloads=(W,), variants=('base',), "
        "negative_control='worse')\n"
    )
    ended = Project(tmp_path, {"test_timed.py": negative_control}).pytest(
        "--assay-against=0.1.2", target="cpu"
    )
    assert ended.exit_code == 2
    assert "Traceback" not in ended.output
    assert "got negative control 'worse', wanted none" in ended.output
    assert not ended.records


def test_a_run_that_times_nothing_says_that_nothing_was_compared(tmp_path: Path) -> None:
    compiles = PREAMBLE + (
        "W = workload(variant('a', double))\n"
        "test_compiles = Check(claim=claims.Compiles(), workloads=(W,))\n"
    )
    ended = Project(tmp_path, {"test_small.py": compiles}).pytest("--assay-against=9.9.9")
    assert ended.exit_code == 1, ended.output
    said = " ".join(ended.output.split())
    assert "missing: got --assay-against=9.9.9, and nothing was compared: no check on times" in said
    assert Project(tmp_path, {}).pytest("--assay-against=9.9.9", "--collect-only").exit_code == 0


def test_a_plain_test_compares_nothing_with_another_toolchain(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_ok.py": "def test_ok():\n    assert True\n"})
    assert project.pytest().exit_code == 0
    ended = project.pytest("--assay-against=9.9.9")
    assert ended.exit_code == 1, ended.output
    assert "got --assay-against=9.9.9, and nothing was compared" in ended.output


def test_other_verdicts_do_not_hide_that_no_toolchain_was_compared(tmp_path: Path) -> None:
    timed = TIMED + "test_compiles = Check(claim=claims.Compiles(), workloads=(W,))\n"
    project = Project(tmp_path, {"test_timed.py": timed, "conftest.py": NOWHERE})
    ended = project.pytest("--assay-against=0.1.2", "-k", "against or compiles", target="cpu")
    assert ended.record("worse", "compiles").verdict is Outcome.PASSED
    assert ended.exit_code == 1, ended.output
    said = " ".join(ended.output.split())
    assert "nothing was compared: no program was timed on both toolchains; the verdicts of" in said


def test_nothing_is_rerun_where_the_user_says_that_nothing_is_timed(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_timed.py": TIMED, "conftest.py": HERE})
    ended = project.pytest(
        f"--assay-against={jax.__version__}", "--benchmark-disable", "-k", "against", target="cpu"
    )
    assert {one.verdict for one in ended.records} == {Outcome.INCONCLUSIVE}
    assert "nothing was compared: no program was timed" in " ".join(ended.output.split())
    assert not (project.newest() / evidence.RERUNS.folder).exists()
