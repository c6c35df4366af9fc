"""When the callbacks of gradients are called: each at once, some together, at the end, or later."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

Shape = tuple[int, ...]

SHAPES: tuple[Shape, ...] = ((8, 16), (16,), (16, 8), (8,), (32, 8), (8, 4), (4,))
"""Of the minimal model's parameters: 2,272 bytes of gradients."""

_ITEM_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One step's callbacks.

    Gradients arrive in ``order``; after as many as ``flushes`` says, all that wait are reduced and
    called back together. What waits after the last flush waits for the next step's first.
    """

    order: tuple[int, ...]
    flushes: frozenset[int]


def bucketed(
    limit_bytes: float, steps: int, *, flushes_tail: bool = True, shuffled: bool = False
) -> tuple[Plan, ...]:
    """The plans of a bucket that is flushed when it holds more than the limit.

    The last parameter's gradient arrives first. ``shuffled`` draws another order for each of three
    steps, and repeats these.
    """
    plans = []
    waiting = 0
    for step in range(steps):
        order = list(reversed(range(len(SHAPES))))
        if shuffled:
            random.Random(step % 3).shuffle(order)  # noqa: S311 - no key is drawn
        flushes = set()
        for arrived, parameter in enumerate(order, 1):
            waiting += prod(SHAPES[parameter]) * _ITEM_BYTES
            if waiting > limit_bytes or (flushes_tail and arrived == len(order)):
                flushes.add(arrived)
                waiting = 0
        plans.append(Plan(order=tuple(order), flushes=frozenset(flushes)))
    return tuple(plans)


def groups(plan: Plan) -> tuple[tuple[Shape, ...], ...]:
    """The shapes that a step calls back together, in order, if nothing waited before it."""
    ends = sorted(plan.flushes)
    starts = [0, *ends]
    return tuple(
        tuple(SHAPES[parameter] for parameter in plan.order[start:end])
        for start, end in zip(starts, ends, strict=False)
    )


def distinct(plans: Iterable[Plan]) -> int:
    """How many of the steps differ in what is called back together, in which order, and when.

    A gradient that waited since an earlier step is data, one of this step is computed in it: steps
    of one plan differ if other gradients waited before them.
    """
    return len(set(_patterns(plans)))


Waiting = tuple[int, bool]  # a parameter, and whether its gradient is an earlier step's


def _patterns(plans: Iterable[Plan]) -> Iterator[tuple[Sequence[Waiting], ...]]:
    waiting: list[Waiting] = []
    for plan in plans:
        waiting = [(parameter, True) for parameter, _ in waiting]
        groups: list[tuple[Waiting, ...]] = []
        for arrived, parameter in enumerate(plan.order, 1):
            waiting.append((parameter, False))
            if arrived in plan.flushes:
                groups.append(tuple(waiting))
                waiting = []
        kept = tuple(each for each in waiting if not each[1])
        yield (*groups, kept)
