"""``python -m assay.reruns.child TARGET``: one program on one toolchain, sampled when asked to.

It builds, compiles and warms up the program that it is sent, and then waits, so that of two such
processes only one works at any time.
"""

import gc
import platform
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import cloudpickle

from assay.frameworks.framework import Unsupported, built
from assay.frameworks.installed import FrameworkMissing, framework, toolchain
from assay.frameworks.turns import Runner, clock_step, machine, run_first
from assay.isolate.frames import READY, own_pipes, read, write
from assay.model.blame import is_ours, message_of, users_line
from assay.model.evidence import Failure, FailureKind, Unavailable
from assay.model.target import TargetError, TargetName, TargetUnavailable
from assay.model.workload import Variant, Workload
from assay.reruns.messages import Answer, Prepared, encoded, runs_asked_for
from assay.targets import prepare, resolve
from assay.targets.jax_internals import InternalsMoved
from assay.targets.presence import recognise

_LEAST_SAMPLE_SECONDS: Final = 0.005  # beside which the waking of a process is small
_LONG_RUN_SECONDS: Final = 0.1
_LONGEST_WARM_UP_SECONDS: Final = 1.0
_MESSAGE_CHARACTERS: Final = 400
_T = TypeVar("_T")


class _Ended(Exception):
    """The program goes no further; carries the answer that says why."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(str(answer))
        self.answer = answer


def serve(target: TargetName) -> None:
    """Answer a program and then requests for samples, until nobody can ask any more."""
    requests, answers = own_pipes()
    prepare([target])
    write(answers, READY)
    runner: Runner | None = None
    with run_first(), suppress(EOFError):
        while True:
            request = read(requests, None)
            runs = runs_asked_for(request)
            if runs is None:
                runner, answer = _prepared(request)
            else:
                assert runner is not None
                answer = _answered(_sampled, runner, runs)
            write(answers, encoded(answer))


def _prepared(request: bytes) -> tuple[Runner | None, Answer]:
    runners: list[Runner] = []
    answer = _answered(_begun, request, runners.append)
    return next(iter(runners), None), answer


def _answered(work: Callable[..., Answer], *arguments: Any) -> Answer:
    try:
        return work(*arguments)
    except _Ended as ended:
        return ended.answer
    # The child's own failure must reach the parent as words, whatever it is.
    except Exception:  # noqa: BLE001
        return Answer(crash=traceback.format_exc())


def _begun(request: bytes, keep: Callable[[Runner], None]) -> Answer:
    """Build, compile, run and warm up the program that came."""
    try:
        loaded = cloudpickle.loads(request)
    # Loading imports the user's modules, which may raise anything.
    except Exception as error:
        raise _Ended(_told(FailureKind.BUILD, error)) from error
    workload, variant, target_name = _known(loaded)
    try:
        target = resolve(target_name)
        tools, devices = framework(workload.framework), target.devices()
    except TargetUnavailable as absent:
        why = absent.availability
        unavailable = Unavailable(reason=why.reason, remedy=why.remedy)
        raise _Ended(Answer(unavailable=unavailable)) from absent
    except (FrameworkMissing, TargetError) as missing:
        raise _Ended(Answer(unavailable=Unavailable(reason=str(missing)))) from missing
    with tools.machine(devices):
        program = _stage(FailureKind.BUILD, lambda: built(variant, devices))
        ready = _stage(FailureKind.COMPILER, lambda: tools.ready(program, devices, target.platform))
    runner = Runner(run=ready.run, most_runs=ready.most_runs)
    is_compiled = ready.compile_seconds is not None
    _stage(FailureKind.EXECUTION, lambda: _warm(runner, is_compiled=is_compiled))
    keep(runner)
    assert runner.first is not None
    prepared = Prepared(
        toolchain=toolchain(workload.framework, target.platform),
        python=platform.python_version(),
        machine=machine(devices[0]),
        trace=ready.trace_seconds,
        compile=ready.compile_seconds,
        first=runner.first,
        runs_per_sample=runner.runs_per_sample,
        most_runs=runner.most_runs,
    )
    return Answer(prepared=prepared)


def _known(loaded: Any) -> tuple[Workload, Variant, str]:
    workload, variant, target = loaded
    assert isinstance(workload, Workload)
    assert isinstance(variant, Variant)
    return workload, variant, str(target)


def _warm(runner: Runner, *, is_compiled: bool) -> None:
    runner.begin()
    # A run so long gains nothing by it, and the seconds are better spent on samples.
    if not is_compiled or runner.next < _LONGEST_WARM_UP_SECONDS:
        least = max(_LEAST_SAMPLE_SECONDS, 1000 * clock_step(time.perf_counter))
        runner.warm_up(least)
    # From here on a collection would fall on some sample or other.
    gc.collect()
    gc.disable()


def _sampled(runner: Runner, runs: int) -> Answer:
    """The mean of so many runs, after one that wakes the process up if it counts."""
    assert runner.first is not None
    if runner.first < _LONG_RUN_SECONDS:
        _stage(FailureKind.EXECUTION, lambda: runner.run(1))
    seconds = _stage(FailureKind.EXECUTION, lambda: runner.run(runs))
    return Answer(seconds=seconds / runs)


def _stage(kind: FailureKind, work: Callable[[], _T]) -> _T:
    try:
        return work()
    # A program or a compiler may raise anything; whatever it is, it is told.
    except Exception as error:
        if isinstance(error, InternalsMoved) or (is_ours(error)):
            raise
        raise _Ended(_told(kind, error)) from error


def _told(kind: FailureKind, error: Exception) -> Answer:
    text = str(error) or repr(error)
    if isinstance(error, Unsupported):
        return Answer(unsupported=Unavailable(reason=text))
    if isinstance(error, ModuleNotFoundError):
        pinned = f"--assay-against VERSION,{error.name}==…"
        remedy = f"install what has it beside the toolchain: --with {error.name}, or {pinned}"
        return Answer(unavailable=Unavailable(reason=text, remedy=remedy))
    fault = recognise(error) if kind is FailureKind.COMPILER else None
    if fault is not None:
        return Answer(unavailable=Unavailable(reason=fault.reason, remedy=fault.remedy))
    flat = " ".join(message_of(error).split())[:_MESSAGE_CHARACTERS]
    return Answer(failure=Failure(kind=kind, message=flat, line=users_line(error)))


if __name__ == "__main__":
    serve(TargetName.parse(sys.argv[1]))
