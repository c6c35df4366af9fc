"""Mutated inputs are read rightly or refused clearly; what the fuzzer found once stays fixed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from benchmarks.fuzz import engine, files
from benchmarks.fuzz.__main__ import FINDINGS, readers
from benchmarks.fuzz.engine import campaign, found, judged
from benchmarks.fuzz.mutations import of_json, of_messages

ROOT = Path(__file__).parents[2]
READERS = {name: place for name, (place, _) in readers().items()}
# XLA's parser of text may end this process; the campaign runs it in one of its own.
IN_PROCESS = [name for name in READERS if name != "hlo-text"]
# These draw pages, or open databases.
SLOW, FEW, MANY = {"history", "invocation", "profile"}, 30, 250
FOUND = sorted(path for path in FINDINGS.rglob("*") if path.is_file())
# jaxlib's own class of profiles says so when it is made.
pytestmark = pytest.mark.filterwarnings(
    "ignore:builtin type .* has no __module__:DeprecationWarning",
    "ignore:unclosed database:ResourceWarning",
)


@pytest.mark.parametrize("name", READERS)
def test_the_seeds_of_a_reader_are_accepted(name: str) -> None:
    reader = found(READERS[name])
    assert {judged(reader, seed).kind for seed in reader.seeds()} == {"accepted"}


@pytest.mark.parametrize("name", IN_PROCESS)
def test_some_mutations_of_each_reader_do_no_harm(name: str) -> None:
    reader = found(READERS[name])
    seeds = reader.seeds()
    for number in range(FEW if name in SLOW else MANY):
        data = reader.mutate(Random(f"tests {name} {number}"), seeds)
        assert judged(reader, data).fault == "", data


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_found_once_does_no_harm_now(path: Path) -> None:
    reader = found(READERS[path.parent.name])
    assert judged(reader, path.read_bytes()).fault == ""


@pytest.mark.parametrize(
    ("reader", "fault"),
    [
        ("CRASHES", "ends with SIGSEGV"),
        ("HANGS", "hangs"),
        ("RAISES", "KeyError"),
        ("MISREADS", "WrongResult: other letters"),
        ("TAKES_MEMORY", "MemoryError"),
    ],
)
def test_a_planted_fault_is_found_and_minimised(
    reader: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_MINIMIZING_TRIES", 12)
    done = campaign(f"tests.fuzz.planted:{reader}", 12)
    assert [each.partition(" in ")[0] for each in done.faults] == [fault]
    (smallest,) = done.smallest.values()
    assert smallest[:4] != b"abcd"
    assert len(smallest) <= 4


def test_a_hang_is_found_where_the_parent_ignores_its_signal() -> None:
    # In a process of its own: here a profiler may run, whose signal this is as well.
    code = (
        "import signal\n"
        "from benchmarks.fuzz.engine import campaign\n"
        "signal.signal(signal.SIGPROF, signal.SIG_IGN)\n"
        "print(*campaign('tests.fuzz.planted:HANGS', 2).faults)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert ended.stdout.startswith("hangs in "), ended.stdout + ended.stderr


def test_a_reader_without_a_fault_has_no_finding() -> None:
    done = campaign("tests.fuzz.planted:IS_RIGHT", 300)
    assert not done.faults
    assert done.outcomes.total() == done.inputs == 300


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="Python 3.11 cannot tell new lines")
def test_an_input_that_reaches_more_becomes_a_seed() -> None:
    reader = found(READERS["rules"])
    assert campaign(READERS["rules"], 60).seeds > len(reader.seeds())


@pytest.mark.parametrize("mutate", [of_json, of_messages])
def test_a_mutation_repeats_with_its_number(mutate: engine.Mutator) -> None:
    name = "baselines" if mutate is of_json else "hlo-proto"
    seeds = found(READERS[name]).seeds()
    first = [mutate(Random(f"{k}"), seeds) for k in range(50)]
    assert first == [mutate(Random(f"{k}"), seeds) for k in range(50)]
    assert len(set(first)) > 40


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("run `a <script>alert` now", "run  now"),
        ("run ``a ` <script>alert`` now", "run  now"),
        ("a \\` <script>alert \\` b", "a \\` <script>alert \\` b"),
        ("a `\n\n<script>alert\n\n` b", "a `\n\n<script>alert\n\n` b"),
    ],
)
def test_only_code_of_markdown_may_hold_a_script(text: str, left: str) -> None:
    assert files._CODE.sub("", text) == left
