"""Who works alone has no one beside him, waits for no newcomer, and dies without leaving a lock."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from assay.store import files

ROOT = Path(__file__).parents[2]
SECONDS = 30.0
Spans = list[tuple[float, float, str]]


def _work(
    hold: Callable[[Path], object], directory: Path, kind: str, spans: Spans, length: float
) -> None:
    with hold(directory):  # type: ignore[attr-defined] # any context manager
        begun = time.monotonic()
        time.sleep(length)
        spans.append((begun, time.monotonic(), kind))


def _overlaps(spans: Spans) -> bool:
    """Whether anything was at work beside one who was to be alone."""
    return any(
        one[0] < other[1] and other[0] < one[1]
        for number, one in enumerate(spans)
        for other in spans[number + 1 :]
        if "alone" in (one[2], other[2])
    )


def _crowd(directory: Path, alone: Callable[[Path], object]) -> Spans:
    spans: Spans = []
    jobs = [(alone, "alone"), (files.shared, "beside")] * 4
    threads = [
        threading.Thread(target=_work, args=(hold, directory, kind, spans, 0.02))
        for hold, kind in jobs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert len(spans) == len(jobs)
    return spans


@contextmanager
def _no_lock(_directory: Path) -> Iterator[None]:
    yield


def test_nothing_is_at_work_beside_one_who_works_alone(tmp_path: Path) -> None:
    assert not _overlaps(_crowd(tmp_path, files.exclusive))


def test_without_the_lock_something_is(tmp_path: Path) -> None:
    assert _overlaps(_crowd(tmp_path, _no_lock))


def test_others_work_beside_each_other(tmp_path: Path) -> None:
    together = threading.Barrier(3)

    def work() -> None:
        with files.shared(tmp_path):
            together.wait(SECONDS)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert not together.broken


def _order(directory: Path, newcomer: Callable[[Path], object], patience: float) -> list[str]:
    """Who got in first: one who waits to work alone, or who came after and had so many seconds."""
    spans: Spans = []
    waiting, later = (
        threading.Thread(target=_work, args=(hold, directory, kind, spans, 0.0))
        for hold, kind in ((files.exclusive, "alone"), (newcomer, "newcomer"))
    )
    with files.shared(directory):
        waiting.start()
        while waiting.is_alive() and not _is_held(directory / files._GATE):
            time.sleep(0.01)
        later.start()
        later.join(patience)
    for thread in (waiting, later):
        thread.join(SECONDS)
    return [kind for _, _, kind in spans]


def _is_held(path: Path) -> bool:
    with path.open("ab") as file:
        try:
            files.fcntl.flock(file, files.fcntl.LOCK_EX | files.fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@contextmanager
def _past_the_gate(directory: Path) -> Iterator[None]:
    with files._held(directory / files._LOCK, files.fcntl.LOCK_SH):
        yield


def test_a_newcomer_does_not_get_in_before_one_who_waits_to_work_alone(tmp_path: Path) -> None:
    assert _order(tmp_path, files.shared, 1.0) == ["alone", "newcomer"]


def test_a_newcomer_that_passes_by_the_gate_does(tmp_path: Path) -> None:
    assert _order(tmp_path, _past_the_gate, SECONDS) == ["newcomer", "alone"]


_CHILD = """
import sys, time
from pathlib import Path
from assay.store import files
with files.exclusive(Path(sys.argv[1])):
    print("in", flush=True)
    time.sleep(600)
"""


def test_a_process_that_is_killed_gives_back_what_it_held(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _CHILD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdout
        assert child.stdout.readline() == b"in\n"
        child.kill()
    entered: Spans = []
    _work(files.shared, tmp_path, "beside", entered, 0.0)
    assert entered


@pytest.mark.parametrize("error", [RuntimeError("it failed"), KeyboardInterrupt()])
def test_work_that_fails_gives_back_what_it_held(tmp_path: Path, error: BaseException) -> None:
    def fail(hold: Callable[[Path], object]) -> None:
        with pytest.raises(type(error)), hold(tmp_path):  # type: ignore[attr-defined]
            raise error

    spans: Spans = []
    for first, second in pairwise([files.exclusive, files.shared, files.exclusive]):
        fail(first)
        _work(second, tmp_path, "any", spans, 0.0)
    assert len(spans) == 2
