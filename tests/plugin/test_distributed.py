"""Several processes reach the verdicts of one, or all of them end and say why."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.isolate.group import free_port
from assay.model.process import Process
from assay.model.verdict import Outcome, Record
from assay.store import records
from assay.targets.jax_internals import detected_process
from tests.exhaustive import nightly
from tests.plugin.project import PREAMBLE, Ended, Project

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "multi-process.md").read_text()
HOST = "127.0.0.1"
SUITE = (
    PREAMBLE
    + """
import signal
from functools import partial
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Y = jax.ShapeDtypeStruct((16, 128), jnp.float32)

def in_last_process():
    return jax.process_index() == jax.process_count() - 1 > 0

def summing(devices, scale=1.0, split=True, before=lambda: None):
    mesh = Mesh(np.array(devices), ("d",))
    parts = NamedSharding(mesh, PartitionSpec("d"))
    def function(x):
        return jnp.tanh(x).sum(axis=0) * scale
    def values():
        before()
        filled = 2 if not split and in_last_process() else 1
        return (np.full(Y.shape, filled, np.float32),)
    return Program(
        function=function, arguments=(Y,), in_shardings=(parts,) if split else None,
        values=values, observe=function,
    )

def raises():
    if in_last_process():
        raise RuntimeError("no data here")

def dies():
    if in_last_process():
        os.kill(os.getpid(), signal.SIGKILL)

def waits():
    Path(f"waits-{jax.process_index()}").touch()
    time.sleep(0 if Path("again").exists() else 300)

W = workload(
    variant("sum", summing),
    variant("same", summing, reference="sum"),
    variant("other", partial(summing, scale=2.0), Role.NEGATIVE_CONTROL, reference="sum"),
    variant("refused", mismatched, Role.NEGATIVE_CONTROL, fails_with=FailureKind.TRACE),
    variant("raises", partial(summing, before=raises), fails_with=FailureKind.EXECUTION),
    variant("dies", partial(summing, before=dies)),
    variant("differs", partial(summing, split=False)),
    variant("waits", partial(summing, before=waits)),
    variant("zero", partial(summing, scale=0.0)),
)
GOOD = ("sum", "same")
test_compiles = Check(
    claim=claims.Compiles(), workloads=(W,), variants=GOOD, negative_control="refused"
)
test_equal = Check(
    claim=claims.ValuesEqual(exact_on=()), workloads=(W,), variants=("same",),
    negative_control="other",
)
"""
)
BAD = """
from test_mine import *
test_compiles = test_equal = None
BAD = ("raises", "dies", "differs", "sum")
test_runs = Check(claim=claims.Runs(), workloads=(W,), variants=BAD)
"""
WAITS = """
from test_mine import *
test_compiles = test_equal = None
test_runs = Check(claim=claims.Runs(), workloads=(W,), variants=("sum", "waits", "zero"))
"""


SLURM = {
    "SLURM_JOB_ID": "4107",
    "SLURM_STEP_NODELIST": "node[007-009]",
    "SLURM_NTASKS": "3",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_NODES": "3",
}


def together(
    project: Project, count: int, *arguments: str, own: Sequence[Sequence[str]] = ()
) -> list[Ended]:
    """``count`` processes, each also with its own arguments."""
    port = free_port(HOST)
    with ThreadPoolExecutor(count) as pool:
        runs = [
            pool.submit(
                project.pytest,
                *arguments,
                *(own[index] if own else ()),
                f"--assay-distributed={HOST}:{port},{count},{index}",
            )
            for index in range(count)
        ]
        return [run.result() for run in runs]


def facts(found: Sequence[Record]) -> list[tuple[object, ...]]:
    """What the records say, apart from the run's name and the times."""
    return [(*each.key, each.verdict, each.measured, each.limit, each.toolchain) for each in found]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    project = Project(tmp_path_factory.mktemp("alone"), {"test_mine.py": SUITE})
    return project.pytest("--assay-no-cache")


