"""``assay fleet`` on two machines simulated by Ray: the same verdicts, whatever is lost."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path

import pytest

from assay.model.installation import install_command
from assay.model.verdict import Outcome, Record
from assay.store.records import load
from tests.plugin.project import PREAMBLE, Ended, Project
from tests.toolchains.index import OTHER, skip_without_index

SUITE = (
    PREAMBLE
    + """
import pytest

def adding(number):
    def program(devices):
        return Program(
            function=lambda x: x + number,
            arguments=(X,),
            values=lambda: (jnp.zeros(8),),
            observe=lambda x: x + number,
        )

    return program

def two(name):
    return workload(
        variant("one", adding(1)), variant("same", adding(1), reference="one"),
        variant("refused", mismatched, Role.NEGATIVE_CONTROL, fails_with=FailureKind.TRACE),
        variant("wrong", adding(2), Role.NEGATIVE_CONTROL, reference="one"),
        name=name,
    )

WORKLOADS = (two("a"), two("b"))
BROKEN = workload(
    variant("broken", mismatched),
    variant("refused", mismatched, Role.NEGATIVE_CONTROL, fails_with=FailureKind.TRACE),
    name="broken",
)
test_compiles = Check(
    claim=claims.Compiles(), workloads=(*WORKLOADS, BROKEN), negative_control="refused"
)
test_equal = Check(
    claim=claims.ValuesEqual(), workloads=WORKLOADS, variants=("same",), negative_control="wrong"
)

@pytest.mark.parametrize("number", (1, 2))
def test_plain(number):
    assert number == 1

def test_skipped():
    pytest.skip("not today")
"""
)
ENDING = """
import os, pytest, signal, time
from pathlib import Path

def parent(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])

def pytest_runtest_call(item):
    node = getattr(item.config, "workerinput", {}).get("assay_node", "")
    for what in Path(item.config.rootpath).glob("ends-*"):
        name, _, place = what.read_text().partition(" ")
        if not (name in item.name and node and place in node):
            continue
        session, worker = os.getpid(), os.getppid()
        if what.name == "ends-always":
            os.kill(session, signal.SIGKILL)
        elif what.name == "ends-worker":
            what.unlink()
            os.kill(worker, signal.SIGKILL)
        elif what.name == "ends-machine":
            what.unlink()
            # Of a machine, nothing goes on. Ray's worker alone would end its task.
            for process in (parent(worker), worker, session):
                os.kill(process, signal.SIGKILL)
        time.sleep(60)
"""
FILES = {"test_mine.py": SUITE, "conftest.py": ENDING}


def facts(found: tuple[Record, ...]) -> list[tuple[object, ...]]:
    """What the records say, apart from the run's name, the times, machines and their order."""
    return sorted((*each.key, each.verdict.value, str(each.measured)) for each in found)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """The project in one process."""
    return Project(tmp_path_factory.mktemp("alone"), FILES).pytest()


def fleet(root: Path, *more: str, ends: dict[str, str] | None = None) -> tuple[Ended, Path]:
    """The project on two machines; ``ends`` says what kills what."""
    files = {**FILES, **{f"ends-{what}": when for what, when in (ends or {}).items()}}
    project = Project(root, files)
    options = ("--nodes", "2", ".", "--", "--assay-target", "cpu:8", *more)
    # Ray starts its processes with the interpreter, which must not be a warm one.
    ended = project.assay("fleet", *options, path=root)
    return ended, project.newest()


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Path]:
    """The project on two machines, where a test kills its worker."""
    return fleet(tmp_path_factory.mktemp("spread"), ends={"worker": "test_equal[b/same@cpu:8]"})


def test_a_fleet_reaches_the_verdicts_of_one_process(
    alone: Ended, spread: tuple[Ended, Path]
) -> None:
    ended, _ = spread
    assert facts(ended.records) == facts(alone.records)
    assert {each.verdict for each in ended.records} >= {Outcome.PASSED, Outcome.FAILED}


def test_a_fleet_ends_as_one_process(alone: Ended, spread: tuple[Ended, Path]) -> None:
    ended, _ = spread
    assert (ended.exit_code, ended.outcomes) == (alone.exit_code, alone.outcomes)
    assert "assert 2 == 1" in ended.output


def test_a_fleet_writes_the_files_of_one_process(alone: Ended, spread: tuple[Ended, Path]) -> None:
    def names(changed: frozenset[str]) -> set[str]:
        return {name.partition("/")[2].partition("/")[2] for name in changed if "results/2" in name}

    ended, _ = spread
    locks = {name for name in names(alone.changed) if name.endswith((".lock", "-gate", "-lock"))}
    assert names(ended.changed) | locks == names(alone.changed) | locks
    assert "report.html" in names(ended.changed)


def test_each_record_names_its_machine(spread: tuple[Ended, Path]) -> None:
    ended, _ = spread
    assert {each.node for each in ended.records} == {"node-1", "node-2"}


def test_the_summary_says_which_workers_were_lost(spread: tuple[Ended, Path]) -> None:
    ended, run = spread
    for text in (ended.output, (run / "summary.md").read_text(), (run / "report.html").read_text()):
        assert "lost: 1 worker on node-" in text
        assert "ran again" in text


