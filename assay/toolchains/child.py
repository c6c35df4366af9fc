"""``python -m assay.toolchains.child TARGET``: one program on one toolchain, sampled on request.

The child builds, compiles and warms up the program that it receives. Then it waits for requests, so
that only one of two such processes works at any time.
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

from assay.frameworks.failures import classified, shortened
from assay.frameworks.framework import Unsupported, built
from assay.frameworks.installed import framework, toolchain
from assay.frameworks.timing import Runner, clock_step, machine, run_first
from assay.isolate.child import READY, own_pipes, read, write
from assay.model.blame import message_of, users_line
from assay.model.evidence import Failure, FailureKind
from assay.model.target import TargetError, TargetName, TargetUnavailable, Unavailable
from assay.model.workload import Variant, Workload
from assay.targets import prepare, resolve
from assay.toolchains.messages import Answer, Prepared, encoded, runs_asked_for

_LEAST_SAMPLE_SECONDS: Final = 0.005  # long compared with the wake-up of a process
_LONG_RUN_SECONDS: Final = 0.1
_LONGEST_WARM_UP_SECONDS: Final = 1.0
_T = TypeVar("_T")


class _Ended(Exception):
    """The program ended early. ``answer`` says why."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(str(answer))
        self.answer = answer


def serve(target: TargetName) -> None:
    """Prepare a program and answer requests for samples, until the request pipe closes."""
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
    # The parent must receive every exception of the child as text.
    except Exception:  # noqa: BLE001
        return Answer(crash=traceback.format_exc())


def _begun(request: bytes, keep: Callable[[Runner], None]) -> Answer:
    """Build, compile, run and warm up the received program."""
    try:
        loaded = cloudpickle.loads(request)
    # Loading imports the user's modules, which may raise anything.
    except ModuleNotFoundError as error:
        raise _Ended(_answer_of(FailureKind.BUILD, error)) from error
    except Exception as error:
        failure = Failure(
            kind=FailureKind.BUILD, message=shortened(message_of(error)), line=users_line(error)
        )
        raise _Ended(Answer(failure=failure)) from error
    workload, variant, target_name = _known(loaded)
    try:
        target = resolve(target_name)
        tools = framework(workload.framework, target)
    except TargetUnavailable as absent:
        raise _Ended(Answer(unavailable=absent.why)) from absent
    except (Unsupported, TargetError) as missing:
        raise _Ended(Answer(unavailable=Unavailable(reason=str(missing)))) from missing
    with tools.machine():
        program = _stage(FailureKind.BUILD, lambda: built(variant, tools.devices))
        ready = _stage(FailureKind.COMPILER, lambda: tools.ready(program))
    runner = Runner(run=ready.run, most_runs=ready.most_runs)
    is_compiled = ready.compile_seconds is not None
    _stage(FailureKind.EXECUTION, lambda: _warm(runner, is_compiled=is_compiled))
    keep(runner)
    assert runner.first is not None
    prepared = Prepared(
        toolchain=toolchain(workload.framework, target.platform),
        python=platform.python_version(),
        machine=machine(tools.devices[0]),
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
    # A long run gains nothing from a warm-up. The time is better spent on samples.
    if not is_compiled or runner.next < _LONGEST_WARM_UP_SECONDS:
        least = max(_LEAST_SAMPLE_SECONDS, 1000 * clock_step(time.perf_counter))
        runner.warm_up(least)
    # From here on a garbage collection would disturb a sample.
    gc.collect()
    gc.disable()


def _sampled(runner: Runner, runs: int) -> Answer:
    """The mean time of ``runs`` runs. Short runs are preceded by one run that wakes the process."""
    assert runner.first is not None
    if runner.first < _LONG_RUN_SECONDS:
        _stage(FailureKind.EXECUTION, lambda: runner.run(1))
    seconds = _stage(FailureKind.EXECUTION, lambda: runner.run(runs))
    return Answer(seconds=seconds / runs)


def _stage(kind: FailureKind, work: Callable[[], _T]) -> _T:
    try:
        return work()
    # A program or a compiler may raise any exception. The answer reports it.
    except Exception as error:
        raise _Ended(_answer_of(kind, error)) from error


def _answer_of(kind: FailureKind, error: Exception) -> Answer:
    if isinstance(error, ModuleNotFoundError):
        pinned = f"--assay-against VERSION,{error.name}==…"
        remedy = f"install it with the toolchain: --with {error.name}, or {pinned}"
        return Answer(unavailable=Unavailable(reason=str(error), remedy=remedy))
    end = classified(kind, error)
    if isinstance(end, Failure):
        return Answer(failure=end)
    if isinstance(error, Unsupported):
        return Answer(unsupported=end)
    return Answer(unavailable=end)


if __name__ == "__main__":
    serve(TargetName.parse(sys.argv[1]))
