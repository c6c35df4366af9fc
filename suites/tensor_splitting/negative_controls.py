"""Programs that must fail a claim: each is run beside the variants that pass it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from assay import FailureKind, Program, Role, Variant
from suites.failing import failing_controls
from suites.tensor_splitting.problems import Function, Problem, array
from suites.tensor_splitting.variants import PLAIN, Tried, Write, by, plainly, program

_MORE_THAN_ANY_DEVICE_BYTES = 2**43
_ROW = 2**20
_FEWEST_ROWS = 16
"""A loop over one row stores nothing, because XLA unrolls it (CPU, jax 0.10.2)."""

_F32_BYTES = 4


def negative_control_variants(tried: Tried) -> tuple[Variant, ...]:
    """Variants that must fail a claim; they never run by themselves."""
    negative_control = partial(Variant, role=Role.NEGATIVE_CONTROL, reference=PLAIN)
    ways: dict[str, Write] = {name: partial(by, name) for name in tried.problem().ways}
    slowed = {PLAIN: plainly, **ways}
    return (
        negative_control(
            name="negative-oversized",
            program=partial(_holding, tried, _MORE_THAN_ANY_DEVICE_BYTES),
            fails_with=FailureKind.OUT_OF_MEMORY,
        ),
        negative_control(
            name="negative-over-budget",
            program=partial(_holding, tried, tried.budget_bytes + _ROW),
        ),
        *(
            negative_control(
                name=f"negative-slow-{name}",
                program=partial(program, tried, partial(_twice, write)),
            )
            for name, write in slowed.items()
        ),
        negative_control(name="negative-wrong-value", program=partial(_wrong_value, tried)),
        *failing_controls(negative_control),
    )


def _holding(tried: Tried, nbytes: int, devices: Sequence[Any]) -> Program:
    """A program that keeps at least `nbytes` of temporaries on each device of the problem."""
    row = min(_ROW, nbytes // (_FEWEST_ROWS * _F32_BYTES))
    rows = -(-nbytes // (row * _F32_BYTES))

    def hold(x: jax.Array) -> jax.Array:
        # One loop stores the rows, another reads them in reverse: no compiler fuses the two.
        last, stored = lax.scan(lambda row, _: (jnp.sin(row), row), x, length=rows)
        return lax.scan(lambda total, row: (total + row, None), last, stored, reverse=True)[0]

    problem = tried.problem()
    specs = (PartitionSpec(),) if problem.specs else ()
    held = replace(problem, plain=hold, arguments=(array(row),), specs=specs)
    return program(replace(tried, problem=lambda: held, executed=False), plainly, devices)


def _twice(write: Write, problem: Problem, devices: Sequence[Any]) -> Function:
    """The program that runs twice; the second arguments depend on the first results."""
    once = write(problem, devices)

    def run(*arguments: Any) -> Any:
        first = sum(leaf.sum() for leaf in jax.tree.leaves(once(*arguments)))
        again = jax.tree.map(lambda leaf: leaf + jnp.asarray(0 * first, leaf.dtype), arguments)
        return once(*again)

    return run


def _wrong_value(tried: Tried, devices: Sequence[Any]) -> Program:
    right = program(tried, plainly, devices)
    assert right.observe is not None
    return replace(right, function=None, observe=partial(_off_by_a_little, right.observe))


def _off_by_a_little(observe: Callable[..., Any], *arguments: Any) -> Any:
    return jax.tree.map(
        lambda leaf: leaf * 1.001 if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf,
        observe(*arguments),
    )
