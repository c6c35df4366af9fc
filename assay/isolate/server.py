"""The child's side: it answers requests, in its own process or in one fork per request.

JAX compiles one program like another, however many came before. A lazy-tensor framework does not:
its cache of graphs, its counters and its switches are the process's, so its child imports it once,
never uses it, and forks for each request.
"""

import os
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import IO, Any

import cloudpickle

from assay.frameworks.installed import preload
from assay.isolate.frames import (
    READY,
    Answer,
    GrowthRequest,
    TimesRequest,
    encoded,
    end_with_parent,
    how_it_ended,
    own_pipes,
    read,
    write,
)
from assay.model.blame import in_words, message_of, users_line
from assay.model.evidence import Evidence, Failure, FailureKind
from assay.model.target import TargetError, TargetName
from assay.model.timing import Keep, Times
from assay.observe import Begin, observe, observe_growth, observe_times
from assay.store.compile_cache import CompileCache, usual_folder
from assay.targets import prepare, resolve
from assay.targets.emulation import emulated


def serve(targets: Sequence[TargetName], forks_for: str = "") -> None:
    """Answer requests from standard input until it closes.

    ``forks_for`` names the framework that is imported at once and then runs in forks only.
    """
    requests, answers = own_pipes()
    prepare(targets)
    answer: Callable[[bytes], bytes] = partial(_answer, answers)
    if forks_for:
        preload(forks_for)
        answer = _Forks(requests, answers)
    with _machine(targets, forks_for):
        write(answers, READY)
        while True:
            try:
                request = read(requests, None)
            except EOFError:
                return
            write(answers, answer(request))


def _machine(targets: Sequence[TargetName], forks_for: str) -> AbstractContextManager[None]:
    """The one target's devices for all that the user's modules ask, from their import on.

    A process for several targets imports a module once, and has no one answer.
    """
    if len(targets) != 1 or forks_for:
        return nullcontext()
    try:
        return emulated(resolve(str(targets[0])).devices())
    # What it is, the first observation tells.
    except TargetError:
        return nullcontext()


def _answer(answers: IO[bytes], request: bytes) -> bytes:
    """The last answer to a request. Earlier answers are written immediately."""

    def keep(times: Times) -> None:
        write(answers, encoded(Answer(times=times, final=False)))

    def begin(stage: FailureKind | None, seen: Evidence | None) -> None:
        write(answers, encoded(Answer(stage=stage, evidence=seen, final=False)))

    try:
        found = _found(request, keep, begin)
    # The parent must receive every exception of the child as text.
    except Exception as error:  # noqa: BLE001
        found = Answer(crash=in_words(error), trace=traceback.format_exc())
    return encoded(found)


def _found(request: bytes, keep: Keep, begin: Begin) -> Answer:
    begin(FailureKind.BUILD, None)
    try:
        asked: Any = cloudpickle.loads(request)
        if isinstance(asked, TimesRequest):
            loaded: Any = asked.pair()
        else:
            loaded = cloudpickle.loads(asked.program) if isinstance(asked, GrowthRequest) else asked
    # Loading imports the user's modules, which may raise anything.
    except Exception as error:  # noqa: BLE001
        words = f"it cannot be loaded in the observer's process: {message_of(error)}"
        failure = Failure(kind=FailureKind.BUILD, message=words, line=users_line(error))
        return Answer(failure=failure)
    begin(None, None)
    if isinstance(asked, TimesRequest):
        return Answer(times=observe_times(loaded, keep))
    workload, variant, target = loaded
    if isinstance(asked, GrowthRequest):
        return Answer(evidence=observe_growth(workload, variant, target, asked.most_seconds, begin))
    folder = usual_folder(os.environ)
    cache = CompileCache(folder) if folder else None
    return Answer(evidence=observe(workload, variant, target, begin, cache))


class _Forks:
    """Answers each request in a fork, which may die of it."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._requests = requests
        self._answers = answers  # Empty at every fork, for each frame is flushed.

    def __call__(self, request: bytes) -> bytes:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            return self._answered(request, folder)

    def _answered(self, request: bytes, folder: str) -> bytes:
        mine, theirs = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(mine)
            tempfile.tempdir = os.environ["TMPDIR"] = folder
            self._answer_and_exit(request, theirs)
        os.close(theirs)
        with os.fdopen(mine, "rb") as pipe:
            answer = pipe.read()
        _, status = os.waitpid(process, 0)
        code = os.waitstatus_to_exitcode(status)
        return encoded(Answer(died=how_it_ended(code))) if code else answer

    def _answer_and_exit(self, request: bytes, pipe: int) -> None:
        """Never returns: nothing of the server's is tidied up here, nor of the framework's."""
        code = 1
        try:
            end_with_parent(self._requests)
            with os.fdopen(pipe, "wb") as stream:
                stream.write(_answer(self._answers, request))
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        finally:
            os._exit(code)