@pytest.mark.parametrize("count", [2, nightly(4)])
def test_processes_reach_the_verdicts_of_one(count: int, alone: Ended, tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_mine.py": SUITE})
    first, *others = together(project, count)
    assert first.exit_code == 0, first.output
    assert "Nothing regressed (exit 0): 5 passed." in first.output
    assert facts(first.records) == facts(alone.records)
    assert len(list((tmp_path / "results").glob("2*"))) == 1
    for index, other in enumerate(others, start=1):
        assert other.exit_code == 0
        assert other.output == (
            f"assay: process {index} of {count}: exit 0; process 0 writes the results\n"
        )


def test_processes_are_found_by_the_variables_of_slurm(alone: Ended, tmp_path: Path) -> None:
    of_the_job = {**SLURM, "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    del of_the_job["SLURM_PROCID"]
    of_the_job["JAX_COORDINATOR_PORT"] = str(free_port(HOST))
    files = {"test_mine.py": SUITE}
    projects = [Project(tmp_path, files, **of_the_job, SLURM_PROCID=str(index)) for index in (0, 1)]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda each: each.pytest("--assay-distributed"), projects)
    assert (first.exit_code, second.exit_code) == (0, 0), first.output
    assert facts(first.records) == facts(alone.records)


@pytest.mark.exhaustive
def test_a_failure_of_one_process_fails_the_item_in_all(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_mine.py": SUITE, "test_bad.py": BAD})
    first, second = together(project, 2, "test_bad.py")
    assert (first.exit_code, second.exit_code) == (1, 1)
    reasons = {record.variant: record.reason for record in first.records}
    assert "process 1 of 2: RuntimeError: no data here" in reasons["raises"]
    assert "process 1 of 2: the process ended by SIGKILL" in reasons["dies"]
    assert "process 1 of 2 computed other values than process 0" in reasons["differs"]
    failed = [each.variant for each in first.records if each.verdict is Outcome.FAILED]
    assert failed == ["raises", "dies", "differs"]
    assert first.record("sum", "runs").verdict is Outcome.PASSED


def _started(root: Path, file: str, count: int) -> list[subprocess.Popen[str]]:
    port = free_port(HOST)
    command = [sys.executable, "-P", "-m", "pytest", file, "--assay-target", "cpu:8"]
    return [
        subprocess.Popen(
            [*command, f"--assay-distributed={HOST}:{port},{count},{index}"],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index in range(count)
    ]


@contextmanager
def _ended_at_last(processes: Sequence[subprocess.Popen[str]]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.exhaustive
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_run_and_is_named(victim: int, tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_mine.py": SUITE, "test_waits.py": WAITS})
    processes = _started(tmp_path, "test_waits.py", 2)
    with _ended_at_last(processes):
        deadline = time.monotonic() + 100
        while not all((tmp_path / f"waits-{index}").exists() for index in (0, 1)):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        processes[victim].send_signal(signal.SIGKILL)
        output, _ = processes[1 - victim].communicate(timeout=30)
    assert processes[1 - victim].returncode == 3
    assert f"process {victim} of 2 is lost: its connection ended" in output
    (folder,) = (tmp_path / "results").glob("2*")
    reached = [(each.variant, each.verdict) for each in records.load(folder)]
    assert reached == [("sum", Outcome.PASSED)]
    says = "Process 1 of 2 is lost: its connection ended; the remaining tests did not run"
    assert (f"{says} (exit 3)" in " ".join(output.split())) == (victim == 1)
    (tmp_path / "again").touch()
    first, _ = together(project, 2, "test_waits.py", f"--assay-resume={folder}")
    assert first.exit_code == 0, first.output
    resumed = [(each.variant, each.verdict) for each in records.load(folder)]
    assert resumed == [(name, Outcome.PASSED) for name in ("sum", "waits", "zero")]


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (
            [["-k", "compiles"], ["-k", "equal"]],
            (
                "process 1 of 2 selected 2 items that process 0 did not, such as "
                "test_mine.py::test_equal[small/other@cpu:8/negative-control]"
            ),
        ),
        (
            [[], ["-k", "compiles"]],
            (
                "process 1 of 2 did not select 2 items that process 0 did, such as "
                "test_mine.py::test_equal[small/other@cpu:8/negative-control]"
            ),
        ),
    ],
)
def test_processes_with_other_items_all_end_with_2(
    own: Sequence[Sequence[str]], words: str, tmp_path: Path
) -> None:
    ends = together(Project(tmp_path, {"test_mine.py": SUITE}), 2, own=own)
    for end in ends:
        assert end.exit_code == 2, end.output
        assert f"assay: {words}; start all processes with the same" in end.output
        assert end.records == ()


def test_a_process_that_stops_alone_stops_all(tmp_path: Path) -> None:
    """Its conftest ends it after the collection, as Ctrl-C would."""
    stops = """
import contextlib, os
def pytest_runtestloop(session):
    with contextlib.suppress(FileNotFoundError):  # for the process that comes second
        os.unlink("stops")
        raise KeyboardInterrupt
"""
    files = {"test_mine.py": SUITE, "conftest.py": stops, "stops": "one of them"}
    Project(tmp_path, files)
    processes = _started(tmp_path, "test_mine.py", 2)
    with _ended_at_last(processes):
        outputs = [process.communicate(timeout=100)[0] for process in processes]
    codes = [process.returncode for process in processes]
    assert sorted(codes) == [2, 3], outputs
    assert "is at 'exit'" in outputs[codes.index(3)]


@pytest.mark.exhaustive
def test_the_suites_run_over_two_processes(tmp_path: Path) -> None:
    project = Project(tmp_path, {})
    suites = [str(ROOT / "suites" / name) for name in ("sharded_scan", "scan_offload")]
    first, second = together(
        project,
        2,
        *suites,
        f"--rootdir={ROOT}",
        "-k",
        "sharded_scan or (values-equal and offload-hidden)",
        "-c",
        str(ROOT / "pyproject.toml"),
        f"--assay-results-dir={tmp_path}/results",
    )
    assert (first.exit_code, second.exit_code) == (0, 0), first.output
    judged = {(each.suite, each.claim) for each in first.records if each.verdict.judged}
    assert ("scan_offload", "values-equal") in judged
    assert {("sharded_scan", claim) for claim in ("collective-bytes", "process-bytes")} < judged


@pytest.mark.exhaustive
def test_the_document_shows_what_is_printed(tmp_path: Path) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)
    (text,) = (each for language, each in blocks if language == "python")
    shown = [each for language, each in blocks if not language]
    (command,) = (each for each in shown if "localhost:9876,2,0" in each)
    (printed,) = (each for each in shown if each.startswith("Nothing regressed"))
    assert command.startswith("pytest test_sum.py --assay-target cpu:8 --assay-distributed=")
    first, second = together(Project(tmp_path, {"test_sum.py": text}), 2, "test_sum.py")
    assert (first.exit_code, second.exit_code) == (0, 0), first.output
    last, line = printed.splitlines()
    assert last in first.output
    assert second.output == f"{line}\n"


MISUSES = {
    "other form": (["--assay-distributed=2"], "wanted HOST:PORT,COUNT,INDEX"),
    "a path": (["--assay-distributed", "test_mine.py"], "got 'test_mine.py', wanted HOST:PORT"),
    "no cluster": (["--assay-distributed"], "where jax.distributed detects no cluster"),
    "workers": (["-n1", f"--assay-distributed={HOST}:1,1,0"], "with workers of pytest-xdist"),
    "compile-only": (
        ["--assay-target=tpu-v5e:2x4", f"--assay-distributed={HOST}:1,1,0"],
        "wanted a live target, such as cpu:4",
    ),
    "no share": (
        ["--assay-target=cpu:8", f"--assay-distributed={HOST}:1,3,0"],
        "got --assay-target=cpu:8 for 3 processes, wanted a number of devices that all",
    ),
    "another toolchain": (
        ["--assay-against=0.10.2", f"--assay-distributed={HOST}:1,1,0"],
        "times are measured in one process",
    ),
}


@pytest.mark.parametrize(("options", "words"), MISUSES.values(), ids=MISUSES)
def test_a_wrong_use_ends_with_2(options: Sequence[str], words: str, tmp_path: Path) -> None:
    ended = Project(tmp_path, {"test_mine.py": SUITE}).pytest(*options, target="")
    assert ended.exit_code == 2
    assert words in " ".join(ended.output.split())


def test_a_port_in_use_and_a_missing_process_end_with_2(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_mine.py": SUITE})
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        ended = project.pytest(f"--assay-distributed={HOST}:{port},2,0")
    assert ended.exit_code == 2
    assert f"got {HOST}:{port}, where process 0 cannot listen" in ended.output
    ended = project.pytest(f"--assay-distributed={HOST}:{port},2,0", "--assay-compile-timeout=1")
    assert ended.exit_code == 2
    assert "got 1 of 2 processes within 1 s, wanted process 1 too" in ended.output


def test_a_time_is_inconclusive_over_several_processes(tmp_path: Path) -> None:
    timed = SUITE + "\ntest_compiles = test_equal = None\n"
    timed += "test_time = Check(claim=claims.TimeGrowth(), workloads=(W,), variants=('sum',))\n"
    ended = Project(tmp_path, {"test_mine.py": timed}).pytest(
        f"--assay-distributed={HOST}:{free_port(HOST)},1,0"
    )
    (record,) = ended.records
    assert record.verdict is Outcome.INCONCLUSIVE
    assert record.reason == "nothing is timed over several processes"


OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}


@pytest.mark.parametrize(
    ("variables", "host"), [(SLURM, "node007"), (OPEN_MPI, "10.96.0.1")], ids=["slurm", "open-mpi"]
)
def test_a_cluster_is_detected(
    variables: dict[str, str], host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = detected_process()
    assert found is not None
    expected = Process(host=host, port=found.port, count=3, index=2, local_devices=(0,))
    assert found == expected
    assert found.port > 1024
