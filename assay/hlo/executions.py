"""Executions: how often each computation runs per run of the module."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from assay.hlo.module import Computation, Module
from assay.hlo.trip_count import TripCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class Executions:
    """Runs per run of the module; ``count`` is None if a trip count on the way is unknown.

    ``at_most`` marks an upper bound: the computation lies in a branch of a conditional, and every
    branch is counted as often as the conditional.
    """

    count: int | None
    at_most: bool = False

    def times(self, factor: int | None) -> "Executions":
        """Executions of what each execution runs ``factor`` times."""
        if self.count == 0 or factor == 0:
            return Executions(count=0)
        count = None if self.count is None or factor is None else self.count * factor
        return Executions(count=count, at_most=self.at_most)

    def plus(self, other: "Executions") -> "Executions":
        """Executions through either of two callers."""
        known = self.count is not None and other.count is not None
        count = (self.count or 0) + (other.count or 0) if known else None
        return Executions(count=count, at_most=self.at_most or other.at_most)


def executions(module: Module, trips: TripCounter) -> Mapping[Computation, Executions]:
    """Executions of every computation that the entry reaches by control flow, fusion or async.

    Functions that a reduce, sort or scatter applies to single elements are not among them.
    """
    counts = {module.entry: Executions(count=1)}
    for computation in _callers_first(module):
        runs = counts[computation]
        for callee, factor, at_most in _calls(computation, trips):
            through = runs.times(factor)
            if at_most and through.count != 0:
                through = Executions(count=through.count, at_most=True)
            counts[callee] = counts[callee].plus(through) if callee in counts else through
    return counts


def _calls(
    computation: Computation, trips: TripCounter
) -> Iterator[tuple[Computation, int | None, bool]]:
    """Callee, its runs per run of ``computation``, and whether that is an upper bound."""
    for instruction in computation.calls:
        if instruction.opcode == "while":
            count = trips.count(instruction).trips
            body, condition = instruction.called
            yield body, count, False
            yield condition, None if count is None else count + 1, False
        else:
            for callee in instruction.called:
                yield callee, 1, instruction.opcode == "conditional"


def _callers_first(module: Module) -> list[Computation]:
    """Every reached computation, after all that call it."""
    finished: dict[Computation, None] = {}
    pending = [(module.entry, False)]
    entered: set[Computation] = set()
    while pending:
        computation, leaving = pending.pop()
        if leaving:
            finished[computation] = None
        elif computation not in entered:
            entered.add(computation)
            pending.append((computation, True))
            pending.extend(
                (callee, False)
                for instruction in computation.calls
                for callee in instruction.called
            )
    return list(reversed(finished))
