"""The parent's side of one process of a pair: started, prepared, sampled, ended."""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from assay.isolate.frames import how_it_ended, read, write
from assay.model.evidence import Failure, FailureKind, Unavailable
from assay.reruns.messages import Answer, Prepared, decoded, sample_request
from assay.reruns.result import RerunError, Side

_LAST_WORDS: Final = 400
_WORDS_READ: Final = 65_536
# Importing a framework on a cold disk takes tens of seconds; no program is part of it.
_START_SECONDS: Final = 300.0


class Halted(Exception):
    """A side goes no further: the program failed there, or cannot run there."""

    def __init__(self, side: Side, end: Failure | Unavailable) -> None:
        super().__init__(f"{side.value}: {end}")
        self.side = side
        self.end = end


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a side's processes are started: the interpreter's command and its environment."""

    side: Side
    command: Sequence[str]
    environment: Mapping[str, str]
    timeout_seconds: float


class Process:
    """One process on one toolchain; leaving its context ends it, whatever it is doing."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._child: subprocess.Popen[bytes] | None = None
        self._words: IO[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
            self._ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def prepare(self, program: bytes) -> Prepared:
        """Have it build, compile and warm up the program.

        Raises:
            Halted: the program, or the process of it, came to an end.
            RerunError: Assay itself failed in the process.
        """
        answer = self._ask(program)
        if answer.prepared is None:
            raise self._fault(answer)
        return answer.prepared

    def sample(self, runs: int) -> float:
        """The seconds of one run, the mean of so many; raises as ``prepare`` does."""
        answer = self._ask(sample_request(runs))
        if answer.seconds is None:
            raise self._fault(answer)
        return answer.seconds

    def close(self) -> None:
        """End the process, and what it started."""
        child, self._child = self._child, None
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            for stream in (child.stdin, child.stdout):
                # A request that a dead child did not take is still in the buffer.
                with contextlib.suppress(BrokenPipeError):
                    if stream is not None:
                        stream.close()
        if self._words is not None:
            self._words.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _start(self) -> None:
        # Kept open for the child's lifetime and closed in close().
        self._words = tempfile.TemporaryFile()  # noqa: SIM115
        # What compilers write on the way goes with the child, however it ends.
        self._folder = tempfile.TemporaryDirectory(prefix="assay-", ignore_cleanup_errors=True)
        self._child = subprocess.Popen(  # noqa: S603  (an interpreter with this package's module)
            list(self._launch.command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env={**self._launch.environment, "TMPDIR": self._folder.name},
            # Ctrl-C is for the parent, which then ends the child itself.
            start_new_session=True,
        )

    def _ready(self) -> None:
        try:
            read(self._pipes()[1], _START_SECONDS)
        except TimeoutError:
            raise RerunError(
                f"{self._launch.side.value}: no process within {_START_SECONDS:g} s"
            ) from None
        # Death before any program was seen is no program's fault.
        except EOFError:
            raise RerunError(
                f"{self._launch.side.value}: its process did not start: {self._epitaph()}"
            ) from None

    def _ask(self, request: bytes) -> Answer:
        asks, answers = self._pipes()
        limit = self._launch.timeout_seconds
        try:
            write(asks, request)
            return decoded(read(answers, limit))
        except TimeoutError:
            failure = Failure(kind=FailureKind.TIMEOUT, message=f"no answer within {limit:g} s")
        except (EOFError, BrokenPipeError):
            failure = Failure(kind=FailureKind.CRASH, message=self._epitaph())
        raise Halted(self._launch.side, failure)

    def _fault(self, answer: Answer) -> Halted | RerunError:
        end = answer.failure or answer.unavailable
        if end is not None:
            return Halted(self._launch.side, end)
        return RerunError(f"{self._launch.side.value}: {answer.crash or 'an answer to nothing'}")

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._child is not None
        assert self._child.stdin
        assert self._child.stdout
        return self._child.stdin, self._child.stdout

    def _epitaph(self) -> str:
        assert self._child is not None
        ended = how_it_ended(self._child.wait())
        return f"the process ended by {ended}; its last words: {self._last_words()}"

    def _last_words(self) -> str:
        assert self._words is not None
        file = self._words.fileno()
        start = max(0, os.fstat(file).st_size - _WORDS_READ)
        words = os.pread(file, _WORDS_READ, start).decode(errors="replace")
        return " ".join(words.split())[-_LAST_WORDS:] or "none"


def python_path(entries: Sequence[str]) -> str:
    """A search path as an environment variable holds it; a relative entry is made whole."""
    return os.pathsep.join(str(Path(entry or ".").resolve()) for entry in entries)
