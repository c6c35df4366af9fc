"""A training step whose parameters are sharded over all devices, and each layer's are gathered.

As fully sharded data parallelism (FSDP, ZeRO-3) does it: a layer of the scan gathers its parameters
in the forward pass and, under remat, again in the backward pass, where their gradients are
scattered. The step is written with `jax.shard_map`, so that the program itself says what is sent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from assay import Program
from assay.frameworks.framework import Unsupported

_AXIS = "data"
_FEWEST = 2
_LEARNING_RATE = 1e-2

Gather = Callable[[jax.Array], jax.Array]
"""Gives a whole layer of the device's part of it, in the scan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Layers of f32[width, width], and a batch of f32[batch, width] over all devices."""

    layers: int
    batch: int
    width: int

    @property
    def layer_bytes(self) -> int:
        """One whole layer."""
        return self.width**2 * 4

    @property
    def activation_bytes(self) -> int:
        """The inputs of all layers, of the whole batch."""
        return self.layers * self.batch * self.width * 4


def gathered(weights: jax.Array) -> jax.Array:
    """The whole layer; the transpose of this scatters the sum of its gradients."""
    return jax.lax.all_gather(weights, _AXIS, axis=0, tiled=True)


def sharded(sizes: Sizes, devices: Sequence[Any]) -> Program:
    """Every device holds a part of each layer, and gathers one layer at a time."""
    return _program(sizes, devices, layer=gathered)


def stack_gathered(sizes: Sizes, devices: Sequence[Any]) -> Program:
    """Every layer gathers the whole stack to use one layer of it."""
    return _program(sizes, devices, whole_stack=True)


def replicated(sizes: Sizes, devices: Sequence[Any]) -> Program:
    """Every device holds all layers; only gradients are summed."""
    return _program(sizes, devices, is_sharded=False)


def unscaled(sizes: Sizes, devices: Sequence[Any]) -> Program:
    """The gradients of all devices are added up and not averaged."""
    return _program(sizes, devices, layer=gathered, averaged=False)


def _program(
    sizes: Sizes,
    devices: Sequence[Any],
    *,
    layer: Gather = lambda weights: weights,
    whole_stack: bool = False,
    is_sharded: bool = True,
    averaged: bool = True,
) -> Program:
    if len(devices) < _FEWEST:
        raise Unsupported(
            f"the step is sharded over the devices, and here is {len(devices)}; "
            f"use a target of {_FEWEST} or more, such as cpu:8"
        )
    mesh = Mesh(np.array(devices), (_AXIS,))
    params = PartitionSpec(None, _AXIS, None) if is_sharded else PartitionSpec()
    batch, scalar = PartitionSpec(_AXIS), PartitionSpec()

    def loss_of(params: jax.Array, inputs: jax.Array, targets: jax.Array) -> jax.Array:
        def block(x: jax.Array, weights: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            mine, index = weights
            if whole_stack:
                stack = jax.lax.all_gather(params, _AXIS, axis=1, tiled=True)
                return jnp.tanh(x @ stack[index]), None
            return jnp.tanh(x @ layer(mine)), None

        remat = jax.checkpoint(block, prevent_cse=False)
        outputs, _ = jax.lax.scan(remat, inputs, (params, jnp.arange(sizes.layers)))
        return jnp.mean((outputs - targets) ** 2)

    def step(params: jax.Array, inputs: jax.Array, targets: jax.Array) -> tuple[Any, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(params, inputs, targets)
        if not is_sharded:
            gradients = jax.lax.psum(gradients, _AXIS)
        scale = _LEARNING_RATE / (len(devices) if averaged else 1)
        return params - scale * gradients, jax.lax.pmean(loss, _AXIS)

    mapped = jax.shard_map(
        step,
        mesh=mesh,
        in_specs=(params, batch, batch),
        out_specs=(params, scalar),
        check_vma=False,
    )
    shardings = tuple(NamedSharding(mesh, each) for each in (params, batch, batch))
    return Program(
        function=mapped,
        arguments=shapes(sizes),
        in_shardings=shardings,
        out_shardings=(shardings[0], NamedSharding(mesh, scalar)),
        donate_argnums=(0,),
        values=partial(random_values, sizes),
        observe=mapped,
    )


def shapes(sizes: Sizes) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Parameters, inputs and targets."""
    f32 = partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    rows = f32((sizes.batch, sizes.width))
    return f32((sizes.layers, sizes.width, sizes.width)), rows, rows


def random_values(sizes: Sizes) -> tuple[Any, ...]:
    """Normal values of a fixed seed, weights scaled so that activations keep their size."""
    generator = np.random.default_rng(0)
    params, inputs, targets = (
        generator.standard_normal(each.shape, dtype=np.float32) for each in shapes(sizes)
    )
    return params * np.float32(sizes.width**-0.5), inputs, targets
