"""The child's side: it answers requests, in its own process or in one fork per request.

JAX compiles one program like another, however many came before. A lazy-tensor framework does not:
its cache of graphs, its counters and its switches are the process's, so its child imports it once,
never uses it, and forks for each request.
"""

import os
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import IO, NoReturn

import cloudpickle
import msgspec

from assay.frameworks.installed import preload
from assay.isolate.child import READY, end_with_parent, how_it_ended, own_pipes, read, write
from assay.isolate.messages import RUN, Answer, Request, encoded
from assay.model.blame import in_words, message_of, users_line
from assay.model.evidence import Evidence, Failure, FailureKind
from assay.model.process import Process
from assay.model.target import TargetError, TargetName
from assay.model.timing import Keep, TimedPair, Times
from assay.observe import Agree, Begin, observe, observe_times
from assay.store.compile_cache import CompileCache, usual_folder
from assay.targets import prepare, resolve
from assay.targets.emulation import emulated


def serve(
    targets: Sequence[TargetName], forks_for: str = "", process: Process | None = None
) -> None:
    """Answer requests from standard input until it closes.

    ``forks_for`` names the framework that is imported at once and then runs in forks only. With
    ``process``, this is one of several processes that run every program together.
    """
    requests, answers = own_pipes()
    prepare(targets, process)
    if forks_for:
        preload(forks_for)
    with _machine(targets, forks_for):
        write(answers, READY)
        while True:
            try:
                request = read(requests, None)
            except EOFError:
                return
            if forks_for:
                write(answers, _answer_in_fork(request, requests, answers))
            else:
                write(answers, _answer(answers, request, requests if process else None))


def _machine(targets: Sequence[TargetName], forks_for: str) -> AbstractContextManager[None]:
    """The one target's devices for all that the user's modules ask, from their import on.

    A process for several targets imports a module once, and cannot answer for each of them.
    """
    if len(targets) != 1 or forks_for:
        return nullcontext()
    try:
        return emulated(resolve(str(targets[0])).devices())
    # The first observation reports it.
    except TargetError:
        return nullcontext()


def _answer(answers: IO[bytes], request: bytes, requests: IO[bytes] | None = None) -> bytes:
    """The last answer to a request. Earlier answers are written immediately.

    With ``requests``, the parent is asked whether the program may run.
    """

    def keep(times: Times) -> None:
        write(answers, encoded(Answer(times=times, final=False)))

    def begin(stage: FailureKind | None, seen: Evidence | None) -> None:
        write(answers, encoded(Answer(stage=stage, evidence=seen, final=False)))

    def agree(seen: Evidence) -> bool:
        if requests is None:
            return True
        # While it waits, another process of the group may die and end this one too.
        stage = FailureKind.EXECUTION
        write(answers, encoded(Answer(evidence=seen, stage=stage, asks=True, final=False)))
        return read(requests, None) == RUN

    try:
        found = _found(request, keep, begin, agree)
    # The parent must receive every exception of the child as text.
    except Exception as error:  # noqa: BLE001
        found = Answer(crash=in_words(error), trace=traceback.format_exc())
    return encoded(found)


def _found(payload: bytes, keep: Keep, begin: Begin, agree: Agree) -> Answer:
    request = msgspec.msgpack.decode(payload, type=Request)
    begin(FailureKind.BUILD, None)
    try:
        workload, variant, target = cloudpickle.loads(request.program)
        reference = cloudpickle.loads(request.reference)[1] if request.reference else None
        turns = cloudpickle.loads(request.turns) if request.turns else None
    # Loading imports the user's modules, which may raise anything.
    except Exception as error:  # noqa: BLE001
        words = f"it cannot be loaded in the observer's process: {message_of(error)}"
        failure = Failure(kind=FailureKind.BUILD, message=words, line=users_line(error))
        return Answer(failure=failure)
    begin(None, None)
    if turns is None:
        folder = usual_folder(os.environ)
        cache = CompileCache(folder) if folder else None
        seen = observe(workload, variant, target, begin, cache, request.most_seconds, agree)
        return Answer(evidence=seen)
    assert request.most_seconds is not None
    pair = TimedPair(
        workload=workload,
        reference=reference,
        judged=variant,
        target=target,
        turns=turns,
        most_seconds=request.most_seconds,
    )
    return Answer(times=observe_times(pair, keep))


def _answer_in_fork(request: bytes, requests: IO[bytes], answers: IO[bytes]) -> bytes:
    """The last answer to a request that is served in a fork. The fork may crash."""
    mine, theirs = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # The buffer of ``answers`` is empty at every fork, because each frame is flushed.
        process = os.fork()
        if process == 0:
            os.close(mine)
            tempfile.tempdir = os.environ["TMPDIR"] = folder
            _answer_and_exit(request, requests, answers, theirs)
        os.close(theirs)
        with os.fdopen(mine, "rb") as pipe:
            answer = pipe.read()
        _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    # A program that calls sys.exit(0) ends without an answer.
    return answer if answer and not code else encoded(Answer(died=how_it_ended(code)))


def _answer_and_exit(
    request: bytes, requests: IO[bytes], answers: IO[bytes], pipe: int
) -> NoReturn:
    """Leave without cleanup: the objects of the server and of the framework are not the fork's."""
    code = 1
    try:
        end_with_parent(requests)
        with os.fdopen(pipe, "wb") as stream:
            stream.write(_answer(answers, request))
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    finally:
        os._exit(code)
