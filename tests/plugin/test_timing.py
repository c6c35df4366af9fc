"""Programs are timed alone and last; pytest-benchmark's flags and files take what was measured."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.model.timing import Ending
from assay.store import evidence, records
from tests.plugin.project import PREAMBLE, Ended, Project

TIMED = (
    PREAMBLE
    + """
import numpy as np
from functools import partial

SQUARE = jax.ShapeDtypeStruct((200, 200), jnp.float32)

def works(turns, devices):
    def work(x):
        return jax.lax.fori_loop(0, turns, lambda _, y: jnp.tanh(y @ y) * 0.1, x)
    values = lambda: (np.full((200, 200), 0.1, np.float32),)
    return Program(function=work, arguments=(SQUARE,), values=values, donate_argnums=(0,))

W = workload(
    variant("base", partial(works, 10)),
    variant("same", partial(works, 10), reference="base"),
    variant("more", partial(works, 15), Role.NEGATIVE_CONTROL, reference="base"),
)
# Wide enough that a busy machine's noise does not decide.
RATIO = claims.TimeRatio(least_change=0.1, seen_change=0.4)
test_time = Check(claim=RATIO, workloads=(W,), variants=("same",), negative_control="more")
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))
"""
)
FLAGS = ("--benchmark-json", "asked.json", "--benchmark-save", "named", "--benchmark-save-data")


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One project run serially, again against what was saved, and with two workers."""

    root: Path
    first: Ended
    first_folder: Path
    again: Ended
    workers: Ended
    workers_folder: Path


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    project = Project(tmp_path_factory.mktemp("timing"), {"test_timed.py": TIMED})
    first = project.pytest(*FLAGS, target="cpu")
    first_folder = project.newest()
    again = project.pytest("--benchmark-compare", target="cpu")
    workers = project.pytest("-n", "2", target="cpu,gpu-h100")
    return Story(
        root=project.root,
        first=first,
        first_folder=first_folder,
        again=again,
        workers=workers,
        workers_folder=project.newest(),
    )


def _benchmarks(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_bytes())["benchmarks"]
    return found


def _verdict(ended: Ended, variant: str, claim: str, target: str = "cpu") -> str:
    (found,) = [
        one
        for one in ended.records
        if (one.variant, one.claim, one.target) == (variant, claim, target)
    ]
    return found.verdict.value


@pytest.mark.exhaustive
def test_an_equal_program_passes_the_claim_and_half_as_much_again_fails_it(story: Story) -> None:
    for ended in (story.first, story.workers):
        assert _verdict(ended, "same", "time-ratio") == "passed"
        assert _verdict(ended, "more", "time-ratio.negative-control") == "passed"
        assert ended.exit_code == 0


def test_timing_comes_last(story: Story) -> None:
    assert [one.claim for one in story.first.records] == [
        "compiles",
        "compiles",
        "time-ratio",
        "time-ratio.negative-control",
    ]


def test_a_compile_only_target_cannot_run_it(story: Story) -> None:
    assert _verdict(story.workers, "same", "time-ratio", "gpu-h100") == "unsupported"
    assert _verdict(story.workers, "same", "compiles", "gpu-h100") == "passed"


def test_the_fixture_gets_the_very_samples(story: Story) -> None:
    taken, damaged = evidence.TIMES.load_all(story.first_folder)
    assert not damaged
    samples = {pair.judged.variant: list(pair.judged.samples) for pair in taken}
    assert set(samples) == {"same", "more"}
    asked = _benchmarks(story.root / "asked.json")
    assert {entry["param"] for entry in asked} == {None}
    assert {entry["group"] for entry in asked} == {"mine/small@cpu"}
    by_variant = {entry["extra_info"]["variant"]: entry["stats"]["data"] for entry in asked}
    assert by_variant == samples


