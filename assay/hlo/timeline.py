"""Timeline: the work that a schedule puts between two instructions of a computation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from assay.hlo.cost_analysis import FREE, CostAnalysis
from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation
from assay.model.overlap import Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Part of a computation's schedule: after one instruction, before another; None is its end."""

    computation: Computation
    after: Instruction | None = None
    before: Instruction | None = None


class Timelines:
    """The work of the parts of schedules that it is made with; each instruction's counted once."""

    def __init__(self, spans: Iterable[Span], costs: CostAnalysis) -> None:
        by_computation: dict[Computation, list[Span]] = {}
        for span in spans:
            by_computation.setdefault(span.computation, []).append(span)
        self._timelines: Mapping[Computation, _Timeline] = {
            computation: _Timeline(computation, each, costs)
            for computation, each in by_computation.items()
            if computation.order is not None
        }

    def cost(self, spans: Iterable[Span]) -> Cost | None:
        """The work of all these parts; None if one is unknown or not scheduled."""
        total = Cost()
        for span in spans:
            timeline = self._timelines.get(span.computation)
            part = None if timeline is None else timeline.cost(span)
            if part is None:
                return None
            total = total.plus(part)
        return total


class _Timeline:
    """The work of one computation's schedule, summed from its beginning where a pair needs it."""

    def __init__(
        self, computation: Computation, spans: Iterable[Span], costs: CostAnalysis
    ) -> None:
        order = computation.order or ()
        self._positions = {identifier: at for at, identifier in enumerate(order)}
        wanted = [0] * (len(order) + 1)
        for span in spans:
            first, end = self._limits(span)
            wanted[first] += 1
            wanted[max(first, end)] -= 1
        parts = [
            costs.cost(computation.instruction(identifier))
            if covered and computation.opcode(identifier) not in FREE
            else Cost()
            for identifier, covered in zip(order, accumulate(wanted), strict=False)
        ]
        self._flops = [0, *accumulate(part.flops if part else 0 for part in parts)]
        self._nbytes = [0, *accumulate(part.nbytes if part else 0 for part in parts)]
        self._unknown = [0, *accumulate(part is None for part in parts)]

    def cost(self, span: Span) -> Cost | None:
        """The work of a part; None if that of an instruction in it is unknown."""
        first, end = self._limits(span)
        if end <= first:
            return Cost()
        if self._unknown[end] > self._unknown[first]:
            return None
        return Cost(
            flops=self._flops[end] - self._flops[first],
            nbytes=self._nbytes[end] - self._nbytes[first],
        )

    def _limits(self, span: Span) -> tuple[int, int]:
        first = 0 if span.after is None else self._positions[span.after.id] + 1
        end = len(self._positions) if span.before is None else self._positions[span.before.id]
        return first, end
