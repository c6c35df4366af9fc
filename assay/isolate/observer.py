"""The parent's side: child processes that observe programs, one request after another."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import cloudpickle
import msgspec

from assay.frameworks.versions import toolchain
from assay.isolate.frames import Answer, TimesRequest, how_it_ended, read, write
from assay.isolate.pickling import NotPortable, pickled
from assay.model.evidence import Evidence, Failure, FailureKind
from assay.model.target import TargetName
from assay.model.timing import Ending, Keep, TimedPair, Times, untaken
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
        answer = self._ask(pickled(workload, arm, target))
        if isinstance(answer, Failure):
            return _lost(workload, arm, target, answer)
        if answer.evidence is None:
            raise ObservationError(answer.crash)
        return answer.evidence

    def time(self, pair: TimedPair, keep: Keep) -> Times:
        """The times of two arms taken in turns; ``keep`` gets them as far as they are known.

        A crash is in the times; so is a child that tells of no progress for as long as a program
        may take.

        Raises:
            NotPortable: the workload holds something that cannot be pickled.
            ObservationError: Assay itself failed in the child.
        """
        tools = toolchain(pair.workload.framework, resolve(pair.target).platform)
        latest = untaken(pair, tools)

        def heard(answer: Answer) -> None:
            nonlocal latest
            if answer.times is not None:
                latest = answer.times
                keep(latest)

        answer = self._ask(_request(pair), heard)
        if isinstance(answer, Failure) and latest.ended is not Ending.UNFINISHED:
            return replace(latest, not_profiled=answer.message)
        if isinstance(answer, Failure):
            return replace(latest, failure=answer, failed_arm=latest.at_work)
        if answer.times is None:
            raise ObservationError(answer.crash)
        return answer.times

    def _ask(
        self, request: bytes, heard: Callable[[Answer], None] = lambda _: None
    ) -> Answer | Failure:
        """The final answer, after ``heard`` got those before it; or how the program ended it."""
        child = self._running()
        assert child.stdin
        assert child.stdout
        assert self._words
        self._heard = os.fstat(self._words.fileno()).st_size
        try:
            write(child.stdin, request)
            answer = _decoded(read(child.stdout, self._timeout_seconds))
            while not answer.final:
                heard(answer)
                answer = _decoded(read(child.stdout, self._timeout_seconds))
        except TimeoutError:
            self.close()
            message = f"no answer within {self._timeout_seconds:g} s; raise --compile-timeout"
            return Failure(kind=FailureKind.TIMEOUT, message=message)
        except (EOFError, BrokenPipeError):
            return Failure(kind=FailureKind.CRASH, message=self._epitaph())
        if answer.died:
            words = f"the process ended by {answer.died}; its last words: {self._last_words()}"
            return Failure(kind=FailureKind.CRASH, message=words)
        return answer

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


def _decoded(reply: bytes) -> Answer:
    return msgspec.msgpack.decode(reply, type=Answer)


def _request(pair: TimedPair) -> bytes:
    reference, judged = (
        pickled(pair.workload, arm, pair.target) for arm in (pair.reference, pair.judged)
    )
    try:
        turns = cloudpickle.dumps(pair.turns)
    # Pickling runs the claim's own code, which may raise anything.
    except Exception as error:
        raise NotPortable(
            f"got a question {pair.turns.question!r} that cannot be sent to another process "
            f"({error}), wanted one of plain values; use a function of a module"
        ) from error
    request = TimesRequest(
        reference=reference, judged=judged, turns=turns, most_seconds=pair.most_seconds
    )
    return bytes(cloudpickle.dumps(request))


def _lost(workload: Workload, arm: Arm, target: str, failure: Failure) -> Evidence:
    return replace(unseen(workload, arm, resolve(target)), failure=failure)
