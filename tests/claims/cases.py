"""Hand-built evidence: one variant that passes every claim; a test changes what matters."""

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from assay.model.claim import Case, Formula
from assay.model.evidence import (
    Counters,
    Evidence,
    Failure,
    FailureKind,
    GrowthTimes,
    Memory,
    ProcessEvidence,
    Residual,
    Step,
    StepsSeen,
    Tensor,
    Toolchain,
    Traced,
)
from assay.model.module import Collective, Direction, Inventory, Shape, Transfer
from assay.model.rerun import Pair, Rerun
from assay.model.summary import Content, Donation, FullBufferWrite, ModuleSummary
from assay.model.target import Unavailable
from assay.model.timing import Ending, Machine, ProcessTimes, Times, VariantTimes
from assay.model.units import Quantity, Unit
from assay.model.verdict import BaselineNumber
from assay.model.workload import Program, Role, SizedVariant, Variant, Workload
from assay.stats.processes import ratio_of_processes
from assay.toolchains.pairs import turns

VERSIONS = {"jax": "0.10.2", "jaxlib": "0.10.2"}
STACK_BYTES = 4096
TEMP_BYTES = 10_000
REFERENCE, NOTHING = "save", "nothing"


def program(devices: Sequence[Any]) -> Program:
    """No test of claims builds a program."""
    raise AssertionError(f"built for {devices}")


VARIANT = Variant(
    name="offload", role=Role.POLICY, program=program, reference=REFERENCE, names=("residual",)
)
WORKLOAD = Workload(
    suite="suite",
    name="stack",
    variants=(
        VARIANT,
        Variant(name=REFERENCE, role=Role.CONTROL, program=program),
        Variant(name=NOTHING, role=Role.CONTROL, program=program),
    ),
)
MEMORY = Memory(
    temp_bytes=TEMP_BYTES,
    argument_bytes=500,
    output_bytes=300,
    alias_bytes=200,
    host_temp_bytes=STACK_BYTES,
)
TRACED = Traced(
    names=("residual", "hidden"),
    host_placements_traced=1,
    placements_lowered=2,
    residuals=(
        Residual(dtype="float32", shape=(16, 64), on_host=True, origin="residual"),
        Residual(dtype="float32", shape=(16, 64), on_host=False, origin="argument"),
    ),
)
UNAVAILABLE = Unavailable(reason="no such compiler here", remedy="pip install one")
OUT_OF_MEMORY = Failure(
    kind=FailureKind.OUT_OF_MEMORY,
    message="Used 20G of 16G hbm",
    needed_bytes=20 * 2**30,
    capacity_bytes=16 * 2**30,
)


def failure(kind: FailureKind = FailureKind.COMPILER) -> Failure:
    return Failure(kind=kind, message="INTERNAL: it broke")


def collective(nbytes: int | None, **changed: Any) -> Collective:
    """An all-gather among 8 devices that sends so many bytes once per step."""
    sent = Collective(
        opcode="all-gather",
        devices=8,
        nbytes_per_execution=nbytes,
        executions=1,
        at_most=False,
        computation="body",
        instruction="gather",
        source="fsdp.py:11",
    )
    return replace(sent, **changed)


def processes(*needed: int | None) -> tuple[ProcessEvidence, ...]:
    """Processes of 4 devices that need so many bytes."""
    return tuple(
        ProcessEvidence(index=index, device_count=4, device_bytes=nbytes)
        for index, nbytes in enumerate(needed)
    )


def transfer(direction: Direction, nbytes: int, **fields: Any) -> Transfer:
    whole = Transfer(
        direction=direction,
        nbytes_per_execution=nbytes,
        executions=1,
        at_most=False,
        opcode="copy-start",
        computation="body",
        instruction="copy-start.1",
        source=None,
    )
    return replace(whole, **fields)


def module(*transfers: Transfer) -> ModuleSummary:
    return ModuleSummary(
        name="jit_step", instructions=10, computations=2, loops=(), transfers=transfers
    )


def full_buffer_write(nbytes: int, **fields: Any) -> FullBufferWrite:
    whole = FullBufferWrite(
        content=Content.COPY,
        shape=Shape(element_type="u8", dimensions=(nbytes,)),
        executions=8,
        at_most=False,
        loop="body",
        iterations=8,
        in_place=False,
        opcode="copy",
        computation="body",
        instruction="copy.1",
        source="model.py:41",
    )
    return replace(whole, **fields)


