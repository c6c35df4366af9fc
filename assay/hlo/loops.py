"""While loops: what each repeats, how often, and which arrays it carries."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from assay.hlo.executions import Executions
from assay.hlo.module import Computation, Module
from assay.hlo.shape import Shape
from assay.hlo.trips import TripCounter, TripSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One while instruction, in plain values.

    ``trips`` is the runs of the body per run of the loop, None for the ``reason`` given.
    ``executions`` is the runs of the loop per run of the module: None if unknown, an upper bound
    if ``at_most``. ``carries`` are the arrays of the loop's state as
    the compiler stores them: a saved stack that it keeps narrower or wider shows here.
    """

    instruction: str
    computation: str
    body: str
    condition: str
    trips: int | None
    trips_from: TripSource
    reason: str
    executions: int | None
    at_most: bool
    carries: tuple[Shape, ...]
    source: str | None


def loops(
    module: Module, trips: TripCounter, counts: Mapping[Computation, Executions]
) -> tuple[Loop, ...]:
    """Every while loop of the module, in the module's order: callees before callers."""
    never = Executions(count=0)
    return tuple(
        loop
        for computation in module.computations
        for loop in _loops_in(computation, trips, counts.get(computation, never))
    )


def _loops_in(computation: Computation, trips: TripCounter, runs: Executions) -> Iterator[Loop]:
    for instruction in computation.calls:
        if instruction.opcode == "while":
            body, condition = instruction.called
            count = trips.count(instruction)
            yield Loop(
                instruction=instruction.name,
                computation=computation.name,
                body=body.name,
                condition=condition.name,
                trips=count.trips,
                trips_from=count.found,
                reason=count.reason,
                executions=runs.count,
                at_most=runs.at_most,
                carries=tuple(instruction.shape.leaves()),
                source=instruction.source,
            )
