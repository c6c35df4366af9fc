"""Program → evidence: trace, lower, compile, read and, where the target runs, execute."""

import gzip
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from assay.frameworks.failures import classified, shortened
from assay.frameworks.framework import Compiled, Framework, RanSteps, built, steps_seen
from assay.frameworks.installed import FrameworkMissing, framework, toolchain
from assay.frameworks.timing import PairTimer, ProgramFailed
from assay.hlo.schema import split
from assay.hlo.summary import read
from assay.model.evidence import (
    Evidence,
    Failure,
    FailureKind,
    Seconds,
    Tensor,
    Unavailable,
)
from assay.model.target import TargetUnavailable
from assay.model.timing import Keep, TimedPair, Times, untaken
from assay.model.workload import Program, Variant, Workload
from assay.store.compile_cache import CompileCache, CompiledProgram, key_of
from assay.targets import Target, resolve
from assay.targets.jax_internals import ModuleUnreadable

_FASTEST = 1
_RUNS_NOTHING = Unavailable(
    reason="a compile-only target runs nothing", remedy="run it on a live target, such as cpu"
)
_NO_VALUES = Unavailable(
    reason="the program gives no values to run it on",
    remedy="give it some: Program(values=…, observe=…), or a loop: Program(steps=…)",
)
_NO_GROWTH = Unavailable(
    reason="the program offers no growing loop to time", remedy="give it one: Program(growth=…)"
)
_T = TypeVar("_T")

Begin = Callable[[FailureKind | None, Evidence | None], None]
"""Called when a stage begins, with the failure kind of that stage (None for Assay's own work).

The second argument is the evidence collected before the stage, or None. It is kept if the process
dies in the stage."""


class _Halted(Exception):
    """A stage failed. ``end`` is the failure or the reason why it cannot run."""

    def __init__(self, end: Failure | Unavailable) -> None:
        super().__init__(str(end))
        self.end = end


@dataclass(slots=True)
class _Watch:
    """Times the stages, and turns what programs and compilers raise in them into evidence."""

    begin: Begin
    cache: CompileCache | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def stage(self, name: str, kind: FailureKind, work: Callable[[], _T]) -> _T:
        self.begin(kind, None)
        start = time.perf_counter()
        try:
            return work()
        # A program or a compiler may raise any exception. It is recorded as evidence.
        except Exception as error:
            raise _Halted(classified(kind, error)) from error
        finally:
            self.seconds[name] = time.perf_counter() - start


_Look = Callable[[Evidence, Framework, Target, Program, _Watch], Evidence]


def _tell_no_one(stage: FailureKind | None, seen: Evidence | None) -> None:
    pass


def observe(
    workload: Workload,
    variant: Variant,
    target_name: str,
    begin: Begin = _tell_no_one,
    cache: CompileCache | None = None,
) -> Evidence:
    """Measure one variant on one target in this process. Its growing loop is not timed.

    A program in ``cache`` is not compiled again.

    Failures of the program, the compiler or the target are recorded in the evidence. Any other
    exception than ``TargetError`` is a fault of Assay.

    Raises:
        TargetError: no target has that name.
    """
    return _observed(workload, variant, target_name, _through_stages, _Watch(begin, cache))


def observe_growth(
    workload: Workload,
    variant: Variant,
    target_name: str,
    most_seconds: float,
    begin: Begin = _tell_no_one,
) -> Evidence:
    """Time only the growing loop of one variant, or record why that is not possible.

    Failures of the program, the compiler or the target are recorded in the evidence.

    Raises:
        TargetError: no target has that name.
    """
    look = partial(_time_growth, most_seconds)
    return _observed(workload, variant, target_name, look, _Watch(begin))


def _observed(
    workload: Workload, variant: Variant, target_name: str, look: _Look, watch: _Watch
) -> Evidence:
    target = resolve(target_name)
    evidence = unseen(workload, variant, target)
    try:
        tools, devices = _reach(workload, target)
    except _Halted as halted:
        return _ended(evidence, halted.end)
    known = replace(evidence, device_count=len(devices))
    if target.executes:
        known = replace(known, device_memory_bytes=tools.device_memory_bytes(devices[0]))
    with tools.machine(devices):
        try:
            program = watch.stage("build", FailureKind.BUILD, lambda: built(variant, devices))
        except _Halted as halted:
            return _ended(known, halted.end)
        return _stages(known, tools, target, program, watch, look)