def test_no_path_of_a_machine_is_in_the_records(spread: tuple[Ended, Path]) -> None:
    _, run = spread
    assert "assay-fleet" not in (run / "records.jsonl").read_text()


@pytest.mark.exhaustive
def test_a_lost_machine_and_a_deadly_item_cost_one_verdict(alone: Ended, tmp_path: Path) -> None:
    deadly = "test_equal[a/same@cpu:8]"
    ended, _ = fleet(tmp_path, ends={"machine": "test_compiles[ node-2", "always": deadly})
    assert not (tmp_path / "ends-machine").exists()
    (lost,) = [each for each in ended.records if each.verdict is Outcome.INCONCLUSIVE]
    assert (lost.workload, lost.variant, lost.claim) == ("a", "same", "values-equal")
    assert "its worker was lost 3 times (node-1: the process ended by SIGKILL" in lost.reason
    left = [each for each in facts(alone.records) if each[:5] != lost.key]
    assert [each for each in facts(ended.records) if each[:5] != lost.key] == left
    # That the worker had started may be lost with its machine, and with it the machine's name.
    assert re.search(r"lost: 1 worker on (node-2|a machine); \d+ items? ran again", ended.output)
    assert ended.exit_code == 1


@pytest.mark.exhaustive
def test_a_fleet_continues_an_interrupted_run(alone: Ended, tmp_path: Path) -> None:
    project = Project(tmp_path, FILES)
    project.pytest()
    run = project.newest()
    lines = (run / "records.jsonl").read_bytes().splitlines(keepends=True)
    (run / "records.jsonl").write_bytes(b"".join(lines[:5]))
    options = (".", "--", "--assay-target", "cpu:8", f"--assay-resume={run}")
    ended = project.assay("fleet", *options, path=tmp_path)
    found = load(run)
    assert "kept 5 verdicts" in ended.output
    assert facts(found) == facts(alone.records)
    assert {each.node for each in found[:5]} == {""}
    assert {each.node for each in found[5:]} == {"node-1"}


ODD = (
    PREAMBLE
    + """
raylet = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
is_odd = "node-2" in Path(f"/proc/{raylet}/cmdline").read_text()
W = workload(
    variant("mine", mismatched if is_odd else double),
    variant("refused", mismatched, Role.NEGATIVE_CONTROL, fails_with=FailureKind.TRACE),
)
test_compiles = Check(claim=claims.Compiles(), workloads=(W,), negative_control="refused")
"""
)


@pytest.mark.exhaustive
def test_the_odd_machine_of_three_is_found(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_mine.py": ODD})
    options = ("--each-node", "--nodes", "3", ".", "--", "--assay-target", "cpu:8")
    ended = project.assay("fleet", *options, path=tmp_path)
    assert ended.exit_code == 1
    said = " ".join(ended.output.split())
    assert "3 machines: 1 machine unlike the fleet: node-2;" in said
    assert "node-2: compiles of small/mine on cpu:8 is FAILED, 1; the fleet has passed" in said
    found = {path.parent.name: load(path.parent) for path in tmp_path.glob("results/*/*/rec*")}
    assert {name: len(each) for name, each in found.items()} == {f"node-{n}": 2 for n in (1, 2, 3)}
    assert (next(iter(tmp_path.glob("results/*/fleet.html")))).is_file()


@pytest.mark.exhaustive
def test_a_fleet_runs_on_another_toolchain(tmp_path: Path) -> None:
    skip_without_index()
    project = Project(tmp_path, FILES)
    options = (".", "--toolchain", OTHER, "--", "--assay-target", "cpu:8", "-k", "test_equal")
    ended = project.assay("fleet", *options, path=tmp_path)
    assert ended.exit_code == 0
    assert {each.toolchain["jax"] for each in ended.records} == {OTHER}
    assert {each.verdict for each in ended.records} == {Outcome.PASSED}


def test_an_address_without_a_cluster_is_misuse(tmp_path: Path) -> None:
    ended = Project(tmp_path, FILES).assay("fleet", "--address", "ray://nowhere:1", ".")
    assert ended.exit_code == 2
    assert "got --address ray://nowhere:1, wanted local, auto or HOST:PORT" in ended.output


@pytest.mark.parametrize("address", ["assay.invalid:1", "127.0.0.1:{closed}", "127.0.0.1:70000"])
def test_an_address_where_nothing_listens_is_misuse_at_once(tmp_path: Path, address: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # It does not listen, and no other process takes it.
        given = address.format(closed=closed.getsockname()[1])
        start = time.monotonic()
        ended = Project(tmp_path, FILES).assay("fleet", "--address", given, ".")
    assert ended.exit_code == 2
    assert f"got --address {given}, where no Ray cluster answers (" in ended.output
    assert "start one with `ray start --head`" in ended.output
    assert time.monotonic() - start < 60


def test_without_ray_the_command_says_what_to_install(tmp_path: Path) -> None:
    project = Project(tmp_path, {**FILES, "none/ray.py": "raise ImportError('no ray')"})
    ended = project.assay("fleet", ".", path=tmp_path / "none")
    assert ended.exit_code == 2
    assert f"install it: {install_command('fleet')}" in ended.output
