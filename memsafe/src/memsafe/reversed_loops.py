"""Reverse-mode derivative of a `while` that takes at most a known number of steps T.

The forward pass is a `scan` over √T segments, which keeps the carry at the start of each segment.
A segment is a `while` of at most √T steps. The backward pass visits the segments in reverse. It
computes a segment again, keeps the carry of each step, and goes back over the steps that were
taken. It computes from this carry what the step's derivative needs. Segments after the end change
nothing and cost one carry each. Values that steps only read are not kept for each step, as a `scan`
would keep them for a `cond` in its body.

The gradient through at most 10,000 steps of 10,000 numbers, of which 23 are taken, needs 3 ms and
8 MB. A `scan` whose steps are a `cond` needs 1,124 ms and 1,200 MB. If 1,000 of 1,000 are taken,
the times are 5 ms and 115 ms, the memory 3 MB and 120 MB (f32, 2 cores, jax 0.10.2, 2026-11-26).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from memsafe.jax_internals import aval_of
from memsafe.mapped_axes import varying_axes, varying_like
from memsafe.programs import is_inexact
from memsafe.sub_jaxprs import While, as_closed, rebuilt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.sub_jaxprs import Run

__all__ = ["with_derivative"]


def with_derivative(
    equation: JaxprEqn, body: Run, varied: Sequence[bool], most: int
) -> Callable[..., list[Array]]:
    """A `while` with this `body` and at most `most` steps, as a function of its operands.

    It has derivatives with respect to its `varied` operands and its carry.

    Raises:
        ValueError: Devices take different numbers of steps, and would have to add cotangents in
            each step: they would wait for devices that take fewer steps.
    """
    steps = _Steps.of(equation, body, varied)
    if not steps.are_apart:
        raise ValueError(
            "got a while_loop that ends earlier on some devices and has the gradient of a value "
            "that is the same on all; wanted values that vary as its condition does; "
            "do this: jax.lax.pcast(value, axes, to='varying') before the loop"
        )
    length = math.isqrt(max(most, 1) - 1) + 1
    segments = -(-max(most, 1) // length)

    @jax.custom_vjp
    def looped(*operands: Array) -> list[Array]:
        return rebuilt(equation, operands, {"body_jaxpr": body})

    def forward(*operands: Array) -> tuple[list[Array], Any]:
        def segment(carry: list[Array], _: None) -> tuple[list[Array], list[Array]]:
            return steps.taken(operands, carry, length)[1], carry

        last, rows = lax.scan(segment, steps.moving(operands), None, length=segments)
        return steps.results(operands, last), (operands, rows)

    def backward(kept: Any, cotangents: list[Array]) -> tuple[Array | None, ...]:
        operands, rows = kept

        def segment(state: Any, row: list[Array]) -> Any:
            return steps.pulled_back(operands, row, length, *state)

        def turn(state: Any, row: list[Array]) -> Any:
            going = steps.unfinished(operands, row)
            return lax.cond(going, segment, lambda state, _: state, state, row), None

        last = steps.cotangents(operands, cotangents)
        (pulled, summed), _ = lax.scan(turn, last, rows, reverse=True)
        return steps.of_operands(operands, pulled, summed)

    looped.defvjp(forward, backward)
    return looped


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """The steps of a `while`, whose operands are the values that it reads, then its first carry.

    Attributes:
        equation: The `while`.
        body: Function that computes the carry after a step.
        carried: Number of operands before the carry.
        changing: Positions in the carry of values that steps change.
        smooth: Positions in the carry of the `changing` values that have derivatives.
        read: Positions of the operands that have derivatives and that no step changes.
    """

    equation: JaxprEqn
    body: Run
    carried: int
    changing: list[int]
    smooth: list[int]
    read: list[int]

    @classmethod
    def of(cls, equation: JaxprEqn, body: Run, varied: Sequence[bool]) -> _Steps:
        """The steps of this `body`; the operands before the carry have derivatives if `varied`."""
        asking, doing = equation.params["cond_nconsts"], equation.params["body_nconsts"]
        jaxpr, carried = as_closed(equation.params["body_jaxpr"]).jaxpr, asking + doing
        pairs = zip(jaxpr.outvars, jaxpr.invars[doing:], strict=True)
        changing = [at for at, (after, before) in enumerate(pairs) if after is not before]
        same = [carried + at for at in range(len(jaxpr.outvars)) if at not in changing]
        held = [at for at in range(asking, carried) if varied[at]]
        read = [at for at in (*held, *same) if is_inexact(equation.invars[at])]
        smooth = [at for at in changing if is_inexact(equation.outvars[at])]
        return cls(
            equation=equation,
            body=body,
            carried=carried,
            changing=changing,
            smooth=smooth,
            read=read,
        )

    @property
    def are_apart(self) -> bool:
        """Whether values with derivatives vary over all mapped axes of the condition."""
        (going,) = as_closed(self.equation.params["cond_jaxpr"]).out_avals
        places = [*self.read, *(self.carried + at for at in self.smooth)]
        avals = [aval_of(self.equation.invars[at]) for at in places]
        return all(varying_axes(going) <= varying_axes(aval) for aval in avals)

    def moving(self, operands: Sequence[Array]) -> list[Array]:
        """The `changing` values before the first step."""
        return [operands[self.carried + at] for at in self.changing]

    def results(self, operands: Sequence[Array], last: Sequence[Array]) -> list[Array]:
        """The whole carry at the end; `last` are its `changing` values."""
        return self._whole(operands, last)[self.carried :]

    def unfinished(self, operands: Sequence[Array], carry: Sequence[Array]) -> Array:
        """Whether a step is taken from `carry`."""
        loop = self._loop(operands, carry)
        going: Array = loop.unfinished(loop.start).any()
        return going

    def taken(
        self, operands: Sequence[Array], start: list[Array], most: int, rows: Sequence[Array] = ()
    ) -> tuple[Array, list[Array], list[Array]]:
        """Number of steps taken, the carry after them, and in `rows` the carry before each step."""

        def going(state: Any) -> Array:
            is_left: Array = state[0] < most
            return is_left & self.unfinished(operands, state[1])

        def step(state: Any) -> Any:
            count, carry, rows = state
            kept = [
                lax.dynamic_update_index_in_dim(row, value, count, 0)
                for row, value in zip(rows, carry, strict=False)  # `rows` is empty or has all.
            ]
            return count + 1, self._after(operands, carry), kept

        nothing: Any = np.int32(0)
        found: tuple[Array, list[Array], list[Array]] = lax.while_loop(
            going, step, (nothing, start, list(rows))
        )
        return found

    def pulled_back(
        self,
        operands: Sequence[Array],
        start: list[Array],
        most: int,
        pulled: list[Array],
        summed: list[Array],
    ) -> tuple[list[Array], list[Array]]:
        """The cotangents of `smooth` at `start`; `summed` plus those of `read` in these steps."""
        rows = [jnp.broadcast_to(each, (most, *each.shape)) for each in start]
        count, _, rows = self.taken(operands, start, most, rows)

        def back(state: Any) -> Any:
            left, pulled, summed = state
            carry = [lax.dynamic_index_in_dim(row, left - 1, keepdims=False) for row in rows]
            pulled, more = self._pulled_step(operands, carry, pulled)
            return left - 1, pulled, [one + other for one, other in zip(summed, more, strict=True)]

        # The minimum shows the bound, if this loop is differentiated again.
        state = jnp.minimum(count, most), pulled, summed
        _, pulled, summed = lax.while_loop(lambda state: state[0] > 0, back, state)
        return pulled, summed

    def cotangents(
        self, operands: Sequence[Array], of_results: Sequence[Array]
    ) -> tuple[list[Array], list[Array]]:
        """The cotangents of `smooth` and of `read` after the last step.

        A value in the carry that no step changes is a result, and has the cotangent of the result.
        """
        read = [
            of_results[at - self.carried]
            if at >= self.carried
            else varying_like(jnp.zeros_like(operands[at]), operands[at])
            for at in self.read
        ]
        return [of_results[at] for at in self.smooth], read

    def of_operands(
        self, operands: Sequence[Array], pulled: list[Array], summed: list[Array]
    ) -> tuple[Array | None, ...]:
        """The cotangents of all operands, None where there is none."""
        found = dict(zip((self.carried + at for at in self.smooth), pulled, strict=True))
        found.update(zip(self.read, summed, strict=True))
        return tuple(found.get(at) for at in range(len(operands)))

    def _pulled_step(
        self, operands: Sequence[Array], carry: list[Array], pulled: list[Array]
    ) -> tuple[list[Array], list[Array]]:
        places = [self.changing.index(at) for at in self.smooth]

        def step(smooth: list[Array], read: list[Array]) -> list[Array]:
            given, before = list(operands), list(carry)
            for at, value in zip(self.read, read, strict=True):
                given[at] = value
            for at, value in zip(places, smooth, strict=True):
                before[at] = value
            after = self._after(given, before)
            return [after[at] for at in places]

        read = [operands[at] for at in self.read]
        _, pull = jax.vjp(step, [carry[at] for at in places], read)
        found: tuple[list[Array], list[Array]] = pull(pulled)
        return found

    def _after(self, operands: Sequence[Array], carry: Sequence[Array]) -> list[Array]:
        loop = self._loop(operands, carry)
        after = loop.step(loop.start)
        return [after[at] for at in self.changing]

    def _loop(self, operands: Sequence[Array], carry: Sequence[Array]) -> While:
        return While.of(self.equation, self._whole(operands, carry), self.body)

    def _whole(self, operands: Sequence[Array], carry: Sequence[Array]) -> list[Array]:
        whole = list(operands)
        for at, value in zip(self.changing, carry, strict=True):
            whole[self.carried + at] = value
        return whole
