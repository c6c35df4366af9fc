"""The parent's side of one process of a pair: started, prepared, sampled, ended."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from assay.isolate.child import Child, NotStartedError
from assay.model.evidence import Failure, FailureKind
from assay.model.rerun import Side
from assay.model.target import Unavailable
from assay.toolchains.child import Answer, Prepared


class RerunError(RuntimeError):
    """The rerun failed, not the program or a compiler. This is a fault of Assay or of its use."""


class Halted(Exception):
    """A side goes no further: the program failed there, or cannot run there.

    ``side`` is None for what neither can do.
    """

    def __init__(self, side: Side | None, end: Failure | Unavailable) -> None:
        super().__init__(f"{side.phrase if side else 'neither side'}: {end}")
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
    """One process on one toolchain. Leaving its context kills it."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._child = Child(launch.command, launch.environment)

    def __enter__(self) -> Self:
        try:
            self._child.await_ready()
        except NotStartedError as error:
            raise RerunError(f"{self._launch.side.phrase}: its process {error}") from None
        except BaseException:
            self._child.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.close()

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
        answer = self._ask(str(runs).encode())
        if answer.seconds is None:
            raise self._fault(answer)
        return answer.seconds

    def _ask(self, request: bytes) -> Answer:
        limit = self._launch.timeout_seconds
        try:
            self._child.send(request)
            return msgspec.msgpack.decode(self._child.receive(limit), type=Answer)
        except TimeoutError:
            failure = Failure(kind=FailureKind.TIMEOUT, message=f"no answer within {limit:g} s")
        except (EOFError, BrokenPipeError):
            failure = Failure(kind=FailureKind.CRASH, message=self._child.ending_with_stderr_tail())
        raise Halted(self._launch.side, failure)

    def _fault(self, answer: Answer) -> Halted | RerunError:
        if answer.unsupported is not None:
            return Halted(None, answer.unsupported)
        end = answer.failure or answer.unavailable
        if end is not None:
            return Halted(self._launch.side, end)
        return RerunError(f"{self._launch.side.phrase}: {answer.crash or 'an answer to nothing'}")


def python_path(entries: Sequence[str]) -> str:
    """A search path as an environment variable holds it; a relative entry is made whole."""
    return os.pathsep.join(str(Path(entry or ".").resolve()) for entry in entries)
