"""Iterations that write one row of one stack, in every way that models do."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from suites.dus_remat.stacks import Iteration, Next, Stacks, Step, View, read_own, write, written
from suites.dus_remat.views import BITS, FLAT, TURNED


def plain(now: Iteration, stacks: Stacks) -> Next:
    """Write the row into the stack as it is carried."""
    return (written(now, stacks[0]),), now.row


def through(view: View) -> Step:
    """Write the row through a view of the stack."""

    def step(now: Iteration, stacks: Stacks) -> Next:
        stack = written(now, view.there(now.sizes, stacks[0]))
        return (view.back(now.sizes, stack),), now.row

    return step


def plain_bits(now: Iteration, stacks: Stacks) -> Next:
    """Write the row's bits into a stack of bits."""
    return (write(stacks[0], BITS.there(now.sizes, now.row), now.index),), now.row


def bitcast_converted(now: Iteration, stacks: Stacks) -> Next:
    """Write the row's bits into the stack's bits."""
    (bits,), row = plain_bits(now, (BITS.there(now.sizes, stacks[0]),))
    return (BITS.back(now.sizes, bits),), row


def plain_turned(now: Iteration, stacks: Stacks) -> Next:
    """Write the row, its axes in reverse, into a stack with its axes in reverse."""
    row = now.row.transpose()[..., None, None]
    axis = stacks[0].ndim - 1
    return (lax.dynamic_update_slice_in_dim(stacks[0], row, now.index, axis),), now.row


def transposed(now: Iteration, stacks: Stacks) -> Next:
    """Turn the stack, write the row, turn it back."""
    (stack,), row = plain_turned(now, (TURNED.there(now.sizes, stacks[0]),))
    return (TURNED.back(now.sizes, stack),), row


def dot(now: Iteration, stacks: Stacks) -> Next:
    """Write a row that a product makes in the stack's order of axes."""
    row = jnp.einsum("bshd,de->bshe", now.row, now.weight)
    return (write(stacks[0], row, now.index),), row


def transposed_dot(now: Iteration, stacks: Stacks) -> Next:
    """Write a row that a product makes in another order of axes."""
    row = jnp.einsum("bshd,de->ebhs", now.row, now.weight).transpose(1, 3, 2, 0)
    return (write(stacks[0], row, now.index),), row


def at_set(now: Iteration, stacks: Stacks) -> Next:
    """Write the row by an indexed update."""
    return (stacks[0].at[now.index, 0].set(now.row),), now.row


def plain_add(now: Iteration, stacks: Stacks) -> Next:
    """Add to the row: read it, add, write it."""
    row = read_own(now, stacks[0]) + now.row
    return (write(stacks[0], row, now.index),), now.row


def at_add_flat(now: Iteration, stacks: Stacks) -> Next:
    """Add to the row of a flat stack by an indexed update."""
    return (stacks[0].at[now.index].add(now.row.reshape(-1)),), now.row


def at_add_reshape(now: Iteration, stacks: Stacks) -> Next:
    """Add to the row by an indexed update through a flat view."""
    (stack,), row = at_add_flat(now, (FLAT.there(now.sizes, stacks[0]),))
    return (FLAT.back(now.sizes, stack),), row


def select_row(now: Iteration, stacks: Stacks) -> Next:
    """Choose between the new row and the old one, then write."""
    row = jnp.where(_wanted(now), now.row, read_own(now, stacks[0]))
    return (write(stacks[0], row, now.index),), now.row


def conditional(now: Iteration, stacks: Stacks) -> Next:
    """Write the row in one branch, and leave the stack alone in the other."""
    stack = lax.cond(_wanted(now), lambda s: written(now, s), lambda s: s, stacks[0])
    return (stack,), now.row


def where(now: Iteration, stacks: Stacks) -> Next:
    """Write the row, then choose between the new stack and the old one."""
    return (jnp.where(_wanted(now), written(now, stacks[0]), stacks[0]),), now.row


def two_updates(view: View) -> Step:
    """Write a row from the front and the next one from the back, the second through a view."""

    def step(now: Iteration, stacks: Stacks) -> Next:
        second = jnp.tanh(now.row)
        stack = view.there(now.sizes, written(now, stacks[0]))
        stack = write(stack, second, now.sizes.length - 1 - now.index)
        return (view.back(now.sizes, stack),), second

    return step


def vmapped(now: Iteration, stacks: Stacks) -> Next:
    """Write each batch entry at an index of its own, by ``vmap``."""
    update = partial(lax.dynamic_update_index_in_dim, axis=0)
    one = jax.vmap(update, in_axes=(2, 0, 0), out_axes=2)
    return (one(stacks[0], now.row[:, None], _own_indices(now)),), now.row


def scattered(now: Iteration, stacks: Stacks) -> Next:
    """Write each batch entry at an index of its own, by one indexed update."""
    entries = jnp.arange(now.sizes.row[0])
    return (stacks[0].at[_own_indices(now), 0, entries].set(now.row),), now.row


def one_by_one(now: Iteration, stacks: Stacks) -> Next:
    """Write each batch entry at an index of its own, one after the other."""
    stack, indices = stacks[0], _own_indices(now)
    for entry in range(now.sizes.row[0]):
        part = now.row[entry][None, None, None]
        stack = lax.dynamic_update_slice(stack, part, (indices[entry], 0, entry, 0, 0, 0))
    return (stack,), now.row


def _own_indices(now: Iteration) -> jax.Array:
    return (now.index + jnp.arange(now.sizes.row[0])) % now.sizes.length


def _wanted(now: Iteration) -> jax.Array:
    return now.row[0, 0, 0, 0] > 0
