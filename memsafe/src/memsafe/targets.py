"""The target of the next plan of a program, by the memory that earlier plans needed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memsafe.measure import Measured

__all__ = ["Targets", "narrowed"]

_LIBRARY_POWER = 2.0
"""A plan's memory grows as this power of its target, if libraries hold most of the memory.

Plans of an encoder's gradient for 38, 21 and 12 MB need 291, 56 and 20 MB, of which libraries hold
170, 25 and 4 MB. In 86 MB, the gradient takes 0.3 times its time with the second plan, and 0.6 with
the third (2 cores, jax 0.10.2, 2026-11-26).
"""

_LEAST_POWER, _MOST_POWER = 1.0, 4.0
"""Limits of the exponent. Others are chance: a plan for a smaller target may need more."""

_LESS = 0.9
"""The next target is at most this share of the last."""

_FAR_LESS = 0.5
"""`_LESS` after a plan that the compiler refused: the device may hold less than the budget.

Also after a plan that is no improvement, if libraries hold most of its memory. That memory is the
same for any target until libraries get slices. A transport plan of 1,500 × 1,600 was refused at
96.1 MB, by 0.04 %, and fitted 48 MB (2 cores, jax 0.10.2, 2026-11-29).
"""

_STALLED = 0.95
"""A plan is no improvement if it needs more than this share of the least before it."""

_PATIENCE = 2
"""Number of plans in a row without an improvement after which no other is tried.

For 184 random programs 127 plans in slices were found, one of them after more plans. The
53 programs that were refused took 8.9 s on average, and up to 31 s, without this rule and
`search.CLOSE`. With them they take 5.5 s, up to 23 s (2 cores, jax 0.10.2, 2026-11-26).
"""

_FORESEEN = 3.0
"""From this ratio of needed to predicted memory, the compiler may store values counted as fused.

A plan may then split no value that the compiler stores, and the next plan may split one. So such a
plan does not count for `_PATIENCE`. The ratio was 300 for 300 × 300 pairs, which the fourth plan
splits, and 25 and 60 for two random programs. For plans of a decoder it is up to 2.6 without such
values (`prospects.TOO_FAR`).
"""


@dataclass(slots=True, kw_only=True)
class Targets:
    """What plans of one program were made for, and what they needed, in bytes.

    Attributes:
        arguments: The bytes of the arguments, which no plan changes.
        room: The bytes that a plan may need beside the arguments.
        tried: Each target, with the program compiled for it.
        stalled: Number of plans in a row, up to the last, without an improvement.
    """

    arguments: float
    room: float
    tried: list[tuple[float, Measured]] = field(default_factory=list)
    stalled: int = 0

    def after(self, target: float, predicted: float, result: Measured) -> float | None:
        """The target after `target`, for which `result` was compiled; None if no other is worth it.

        The plan of `result` is predicted to need `predicted` bytes.
        """
        least = min((each.nbytes for _, each in self.tried), default=math.inf) - self.arguments
        needed = result.nbytes - self.arguments
        is_no_less = _STALLED * least < needed
        is_stalled = is_no_less and needed < _FORESEEN * predicted
        self.stalled = self.stalled + 1 if is_stalled else 0
        if self.stalled == _PATIENCE:
            return None
        self.tried.append((min(target, predicted), result))
        share = narrowed(self.tried, self.arguments, self.room) ** (1 + self.stalled)
        is_held = is_no_less and 2 * result.library_bytes > needed
        most = _FAR_LESS if result.lowered is None or is_held else _LESS
        return self.tried[-1][0] * min(share, most)


def narrowed(needs: Sequence[tuple[float, Measured]], own: float, room: float) -> float:
    """The factor by which to multiply the last target, so that the next plan needs `room` bytes.

    `needs` are the targets so far, with the programs compiled for them. `own` bytes of each program
    are arguments. A plan's memory is taken to be a power of its target, with the exponent of the
    last two plans. The result is 1 if the compiler did not report the memory.
    """
    target, result = needs[-1]
    needed = result.nbytes - own
    if not 0 < needed < math.inf:
        return 1.0
    power = _LIBRARY_POWER if 2 * result.library_bytes > needed else 1.0
    if len(needs) > 1:
        before, other = needs[-2]
        more = other.nbytes - own
        if needed < more < math.inf and target < before:
            power = math.log(more / needed) / math.log(before / target)
    return math.exp(math.log(room / needed) / min(max(power, _LEAST_POWER), _MOST_POWER))
