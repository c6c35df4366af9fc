"""Program → evidence: trace, lower, compile, read and, where the target runs, execute."""

import gzip
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import Any

from assay.frameworks.failures import Ended, classified, shortened, stage
from assay.frameworks.framework import Compiled, Framework, Unsupported, built
from assay.frameworks.installed import framework, toolchain
from assay.frameworks.timing import PairTimer
from assay.hlo.canonical import canonical
from assay.hlo.module import Module
from assay.hlo.schema import split
from assay.hlo.summary import read
from assay.model.evidence import Evidence, Failure, FailureKind, Memory, ProcessEvidence, Seconds
from assay.model.target import TargetUnavailable, Unavailable
from assay.model.timing import Keep, TimedPair, Times, unmeasured
from assay.model.workload import Program, SizedVariant, Variant, Workload
from assay.store.compile_cache import CompileCache, CompiledProgram, key_of
from assay.targets import Target, resolve
from assay.targets.jax_internals import ModuleUnreadable

_FASTEST = 1
_RUNS_NOTHING = Unavailable(
    reason="a compile-only target runs nothing", remedy="run it on a live target, such as cpu"
)

Begin = Callable[[FailureKind | None, Evidence | None], None]
"""Called when a stage begins: with its failure kind (None for Assay's own work), and the evidence
that is kept if the process dies in the stage, or None."""

Agree = Callable[[Evidence], bool]
"""Called before the program runs. Returns whether to run it, alike in all processes of a group."""


def observe(
    workload: Workload,
    variant: Variant,
    target_name: str,
    begin: Begin = lambda _kind, _seen: None,
    cache: CompileCache | None = None,
    growth_seconds: float | None = None,
    agree: Agree = lambda _seen: True,
) -> Evidence:
    """Measure one variant on one target in this process.

    A program in ``cache`` is not compiled again. With ``growth_seconds`` only the program's
    growing loop is timed, for about that long. Failures of the program, the compiler or the target
    are recorded in the evidence. Any other exception than ``TargetError`` is a fault of Assay.

    Raises:
        TargetError: no target has that name.
    """
    target = resolve(target_name)
    observation = _Observation(
        target=target,
        evidence=unseen(workload, variant, target),
        begin=begin,
        cache=cache,
        agree=agree,
    )
    try:
        tools = _reach(workload, target)
        owners = Counter(getattr(each, "process_index", 0) for each in tools.devices)
        processes = (
            ProcessEvidence(index=index, device_count=count)
            for index, count in sorted(owners.items())
        )
        observation.found(device_count=len(tools.devices), processes=tuple(processes))
        if target.executes:
            kind = "" if target.platform == "cpu" else tools.devices[0].device_kind
            observation.found(device=kind, device_memory_bytes=tools.device_memory_bytes())
        with tools.machine():
            with observation.stage(FailureKind.BUILD, "build"):
                program = built(variant, tools.devices)
            with observation.recording():
                if growth_seconds is None:
                    observation.compile_and_execute(tools, program)
                else:
                    observation.time_growth(tools, program, growth_seconds)
    except Ended as ended:
        observation.record_end(ended.end)
    return observation.evidence


def observe_times(pair: TimedPair, keep: Keep) -> Times:
    """Time two variants alternately, or one alone, in this process.

    ``keep`` receives intermediate results. Failures of a program, the compiler or the target are
    recorded in the times.

    Raises:
        TargetError: no target has that name.
    """
    target = resolve(pair.target)
    known = unmeasured(pair, toolchain(pair.workload.framework, target.platform))
    if not target.executes:
        return replace(known, unavailable=_RUNS_NOTHING)
    timer = PairTimer(pair, known, keep)
    start = time.perf_counter()
    try:
        tools = _reach(pair.workload, target)
        with tools.machine():
            timer.run(tools)
    except Ended as ended:
        if isinstance(ended.end, Unavailable):
            return replace(timer.times, unavailable=ended.end)
        return replace(timer.times, failure=ended.end, failed_variant=ended.variant)
    return replace(timer.times, seconds=time.perf_counter() - start)


def unseen(workload: Workload, variant: Variant, target: Target) -> Evidence:
    """The evidence of a variant on a target before any stage has run."""
    return Evidence(
        suite=workload.suite,
        workload=workload.name,
        variant=variant.name,
        size=variant.size if isinstance(variant, SizedVariant) else None,
        target=str(target.name),
        toolchain=toolchain(workload.framework, target.platform),
        separate_host_memory=target.platform != "cpu",
        device_memory_bytes=target.model.memory_bytes if target.model else None,
        on_chip_memory_bytes=target.model.on_chip_memory_bytes if target.model else 0,
    )


def _reach(workload: Workload, target: Target) -> Framework:
    """The workload's framework, on the target's devices."""
    try:
        return framework(workload.framework, target)
    except (Unsupported, TargetUnavailable) as absent:
        raise Ended(classified(FailureKind.BUILD, absent)) from absent


