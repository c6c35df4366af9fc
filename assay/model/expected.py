"""What a known defect expects of a failed claim: a measurement in a range, or a kind of failure."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

from assay.model.evidence import Failure, FailureKind
from assay.model.units import Quantity

# Of a ``Case``, which knows the workload that knows this; hence Any.
Bound = int | float | Callable[[Any], int | float | Quantity]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """The claim fails by a measurement between two bounds, both included.

    A bound is a number in the claim's unit, or a function of the case. A program that runs out of
    memory is measured by what it needs. Without a bound the claim's own limit bounds that side.
    """

    least: Bound | None = None
    most: Bound | None = None

    def holds(self, measured: float | None, failure: Failure | None, case: Any) -> bool:
        """Whether this is what was expected."""
        if measured is None or not isfinite(measured):
            return False
        if failure is not None and failure.kind is not FailureKind.OUT_OF_MEMORY:
            return False
        least, most = _number(self.least, case), _number(self.most, case)
        return (least is None or least <= measured) and (most is None or measured <= most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fails:
    """The claim fails by a failure of this kind whose message holds this fragment."""

    kind: FailureKind
    message: str

    def __post_init__(self) -> None:
        """Reject a fragment that every message holds."""
        if not self.message.strip():
            raise ValueError("got Fails(message=''), wanted a part of the failure's message")

    def holds(self, measured: float | None, failure: Failure | None, case: Any) -> bool:
        """Whether this is what was expected."""
        return failure is not None and failure.kind is self.kind and self.message in failure.message


Expected = Measures | Fails


def exactly(value: Bound) -> Measures:
    """One value and no other."""
    return Measures(least=value, most=value)


def _number(bound: Bound | None, case: Any) -> float | None:
    value = bound(case) if callable(bound) else bound
    return value.value if isinstance(value, Quantity) else value
