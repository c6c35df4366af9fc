"""``--assay-against`` reruns whatever is timed, alone, on another toolchain beside the present one.

The other toolchain is here this interpreter too, told apart by a flag that comes back with the
accepted number; ``test_against_released.py`` has two released ones.
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

from assay.model.change import Change
from assay.model.rerun import Enough, Rerun
from assay.model.verdict import Outcome, Record
from assay.store import records, reruns
from tests.plugin.project import PREAMBLE, Ended, Project

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
    arm("base", partial(rests, 0.02, 0.02)),
    arm("worse", partial(rests, 0.02, 0.06), reference="base"),
)
test_time = Check(claim=claims.TimeRatio(), workloads=(W,), arms=("worse",))
test_memory = Check(claim=claims.AcceptedTempBytes(), workloads=(W,))
"""
)
HERE = """
import sys
from pathlib import Path
from assay.reruns import environments

def here(recipe):
    return environments.Environment(folder=Path(sys.prefix), versions=dict(recipe.pins))

environments.environment = here
"""
NOWHERE = """
from assay.reruns import environments
from assay.reruns.uv import CannotMake

def nowhere(recipe):
    raise CannotMake("no package index can be reached", "connect to one")

environments.environment = nowhere
"""
ACCEPTED = {
    "schema": 1,
    "suite": "mine",
    "target": "cpu",
    "accepted": {
        f"small/{arm}/temp-bytes": [
            {"toolchain": {"jax": jax.__version__, "flags": f"XLA_FLAGS={OLD}"}, "value": 0}
        ]
        for arm in ("base", "worse")
    },
}
FILES = {
    "test_timed.py": TIMED,
    "conftest.py": HERE,
    "baselines/cpu/mine.json": json.dumps(ACCEPTED),
}


@pytest.fixture(autouse=True)
def own_environment() -> None:
    if not (Path(sys.prefix) / "pyvenv.cfg").exists():
        pytest.skip("this Python is in no environment of its own, which the test takes for uv's")


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A project whose one timed arm became three times slower, run with two workers."""

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


def test_a_program_that_became_slower_breaks_it_and_its_twin_proves_the_detector(
    story: Story,
) -> None:
    broken, twin = story.record("time-against"), story.record("time-against.must-fail")
    assert broken.verdict is Outcome.BROKEN
    assert broken.measured == pytest.approx(3, rel=0.3)
    assert twin.verdict is Outcome.KEPT
    assert twin.measured == pytest.approx(2, rel=0.3)
    assert story.ended.exit_code == 1


def test_every_sample_of_both_toolchains_is_kept(story: Story) -> None:
    made, damaged = reruns.KEPT.load_all(story.folder)
    assert not damaged
    (worse,) = [each for each in made if not each.twin]
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
    assert kept.ended is Enough.UNFINISHED
    assert kept.pairs
    # The target that ``start`` adds has no accepted number, and was soon done with.
    assert {one.target for one in records.load(project.newest())} == {"cpu:8"}


def _made(project: Project) -> tuple[Rerun, ...]:
    found = list((project.root / "results").glob("2*"))
    return reruns.KEPT.load_all(found[0])[0] if found else ()


EACH = 'TimeRatio(against="base"), workloads=(W,), arms=("*e",)'
MANY = (
    TIMED.replace('TimeRatio(), workloads=(W,), arms=("worse",)', EACH)
    + """
