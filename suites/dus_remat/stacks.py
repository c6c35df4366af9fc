"""The loop of the upstream report: a carried stack of rows, one of which each iteration replaces.

Pipeline parallelism with activation checkpointing keeps ``f32[15,1,2,2048,48,128]``, one row for
each microbatch, and writes one row an iteration through whatever view of the stack the model uses.
A loop is given its stacks to keep (donated), a row and a weight, and runs on one device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import jax
import jax.numpy as jnp
from jax import lax

_F32_BYTES = 4


Stacks = tuple[jax.Array, ...]
Next = tuple[Stacks, jax.Array]
"""The stacks and the row after an iteration, or after the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSizes:
    """A stack ``f32[length, 1, *row]`` and the iterations of its loop, at most one for each row.

    ``executed`` programs carry values; ``timed_at`` are the lengths that the time's growth is taken
    of, none where it is not.
    """

    length: int
    iterations: int
    row: tuple[int, int, int, int]
    executed: bool = False
    timed_at: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Reject a loop that would write past the stack's end."""
        if self.iterations > self.length:
            raise ValueError(
                f"got {self.iterations} iterations on a stack of {self.length} rows, "
                "wanted at most one iteration for each row"
            )

    @property
    def stack(self) -> tuple[int, ...]:
        """The stack's dimensions, with upstream's axis of one stage."""
        return (self.length, 1, *self.row)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return prod(self.row) * _F32_BYTES

    @property
    def weight_bytes(self) -> int:
        """Bytes of one square weight on a row's last axis."""
        return self.row[-1] ** 2 * _F32_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """What one iteration works with: its index, the new row, and the weight of the products."""

    sizes: StackSizes
    index: jax.Array
    row: jax.Array
    weight: jax.Array


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A stack in other dimensions, and the way back."""

    there: Callable[[StackSizes, jax.Array], jax.Array]
    back: Callable[[StackSizes, jax.Array], jax.Array]


AS_IT_IS = View(there=lambda _, stack: stack, back=lambda _, stack: stack)
"""The stack's own dimensions."""

Step = Callable[[Iteration, Stacks], Next]
Loop = Callable[[StackSizes, Stacks, jax.Array, jax.Array], Next]


def layer(row: jax.Array) -> jax.Array:
    """The work between two writes; it shrinks, so that all rows differ and none overflows."""
    return jnp.tanh(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """The loop of a step, with the stacks carried as ``carried`` shows them."""

    step: Step
    carried: View = AS_IT_IS
    unroll: int = 1

    def __call__(
        self, sizes: StackSizes, stacks: Stacks, row: jax.Array, weight: jax.Array
    ) -> Next:
        """Enter the view, iterate, and leave the view."""
        stacks = tuple(self.carried.there(sizes, stack) for stack in stacks)
        stacks, row = self.iterate(sizes, stacks, row, weight)
        return tuple(self.carried.back(sizes, stack) for stack in stacks), row

    def iterate(self, sizes: StackSizes, stacks: Stacks, row: jax.Array, weight: jax.Array) -> Next:
        """The iterations alone, on stacks as they are carried."""

        def body(index: jax.Array, state: Next) -> Next:
            stacks, row = state
            now = Iteration(sizes=sizes, index=index, row=layer(row), weight=weight)
            return self.step(now, stacks)

        return lax.fori_loop(0, sizes.iterations, body, (stacks, row), unroll=self.unroll)


def write(stack: jax.Array, row: jax.Array, index: jax.Array | int) -> jax.Array:
    """The stack with one row of its leading axis replaced."""
    return lax.dynamic_update_index_in_dim(stack, row.reshape(stack.shape[1:]), index, 0)


def written(now: Iteration, stack: jax.Array) -> jax.Array:
    """The stack with this iteration's row in its place."""
    return write(stack, now.row, now.index)


def read(now: Iteration, stack: jax.Array) -> jax.Array:
    """The row three before this iteration's, round the end: never the one being written."""
    before = lax.rem(now.index + (now.sizes.length - 3), now.sizes.length)
    return lax.dynamic_index_in_dim(stack, before, 0, keepdims=False).reshape(now.sizes.row)


def read_own(now: Iteration, stack: jax.Array) -> jax.Array:
    """What stands where this iteration writes."""
    return lax.dynamic_index_in_dim(stack, now.index, 0, keepdims=False).reshape(now.sizes.row)
