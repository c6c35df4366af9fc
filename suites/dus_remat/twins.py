"""Programs that must break a claim: each is run beside the arms that keep it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from assay import FailureKind, Program, Role
from suites.dus_remat.formulas import StackArm
from suites.dus_remat.programs import stack_program
from suites.dus_remat.stacks import (
    Iteration,
    Next,
    Repeated,
    Stacks,
    StackSizes,
    write,
)
from suites.dus_remat.writes import plain


def turned_round(now: Iteration, stacks: Stacks) -> Next:
    """Turn the order of all rows round, and write the row at the front."""
    return (write(jnp.flip(stacks[0], axis=0), now.row, 0),), now.row


TURNED_ROUND = Repeated(step=turned_round)


def difference(sizes: StackSizes, stacks: Stacks, row: jax.Array, weight: jax.Array) -> Next:
    """How the loop changed its stack: both are alive after it, in the room of one."""
    after, row = Repeated(step=plain)(sizes, stacks, row, weight)
    return (after[0] - stacks[0],), row


def twin_arms(sizes: StackSizes) -> tuple[StackArm, ...]:
    """Programs that must break a claim; never tried by themselves."""
    program = partial(stack_program, sizes)
    wrong = partial(_one_row_wrong, partial(program, Repeated(step=plain), 1))
    twin = partial(StackArm, role=Role.TWIN, reference="plain")
    return (
        twin(name="twin-turned-round", program=partial(program, TURNED_ROUND, 1)),
        twin(name="twin-difference", program=partial(program, difference, 1)),
        twin(name="twin-one-row-wrong", program=wrong),
        twin(name="twin-does-not-trace", program=_does_not_trace, fails_with=FailureKind.TRACE),
        twin(name="twin-does-not-run", program=_does_not_run, fails_with=FailureKind.EXECUTION),
    )


def _one_row_wrong(build: Callable[[Sequence[Any]], Program], devices: Sequence[Any]) -> Program:
    right = build(devices)
    assert right.observe is not None
    return replace(right, observe=partial(_with_a_row_off, right.observe))


def _with_a_row_off(observe: Callable[..., Any], stack: jax.Array, *others: jax.Array) -> Any:
    seen = observe(stack, *others)
    wrong = jax.tree.map(lambda rows: rows.at[-1].multiply(1.001), seen["stacks"])
    return {**seen, "stacks": wrong}


def _does_not_trace(_devices: Sequence[Any]) -> Program:
    """A program whose shapes do not fit together."""

    def mismatched(x: jax.Array) -> jax.Array:
        return x + jnp.zeros(x.shape[0] + 1)

    return Program(function=mismatched, arguments=(jax.ShapeDtypeStruct((8,), jnp.float32),))


def _does_not_run(_devices: Sequence[Any]) -> Program:
    """A program that compiles, and fails when it runs."""

    def fails(x: jax.Array) -> jax.Array:
        return jax.pure_callback(_refuse, x, x)

    return Program(
        function=lambda x: x * 2,
        arguments=(jax.ShapeDtypeStruct((8,), jnp.float32),),
        values=lambda: (jnp.ones(8, jnp.float32),),
        observe=fails,
    )


def _refuse(_x: Any) -> Any:
    raise RuntimeError("this program must not run")