def test_what_belongs_to_a_time_is_beside_it(story: Story) -> None:
    (same,) = [
        entry
        for entry in _benchmarks(story.root / "asked.json")
        if entry["extra_info"]["variant"] == "same"
    ]
    info = same["extra_info"]
    assert info["ratio_low"] <= info["ratio"] <= info["ratio_high"]
    assert info["change"] in {"same", "faster", "slower", "too-noisy"}
    place = {"suite": "mine", "workload": "small", "target": "cpu"}
    assert place.items() <= info.items()
    assert info["argument_bytes"] == 200 * 200 * 4
    assert info["beside"] == "base"
    assert {"compile_seconds", "first_seconds"} <= info.keys()
    assert info["calibration_before_seconds"].keys() == {"matmul", "copy", "dispatch"}
    assert info["machine"]["device"] == "cpu"
    assert {"cpu", "cores", "governor", "driver", "load"} <= info["machine"].keys()
    toolchains = json.loads((story.root / "asked.json").read_bytes())["machine_info"]["assay"]
    assert "jaxlib" in toolchains["cpu"]


def test_a_saved_run_is_compared_with(story: Story) -> None:
    assert list((story.root / ".benchmarks").rglob("*_named.json"))
    assert "Comparing against benchmarks from" in story.again.output
    assert "NOW" in story.again.output
    assert story.again.exit_code == 0


@pytest.mark.parametrize("run", ["first", "workers"])
def test_every_run_that_timed_leaves_both_programs_of_each_pair(story: Story, run: str) -> None:
    folder = {"first": story.first_folder, "workers": story.workers_folder}[run]
    variants = [entry["extra_info"]["variant"] for entry in _benchmarks(folder / "benchmarks.json")]
    assert sorted(variants) == ["base", "base", "more", "same"]
    document = json.loads((folder / "benchmarks.json").read_bytes())
    fields = {"machine_info", "commit_info", "benchmarks", "datetime", "version"}
    assert document.keys() == fields
    assert "jaxlib" in document["machine_info"]["assay"]["cpu"]