def outside(nbytes: int, **fields: Any) -> FullBufferWrite:
    """A whole write of an array that no loop is around."""
    return full_buffer_write(nbytes, **{"loop": "", "iterations": None, "executions": 1, **fields})


def donation(nbytes: int, **fields: Any) -> Donation:
    honoured = Donation(
        parameter_number=0,
        parameter_index=(),
        argument="state",
        shape=Shape(element_type="u8", dimensions=(nbytes,)),
        output_index=(),
        must=False,
        copied_by=(),
    )
    return replace(honoured, **fields)


def growth(*, short: float, long: float) -> GrowthTimes:
    """Times of seven turns, each a little slower than the one before it."""
    slower = [1.01**turn for turn in range(7)]
    seconds = tuple(tuple(fastest * by for by in slower) for fastest in (short, long))
    return GrowthTimes(lengths=(8, 64), seconds=seconds)


GROWN_AT = (8, 16, 32, 64)


def grown(power: float, at: Sequence[int] = GROWN_AT) -> GrowthTimes:
    """Times that grow as that power of the length, of which one run in two was disturbed."""
    return GrowthTimes(lengths=tuple(at), seconds=tuple((2 * n**power, n**power) for n in at))


def family(*costs: int, copied: bool = False) -> Case:
    """The good variant's case at the largest of as many sizes as costs, beside the smaller ones."""
    sizes = [8 * 2**number for number in range(len(costs))]
    variants = SizedVariant.at(sizes, name="grown", role=Role.POLICY, program=_never_built)
    seen = {
        variant.name: _of_cost(variant.name, cost, copied)
        for variant, cost in zip(variants, costs, strict=True)
    }
    others = {name: each for name, each in seen.items() if name != "grown"}
    workload = replace(WORKLOAD, variants=(*WORKLOAD.variants, *variants))
    return Case(workload=workload, variant=variants[-1], evidence=seen["grown"], others=others)


def _never_built(size: int, devices: Sequence[Any]) -> Program:
    raise AssertionError(f"built at {size} for {devices}")


def _of_cost(variant: str, cost: int, copied: bool) -> Evidence:  # noqa: FBT001 - of a test's own
    full_buffer_writes = (full_buffer_write(cost),) if cost else ()
    found = replace(
        module(), full_buffer_writes=full_buffer_writes if copied else (), buffers_assigned=True
    )
    return replace(GOOD, variant=variant, memory=replace(MEMORY, temp_bytes=cost), module=found)


def tensor(values: Any, dtype: str = "float32", path: str = "loss") -> Tensor:
    array = np.asarray(values, dtype=dtype)
    return Tensor(path=path, dtype=dtype, shape=array.shape, data=array.tobytes())


def steps(*compiles: int, sent: int = 0, sent_bytes: int = 0) -> StepsSeen:
    """As many steps as numbers of graphs; all that is sent, the last step sends."""
    quiet = [Step(counters=Counters(compiles=each)) for each in compiles[:-1]]
    last = Counters(compiles=compiles[-1], sent=sent, sent_bytes=sent_bytes)
    return StepsSeen(steps=(*quiet, Step(counters=last)))


