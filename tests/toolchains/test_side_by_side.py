"""One program on two toolchains: both sides here are this interpreter, told apart by a flag."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import pytest

from assay.isolate import NotPortable
from assay.model.evidence import FailureKind
from assay.model.rerun import Rerun, Side
from assay.model.target import TargetError
from assay.model.timing import Change, Ending
from assay.model.workload import Program
from assay.stats.processes import PAIR_LOOKS
from assay.toolchains.environments import Environment
from assay.toolchains.pairs import RerunError
from assay.toolchains.recipe import Recipe
from assay.toolchains.side_by_side import Against, rerun
from tests.toolchains import programs

pytestmark = pytest.mark.exhaustive

VERSIONS = {"jax": jax.__version__, "flags": f"XLA_FLAGS={programs.OLD}"}


def here(*_: object) -> Environment:
    return Environment(folder=Path(sys.prefix), versions=VERSIONS)


@pytest.fixture(autouse=True)
def own_environment() -> None:
    if not (Path(sys.prefix) / "pyvenv.cfg").exists():
        pytest.skip("this Python is in no environment of its own, which the test takes for uv's")


def run(program: Any, target: str = "cpu", **against: Any) -> Rerun:
    limits = {"baseline": VERSIONS, "most_seconds": 60.0, "environments": here, **against}
    workload = programs.workload(program)
    return rerun(workload, workload.variants[0], target, Against(**limits))


@pytest.fixture(scope="module")
def slower() -> Rerun:
    return run(programs.slow_when_new, most_seconds=120.0)


def test_three_times_the_work_is_slower(slower: Rerun) -> None:
    assert slower.ratio is not None
    assert slower.ratio.change is Change.SLOWER
    assert slower.ratio.ratio == pytest.approx(3, rel=0.3)
    assert slower.ended is Ending.ENOUGH


def test_every_sample_is_kept_with_the_pair_that_it_comes_from(slower: Rerun) -> None:
    assert len(slower.pairs) >= PAIR_LOOKS[0]
    for pair in slower.pairs:
        assert len(pair.old.samples) == len(pair.new.samples) >= 8
        assert min(*pair.old.samples, *pair.new.samples) > 0
        assert pair.old.compile
        assert pair.new.compile


def test_both_toolchains_are_told_apart_with_the_flags_of_the_baseline(slower: Rerun) -> None:
    assert slower.old is not None
    assert slower.new is not None
    assert slower.old.versions["jax"] == slower.new.versions["jax"] == jax.__version__
    assert programs.OLD in slower.old.flags
    assert programs.OLD not in slower.new.flags
    assert slower.machine is not None
    assert slower.compile_seconds(Side.OLD)


def test_a_program_against_itself_is_not_slower_nor_faster() -> None:
    seen = run(programs.resting, most_seconds=120.0)
    assert len(seen.pairs) >= 2
    assert seen.ratio is not None
    assert seen.ratio.change in (Change.SAME, Change.TOO_NOISY)


def test_a_program_that_does_not_compile_on_the_old_toolchain_is_told_of_that_side() -> None:
    seen = run(programs.does_not_compile_on_old)
    assert seen.side is Side.OLD
    assert seen.failure is not None
    assert seen.failure.kind is FailureKind.COMPILER
    assert "no_such_target" in seen.failure.message
    assert seen.ended is Ending.STOPPED


def test_a_package_that_is_missing_there_is_unsupported_and_says_how_to_get_it() -> None:
    seen = run(programs.not_there_on_old)
    assert seen.failure is None
    assert seen.unavailable is not None
    assert "no_such_package_of_ours" in seen.unavailable.reason
    assert "--assay-against VERSION,no_such_package_of_ours==" in seen.unavailable.remedy


@pytest.mark.parametrize("when", [1, 20])
def test_a_process_that_dies_names_its_side_its_signal_and_its_stderr_tail(when: int) -> None:
    seen = run(partial(programs.dies, when))
    assert seen.side is Side.NEW
    assert seen.failure is not None
    assert seen.failure.kind is FailureKind.CRASH
    assert "SIGABRT" in seen.failure.message
    assert "the last words" in seen.failure.message
    assert seen.ratio is None


def test_a_program_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    seen = run(partial(programs.sleeps, tmp_path), timeout_seconds=20.0)
    assert seen.failure is not None
    assert seen.failure.kind is FailureKind.TIMEOUT
    assert seen.side is Side.NEW
    assert not any(is_running(pid) for pid in pids(tmp_path))


def test_a_control_does_all_twice_on_the_baseline_toolchain_and_is_slower() -> None:
    workload = programs.workload(programs.slow_when_new)
    against = Against(baseline=VERSIONS, most_seconds=120.0, environments=here)
    seen = rerun(workload, workload.variants[0], "cpu", against, negative_control=True)
    assert seen.negative_control
    assert seen.old is not None
    assert seen.new is not None
    assert programs.OLD in seen.old.flags
    assert seen.new.flags == seen.old.flags
    assert seen.ratio is not None
    assert seen.ratio.change is Change.SLOWER
    # Had it run on the present toolchain, it would have taken six times as long.
    assert seen.ratio.ratio == pytest.approx(2, rel=0.2)


def test_a_program_without_values_cannot_run_on_either_side() -> None:
    seen = run(programs.without_values)
    assert seen.unavailable is not None
    assert seen.side is None
    assert "values" in seen.unavailable.reason


def test_what_a_program_prints_disturbs_nothing() -> None:
    seen = run(programs.prints, most_seconds=4.0)
    assert seen.failure is None
    assert seen.pairs


def test_a_compile_only_target_cannot_run_and_starts_nothing() -> None:
    def nowhere(_: Recipe) -> Environment:
        raise AssertionError("asked for an environment")

    seen = run(programs.same, "tpu-v5e:2x4", environments=nowhere)
    assert seen.unavailable is not None
    assert "compile-only" in seen.unavailable.reason


def test_an_unknown_target_is_misuse() -> None:
    with pytest.raises(TargetError):
        run(programs.same, "abacus")


def test_a_workload_that_cannot_be_sent_is_misuse() -> None:
    lock = threading.Lock()
    with pytest.raises(NotPortable, match="lock"):
        run(lambda devices: lock and programs.same(devices))


def test_a_function_without_a_name_goes_to_no_other_python(tmp_path: Path) -> None:
    (tmp_path / "pyvenv.cfg").write_text("version_info = 3.99.0\n")
    other = Environment(folder=tmp_path, versions=VERSIONS)

    def local(devices: Sequence[Any]) -> Program:
        return programs.same(devices)

    seen = run(local, environments=lambda _: other)
    assert seen.unavailable is not None
    assert "has no name in a module" in seen.unavailable.reason


def test_another_version_than_the_recipes_is_an_error_that_names_both() -> None:
    with pytest.raises(RerunError, match=rf"got jax {jax.__version__}, wanted 0\.1\.2"):
        run(programs.same, baseline="0.1.2")


INTERRUPTED = """
import signal
import sys
from functools import partial
from pathlib import Path
from tests.toolchains import programs, test_side_by_side
signal.signal(signal.SIGINT, signal.default_int_handler)  # A job in the background ignores it.
try:
    test_side_by_side.run(partial(programs.sleeps, Path(sys.argv[1])))
except KeyboardInterrupt:
    sys.exit(5)
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=str)
def test_no_process_outlives_an_interrupted_comparison(
    tmp_path: Path, sent: signal.Signals
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    wait_for(lambda: len(pids(tmp_path)) == 2 or parent.poll() is not None)
    both = pids(tmp_path)
    assert len(both) == 2
    parent.send_signal(sent)
    assert parent.wait(timeout=60) == (5 if sent is signal.SIGINT else -signal.SIGKILL)
    wait_for(lambda: not any(map(is_running, both)))


def pids(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.read_text()]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_for(happens: Any) -> None:
    end = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)