def observe_times(pair: TimedPair, keep: Keep) -> Times:
    """Time two variants alternately in this process. ``keep`` receives intermediate results.

    Failures of a program, the compiler or the target are recorded in the times.

    Raises:
        TargetError: no target has that name.
    """
    target = resolve(pair.target)
    known = untaken(pair, toolchain(pair.workload.framework, target.platform))
    if not target.executes:
        return replace(known, unavailable=_RUNS_NOTHING)
    timer = PairTimer(pair, known, keep)
    start = time.perf_counter()
    try:
        tools, devices = _reach(pair.workload, target)
        with tools.machine(devices):
            timer.run(tools, devices, target.platform)
    except _Halted as halted:
        return _untimed(known, halted.end, "")
    except ProgramFailed as failed:
        return _untimed(timer.times, classified(failed.kind, failed.cause), failed.variant)
    return replace(timer.times, seconds=time.perf_counter() - start)


def _reach(workload: Workload, target: Target) -> tuple[Framework, tuple[Any, ...]]:
    """The workload's framework, and the devices to compile for."""
    try:
        return framework(workload.framework), target.devices()
    except FrameworkMissing as missing:
        raise _Halted(Unavailable(reason=str(missing))) from missing
    except TargetUnavailable as absent:
        why = absent.availability
        raise _Halted(Unavailable(reason=why.reason, remedy=why.remedy)) from absent


def unseen(workload: Workload, variant: Variant, target: Target) -> Evidence:
    """The evidence of a variant on a target before any stage has run."""
    return Evidence(
        suite=workload.suite,
        workload=workload.name,
        variant=variant.name,
        target=str(target.name),
        toolchain=toolchain(workload.framework, target.platform),
        separate_host_memory=target.platform != "cpu",
        device_memory_bytes=target.model.memory_bytes if target.model else None,
        on_chip_memory_bytes=target.model.on_chip_memory_bytes if target.model else 0,
    )


def _stages(
    evidence: Evidence,
    tools: Framework,
    target: Target,
    program: Program,
    watch: _Watch,
    look: _Look,
) -> Evidence:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        evidence = look(evidence, tools, target, program, watch)
    said = dict.fromkeys(shortened(str(each.message)) for each in heard)
    return replace(evidence, warnings=tuple(said), seconds=_seconds(watch))


def _through_stages(
    evidence: Evidence, tools: Framework, target: Target, program: Program, watch: _Watch
) -> Evidence:
    if program.function is not None:
        evidence = _compile(evidence, tools, target, program, watch)
    if evidence.failure is not None or evidence.unavailable is not None:
        return evidence
    try:
        return _execute(evidence, tools, target, program, watch)
    except _Halted as halted:
        return _ended(evidence, halted.end)


def _time_growth(
    most_seconds: float,
    evidence: Evidence,
    tools: Framework,
    target: Target,
    program: Program,
    watch: _Watch,
) -> Evidence:
    growth = program.growth
    if not target.executes:
        return replace(evidence, not_executed=_RUNS_NOTHING)
    if growth is None:
        return replace(evidence, not_executed=_NO_GROWTH)
    devices = target.devices()
    try:
        times = watch.stage(
            "time",
            FailureKind.EXECUTION,
            lambda: tools.time_growth(growth, devices, most_seconds),
        )
    except _Halted as halted:
        return _ended(evidence, halted.end)
    return replace(evidence, growth=times)


def _compile(
    evidence: Evidence, tools: Framework, target: Target, program: Program, watch: _Watch
) -> Evidence:
    traced: Any = None
    lowered: Any = None
    end: Failure | Unavailable | None = None
    try:
        traced = watch.stage(
            "trace", FailureKind.TRACE, lambda: tools.trace(program, target.devices())
        )
        lowered = watch.stage(
            "lower",
            FailureKind.LOWERING,
            lambda: tools.lower(traced, target.platform, target.devices()),
        )
        evidence = _compile_lowered(evidence, tools, target, lowered, watch)
    except _Halted as halted:
        end = halted.end
    if traced is not None:
        try:
            # The program's differentiated function is traced here.
            told = watch.stage(
                "describe", FailureKind.TRACE, lambda: tools.describe(program, traced, lowered)
            )
            evidence = replace(evidence, traced=told)
        except _Halted as halted:
            end = end or halted.end
    return _ended(evidence, end) if end else evidence


