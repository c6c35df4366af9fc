"""Whether a plan is worth compiling, judged by predicted and needed memory of earlier plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memsafe.compiled_plan import Fit
    from memsafe.measure import Measured
    from memsafe.plan import Plan

__all__ = ["TOO_FAR", "Prospects", "overestimate"]

TOO_FAR = 1.4
"""Maximum corrected prediction of a plan that is compiled, as a multiple of the room.

A prediction is corrected by the ratio of needed to predicted memory of the plan before. That ratio
is 2.1 for the first plan of a decoder, 1.9 for the second, and 2.6 where its values are computed
again as well (1,436 equations, compiled for an H100, jax 0.10.2, 2026-11-26).
"""

_SAME = 0.95
"""Two plans need the same if one is predicted to need more than this share of the other."""

_NEAR = 1.15
"""The second of two such plans is compiled if the first needs at most this multiple of the room.

The first plan of an encoder's gradient needed 1.11 times the room. The second, predicted to need as
much, needs 0.75 of the first (2 cores, jax 0.10.2, 2026-11-26).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospects:
    """Judges a plan in slices by a plan that was compiled before.

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
        """Prospects with the arguments and results of the compiled program as written."""
        own = plain.nbytes - plain.temp_bytes
        fixed = own if own < float("inf") else plain.argument_bytes  # nan if it does not compile.
        results = max(fixed - plain.argument_bytes, 0.0)
        return cls(room=budget - fixed, results=results, arguments=plain.argument_bytes)

    def is_far(self, plan: Plan, before: Fit) -> bool:
        """Whether a plan needs far more than the room, if its prediction errs like the one before.

        The memory of libraries is left out, because no prediction knows it.
        """
        return self._ratio(before) * self._own(plan) > TOO_FAR * self.room

    def is_repeated(self, plan: Plan, before: Fit) -> bool:
        """Whether a plan is predicted to need as much as the plan before, which needed too much."""
        is_same = self._own(plan) > _SAME * self._own(before.plan)
        return is_same and self._needed(before, libraries=True) > _NEAR * self.room

    def nearer(self, target: float, before: Fit) -> float:
        """A target up to `target` whose plan fits, if its prediction errs like the one before."""
        return min(target, self.results + max(self.room, 1.0) / max(self._ratio(before), 1.0))

    def _ratio(self, fit: Fit) -> float:
        return self._needed(fit, libraries=False) / self._own(fit.plan)

    def _own(self, plan: Plan) -> float:
        return max(plan.predicted - self.results, 1.0)

    def _needed(self, fit: Fit, *, libraries: bool) -> float:
        needed = fit.result.nbytes - self.arguments - self.results
        return max(needed if libraries else needed - fit.result.library_bytes, 1.0)


def overestimate(written: Plan, plain: Measured) -> float:
    """Ratio of predicted memory to what the compiler needs; 1 if either is zero or unknown."""
    needed = plain.nbytes - plain.argument_bytes
    is_known = written.predicted and 0 < needed < float("inf")
    return written.predicted / needed if is_known else 1.0
