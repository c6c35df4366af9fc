"""The run time on one release over that on another: pairs of probe processes, sampled in turn."""

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from assay.model.timing import Change, Ratio
from assay.stats.processes import TURNS_OF_A_PAIR, Turns, more_pairs, ratio_of_processes
from assay.stats.ratios import DEFAULT
from assay.toolchains.probes import SCRIPT, Prober

_LEAST_SAMPLE_SECONDS: Final = 0.005  # long compared with the wake-up of a process


class TimingFailed(Exception):
    """The program cannot be timed on a release; the message says why."""


class TimedProcess:
    """A probe that runs the program on request. Leaving its context ends it."""

    def __init__(self, prober: Prober, interpreter: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="assay-timed-")
        self._limit = prober.timeout_seconds
        folder = Path(self._folder.name)
        request = folder / "request.json"
        request.write_text(json.dumps({**prober.request(folder), "wanted": "time"}))
        with (folder / "stderr.txt").open("wb") as stderr:
            self._process = subprocess.Popen(
                [str(interpreter), "-P", str(SCRIPT), str(request)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=prober.environment(folder),
                cwd=folder,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        try:
            self.first: float = self._answer()["first"]
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._folder.cleanup()

    def sample(self, runs: int) -> float:
        """The seconds of one run, the mean of so many."""
        assert self._process.stdin
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{runs}\n".encode())
            self._process.stdin.flush()
        seconds: float = self._answer()["seconds"]
        return seconds

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], self._limit)[0]:
            raise TimingFailed(f"no answer within {self._limit:g} s")
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {}
        if not line or answer.get("failure"):
            failure = answer.get("failure") or {"type": "CRASH", "message": "the process died"}
            raise TimingFailed(f"{failure['type']}: {failure['message']}")
        return answer


def ratio(prober: Prober, old: Path, new: Path, most_seconds: float) -> Ratio:
    """The time under the interpreter ``new`` over that under ``old``, until it is decided.

    Raises:
        TimingFailed: the program cannot be run or timed under one of them.
    """
    pairs: list[Turns] = []
    end = time.monotonic() + most_seconds
    while more_pairs(pairs, DEFAULT) and (not pairs or time.monotonic() < end):
        pairs.append(_pair(prober, old, new, old_first=len(pairs) % 2 == 0, end=end))
    return ratio_of_processes(pairs, DEFAULT)


def _pair(prober: Prober, old: Path, new: Path, *, old_first: bool, end: float) -> Turns:
    with ExitStack() as processes:
        order = (old, new) if old_first else (new, old)
        started = [processes.enter_context(TimedProcess(prober, each)) for each in order]
        runs = max(1, round(_LEAST_SAMPLE_SECONDS / max(1e-6, min(each.first for each in started))))
        taken: tuple[list[float], list[float]] = ([], [])
        for number in range(TURNS_OF_A_PAIR):
            for at in (0, 1) if number % 2 == 0 else (1, 0):
                taken[at].append(started[at].sample(runs))
            if time.monotonic() > end:
                break
        first, second = taken if old_first else taken[::-1]
        return Turns(first=first, second=second)


def as_number(found: Ratio) -> float:
    """The ratio; 1 for a time that is neither slower nor faster.

    Raises:
        TimingFailed: the times are too noisy to say.
    """
    if found.change is Change.TOO_NOISY:
        raise TimingFailed(f"too noisy to say: {found}")
    return 1.0 if found.change is Change.SAME else found.ratio
