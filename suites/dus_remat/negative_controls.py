"""Programs that must fail a claim: each is run beside the variants that pass it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from assay import Program, Role
from suites.dus_remat.carries import duplicate
from suites.dus_remat.formulas import StackVariant
from suites.dus_remat.programs import stack_program
from suites.dus_remat.stacks import (
    Iteration,
    Next,
    Repeated,
    Stacks,
    StackSizes,
    Step,
    write,
    written,
)
from suites.dus_remat.writes import plain
from suites.failing import failing_controls


def turned_round(now: Iteration, stacks: Stacks) -> Next:
    """Turn the order of all rows round, and write the row at the front."""
    return (write(jnp.flip(stacks[0], axis=0), now.row, 0),), now.row


TURNED_ROUND = Repeated(step=turned_round)


def turned_round_in_a_branch(now: Iteration, stacks: Stacks) -> Next:
    """Turn the order of all rows round in every other iteration, and write the row."""
    turned = lax.cond(now.index % 2 == 0, lambda s: jnp.flip(s, axis=0), lambda s: s, stacks[0])
    return (written(now, turned),), now.row


def by_mask(now: Iteration, stacks: Stacks) -> Next:
    """Choose for each row of the stack between the old one and the new."""
    here = jnp.arange(now.sizes.length) == now.index
    row = now.row.reshape(stacks[0].shape[1:])[None]
    return (jnp.where(here.reshape(-1, *[1] * row[0].ndim), row, stacks[0]),), now.row


def reading(other: Callable[[Iteration, jax.Array], jax.Array]) -> Step:
    """Read rows of an array that is made of the whole stack, then write one row in place."""

    def step(now: Iteration, stacks: Stacks) -> Next:
        made = other(now, stacks[0])

        def added(index: jax.Array, row: jax.Array) -> jax.Array:
            return row + lax.dynamic_index_in_dim(made, index, 0).reshape(row.shape)

        # No fusion computes the rows one by one for a loop that reads them.
        row = lax.fori_loop(0, now.index + 1, added, now.row)
        return (write(stacks[0], row, now.index),), row

    return step


def turned(_now: Iteration, stack: jax.Array) -> jax.Array:
    """All rows in reverse order."""
    return jnp.flip(stack, axis=0)


def shifted(now: Iteration, stack: jax.Array) -> jax.Array:
    """Each row one further, and the new one in front."""
    row = now.row.reshape(stack.shape[1:])[None]
    return jnp.concatenate([row, stack[:-1]])


def no_stack_back(sizes: StackSizes, stacks: Stacks, row: jax.Array, weight: jax.Array) -> Next:
    """The largest element of each row: no output has the room of the donated stack."""
    (after,), row = Repeated(step=plain)(sizes, stacks, row, weight)
    return (after.reshape(sizes.length, -1).max(axis=1),), row


def difference(sizes: StackSizes, stacks: Stacks, row: jax.Array, weight: jax.Array) -> Next:
    """How the loop changed its stack: both are alive after it, in the room of one."""
    after, row = Repeated(step=plain)(sizes, stacks, row, weight)
    return (after[0] - stacks[0],), row


COPYING: Mapping[str, tuple[Step, int]] = MappingProxyType(
    {
        "negative-duplicate": (duplicate, 2),
        "negative-reads-turned-round": (reading(turned), 1),
        "negative-reads-shifted": (reading(shifted), 1),
        "negative-by-mask": (by_mask, 1),
        "negative-turned-round-in-a-branch": (turned_round_in_a_branch, 1),
    }
)
"""The ways in which an iteration may write a stack whole, each with the stacks that it is given:
one negative control for each path of the detector."""


def negative_control_variants(sizes: StackSizes) -> tuple[StackVariant, ...]:
    """Programs that must fail a claim; never tried by themselves."""
    program = partial(stack_program, sizes)
    wrong = partial(_one_row_wrong, partial(program, Repeated(step=plain), 1))
    negative_control = partial(StackVariant, role=Role.NEGATIVE_CONTROL, reference="plain")
    return (
        negative_control(name="negative-turned-round", program=partial(program, TURNED_ROUND, 1)),
        *(
            negative_control(name=name, program=partial(program, Repeated(step=step), count))
            for name, (step, count) in COPYING.items()
        ),
        negative_control(name="negative-difference", program=partial(program, difference, 1)),
        negative_control(name="negative-no-stack-back", program=partial(program, no_stack_back, 1)),
        negative_control(name="negative-one-row-wrong", program=wrong),
        *failing_controls(negative_control),
    )


def _one_row_wrong(build: Callable[[Sequence[Any]], Program], devices: Sequence[Any]) -> Program:
    right = build(devices)
    assert right.observe is not None
    return replace(right, observe=partial(_with_a_row_off, right.observe))


def _with_a_row_off(observe: Callable[..., Any], stack: jax.Array, *others: jax.Array) -> Any:
    seen = observe(stack, *others)
    wrong = jax.tree.map(lambda rows: rows.at[-1].multiply(1.01), seen["stacks"])
    return {**seen, "stacks": wrong}
