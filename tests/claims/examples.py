"""For each shipped claim: evidence that passes it, and the negative control that must fail it."""

from dataclasses import dataclass, replace

from assay import claims
from assay.model.claim import Case, Claim
from assay.model.evidence import Counters, Failure, FailureKind
from assay.model.module import Direction
from assay.model.units import Unit

from .cases import (
    STACK_BYTES,
    TEMP_BYTES,
    TRACED,
    VARIANT,
    alone,
    case,
    collective,
    donation,
    failure,
    family,
    formula,
    full_buffer_write,
    grown,
    growth,
    module,
    number,
    outside,
    processes,
    rerun,
    steps,
    tensor,
    timed,
    transfer,
    with_arguments,
    with_memory,
)


@dataclass(frozen=True, slots=True)
class Example:
    """A claim with evidence on both sides of its line."""

    claim: Claim
    passes: Case
    fails: Case


STACK = formula(STACK_BYTES)
REFUSED = Failure(kind=FailureKind.EXECUTION, message="RuntimeError: there is no data")
TWO = formula(2, Unit.COUNT)

EXAMPLES: tuple[Example, ...] = (
    Example(claims.Compiles(), case(), case(failure=failure())),
    Example(claims.Runs(), case(), case(failure=REFUSED)),
    Example(claims.FitsDevice(), case(), with_memory(temp_bytes=80 * 2**30)),
    Example(claims.HostBytes(equal=STACK), case(), with_memory(host_temp_bytes=STACK_BYTES - 1)),
    Example(claims.DeviceBytesFall(by=STACK), case(), with_memory(temp_bytes=TEMP_BYTES + 1)),
    Example(
        claims.DeviceBytesAtMost(against="nothing", beyond=formula(100)),
        with_memory(temp_bytes=TEMP_BYTES + 100),
        with_memory(temp_bytes=TEMP_BYTES + 101),
    ),
    Example(claims.BaselineTempBytes(), case(), with_memory(temp_bytes=TEMP_BYTES + 1)),
    Example(
        claims.ResidualsOnHost(equal=STACK), case(), case(traced=replace(TRACED, residuals=()))
    ),
    Example(
        claims.NamesMatch(), case(), replace(case(), variant=replace(VARIANT, names=("residuall",)))
    ),
    Example(
        claims.TransferredBytes(direction=Direction.TO_HOST, equal=STACK),
        case(),
        case(module=module(transfer(Direction.TO_DEVICE, STACK_BYTES))),
    ),
    Example(
        claims.TransferredBytes(direction=Direction.TO_DEVICE, equal=STACK),
        case(),
        case(module=module(transfer(Direction.TO_DEVICE, STACK_BYTES, executions=2))),
    ),
    Example(
        claims.CollectiveBytes(at_most=formula(100)),
        case(module=replace(module(), collectives=(collective(50, executions=2),))),
        case(module=replace(module(), collectives=(collective(50, executions=3),))),
    ),
    Example(
        claims.ProcessBytes(at_most=formula(100)),
        case(processes=processes(100, 99)),
        case(processes=processes(99, 101)),
    ),
    Example(
        claims.TempBytesAtMost(limit=formula(TEMP_BYTES)),
        case(),
        with_memory(temp_bytes=TEMP_BYTES + 1),
    ),
    Example(
        claims.FitsBudget(budget=formula(TEMP_BYTES + 600)),
        case(),
        with_memory(temp_bytes=TEMP_BYTES + 1),
    ),
    Example(
        claims.CopiedBytes(larger_than=formula(STACK_BYTES - 1)),
        case(
            module=replace(
                module(),
                full_buffer_writes=(full_buffer_write(STACK_BYTES - 4),),
                buffers_assigned=True,
            )
        ),
        case(
            module=replace(
                module(),
                full_buffer_writes=(full_buffer_write(STACK_BYTES),),
                buffers_assigned=True,
            )
        ),
    ),
    Example(
        claims.CopiedBytesOutsideLoops(larger_than=formula(99), at_most=formula(100)),
        case(module=replace(module(), full_buffer_writes=(outside(100),), buffers_assigned=True)),
        case(module=replace(module(), full_buffer_writes=(outside(101),), buffers_assigned=True)),
    ),
    Example(
        claims.DonatedBytesReused(at_least=formula(100)),
        case(module=replace(module(), donations=(donation(100),), buffers_assigned=True)),
        case(module=replace(module(), donations=(donation(99),), buffers_assigned=True)),
    ),
    Example(
        claims.TimeGrowth(),
        case(growth=growth(short=1.0, long=2.8)),
        case(growth=growth(short=1.0, long=2.9)),
    ),
    Example(
        claims.TimeExponent(at_most=formula(1, Unit.RATIO)),
        case(growth=grown(0.9)),
        case(growth=grown(1.1)),
    ),
    Example(
        claims.BytesExponent(of=claims.Cost.TEMP, at_most=formula(1, Unit.RATIO)),
        family(8, 16, 32, 64),
        family(64, 256, 1024, 4096),
    ),
    Example(
        claims.BytesExponent(of=claims.Cost.COPIED, at_most=formula(0, Unit.RATIO)),
        family(0, 0, 0, 0, copied=True),
        family(8, 16, 32, 64, copied=True),
    ),
    Example(
        claims.TraceTimeRatio(at_most=formula(1, Unit.RATIO)),
        timed(*[1.01, 0.99] * 8),
        timed(*[1.06, 1.05] * 8),
    ),
    Example(
        claims.TimeRatio(at_most=formula(1, Unit.RATIO)),
        timed(*[1.01, 0.99] * 8),
        timed(*[1.06, 1.05] * 8),
    ),
    Example(claims.TimeAgainst(), rerun(1.0, 0.99), rerun(1.0, 1.05)),
    Example(
        claims.BaselineTime(),
        alone(0.0105),
        alone(0.0115),
    ),
    Example(
        claims.StoredTimeRatio(),
        replace(timed(*[2.2] * 12), baseline=number(2)),
        replace(timed(*[3.0] * 12), baseline=number(2)),
    ),
    Example(
        claims.ValuesEqual(),
        case(),
        case(values=(tensor([1.0, 2.0]), tensor([[3.01]], path="gradient"))),
    ),
    Example(
        claims.SentPerStep(sent=claims.Sent.TENSORS),
        case(steps=steps(1, 1, 0, 0, sent_bytes=8)),
        case(steps=steps(1, 1, 0, 0, sent=46)),
    ),
    Example(
        claims.SentPerStep(sent=claims.Sent.BYTES),
        case(steps=steps(1, 1, 0, 0, sent=46)),
        case(steps=steps(1, 1, 0, 0, sent_bytes=8)),
    ),
    Example(
        claims.TracingSends(at_most=formula(8)),
        case(traced=replace(TRACED, counters=Counters(sent_bytes=8))),
        case(traced=replace(TRACED, counters=Counters(sent_bytes=9))),
    ),
    Example(claims.Parameters(equal=TWO), with_arguments(2), with_arguments(1)),
    Example(claims.GraphsCompiled(at_most=TWO), case(), case(steps=steps(1, 1, 0, 1))),
    Example(claims.LastCompile(within=TWO), case(), case(steps=steps(1, 0, 1, 0))),
    Example(claims.Refuses(), case(failure=REFUSED), case()),
)


