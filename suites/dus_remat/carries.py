"""Iterations that need more of a stack than its new self: its rows, its past, or a second stack."""

import jax
import jax.numpy as jnp
from jax import lax

from suites.dus_remat.stacks import (
    Iteration,
    Next,
    Repeated,
    Stacks,
    StackSizes,
    Step,
    View,
    layer,
    read,
    write,
    written,
)
from suites.dus_remat.writes import plain


def read_new(view: View) -> Step:
    """Write the row through a view, and add another row of the new stack."""

    def step(now: Iteration, stacks: Stacks) -> Next:
        stack = view.back(now.sizes, written(now, view.there(now.sizes, stacks[0])))
        return (stack,), now.row + read(now, stack)

    return step


def read_old(now: Iteration, stacks: Stacks) -> Next:
    """Write the row, and add another row of the stack before the write; no order is given."""
    return (written(now, stacks[0]),), now.row + read(now, stacks[0])


def read_old_first(now: Iteration, stacks: Stacks) -> Next:
    """The same, the read forced before the write."""
    before, stack, row = lax.optimization_barrier((read(now, stacks[0]), stacks[0], now.row))
    return (write(stack, row, now.index),), row + before


def read_new_dot(now: Iteration, stacks: Stacks) -> Next:
    """Write the row, and multiply another row of the new stack."""
    stack = written(now, stacks[0])
    return (stack,), _products(now, now.row, read(now, stack))


def read_old_dot(now: Iteration, stacks: Stacks) -> Next:
    """Write the row, and multiply another row of the stack before the write."""
    return (written(now, stacks[0]),), _products(now, now.row, read(now, stacks[0]))


def read_old_dot_first(now: Iteration, stacks: Stacks) -> Next:
    """The same, the read forced before the write."""
    before, stack, row = lax.optimization_barrier((read(now, stacks[0]), stacks[0], now.row))
    return (write(stack, row, now.index),), _products(now, row, before)


def swap(now: Iteration, stacks: Stacks) -> Next:
    """Write into the first stack, then let the stacks change places."""
    return (stacks[1], written(now, stacks[0])), now.row


def swap_in_one(sizes: StackSizes, stacks: Stacks, row: jax.Array, weight: jax.Array) -> Next:
    """Both stacks in one array of twice the rows; the index's parity says which is written."""

    def step(now: Iteration, pair: Stacks) -> Next:
        place = now.index + (now.index % 2) * sizes.length
        return (write(pair[0], now.row, place),), now.row

    (pair,), row = Repeated(step=step)(sizes, (jnp.concatenate(stacks),), row, weight)
    halves = (pair[: sizes.length], pair[sizes.length :])
    return (halves[::-1] if sizes.iterations % 2 else halves), row


def duplicate(now: Iteration, stacks: Stacks) -> Next:
    """Write into the first stack, and carry it on in both places."""
    stack = written(now, stacks[0])
    return (stack, stack), now.row


def duplicate_after(sizes: StackSizes, stacks: Stacks, row: jax.Array, weight: jax.Array) -> Next:
    """Carry the stack once, and return it twice."""
    (stack,), row = Repeated(step=plain)(sizes, stacks[:1], row, weight)
    return (stack, stack), row


def keep_old(now: Iteration, stacks: Stacks) -> Next:
    """Write into the first stack, and carry on what it was as the second."""
    return (written(now, stacks[0]), stacks[0]), now.row


def keep_old_once(sizes: StackSizes, stacks: Stacks, row: jax.Array, _weight: jax.Array) -> Next:
    """Carry the stack alone, with the last iteration after the loop: it alone keeps the old."""
    last = sizes.iterations - 1

    def body(index: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        stack, row = state
        row = layer(row)
        return write(stack, row, index), row

    stack, row = lax.fori_loop(0, last, body, (stacks[0], row))
    row = layer(row)
    return (write(stack, row, last), stack), row


def two_stacks(view: View) -> Step:
    """Write the row into the first stack and its double into the second, through a view."""

    def step(now: Iteration, stacks: Stacks) -> Next:
        second = write(view.there(now.sizes, stacks[1]), now.row * 2, now.index)
        return (written(now, stacks[0]), view.back(now.sizes, second)), now.row

    return step


def scan_ys(sizes: StackSizes, _stacks: Stacks, row: jax.Array, _weight: jax.Array) -> Next:
    """Rows that ``lax.scan`` stacks by itself."""

    def step(row: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        row = layer(row)
        return row, row[None]

    row, stack = lax.scan(step, row, None, length=sizes.iterations)
    return (stack,), row


def _products(now: Iteration, row: jax.Array, before: jax.Array) -> jax.Array:
    return jnp.tanh(row @ now.weight) + before @ now.weight
