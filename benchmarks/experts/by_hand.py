"""Techniques of an expert that avoid large arrays: blocks, sums of blocks, checkpoints."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from math import isqrt
from typing import Any, Final

import jax  # noqa: TID251 — what is measured here is JAX itself.
import jax.numpy as jnp  # noqa: TID251
from jax import lax  # noqa: TID251

from suites.tensor_splitting.problems import Function

Step = Callable[[Any, Any], tuple[Any, Any]]
Wrap = Callable[[Function], Function]

POLICIES: Final[Mapping[str, Wrap]] = {
    name.replace("_", "-"): partial(jax.checkpoint, policy=getattr(jax.checkpoint_policies, name))
    for name in (
        "nothing_saveable",
        "dots_saveable",
        "dots_with_no_batch_dims_saveable",
        "everything_saveable",
    )
}
"""Policies for the values that a block keeps for its gradient, from nothing to everything."""


def by_policies(build: Callable[[Wrap], Function]) -> dict[str, Function]:
    """A program for each policy: ``build`` makes it with that policy around its block."""
    return {name: build(wrap) for name, wrap in POLICIES.items()}


def in_blocks(function: Function, rows: int, *batched: Any) -> Any:
    """The results of ``function``, called on ``rows`` rows at a time, recomputed for gradients."""
    made = lax.map(lambda some: jax.checkpoint(function)(*some), _cut(rows, batched))
    return jax.tree.map(lambda each: each.reshape(-1, *each.shape[2:]), made)


def summed(function: Function, rows: int, *batched: Any) -> Any:
    """The sum of ``function`` over blocks of ``rows`` rows, recomputed for gradients."""
    blocks = _cut(rows, batched)
    start = jax.tree.map(
        lambda each: jnp.zeros(each.shape, each.dtype),
        jax.eval_shape(function, *jax.tree.map(lambda each: each[0], blocks)),
    )

    def add(total: Any, some: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, jax.checkpoint(function)(*some)), None

    return lax.scan(add, start, blocks)[0]


def _cut(rows: int, batched: Any) -> Any:
    return jax.tree.map(lambda each: each.reshape(-1, rows, *each.shape[1:]), batched)


def plain_loop(step: Step, start: Any, given: Any, steps: int) -> Any:
    """The last carry of a scan."""
    return lax.scan(step, start, given, length=steps)[0]


def remat_loop(step: Step, start: Any, given: Any, steps: int) -> Any:
    """The last carry of a scan whose gradient keeps only the carry of each step."""
    return lax.scan(jax.checkpoint(step), start, given, length=steps)[0]


def nested_loop(step: Step, start: Any, given: Any, steps: int) -> Any:
    """The last carry of a scan with checkpoints around each of about √T segments and each step."""
    inner = next(each for each in range(isqrt(steps), 0, -1) if steps % each == 0)
    segments = jax.tree.map(lambda each: each.reshape(-1, inner, *each.shape[1:]), given)

    @jax.checkpoint
    def segment(carry: Any, some: Any) -> tuple[Any, None]:
        return remat_loop(step, carry, some, inner), None

    return lax.scan(segment, start, segments, length=steps // inner)[0]


def equinox_loop(step: Step, start: Any, given: Any, steps: int) -> Any:
    """The last carry of equinox's scan, which diffrax's adjoints use, with √T checkpoints."""
    from equinox.internal import scan

    made = scan(
        step, start, given, length=steps, kind="checkpointed", checkpoints=max(isqrt(steps), 1)
    )
    return made[0]


Loop = Callable[[Step, Any, Any, int], Any]


def loops() -> dict[str, Loop]:
    """Each way to checkpoint a loop; equinox's only if equinox is installed."""
    found: dict[str, Loop] = {"nested": nested_loop, "remat": remat_loop}
    if find_spec("equinox"):
        found["equinox"] = equinox_loop
    return found