test_again = Check(
    claim=claims.TimeRatio(name="again", against="base"), workloads=(W,), arms=("worse",)
)
test_asked = Check(claim=claims.TimeAgainst(), workloads=(W,), arms=("worse",))
V = workload(arm("untimed", partial(rests, 0.02, 0.02)), name="other")
test_untimed = Check(claim=claims.TimeAgainst(), workloads=(V,))
"""
)


def _asked(ended: Ended) -> list[tuple[str, str]]:
    return sorted((one.arm, one.claim) for one in ended.records if "against" in one.claim)


def test_a_verdict_is_asked_for_once_and_also_of_what_no_other_claim_times(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_timed.py": MANY, "conftest.py": NOWHERE})
    ended = project.pytest("--assay-against=0.1.2", "-k", "against", target="cpu")
    assert _asked(ended) == [
        ("base", "time-against"),
        ("base", "time-against.must-fail"),
        ("untimed", "time-against"),
        ("untimed", "time-against.must-fail"),
        ("worse", "time-against"),
        ("worse", "time-against.must-fail"),
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


def test_a_toolchain_that_cannot_be_made_leaves_it_not_measured(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_timed.py": TIMED, "conftest.py": NOWHERE})
    ended = project.pytest("--assay-against=0.1.2", "-k", "against or compiles", target="cpu")
    record = ended.record("worse", "time-against")
    assert record.verdict is Outcome.NOT_MEASURED
    assert "no package index can be reached" in record.reason
    assert record.advice == "connect to one"
    assert "errors" not in ended.outcomes


def test_a_baseline_that_names_another_package_is_refused_first(tmp_path: Path) -> None:
    evil = json.dumps(ACCEPTED).replace('"jax"', '"evil"')
    files = {"test_timed.py": TIMED, "conftest.py": NOWHERE, "baselines/cpu/mine.json": evil}
    ended = Project(tmp_path, files).pytest(
        "--assay-against=baseline", "-k", "against", target="cpu"
    )
    assert ended.exit_code == 2
    assert "got the package 'evil' in an accepted toolchain" in " ".join(ended.output.split())
    assert not ended.records


def test_a_compile_only_target_cannot_run_it(tmp_path: Path) -> None:
    # A callback to this process's Python lowers for no other device.
    lowers = TIMED.replace("partial(rests, 0.02, 0.02)", "double")
    lowers = lowers.replace("partial(rests, 0.02, 0.06)", "double")
    project = Project(tmp_path, {"test_timed.py": lowers, "conftest.py": NOWHERE})
    ended = project.pytest("--assay-against=0.1.2", "-k", "against", target="gpu-h100")
    assert {one.verdict for one in ended.records} == {Outcome.CANNOT_RUN}
    assert len(ended.records) == 2


def test_a_program_that_fails_here_is_broken_and_found_by_last_failed(tmp_path: Path) -> None:
    fails = TIMED.replace('arm("worse", partial(rests, 0.02, 0.06),', 'arm("worse", mismatched,')
    project = Project(tmp_path, {"test_timed.py": fails, "conftest.py": NOWHERE})
    ended = project.pytest("--assay-against=0.1.2", "-k", "against", target="cpu")
    assert ended.record("worse", "time-against").verdict is Outcome.BROKEN
    control = ended.record("worse", "time-against.must-fail")
    assert control.verdict is Outcome.BROKEN
    assert "proves nothing" in control.reason
    assert ended.exit_code == 1
    assert "errors" not in ended.outcomes
    again = project.pytest("--assay-against=0.1.2", "--lf", target="cpu")
    assert set(_asked(again)) == {("worse", "time-against"), ("worse", "time-against.must-fail")}


def test_a_twin_of_ones_own_is_misuse(tmp_path: Path) -> None:
    twin = TIMED + (
        "test_twin = Check(claim=claims.TimeAgainst(), workloads=(W,), arms=('base',), "
        "twin='worse')\n"
    )
    ended = Project(tmp_path, {"test_timed.py": twin}).pytest("--assay-against=0.1.2", target="cpu")
    assert ended.exit_code == 2
    assert "Traceback" not in ended.output
    assert "got test_twin with twin 'worse', wanted none" in ended.output
    assert not ended.records


def test_nothing_is_rerun_where_the_user_says_that_nothing_is_timed(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_timed.py": TIMED, "conftest.py": HERE})
    ended = project.pytest(
        f"--assay-against={jax.__version__}", "--benchmark-disable", "-k", "against", target="cpu"
    )
    assert {one.verdict for one in ended.records} == {Outcome.NOT_MEASURED}
    assert not (project.newest() / reruns.KEPT.folder).exists()