@dataclass(slots=True, kw_only=True)
class _Observation:
    """The stages of one program on one target, and the evidence that they have found so far."""

    target: Target
    evidence: Evidence
    begin: Begin
    cache: CompileCache | None
    agree: Agree
    _seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def compile_and_execute(self, tools: Framework, program: Program) -> None:
        """Compile the program's function and read the module; then run it, if the target can."""
        if program.function is not None:
            self._compile(tools, program)
        if self.evidence.failure is None and self.evidence.unavailable is None:
            self._execute(tools, program)

    def time_growth(self, tools: Framework, program: Program, most_seconds: float) -> None:
        """Time the program's growing loop."""
        if not self.target.executes:
            self.found(not_executed=_RUNS_NOTHING)
        elif program.growth is not None:
            with self.stage(FailureKind.EXECUTION, "execute"):
                times = tools.time_growth(program.growth, most_seconds)
            self.found(growth=times)

    def _compile(self, tools: Framework, program: Program) -> None:
        traced: Any = None
        lowered: Any = None
        try:
            with self.stage(FailureKind.TRACE, "trace"):
                traced = tools.trace(program)
            with self.stage(FailureKind.LOWERING, "lower"):
                lowered = tools.lower(traced)
            self._compile_lowered(tools, lowered)
        except Ended as ended:
            self.record_end(ended.end)
        if traced is not None:
            # The program's differentiated function is traced here.
            with self.stage(FailureKind.TRACE, "describe"):
                described = tools.describe(program, traced, lowered)
            self.found(traced=described)

    def _compile_lowered(self, tools: Framework, lowered: Any) -> None:
        """Compile the program, or load what an earlier run compiled."""
        key = self._cache_key(tools, lowered)
        cache = self.cache if key else None
        if cache and (known := cache.load(key)):
            self._found_memory(known.memory)
            self.found(module=known.module, hlo_gz=known.hlo_gz, cached=True)
            return
        with self.stage(FailureKind.COMPILER, "compile"):
            compiled = tools.compile(lowered)
        with self.stage(FailureKind.COMPILER, "read"):
            memory = compiled.memory()
        self._found_memory(memory)
        self._read_module(compiled)
        module, hlo_gz = self.evidence.module, self.evidence.hlo_gz
        memory = memory.of_module(module)
        self._found_memory(memory)
        if cache and module is not None:
            cache.save(key, CompiledProgram(memory=memory, module=module, hlo_gz=hlo_gz))

    def _found_memory(self, memory: Memory) -> None:
        processes = (
            replace(each, device_bytes=each.device_count * memory.device_bytes)
            for each in self.evidence.processes
        )
        self.found(memory=memory, processes=tuple(processes))

    def _cache_key(self, tools: Framework, lowered: Any) -> str:
        """The name of the program in the cache; empty if it cannot be cached."""
        target = self.target
        if self.cache is None or (target.platform != "cpu" and target.model is None):
            return ""
        self.begin(None, None)
        what = tools.what_is_compiled(lowered)
        tag = f"{target.name} {target.model!r}"
        return key_of(what, tag, self.evidence.toolchain.identity) if what else ""

    def _read_module(self, compiled: Compiled) -> None:
        with self.stage(None, "read"):
            try:
                proto = compiled.hlo_proto()
                module = read(*split(proto), platform=self.target.platform)
            # A jaxlib may be unable to read a newer plugin's output. The program is not at fault.
            except ModuleUnreadable as error:
                self.found(module_unreadable=shortened(str(error)))
                return
        self.found(module=module, hlo_gz=gzip.compress(proto, _FASTEST, mtime=0))

    def _execute(self, tools: Framework, program: Program) -> None:
        if not self.target.executes:
            self.found(not_executed=_RUNS_NOTHING)
            return
        self.begin(None, self.evidence)
        runs = program.steps or (program.values and program.observe)
        if not runs or not self.agree(self.evidence):
            return
        if program.steps is not None:
            with self.stage(FailureKind.EXECUTION, "execute"):
                steps, values = tools.run_steps(program.steps)
            with self.stage(None, "read"):
                modules = (Module.from_proto(split(proto)[0]) for proto in steps.modules)
                steps = replace(steps, graphs=tuple(map(canonical, modules)))
            self.found(steps=steps, values=values)
        else:
            with self.stage(FailureKind.EXECUTION, "execute"):
                values = tools.execute(program)
            self.found(values=values)

    @contextmanager
    def stage(self, kind: FailureKind | None, name: str) -> Iterator[None]:
        """Time a stage. Without a kind it is Assay's own, and an exception is a fault of Assay."""
        self.begin(kind, None)
        start = time.perf_counter()
        try:
            with stage(kind) if kind else nullcontext():
                yield
        finally:
            self._seconds[name] += time.perf_counter() - start

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record warnings and the seconds of the stages, also if one of them fails."""
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                yield
            finally:
                said = dict.fromkeys(shortened(str(each.message)) for each in heard)
                seconds = {each.name: self._seconds[each.name] for each in fields(Seconds)}
                self.found(warnings=tuple(said), seconds=Seconds(**seconds))

    def found(self, **known: Any) -> None:
        """Add to the evidence."""
        self.evidence = replace(self.evidence, **known)

    def record_end(self, end: Failure | Unavailable) -> None:
        """Record why the observation ended; of several reasons the first."""
        if self.evidence.failure is None and self.evidence.unavailable is None:
            name = "unavailable" if isinstance(end, Unavailable) else "failure"
            self.found(**{name: end})
