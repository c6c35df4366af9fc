"""Observing in a child process, so that a compiler that aborts ends one observation, not the run.

The child is started once and serves many requests; requests and answers are frames of a 4-byte
length and a payload. A child that dies is evidence, and the next request starts another.
"""

import contextlib
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, Any, Self

import cloudpickle
import msgspec

from assay.model.evidence import Evidence, Failure, FailureKind
from assay.model.target import TargetName
from assay.model.workload import Arm, Workload
from assay.observe import observe, unseen
from assay.targets import environment, prepare, resolve

_LENGTH = struct.Struct("<I")
_LAST_WORDS = 400
_READY = b"ready"
# Importing jax on a cold disk takes tens of seconds; no program is part of it.
_START_SECONDS = 300.0


class ObservationError(RuntimeError):
    """The observer itself failed, not the program under test; a fault of Assay."""


class NotPortable(ValueError):
    """The workload cannot be sent to the observer's process."""


class _Answer(msgspec.Struct, frozen=True):
    evidence: Evidence | None = None
    crash: str = ""


class Observer:
    """The parent's side: one child process that observes programs for a set of targets."""

    def __init__(self, targets: Sequence[TargetName], timeout_seconds: float) -> None:
        self._targets = tuple(targets)
        self._timeout_seconds = timeout_seconds
        self._child: subprocess.Popen[bytes] | None = None
        self._words: IO[bytes] | None = None

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
        request = _pickle(workload, arm, target)
        child = self._running()
        assert child.stdin
        assert child.stdout
        try:
            _write(child.stdin, request)
            reply = _read(child.stdout, self._timeout_seconds)
        except TimeoutError:
            self.close()
            message = f"no answer within {self._timeout_seconds:g} s; raise --compile-timeout"
            return _lost(workload, arm, target, FailureKind.TIMEOUT, message)
        except (EOFError, BrokenPipeError):
            return _lost(workload, arm, target, FailureKind.CRASH, self._epitaph())
        answer = msgspec.msgpack.decode(reply, type=_Answer)
        if answer.evidence is None:
            raise ObservationError(answer.crash)
        return answer.evidence

    def close(self) -> None:
        """End the child, whatever it is doing."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout, self._words):
            # A request that a dead child did not take is still in the buffer.
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            self._child = self._started()
            self._await_ready(self._child)
        return self._child

    def _started(self) -> subprocess.Popen[bytes]:
        # Kept open for the child's lifetime and closed in close().
        self._words = tempfile.TemporaryFile()  # noqa: SIM115
        return subprocess.Popen(
            [sys.executable, "-m", "assay.isolate", *map(str, self._targets)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env=_child_environment(self._targets, os.environ),
            # Ctrl-C is for the parent, which then ends the child itself.
            start_new_session=True,
        )

    def _await_ready(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout
        try:
            _read(child.stdout, _START_SECONDS)
        except TimeoutError:
            self.close()
            raise ObservationError(f"no observer within {_START_SECONDS:g} s") from None
        # Death before any program was seen is no program's fault.
        except EOFError:
            raise ObservationError(f"the observer did not start: {self._epitaph()}") from None

    def _epitaph(self) -> str:
        assert self._child is not None
        assert self._words is not None
        status = self._child.wait()
        name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        words = " ".join(" ".join(lines).split())[-_LAST_WORDS:]
        self.close()
        return f"the process ended by {name}; its last words: {words or 'none'}"


def _child_environment(targets: Sequence[TargetName], base: Mapping[str, str]) -> dict[str, str]:
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    # A compile time is only one if nothing was compiled before.
    fresh = {"JAX_ENABLE_COMPILATION_CACHE": "false", "PYTHONPATH": path}
    return environment(targets, base) | fresh


def _pickle(workload: Workload, arm: Arm, target: str) -> bytes:
    # Only this arm is sent: another's fault is not its own, and forty arms need not travel.
    alone = Arm(name=arm.name, role=arm.role, program=arm.program)
    bare = Workload(
        suite=workload.suite, name=workload.name, arms=(alone,), framework=workload.framework
    )
    foreign = [module for module in _modules_of(alone) if not _importable(module)]
    for module in foreign:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps((bare, alone, target)))
    # Pickling runs the user's objects' code, which may raise anything.
    except Exception as error:
        raise NotPortable(
            f"got arm {arm.name!r} of {workload.name!r} that cannot be sent to another process "
            f"({error}), wanted functions and plain values; build arrays inside the program's "
            "functions"
        ) from error
    finally:
        for module in foreign:
            cloudpickle.unregister_pickle_by_value(module)


def _modules_of(arm: Arm) -> list[ModuleType]:
    programs = (arm.program, getattr(arm.program, "func", None))
    names = {getattr(program, "__module__", "") for program in programs}
    return [sys.modules[name] for name in sorted(names) if name in sys.modules]


def _importable(module: ModuleType) -> bool:
    """Whether a fresh process would import this very module by its name.

    Its presence in ``sys.modules`` does not tell: pytest may have loaded it from a file.
    """
    if module.__name__ in sys.builtin_module_names:
        return True
    path: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    parts = module.__name__.split(".")
    for end in range(1, len(parts) + 1):
        spec = _find(".".join(parts[:end]), path)
        path = spec.submodule_search_locations if spec else []
    return spec is not None and spec.origin == getattr(module, "__file__", None)


def _find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    found = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next(filter(None, found), None)


def _lost(workload: Workload, arm: Arm, target: str, kind: FailureKind, words: str) -> Evidence:
    failure = Failure(kind=kind, message=words)
    return replace(unseen(workload, arm, resolve(target)), failure=failure)


def _write(stream: IO[bytes], payload: bytes) -> None:
    stream.write(_LENGTH.pack(len(payload)) + payload)
    stream.flush()


def _read(stream: IO[bytes], timeout_seconds: float | None) -> bytes:
    if timeout_seconds is not None:
        ready, _, _ = select.select([stream], [], [], timeout_seconds)
        if not ready:
            raise TimeoutError
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    return _exactly(stream, length)


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = stream.read(count - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def serve(targets: Sequence[TargetName]) -> None:
    """The child's side: answer requests from standard input until it closes."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # What a program reads or prints must reach neither the requests nor the answers.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, args=(requests.fileno(),), daemon=True).start()
    prepare(targets)

    _write(answers, _READY)
    while True:
        try:
            request = _read(requests, None)
        except EOFError:
            return
        _write(answers, msgspec.msgpack.encode(_answer(request)))


def _end_with_parent(requests: int) -> None:
    """End this process once nobody can ask any more, even in the middle of a program."""
    hangup = select.poll()
    hangup.register(requests, 0)
    hangup.poll()
    os._exit(1)


def _answer(request: bytes) -> _Answer:
    import traceback

    try:
        loaded: Any = cloudpickle.loads(request)
        workload, arm, target = loaded
        return _Answer(evidence=observe(workload, arm, target))
    # The child's own failure must reach the parent as words, whatever it is.
    except Exception:  # noqa: BLE001
        return _Answer(crash=traceback.format_exc())


if __name__ == "__main__":
    serve([TargetName.parse(text) for text in sys.argv[1:]])
