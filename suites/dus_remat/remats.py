"""Gradients of scanned layers under ``jax.checkpoint``: the stacks are autodiff's own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import SingleDeviceSharding

from assay import Program
from suites.dus_remat.stacks import StackSizes

PROJECTION = "out_proj"
Weights = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Remat:
    """One way to scan the microbatches: what is saved, and what is inside an iteration.

    ``save`` are the names that ``jax.checkpoint`` saves, None for no ``jax.checkpoint``. ``layers``
    above 1 scans that many layers inside each microbatch; ``stages`` above 0 passes the
    microbatches round a pipeline of that many stages, which collects its results in a carried
    stack, or with ``stacked_by_scan`` as the scan's own.
    """

    save: tuple[str, ...] | None = ()
    layers: int = 1
    stages: int = 0
    stacked_by_scan: bool = False

    @property
    def rows_an_iteration(self) -> int:
        """Rows of activations that one iteration saves under one name."""
        return max(self.layers, self.stages)

    def held_rows(self, length: int) -> int:
        """Rows that autodiff must keep: each iteration's inputs, what is saved, the results.

        A pipeline runs on until its last microbatch left the last stage; its results and their
        gradients are kept too. A scan inside an iteration stacks its own rows first.
        """
        stacks = 1 + len(self.save or ())
        iterations = length + max(self.stages - 1, 0)
        inner = self.layers * stacks if self.layers > 1 else 0
        results = 2 * length if self.stages else 0
        return stacks * iterations * self.rows_an_iteration + inner + results

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function under ``jax.checkpoint``, if it is wanted."""
        if self.save is None:
            return function
        policy = jax.checkpoint_policies.save_only_these_names(*self.save)
        return jax.checkpoint(function, policy=policy, prevent_cse=False)


def attention_like(x: jax.Array, weights: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Two products with a named projection, flattened as models do before they name it."""
    inner, outer = weights
    hidden = jax.nn.relu(jnp.einsum("bshd,de->bshe", x, inner))
    projected = jnp.einsum("bshe,ed->bshd", hidden, outer)
    named = checkpoint_name(projected.reshape(*x.shape[:2], -1), PROJECTION)
    return x + jnp.sin(named.reshape(x.shape))


def microbatches(remat: Remat, sizes: StackSizes, x: jax.Array, weights: Weights) -> jax.Array:
    """The sum over the row after all microbatches, one scan iteration each."""
    block = remat.wrap(attention_like)

    def microbatch(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        if remat.layers == 1:
            return block(x, weights), None
        stacked = jax.tree.map(lambda weight: jnp.stack([weight] * remat.layers), weights)
        return lax.scan(lambda x, layer: (block(x, layer), None), x, stacked)

    return jnp.sum(lax.scan(microbatch, x, None, length=sizes.length)[0])


def pipeline(remat: Remat, sizes: StackSizes, rows: jax.Array, weights: Weights) -> jax.Array:
    """A circular pipeline: each iteration shifts a microbatch in, and works on all stages."""

    def stage(x: jax.Array, weight: jax.Array) -> jax.Array:
        projected = checkpoint_name(jnp.einsum("bshd,de->bshe", x, weight), PROJECTION)
        return x + jnp.tanh(projected)

    stages = jax.vmap(remat.wrap(stage))
    delay = remat.stages - 1

    def iteration(state: tuple[jax.Array, jax.Array], i: jax.Array) -> Any:
        held, done = state
        entering = lax.dynamic_index_in_dim(rows, jnp.minimum(i, sizes.length - 1), 0)
        held = stages(jnp.concatenate([entering, held[:-1]]), weights)
        if remat.stacked_by_scan:
            return (held, done), held[-1]
        done = lax.dynamic_update_index_in_dim(done, held[-1], jnp.maximum(i - delay, 0), 0)
        return (held, done), None

    empty = jnp.zeros(() if remat.stacked_by_scan else rows.shape)
    start = (jnp.zeros((remat.stages, *sizes.row)), empty)
    (_, done), stacked = lax.scan(iteration, start, jnp.arange(sizes.length + delay))
    return jnp.mean((stacked[delay:] if remat.stacked_by_scan else done) ** 2)


def remat_program(sizes: StackSizes, remat: Remat, devices: Sequence[Any]) -> Program:
    """Loss and gradients of the scan, for one device."""
    loss = partial(pipeline if remat.stages else microbatches, remat, sizes)
    gradients = jax.value_and_grad(loss, argnums=1 if remat.stages else (0, 1))
    return Program(
        function=gradients,
        arguments=_shapes(sizes, remat),
        in_shardings=SingleDeviceSharding(devices[0]),
        values=partial(_values, sizes, remat) if sizes.executed else None,
        observe=gradients,
    )


def _shapes(sizes: StackSizes, remat: Remat) -> tuple[Any, ...]:
    f32 = partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    width = sizes.row[-1]
    if remat.stages:
        return f32((sizes.length, *sizes.row)), f32((remat.stages, width, width))
    return f32(sizes.row), (f32((width, width)), f32((width, width)))


def _values(sizes: StackSizes, remat: Remat) -> tuple[Any, ...]:
    generator = np.random.default_rng(0)
    rows, weights = jax.tree.map(
        lambda shape: generator.standard_normal(shape.shape, dtype=np.float32),
        _shapes(sizes, remat),
    )
    return rows, jax.tree.map(lambda weight: weight * np.float32(sizes.row[-1] ** -0.5), weights)
