"""What memsafe raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memsafe.budget import as_text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NAMED_SHARE", "BudgetError"]

NAMED_SHARE = 0.01
"""The share of the peak from which a value is named: what is smaller stands in nobody's way."""


class BudgetError(RuntimeError):
    """A function cannot be made to fit its budget.

    Attributes:
        budget: The budget in bytes.
        smallest: The smallest peak reached, in bytes.
        blockers: What stands in the way, one line each, with the user's source line.
    """

    def __init__(self, *, budget: int, smallest: float, blockers: Sequence[str]) -> None:
        self.budget, self.smallest, self.blockers = budget, smallest, tuple(blockers)
        lines = "".join(f"\n  {blocker}" for blocker in blockers)
        over = smallest > budget
        advice = f"give a budget of {as_text(1.01 * smallest)}" if over else "take a larger device"
        super().__init__(
            f"got a peak of {as_text(smallest)}, the smallest reached; wanted {as_text(budget)}; "
            f"in the way, values from {NAMED_SHARE:.0%} of the peak:{lines}\n"
            f"do this: {advice}, or change what is in the way"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (self.budget, self.smallest, self.blockers)


def _rebuilt(budget: int, smallest: float, blockers: tuple[str, ...]) -> BudgetError:
    return BudgetError(budget=budget, smallest=smallest, blockers=blockers)
