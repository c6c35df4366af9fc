"""The parent's side: child processes that observe programs, one request after another."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from assay.isolate.frames import Answer, how_it_ended, read, write
from assay.isolate.pickling import pickled
from assay.model.evidence import Evidence, Failure, FailureKind
from assay.model.target import TargetName
from assay.model.workload import Arm, Workload
from assay.observe import unseen
from assay.targets import environment, resolve

_LAST_WORDS = 400
_WORDS_READ = 65_536
# Importing a framework on a cold disk takes tens of seconds; no program is part of it.
_START_SECONDS = 300.0


class ObservationError(RuntimeError):
    """The observer itself failed, not the program under test; a fault of Assay."""


class Observer:
    """One child process that observes programs for a set of targets.

    ``forks_for`` names a framework of which every observation is made in a process of its own.
    """

    def __init__(
        self, targets: Sequence[TargetName], timeout_seconds: float, forks_for: str = ""
    ) -> None:
        self._targets = tuple(targets)
        self._timeout_seconds = timeout_seconds
        self._forks_for = forks_for
        self._child: subprocess.Popen[bytes] | None = None
        self._words: IO[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._heard = 0  # where in its words the present request began

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def observe(self, workload: Workload, arm: Arm, target: str) -> Evidence:
        """What is seen of one arm on one target; a crash or a timeout of the child is evidence.

        Raises:
            NotPortable: the workload holds something that cannot be pickled.
            ObservationError: Assay itself failed in the child.
        """
        request = pickled(workload, arm, target)
        child = self._running()
        assert child.stdin
        assert child.stdout
        assert self._words
        self._heard = os.fstat(self._words.fileno()).st_size
        try:
            write(child.stdin, request)
            reply = read(child.stdout, self._timeout_seconds)
        except TimeoutError:
            self.close()
            message = f"no answer within {self._timeout_seconds:g} s; raise --compile-timeout"
            return _lost(workload, arm, target, FailureKind.TIMEOUT, message)
        except (EOFError, BrokenPipeError):
            return _lost(workload, arm, target, FailureKind.CRASH, self._epitaph())
        answer = msgspec.msgpack.decode(reply, type=Answer)
        if answer.died:
            words = f"the process ended by {answer.died}; its last words: {self._last_words()}"
            return _lost(workload, arm, target, FailureKind.CRASH, words)
        if answer.evidence is None:
            raise ObservationError(answer.crash)
        return answer.evidence

    def close(self) -> None:
        """End the child, whatever it is doing."""
        child, self._child = self._child, None
        if child is None:
            return
        # Its forks are in its session, and may not outlive it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for stream in (child.stdin, child.stdout, self._words):
            # A request that a dead child did not take is still in the buffer.
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            self._child = self._started()
            self._await_ready(self._child)
        return self._child

    def _started(self) -> subprocess.Popen[bytes]:
        # Kept open for the child's lifetime and closed in close().
        self._words, self._heard = tempfile.TemporaryFile(), 0  # noqa: SIM115
        # What compilers write on the way goes with the child, however it ends.
        self._folder = tempfile.TemporaryDirectory(prefix="assay-", ignore_cleanup_errors=True)
        return subprocess.Popen(
            [sys.executable, "-m", "assay.isolate", *self._arguments()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env=_child_environment(self._targets, os.environ) | {"TMPDIR": self._folder.name},
            # Ctrl-C is for the parent, which then ends the child itself.
            start_new_session=True,
        )

    def _await_ready(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout
        try:
            read(child.stdout, _START_SECONDS)
        except TimeoutError:
            self.close()
            raise ObservationError(f"no observer within {_START_SECONDS:g} s") from None
        # Death before any program was seen is no program's fault.
        except EOFError:
            raise ObservationError(f"the observer did not start: {self._epitaph()}") from None

    def _arguments(self) -> list[str]:
        forks_for = ["--forks-for", self._forks_for] if self._forks_for else []
        return [*map(str, self._targets), *forks_for]

    def _epitaph(self) -> str:
        assert self._child is not None
        ended = how_it_ended(self._child.wait())
        words = self._last_words()
        self.close()
        return f"the process ended by {ended}; its last words: {words}"

    def _last_words(self) -> str:
        """What the program under test has written last; it writes to no other place."""
        assert self._words is not None
        file = self._words.fileno()
        start = max(self._heard, os.fstat(file).st_size - _WORDS_READ)
        # The child writes at this file's own offset, which is left where it is.
        lines = os.pread(file, _WORDS_READ, start).decode(errors="replace").strip().splitlines()
        return " ".join(" ".join(lines).split())[-_LAST_WORDS:] or "none"


def _child_environment(targets: Sequence[TargetName], base: Mapping[str, str]) -> dict[str, str]:
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    # A compile time is only one if nothing was compiled before.
    fresh = {"JAX_ENABLE_COMPILATION_CACHE": "false", "PYTHONPATH": path}
    return environment(targets, base) | fresh


def _lost(workload: Workload, arm: Arm, target: str, kind: FailureKind, words: str) -> Evidence:
    failure = Failure(kind=kind, message=words)
    return replace(unseen(workload, arm, resolve(target)), failure=failure)