def of(*names: str) -> tuple[Example, ...]:
    """The examples of the claims of these names."""
    chosen = tuple(example for example in EXAMPLES if example.claim.name in names)
    assert {example.claim.name for example in chosen} == set(names)
    return chosen


PLACEMENT = of(
    "host-bytes", "device-bytes-fall", "no-worse-than-nothing", "to-host-bytes", "to-device-bytes"
)
"""Claims that mean something only where host and device have a memory each."""

ANYWHERE = tuple(example for example in EXAMPLES if example not in PLACEMENT)
TRACED_ONLY = of("residuals-on-host", "names-match")
STEPPED = of(
    "sent-tensors-per-step", "sent-bytes-per-step", "graphs-compiled", "steps-until-last-compile"
)
COMPARING = of(
    "device-bytes-fall",
    "no-worse-than-nothing",
    "values-equal",
    "time-ratio",
    "trace-time-ratio",
    "stored-time-ratio",
    "sent-tensors-per-step",
    "sent-bytes-per-step",
)
FAMILIES = of("temp-bytes-exponent", "copied-bytes-per-iteration-exponent")
"""Claims on one program at several sizes."""

FROM_MEMORY = of(
    "fits-budget",
    "fits-device",
    "host-bytes",
    "device-bytes-fall",
    "no-worse-than-nothing",
    "process-bytes",
    "temp-bytes",
    "temp-bytes-at-most",
    "temp-bytes-exponent",
)
FROM_MODULE = of(
    "to-host-bytes",
    "to-device-bytes",
    "copied-bytes-per-iteration",
    "copied-bytes-outside-loops",
    "copied-bytes-per-iteration-exponent",
    "collective-bytes",
    "donated-bytes-reused",
    "parameters",
)
COMPILED = (
    *FROM_MEMORY,
    *FROM_MODULE,
    *STEPPED,
    *FAMILIES,
    *of("runs", "values-equal", "baseline-time", "time-against", "time-growth"),
    *of("time-exponent", "time-ratio", "trace-time-ratio"),
)


def name_of(example: Example) -> str:
    return example.claim.name