GOOD = Evidence(
    workload=WORKLOAD.name,
    variant=VARIANT.name,
    target="gpu-h100:8",
    toolchain=Toolchain(versions=VERSIONS),
    device_count=8,
    device_memory_bytes=80 * 2**30,
    traced=TRACED,
    memory=MEMORY,
    module=module(
        transfer(Direction.TO_HOST, STACK_BYTES // 8, executions=8),
        transfer(Direction.TO_DEVICE, STACK_BYTES // 8, executions=8),
    ),
    values=(tensor([1.0, 2.0]), tensor([[3.0]], path="gradient")),
    steps=steps(1, 1, 0, 0),
)
"""The judged variant: it passes every claim of these tests."""

SAVED = replace(
    GOOD,
    variant=REFERENCE,
    memory=replace(MEMORY, temp_bytes=TEMP_BYTES + STACK_BYTES, host_temp_bytes=0),
    module=module(),
)
RECOMPUTED = replace(SAVED, variant=NOTHING, memory=replace(MEMORY, host_temp_bytes=0))
OTHERS = {REFERENCE: SAVED, NOTHING: RECOMPUTED}


def case(baseline: int | None = TEMP_BYTES, **fields: Any) -> Case:
    """The good variant's case, with some of its evidence replaced."""
    number = None if baseline is None else BaselineNumber(value=baseline, toolchain=VERSIONS)
    return Case(
        workload=WORKLOAD,
        variant=VARIANT,
        evidence=replace(GOOD, **fields),
        others=OTHERS,
        baseline=number,
    )


def beside(others: dict[str, Evidence], **fields: Any) -> Case:
    """The good variant's case beside other evidence of its reference variants."""
    return replace(case(**fields), others=others)


def timed(*judged: float, reference: Sequence[float] = (), **fields: Any) -> Case:
    """The good variant's case with its samples beside as many of its reference's, of 1 s each."""
    beside = tuple(reference) or (1.0,) * len(judged)
    times = Times(
        suite=WORKLOAD.suite,
        workload=WORKLOAD.name,
        target=GOOD.target,
        question="at most 1",
        toolchain=GOOD.toolchain,
        reference=VariantTimes(variant=REFERENCE, first=2.0, samples=beside),
        judged=VariantTimes(variant=VARIANT.name, first=2.0, samples=judged),
        ended=Ending.ENOUGH,
    )
    return replace(case(), times=replace(times, **fields))


def noisy(ratio: float, spread: float, pairs: int = 24, seed: int = 0) -> list[float]:
    """Seconds about the ratio, of lognormal noise."""
    random = Random(seed)
    return [ratio * math.exp(random.gauss(0.0, spread)) for _ in range(pairs)]


def number(value: float) -> BaselineNumber:
    return BaselineNumber(value=value, toolchain=VERSIONS)


def alone(
    seconds: float, *, stored: float | None = 0.01, load: float | None = 0.5, count: int = 48
) -> Case:
    """The good variant's case timed alone in four processes, on two cores of that load average."""
    times = timed(*(seconds * (1 + each / 100) for each in range(count))).times
    assert times is not None
    machine = Machine(cpu="some", cores=2, device="cpu", load=load)
    times = replace(times, reference=VariantTimes(variant=""), question="alone", machine=machine)
    baseline = None if stored is None else number(stored)
    return replace(case(), times=times, baseline=baseline)


def rerun(old: float, new: float, pairs: int = 4, **fields: Any) -> Case:
    """The good variant's case with a rerun: so many pairs of processes, of these seconds a run."""
    noise = [0.999, 1.0, 1.001, 1.0] * 4

    def side(seconds: float) -> ProcessTimes:
        samples = tuple(seconds * each for each in noise)
        return ProcessTimes(trace=None, compile=1.0, first=1.0, runs_per_sample=1, samples=samples)

    taken = (Pair(old=side(old), new=side(new)),) * pairs
    enough = pairs > 1
    known = Rerun(
        suite=WORKLOAD.suite,
        workload=WORKLOAD.name,
        variant=VARIANT.name,
        target=GOOD.target,
        old=Toolchain(versions={**VERSIONS, "libtpu": "1"}),
        new=Toolchain(versions={"jax": "0.12.0", "jaxlib": "0.12.0", "libtpu": "1"}),
        ended=Ending.ENOUGH,
        pairs=taken,
        ratio=ratio_of_processes([turns(pair) for pair in taken]) if enough else None,
    )
    return replace(case(), rerun=replace(known, **fields))


def with_memory(**fields: int) -> Case:
    return case(memory=replace(MEMORY, **fields))


def with_arguments(count: int) -> Case:
    """A module that takes so many arrays, of no transfers."""
    array = Shape(element_type="f32", dimensions=(4,))
    inventory = Inventory(
        arguments=(array,) * count, outputs=(array,), shared=(), operations=(), host_arrays=()
    )
    return case(module=replace(module(), inventory=inventory))


def formula(value: float, unit: Unit = Unit.BYTES) -> Formula:
    return Formula("what the test says", lambda _: Quantity(value, unit))
