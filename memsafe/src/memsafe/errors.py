"""Errors that memsafe raises."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from memsafe.budget import as_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jax.errors import JaxRuntimeError

__all__ = ["NAMED_SHARE", "BudgetError", "advising", "failure"]

NAMED_SHARE = 0.01
"""Minimum share of the peak for which a value is named: smaller values are not in the way."""

_NO_BOUND = "Reverse-mode differentiation does not work for lax.while_loop"
"""The beginning of jax's error."""


@contextmanager
def advising(advice: str) -> Iterator[None]:
    """Adds `advice` to jax's refusal to differentiate a `while_loop` in reverse."""
    try:
        yield
    except ValueError as error:
        if str(error).startswith(_NO_BOUND):
            error.add_note(f"memsafe differentiates a loop whose steps have a bound; {advice}")
        raise


class BudgetError(RuntimeError):
    """A function does not fit its budget, or only in more time than `max_slowdown` allows.

    Attributes:
        budget: The budget in bytes.
        smallest: The smallest peak reached, in bytes.
        blockers: What stands in the way, one line each, with the user's source line.
        slowdown: The predicted time of the fastest plan that fits, as a multiple of the function's
            own; None where no plan fits.
    """

    def __init__(
        self,
        *,
        budget: int,
        smallest: float,
        blockers: Sequence[str] = (),
        slowdown: float | None = None,
        most: float | None = None,
        quick: float | None = None,
    ) -> None:
        self.budget, self.smallest, self.blockers = budget, smallest, tuple(blockers)
        self.slowdown, self._most, self._quick = slowdown, most, quick
        super().__init__(self._too_slow() if slowdown is not None else self._too_large())

    def _too_large(self) -> str:
        lines = "".join(f"\n  {blocker}" for blocker in self.blockers)
        larger = "take a larger device"
        if self.smallest > self.budget:
            larger = "give a larger budget or max_slowdown"
            if self._quick is not None:
                larger = f"give a budget of {as_text(1.01 * self._quick)}"
        return (
            f"got a peak of {as_text(self.smallest)}, the smallest reached; "
            f"wanted {as_text(self.budget)}; "
            f"in the way, values from {NAMED_SHARE:.0%} of the peak:{lines}\n"
            f"do this: {larger}, or change what is in the way"
        )

    def _too_slow(self) -> str:
        return (
            f"got a plan of {as_text(self.smallest)} that should take {self.slowdown:.1f} times as "
            f"long as the function; wanted {as_text(self.budget)} and at most {self._most:g} "
            f"times; do this: give max_slowdown={1.05 * (self.slowdown or 0):.1f}, or a larger "
            "budget"
        )

    def __reduce__(self) -> tuple[object, ...]:
        known = self.budget, self.smallest, self.blockers, self.slowdown, self._most, self._quick
        return _rebuilt, known


def failure(error: JaxRuntimeError) -> str:
    """The line that names a compiler's failure at a plan among the blockers."""
    first, _, _ = str(error).partition("\n")
    return f"the compiler fails at a plan: {first:.200}"


def _rebuilt(
    budget: int,
    smallest: float,
    blockers: tuple[str, ...],
    slowdown: float | None,
    most: float | None,
    quick: float | None,
) -> BudgetError:
    return BudgetError(
        budget=budget,
        smallest=smallest,
        blockers=blockers,
        slowdown=slowdown,
        most=most,
        quick=quick,
    )
