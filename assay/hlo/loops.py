"""While loops: what each repeats, how often, and which arrays it carries."""

from collections.abc import Iterator, Mapping

from assay.hlo.executions import Executions
from assay.hlo.module import Computation, Module
from assay.hlo.trip_count import TripCounter
from assay.model.module import Loop


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