def test_the_command_opens_the_files(story: Story) -> None:
    files = [folder / "benchmarks.json" for folder in (story.first_folder, story.workers_folder)]
    command = [sys.executable, "-m", "pytest_benchmark", "compare", *map(str, files)]
    command += ["--csv", "table"]
    ended = subprocess.run(
        command, cwd=story.root, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("small/same@cpu") == 2
    assert (story.root / "table.csv").read_text().count("small/more@cpu") == 2


def test_times_are_shown_where_people_look(story: Story) -> None:
    assert "steady run" in story.first.output
    assert "## Times" in (story.first_folder / "summary.md").read_text()
    told = Project(story.root, {}).assay("report", str(story.first_folder))
    assert told.exit_code == 0
    assert "small/same@cpu" in told.output


def test_a_damaged_file_of_times_is_told_and_the_others_shown(story: Story, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(story.first_folder, folder)
    damaged, *_ = sorted((folder / evidence.TIMES.folder).glob("*-more-*.json"))
    damaged.write_bytes(b"")
    told = Project(story.root, {}).assay("report", str(folder))
    assert told.exit_code == 0
    assert "delete it and run again" in told.output
    assert "small/same@cpu" in told.output
    assert "small/more@cpu" not in told.output


def test_nothing_is_timed_where_the_user_says_so(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_timed.py": TIMED})
    for flags in (("--benchmark-disable",), ("--benchmark-disable", "-n", "1")):
        ended = project.pytest(*flags, target="cpu")
        assert _verdict(ended, "same", "time-ratio") == "inconclusive"
        assert ended.exit_code == 0
        assert not (project.newest() / evidence.TIMES.folder).exists()
    both = project.pytest("--benchmark-disable", "--benchmark-enable", target="cpu")
    assert _verdict(both, "same", "time-ratio") == "passed"
    skipped = project.pytest("--benchmark-skip", target="cpu")
    assert {one.claim for one in skipped.records} == {"compiles"}
    assert (skipped.exit_code, skipped.outcomes) == (0, {"passed": 2, "skipped": 2})


def test_timings_alone_are_run_where_the_user_says_so(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_timed.py": TIMED})
    ended = project.pytest("--benchmark-only", "--benchmark-json=asked.json", target="cpu")
    assert {one.claim for one in ended.records} == {"time-ratio", "time-ratio.negative-control"}
    assert ended.outcomes["skipped"] >= 2, ended.output
    assert len(_benchmarks(tmp_path / "asked.json")) == 2


def test_it_needs_no_plugin_of_pytest_benchmark(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_timed.py": TIMED})
    ended = project.pytest("-p", "no:benchmark", "-k", "same and time", target="cpu")
    assert _verdict(ended, "same", "time-ratio") == "passed"
    assert _benchmarks(project.newest() / "benchmarks.json")


def test_what_is_timed_comes_last(story: Story) -> None:
    claims = [record.claim.removesuffix(".negative-control") for record in story.first.records]
    assert claims == sorted(claims) == [*["compiles"] * (len(claims) - 2), *["time-ratio"] * 2]


def test_a_program_timed_alone_is_shown_without_a_ratio(tmp_path: Path) -> None:
    alone = TIMED.partition("# Wide enough")[0] + (
        'test_time = Check(claim=claims.BaselineTime(), workloads=(W,), variants=("same",))\n'
    )
    project = Project(tmp_path, {"test_timed.py": alone})
    ended = project.pytest(target="cpu")
    assert "no time is stored for this machine" in " ".join(ended.output.split())
    (entry,) = _benchmarks(project.newest() / "benchmarks.json")
    assert entry["fullname"] == "mine/small/same@cpu alone"
    assert len(entry["stats"]["data"]) == entry["stats"]["rounds"] > 1
    assert "ratio" not in entry["extra_info"]


@pytest.mark.exhaustive
def test_a_failed_timing_is_judged_again_by_last_failed(tmp_path: Path) -> None:
    fails = TIMED.replace(
        'variants=("same",), negative_control="more"', 'variants=("same", "slow")'
    ).replace(
        'variant("more", partial(works, 15), Role.NEGATIVE_CONTROL,',
        'variant("slow", partial(works, 15),',
    )
    project = Project(tmp_path, {"test_timed.py": fails})
    failed = project.pytest("-k", "time", target="cpu")
    assert failed.exit_code == 1
    assert _verdict(failed, "slow", "time-ratio") == "failed"
    again = project.pytest("--lf", target="cpu")
    assert [one.variant for one in again.records] == ["slow"]


def test_a_cap_that_is_no_number_is_misuse(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_timed.py": TIMED})
    ended = project.pytest("--assay-timing-seconds=soon", target="cpu")
    assert ended.exit_code == 2
    assert "got --assay-timing-seconds=soon, wanted a positive number of seconds" in ended.output


def test_the_example_of_the_documents_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "timing.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    ended = Project(tmp_path, {"test_norm.py": code}).pytest(target="cpu")
    assert _verdict(ended, "twice", "time-ratio.negative-control") == "passed"
    assert _verdict(ended, "ours", "time-ratio") in {"passed", "inconclusive"}


SLOW = (
    TIMED
    + """
def slow(devices):
    def sleep(x):
        time.sleep(0.2)
        return x
    made = works(1, devices)
    call = lambda x: jax.pure_callback(sleep, SQUARE, x)
    return Program(function=call, arguments=(SQUARE,), values=made.values)

V = workload(variant("slow", slow), variant("alike", slow, reference="slow"), name="later")
test_slow = Check(claim=claims.TimeRatio(), workloads=(V,), variants=("alike",))
"""
)


@pytest.mark.exhaustive
def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_slow.py": SLOW.replace("test_time = ", "_untimed = ")})
    run = project.start("--assay-timing-seconds=600", "-k", "slow and alike")
    end = time.monotonic() + 90
    while not _samples(project):
        assert time.monotonic() < end, "nothing was timed"
        assert run.poll() is None
        time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    assert run.wait(timeout=30) == pytest.ExitCode.INTERRUPTED
    (kept,), damaged = evidence.TIMES.load_all(project.newest())
    assert not damaged
    assert kept.ended is Ending.UNFINISHED
    assert len(kept.judged.samples) == len(kept.reference.samples) > 0
    entries = _benchmarks(project.newest() / "benchmarks.json")
    assert [entry["stats"]["data"] for entry in entries] == [
        list(kept.reference.samples),
        list(kept.judged.samples),
    ]
    assert not (project.newest() / records.FILE_NAME).exists()


def _samples(project: Project) -> tuple[float, ...]:
    found = list((project.root / "results").glob("2*"))
    taken = evidence.TIMES.load_all(found[0])[0] if found else ()
    return taken[0].judged.samples if taken else ()


CROWD = (
    PREAMBLE
    + """
import numpy as np
from assay import Growth
from functools import partial

def stamp(kind):
    with Path("stamps").open("a") as file:
        file.write(f"{kind} {time.time()}\\n")

def busy(seconds, devices):
    stamp("begin")
    time.sleep(seconds)
    stamp("end")
    return double(devices)

def stamped(devices):
    def now(x):
        stamp("timed")
        time.sleep(0.02)
        return x
    call = lambda x: jax.pure_callback(now, X, x)
    return Program(function=call, arguments=(X,), values=lambda: (np.ones(8, np.float32),))

def a_plain_one(number):
    def test_plain():
        stamp("begin")
        time.sleep(1.5)
        stamp("end")
    return test_plain

W = workload(*(variant(f"busy{n}", partial(busy, 0.3 + n % 4 * 0.5)) for n in range(8)))
V = workload(variant("a", stamped), variant("b", stamped, reference="a"),
             variant("c", stamped, reference="a"), name="timed")
def grown(devices):
    def build(length):
        def now(x):
            stamp("timed")
            time.sleep(0.02)
            return x
        return lambda x: jax.pure_callback(now, X, x), lambda: (np.ones(8, np.float32),)
    return Program(growth=Growth(lengths=(1, 4), build=build))

G = workload(variant("grown", grown), name="growing")
test_times_of_growth = Check(claim=claims.TimeGrowth(), workloads=(G,))
ALL = claims.TimeRatio(seen_change=0.5)
test_times = Check(claim=ALL, workloads=(V,), variants=("b", "c"))
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))
for n in range(4):
    globals()[f"test_plain_{n}"] = a_plain_one(n)
"""
)
NO_LOCK = """
from contextlib import nullcontext
from assay.store import files

files.exclusive = files.shared = lambda directory: nullcontext()
"""
IN_ANY_ORDER = """
import pytest

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    # Timing before all else, as another plugin might have it: one worker is given both.
    items.sort(key=lambda item: "times" not in item.name)
"""


def _beside(project: Project) -> tuple[int, int]:
    """How many runs were timed, and how many of them while something else was at work."""
    lines = (project.root / "stamps").read_text().split()
    at_work = timed = beside = 0
    for _, kind in sorted(zip(map(float, lines[1::2]), lines[::2], strict=True)):
        at_work += {"begin": 1, "end": -1}.get(kind, 0)
        timed += kind == "timed"
        beside += kind == "timed" and at_work > 0
    return timed, beside


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", ["", IN_ANY_ORDER], ids=["last", "first"])
def test_nothing_is_at_work_in_another_worker_while_programs_are_timed(
    tmp_path: Path, order: str
) -> None:
    project = Project(tmp_path, {"test_crowd.py": CROWD, "conftest.py": order})
    ended = project.pytest("-n", "2", target="cpu")
    assert "failed" not in ended.outcomes, ended.output
    timed, beside = _beside(project)
    assert timed > 40
    assert beside == 0
    assert _verdict(ended, "grown", "time-growth") == "passed"
    kept = {entry["name"]: entry for entry in _benchmarks(project.newest() / "benchmarks.json")}
    for length in (1, 4):
        entry = kept[f"growing/grown@cpu on length {length}"]
        assert entry["fullname"].startswith("mine/growing/")
        assert entry["extra_info"]["suite"] == "mine"
        assert entry["stats"]["min"] == entry["extra_info"]["fastest_seconds"][str(length)] > 0.02


@pytest.mark.exhaustive
def test_without_the_lock_something_is(tmp_path: Path) -> None:
    """In one of three runs at least: on a busy machine workers may miss each other."""
    for turn in range(3):
        folder = tmp_path / str(turn)
        folder.mkdir()
        project = Project(folder, {"test_crowd.py": CROWD, "conftest.py": IN_ANY_ORDER + NO_LOCK})
        project.pytest("-n", "2", target="cpu")
        timed, beside = _beside(project)
        assert timed > 40
        if beside:
            return
    pytest.fail("got no run that was timed beside another; wanted one without the lock")
