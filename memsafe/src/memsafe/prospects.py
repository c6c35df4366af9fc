"""Whether a plan is worth compiling, by what plans before it were predicted to need and needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memsafe.compiled_plan import Fit
    from memsafe.measure import Measured
    from memsafe.plan import Plan

__all__ = ["TOO_FAR", "Prospects", "overestimate"]

TOO_FAR = 1.4
"""A plan is not compiled that should need so many times the room, as the plans before it did.

The compiler needs 2.1 times the prediction for the first plan of a decoder, 1.9 for the second, and
2.6 where its values are computed again as well (1,436 equations, compiled for an H100, jax 0.10.2,
2026-11-26).
"""

_SAME = 0.95
"""Two plans of one program need the same if one is predicted to need so much of the other."""

_NEAR = 1.15
"""Of two such plans, the second is compiled if the first needed less than so many times the room.

Of an encoder's gradient a second plan, predicted to need as much, needs 0.75 of the first, which
needed 1.11 times the room (2 cores, jax 0.10.2, 2026-11-26).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospects:
    """What became of the plans in slices.

    Attributes:
        room: The bytes of the budget that are neither arguments nor results.
        results: The bytes of the results that do not take an argument's memory.
        arguments: The bytes of the arguments.
    """

    room: float
    results: float
    arguments: float

    @classmethod
    def of(cls, budget: float, plain: Measured) -> Prospects:
        """With the arguments and results of the program as written, compiled."""
        own = plain.nbytes - plain.temp_bytes
        fixed = own if own < float("inf") else plain.argument_bytes  # nan: it does not compile.
        results = max(fixed - plain.argument_bytes, 0.0)
        return cls(room=budget - fixed, results=results, arguments=plain.argument_bytes)

    def is_far(self, plan: Plan, before: Fit) -> bool:
        """Whether a plan should need far more than the room, if it does as one before did.

        What libraries hold is left out: no prediction knows it.
        """
        return self._ratio(before) * self._own(plan) > TOO_FAR * self.room

    def is_repeated(self, plan: Plan, before: Fit) -> bool:
        """Whether a plan of the same program needs no less than one that needed too much."""
        is_same = self._own(plan) > _SAME * self._own(before.plan)
        return is_same and self._needed(before, libraries=True) > _NEAR * self.room

    def nearer(self, target: float, before: Fit) -> float:
        """The target below `target` for which a plan should fit, if it does as one before did."""
        return min(target, self.results + max(self.room, 1.0) / max(self._ratio(before), 1.0))

    def _ratio(self, fit: Fit) -> float:
        return self._needed(fit, libraries=False) / self._own(fit.plan)

    def _own(self, plan: Plan) -> float:
        return max(plan.predicted - self.results, 1.0)

    def _needed(self, fit: Fit, *, libraries: bool) -> float:
        needed = fit.result.nbytes - self.arguments - self.results
        return max(needed if libraries else needed - fit.result.library_bytes, 1.0)


def overestimate(written: Plan, plain: Measured) -> float:
    """How much larger the prediction is than what the compiler needs; 1 where either is nothing."""
    needed = plain.nbytes - plain.argument_bytes
    is_known = written.predicted and 0 < needed < float("inf")
    return written.predicted / needed if is_known else 1.0
