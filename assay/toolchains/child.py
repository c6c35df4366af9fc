"""``python -m assay.toolchains.child TARGET``: one program on one toolchain, sampled on request.

The child builds, compiles and warms up the program that it receives. Then it waits for requests, so
that only one of two such processes works at any time.
"""

import gc
import platform
import sys
import time
import traceback
from contextlib import suppress
from typing import Final

import cloudpickle
import msgspec

from assay.frameworks.failures import Ended, shortened, stage
from assay.frameworks.framework import Unsupported, built
from assay.frameworks.installed import framework, toolchain
from assay.frameworks.timing import Runner, clock_step, machine, run_first
from assay.isolate.child import READY, own_pipes, read, write
from assay.model.blame import message_of, users_line
from assay.model.evidence import Failure, FailureKind
from assay.model.target import TargetError, TargetName, TargetUnavailable, Unavailable
from assay.model.workload import Variant, Workload
from assay.targets import prepare, resolve
from assay.toolchains.pairs import Answer, Prepared

_LEAST_SAMPLE_SECONDS: Final = 0.005  # long compared with the wake-up of a process
_LONG_RUN_SECONDS: Final = 0.1
_LONGEST_WARM_UP_SECONDS: Final = 1.0


def serve(target: TargetName) -> None:
    """Prepare a program and answer requests for samples, until the request pipe closes.

    The first request is the program, each later one is a number of runs.
    """
    requests, answers = own_pipes()
    prepare([target])
    write(answers, READY)
    runner: Runner | None = None
    with run_first(), suppress(EOFError):
        while True:
            request = read(requests, None)
            try:
                if runner is None:
                    runner, answer = _prepared(request)
                else:
                    answer = Answer(seconds=_sampled(runner, int(request)))
            except Ended as ended:
                answer = _answer_of(ended)
            # The parent must receive every exception of the child as text.
            except Exception:  # noqa: BLE001
                answer = Answer(crash=traceback.format_exc())
            write(answers, msgspec.json.encode(answer))


def _prepared(request: bytes) -> tuple[Runner, Answer]:
    """Build, compile, run and warm up the received program."""
    workload, variant, target_name = _loaded(request)
    try:
        target = resolve(target_name)
        tools = framework(workload.framework, target)
    except TargetUnavailable as absent:
        raise Ended(absent.why) from None
    except (Unsupported, TargetError) as missing:  # Another toolchain may have it.
        raise Ended(Unavailable(reason=str(missing))) from None
    with tools.machine():
        with stage(FailureKind.BUILD):
            program = built(variant, tools.devices)
        with stage(FailureKind.COMPILER):
            ready = tools.ready(program)
    runner = Runner(run=ready.run, most_runs=ready.most_runs)
    with stage(FailureKind.EXECUTION):
        _warm(runner, is_compiled=ready.compile_seconds is not None)
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
    return runner, Answer(prepared=prepared)


def _loaded(request: bytes) -> tuple[Workload, Variant, str]:
    try:
        workload, variant, target = cloudpickle.loads(request)
    # Loading imports the user's modules, which may raise anything. It is never Assay's fault.
    except Exception as error:
        message, line = shortened(message_of(error)), users_line(error)
        raise Ended(Failure(kind=FailureKind.BUILD, message=message, line=line)) from error
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


def _sampled(runner: Runner, runs: int) -> float:
    """The mean seconds of ``runs`` runs. One run wakes the process first if runs are short."""
    assert runner.first is not None
    with stage(FailureKind.EXECUTION):
        if runner.first < _LONG_RUN_SECONDS:
            runner.run(1)
        return runner.run(runs) / runs


def _answer_of(ended: Ended) -> Answer:
    error, end = ended.__cause__, ended.end
    if isinstance(error, ModuleNotFoundError):
        remedy = f"install it with the toolchain: --assay-against VERSION,{error.name}==…"
        return Answer(unavailable=Unavailable(reason=str(error), remedy=remedy))
    if isinstance(end, Failure):
        return Answer(failure=end)
    return Answer(unsupported=end) if isinstance(error, Unsupported) else Answer(unavailable=end)


if __name__ == "__main__":
    serve(TargetName.parse(sys.argv[1]))
