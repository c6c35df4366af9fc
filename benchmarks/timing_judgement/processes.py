"""The processes that a comparison needs: those that take samples, and those that disturb them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from benchmarks.timing_judgement.program import Plan, Ready

_LOAD: Final = """
import os, random, time
parent = os.getppid()
while os.getppid() == parent:
    until = time.perf_counter() + random.expovariate(4)
    while time.perf_counter() < until: pass
    time.sleep(random.expovariate(4))
"""


class Worker:
    """A fresh process that takes samples when told to, until it is closed."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        # This interpreter, on a module of this package.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.timing_judgement.program"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def ready(self) -> tuple[Ready, float]:
        """What the process says of its toolchain once it is warm, and the seconds that took."""
        ready: Ready = json.loads(self._line())
        return ready, time.perf_counter() - self._begun

    def take(self, plan: Plan) -> list[float]:
        """The seconds of each entry of the plan."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(plan) + "\n")
        self._process.stdin.flush()
        seconds: list[float] = json.loads(self._line())
        return seconds

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                "got no answer from a timing process, wanted a line of seconds; "
                "its own message stands above"
            )
        return line


@contextmanager
def bursts() -> Iterator[None]:
    """A child burns a core in random bursts meanwhile, half of the time."""
    load = subprocess.Popen([sys.executable, "-c", _LOAD])  # noqa: S603
    try:
        yield
    finally:
        load.kill()
        load.wait()


def others_keep_it_busy() -> bool:
    """Whether more processes wanted to run in the last minute than there are cores, twice over."""
    return os.getloadavg()[0] > 2 * (os.cpu_count() or 1)
