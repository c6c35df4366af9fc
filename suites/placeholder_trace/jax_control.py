"""The same in JAX, which traces on abstract values: no transfer is allowed while it does."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import SingleDeviceSharding

from assay import Program
from suites.placeholder_trace.sizes import JaxSizes

Weights = Mapping[str, jax.Array]


def layer(x: jax.Array, weights: Weights) -> jax.Array:
    """Attention and a perceptron, without biases and norms."""
    query, key, value = (x @ weights[name] for name in ("query", "key", "value"))
    scores = query @ jnp.swapaxes(key, -1, -2) * query.shape[-1] ** -0.5
    x = x + jax.nn.softmax(scores, -1) @ value @ weights["projection"]
    return x + jax.nn.gelu(x @ weights["up"]) @ weights["down"]


def in_a_loop(weights: Weights, x: jax.Array) -> jax.Array:
    """Each layer by itself."""
    for number in range(weights["query"].shape[0]):
        x = layer(x, {name: stack[number] for name, stack in weights.items()})
    return x


def scanned(weights: Weights, x: jax.Array) -> jax.Array:
    """``lax.scan`` over the stacks."""
    return lax.scan(lambda carry, own: (layer(carry, own), None), x, weights)[0]


def scanned_after_data(weights: Weights, x: jax.Array) -> jax.Array:
    """Traces the layer on real arrays first, as PyTorch/XLA's ``scan`` once did."""
    with jax.ensure_compile_time_eval():
        fakes = {name: jnp.ones(stack.shape[1:]) for name, stack in weights.items()}
        layer(jnp.ones(x.shape), fakes)
    return scanned(weights, x)


def scanned_in_three(weights: Weights, x: jax.Array) -> jax.Array:
    """Three scans, one after the other: the layer is traced three times as often."""
    for part in range(3):
        x = scanned({name: stack[part::3] for name, stack in weights.items()}, x)
    return x


_WAYS: Mapping[str, Callable[[Weights, jax.Array], jax.Array]] = {
    "loop": in_a_loop,
    "scan": scanned,
    "data": scanned_after_data,
    "in three": scanned_in_three,
}


def jax_program(way: str, sizes: JaxSizes, devices: Sequence[Any]) -> Program:
    """Loss and gradients, traced where even a transfer that is asked for is an error."""
    count, width = sizes.layers, sizes.width
    square, wide = (count, width, width), (count, width, 4 * width)
    shapes = dict.fromkeys(("query", "key", "value", "projection"), square)
    shapes |= {"up": wide, "down": (count, 4 * width, width)}
    weights = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    x = jax.ShapeDtypeStruct((sizes.batch, sizes.sequence, width), jnp.float32)
    return Program(
        function=jax.value_and_grad(partial(_loss, _WAYS[way])),
        arguments=(weights, x),
        in_shardings=SingleDeviceSharding(devices[0]),
        context=partial(jax.transfer_guard, "disallow_explicit"),
    )


def _loss(
    apply: Callable[[Weights, jax.Array], jax.Array], weights: Weights, x: jax.Array
) -> jax.Array:
    result = apply(weights, x)
    return (result * result).mean()