def _compile_lowered(
    evidence: Evidence, tools: Framework, target: Target, lowered: Any, watch: _Watch
) -> Evidence:
    """The evidence with the compiled program, from the compiler or from an earlier run's cache."""
    cache, key = watch.cache, ""
    if cache is not None and (target.platform == "cpu" or target.model is not None):
        watch.begin(None, None)
        what = tools.what_is_compiled(lowered)
        tag = f"{target.name} {target.model!r}"
        key = key_of(what, tag, evidence.toolchain.identity) if what else ""
    known = cache.load(key) if cache is not None and key else None
    if known is not None:
        return replace(
            evidence, memory=known.memory, module=known.module, hlo_gz=known.hlo_gz, cached=True
        )
    compiled = watch.stage(
        "compile", FailureKind.COMPILER, lambda: tools.compile(lowered, target.devices())
    )
    memory = watch.stage("analyse", FailureKind.COMPILER, compiled.memory)
    evidence = _read_module(replace(evidence, memory=memory), compiled, watch)
    if cache is not None and key and evidence.module is not None:
        program = CompiledProgram(memory=memory, module=evidence.module, hlo_gz=evidence.hlo_gz)
        cache.save(key, program)
    return evidence


def _read_module(evidence: Evidence, compiled: Compiled, watch: _Watch) -> Evidence:
    """The evidence with the module's summary. An exception while reading is a fault of Assay."""
    watch.begin(None, None)
    start = time.perf_counter()
    try:
        proto = compiled.hlo_proto()
        module = read(*split(proto))
    # A jaxlib may be unable to read the output of a newer plugin. The program is not at fault.
    except ModuleUnreadable as error:
        return replace(evidence, module_unreadable=shortened(str(error)))
    watch.seconds["read"] = time.perf_counter() - start
    return replace(evidence, module=module, hlo_gz=gzip.compress(proto, _FASTEST, mtime=0))


def _execute(
    evidence: Evidence, tools: Framework, target: Target, program: Program, watch: _Watch
) -> Evidence:
    if not target.executes:
        return replace(evidence, not_executed=_RUNS_NOTHING)
    devices, loop = target.devices(), program.steps
    watch.begin(None, evidence)
    if loop is not None:
        ran = watch.stage("execute", FailureKind.EXECUTION, lambda: tools.run_steps(loop, devices))
        watch.begin(None, None)
        start = time.perf_counter()
        evidence = replace(evidence, steps=steps_seen(ran), values=_results(ran))
        watch.seconds["read"] = watch.seconds.get("read", 0.0) + time.perf_counter() - start
        return evidence
    if program.values is None or program.observe is None:
        return replace(evidence, not_executed=_NO_VALUES)
    values = watch.stage("execute", FailureKind.EXECUTION, lambda: tools.execute(program, devices))
    return replace(evidence, values=values)


def _results(ran: RanSteps) -> tuple[Tensor, ...]:
    """The results of every step, labelled with the number of the step."""
    return tuple(
        replace(tensor, path=f"step {number}: {tensor.path}")
        for number, step in enumerate(ran.steps)
        for tensor in step.results
    )


def _seconds(watch: _Watch) -> Seconds:
    spent = watch.seconds
    return Seconds(
        trace=spent.get("trace", 0.0),
        lower=spent.get("lower", 0.0),
        compile=spent.get("compile", 0.0),
        read=sum(spent.get(stage, 0.0) for stage in ("read", "analyse")),
        execute=spent.get("execute", 0.0) + spent.get("time", 0.0),
    )


def _untimed(times: Times, end: Failure | Unavailable, variant: str) -> Times:
    if isinstance(end, Unavailable):
        return replace(times, unavailable=end)
    return replace(times, failure=end, failed_variant=variant)


def _ended(evidence: Evidence, end: Failure | Unavailable | None) -> Evidence:
    if isinstance(end, Unavailable):
        return replace(evidence, unavailable=end)
    return replace(evidence, failure=end)
