"""Loops that keep values of some steps only for their gradient, and compute the others again.

The gradient of a `scan` is a second scan, in reverse, over the values that the first one keeps of
every step. Here the steps are cut into segments. The first loop keeps the carry at the start of
each segment, and all values that the second loop reads of the last segment. The second loop
computes each earlier segment again from its carry before it goes back over that segment. For T
steps in segments of √T, the loops keep 2 √T rows instead of T and compute the steps once more (Chen
et al. 2016, "Training deep nets with sublinear memory cost", section 4.1). A segment is itself such
a pair of loops, and the next level cuts it again: 3 ∛T rows for two more computations (Griewank and
Walther 2000, section 2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

import jax.numpy as jnp
from jax import lax

from memsafe.jax_internals import aval_of
from memsafe.mapped_axes import varying_like
from memsafe.programs import evaluate, flattened, nbytes, retraced, with_sub_jaxprs
from memsafe.rewrites.branch_pairs import branches_again
from memsafe.rewrites.loop_pairs import Scan, loop_pairs
from memsafe.rewrites.rewritten import Rewritten, noted
from memsafe.sub_jaxprs import sub_jaxprs_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jax.extend.core import ClosedJaxpr, Var

    from memsafe.programs import Read
    from memsafe.rewrites.loop_pairs import Pair

    _State = tuple[list[Array], list[Array]]
    """What a loop carries, and the stacks that it fills."""

    _Carry = TypeVar("_Carry")

    _Choose = Callable[[int, float, float], int]
    """Steps, bytes of a row and of the carry → the steps of a segment, or 0."""

__all__ = ["checkpointed_loops", "has_loops_to_cut", "segmented_loops"]

_FEWEST = 4
"""Minimum steps of a loop to cut: √4 segments of √4 steps keep as many rows as the loop."""


def checkpointed_loops(closed: ClosedJaxpr, levels: int = 1, share: float = 0.0) -> Rewritten:
    """`closed` with loops that compute kept values again for their gradients, up to `levels` times.

    With one level, they keep about `share` of the bytes if some length of segments allows it, and
    as few as possible otherwise. Bodies of loops are cut as programs of their own.
    """
    again = "once more" if levels == 1 else f"up to {levels} times more"
    first = _once(closed, partial(_length, levels=levels, share=share), again)
    if levels == 1 or not first.notes:
        return first
    # The notes of the next levels would name the loops of single segments.
    return replace(first, program=checkpointed_loops(first.program, levels - 1).program)


def has_loops_to_cut(closed: ClosedJaxpr) -> bool:
    """Whether `checkpointed_loops` may cut a loop, not counting pairs that `branches_again` makes.

    Traces nothing.
    """
    if any(pair.steps >= _FEWEST for pair in loop_pairs(closed)):
        return True
    bodies = (body for each in closed.jaxpr.eqns for body in sub_jaxprs_of(each).values())
    return any(map(has_loops_to_cut, bodies))


def segmented_loops(closed: ClosedJaxpr, length: int) -> Rewritten:
    """`closed` with loops that keep the carry of each segment of `length` steps."""
    return _once(closed, partial(_of_length, length), "once more")


def _once(closed: ClosedJaxpr, choose: _Choose, again: str) -> Rewritten:
    program, notes = _inside(closed, choose, again)
    if (joined := branches_again(closed)) is not closed:
        # A branch is computed again only where a loop in it is cut.
        other, more = _inside(joined, choose, again)
        program, notes = (other, more) if len(more) > len(notes) else (program, notes)
    loops = {}
    for cut in _cuts(program, choose):
        segments = _Segments(cut)
        loops[cut.pair.forward] = segments.forward
        loops[cut.pair.backward] = segments.backward
        text = f"{cut.pair.steps} steps of a scan computed {again} for its gradient"
        notes.append(noted(cut.pair.equations[0], f"{text}, in segments of {cut.length}"))
    if loops:
        program = flattened(retraced(program, loops))
    return Rewritten(program=program, notes=tuple(notes))


def _inside(closed: ClosedJaxpr, choose: _Choose, again: str) -> tuple[ClosedJaxpr, list[str]]:
    """`closed` with the programs that its equations run rewritten by `_once`, and the notes."""
    notes: list[str] = []

    def once(body: ClosedJaxpr) -> ClosedJaxpr:
        found = _once(body, choose, again)
        notes.extend(found.notes)
        return found.program

    return with_sub_jaxprs(closed, once), notes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """A pair of loops in segments.

    Attributes:
        pair: The loops.
        length: The steps of a segment.
    """

    pair: Pair
    length: int

    @property
    def segments(self) -> int:
        """Number of segments before the last, which has the remaining steps."""
        return self.pair.steps // self.length - 1


def _cuts(closed: ClosedJaxpr, choose: _Choose) -> list[_Cut]:
    """The pairs of loops that keep less in segments; of pairs that share a loop, the largest.

    A loop in segments no longer makes the stacks that its other pairs would read.
    """
    taken: set[int] = set()
    found = []
    for pair in sorted(loop_pairs(closed), key=lambda pair: -pair.nbytes):
        loops = {pair.forward, pair.backward}
        if loops & taken or pair.steps < _FEWEST:
            continue
        row = pair.nbytes / pair.steps
        carry = sum(map(nbytes, Scan(pair.equations[0]).carried))
        if length := choose(pair.steps, row, carry):
            taken |= loops
            found.append(_Cut(pair=pair, length=length))
    return sorted(found, key=lambda cut: cut.pair.forward)


def _length(steps: int, row: float, carry: float, levels: int, share: float) -> int:
    """The steps of the longest segment that keeps at most `share`, or of the one that keeps least.

    0 if no segments keep less than all steps do.
    """

    @cache
    def least(steps: int, levels: int) -> float:
        """Bytes of rows and carries kept at once: the stack of all rows, and the row of a step."""
        if levels == 0 or steps < _FEWEST:
            return (steps + (steps > 1)) * row
        return min(kept(steps, length, levels) for length in _lengths(steps))

    def kept(steps: int, length: int, levels: int) -> float:
        segments = steps // length - 1
        return segments * carry + least(steps - segments * length, levels - 1)

    lengths, whole = _lengths(steps), least(steps, 0)
    best = min(lengths, key=lambda length: kept(steps, length, levels))
    good = [each for each in lengths if kept(steps, each, levels) <= share * whole]
    longest = max(good, default=best)
    return longest if kept(steps, longest, levels) < whole else 0


def _of_length(length: int, steps: int, row: float, carry: float) -> int:
    """`length` if its carries and rows take fewer bytes than the rows of all steps, else 0."""
    segments = steps // length - 1
    left = steps - segments * length
    return length if segments > 1 and segments * carry + left * row < steps * row else 0


def _lengths(steps: int) -> list[int]:
    """The lengths of segments to choose from: the longest for each number of segments.

    There are at least three segments. With two, the loop over all but the last has one step, and
    XLA unrolls it: the first segment is computed again while the second is still kept.
    """
    return sorted({steps // count for count in range(3, steps + 1)})


class _Segments:
    """The two loops of a pair in segments. `forward` is traced first and stores the carries."""

    def __init__(self, cut: _Cut) -> None:
        self.cut, self.pair = cut, cut.pair
        self.one, self.other = map(Scan, self.pair.equations)
        self.is_reversed = bool(self.pair.equations[0].params["reverse"])
        self.before_last = cut.segments * cut.length
        self.constants: list[Array] = []
        self.rows: list[Array] = []
        self.starts: list[Array] = []
        self.last: list[Array] = []

    def forward(self, read: Read) -> list[Array]:
        """The results of the first loop, with zeros that nobody reads in place of kept stacks."""
        operands = [read(atom) for atom in self.one.operands]
        self.constants = operands[: self.one.constants]
        self.rows = operands[self.one.before :]
        carry = operands[self.one.constants : self.one.before]
        others = [at for at in range(len(self.one.stacked)) if at not in self.pair.kept]
        stacks = [_empty(self.one.stacked[at]) for at in others]

        def step(state: _State, number: Array) -> tuple[_State, list[Array]]:
            carry, stacks = state
            carry, made = self._step(carry, number)
            at = self._place(number)
            stacks = [_written(s, made[o], at) for s, o in zip(stacks, others, strict=True)]
            return (carry, stacks), [made[at] for at in self.pair.kept]

        def segment(state: _State, first: Array) -> tuple[_State, list[Array]]:
            after, _ = self._looped(step, state, first + self._numbers(self.cut.length))
            return after, state[0]

        state = (carry, stacks)
        state, self.starts = lax.scan(segment, state, self._firsts())
        numbers = self.before_last + self._numbers(self.pair.steps - self.before_last)
        (carry, stacks), self.last = self._looped(step, state, numbers)
        made = dict(zip(others, stacks, strict=True))
        stacked = enumerate(self.one.stacked)
        return [*carry, *(made[at] if at in made else _empty(value) for at, value in stacked)]

    def backward(self, read: Read) -> list[Array]:
        """The results of the second loop."""
        kept = {row for rows in self.pair.kept.values() for row in rows}
        before = [read(atom) for atom in self.other.operands[: self.other.before]]
        constants, carry = before[: self.other.constants], before[self.other.constants :]
        rows = {at: read(row) for at, row in enumerate(self.other.rows) if at not in kept}
        stacks = [_empty(value) for value in self.other.stacked]

        def step(state: _State, given: tuple[Array, list[Array]]) -> tuple[_State, None]:
            (carry, stacks), (number, again) = state, given
            at = self._place(number)
            row = {other: _row(stack, at) for other, stack in rows.items()}
            for made, places in zip(again, self.pair.kept.values(), strict=True):
                row |= dict.fromkeys(places, made)
            ordered = [row[other] for other in range(len(self.other.rows))]
            results = evaluate(self.other.body, [*constants, *carry, *ordered])
            carry, made_rows = results[: self.other.carries], results[self.other.carries :]
            stacks = [_written(s, m, at) for s, m in zip(stacks, made_rows, strict=True)]
            return (carry, stacks), None

        def back(state: _State, numbers: Array, again: list[Array]) -> _State:
            if self._is_one(numbers):
                return step(state, (numbers[0], again))[0]
            unroll = self.other.unroll
            after, _ = lax.scan(step, state, (numbers, again), reverse=True, unroll=unroll)
            return after

        def segment(state: _State, given: tuple[Array, list[Array]]) -> tuple[_State, None]:
            first, start = given
            numbers = first + self._numbers(self.cut.length)
            _, again = self._looped(self._kept_step, start, numbers)
            return back(state, numbers, again), None

        numbers = self.before_last + self._numbers(self.pair.steps - self.before_last)
        state = back((carry, stacks), numbers, self.last)
        state, _ = lax.scan(segment, state, (self._firsts(), self.starts), reverse=True)
        return [*state[0], *state[1]]

    def _kept_step(self, carry: list[Array], number: Array) -> tuple[list[Array], list[Array]]:
        carry, made = self._step(carry, number)
        return carry, [made[at] for at in self.pair.kept]

    def _step(self, carry: list[Array], number: Array) -> tuple[list[Array], list[Array]]:
        """One step of the first loop: the carry, and the rows that it makes."""
        at = self._place(number)
        rows = [_row(stack, at) for stack in self.rows]
        results = evaluate(self.one.body, [*self.constants, *carry, *rows])
        return results[: self.one.carries], results[self.one.carries :]

    def _looped(
        self,
        step: Callable[[_Carry, Array], tuple[_Carry, list[Array]]],
        state: _Carry,
        numbers: Array,
    ) -> tuple[_Carry, list[Array]]:
        """The carry after these steps, and the stacks of their rows; for one step, the rows.

        XLA unrolls a loop of one step. Rows that nobody stacks can be computed where they are read.
        """
        if self._is_one(numbers):
            return step(state, numbers[0])
        return lax.scan(step, state, numbers, unroll=self.one.unroll)

    def _place(self, number: Array) -> Array:
        """The row of a step."""
        return self.pair.steps - 1 - number if self.is_reversed else number

    def _firsts(self) -> Array:
        """The first step of each segment but the last."""
        return self.cut.length * self._numbers(self.cut.segments)

    @staticmethod
    def _is_one(numbers: Array) -> bool:
        return numbers.size == 1

    @staticmethod
    def _numbers(count: int) -> Array:
        return jnp.arange(count, dtype=jnp.int32)


def _row(stack: Array, at: Array) -> Array:
    row: Array = lax.dynamic_index_in_dim(stack, at, keepdims=False)
    return row


def _written(stack: Array, row: Array, at: Array) -> Array:
    written: Array = lax.dynamic_update_index_in_dim(stack, row, at, 0)
    return written


def _empty(value: Var) -> Array:
    aval = aval_of(value)
    return varying_like(jnp.zeros(aval.shape, aval.dtype), aval)
