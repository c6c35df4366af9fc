"""Programs over images, volumes and time: networks of convolutions, waves, equations of motion."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax  # noqa: TID251 — what is measured here is JAX itself.
import jax.numpy as jnp  # noqa: TID251
import numpy as np
from jax import lax  # noqa: TID251

from benchmarks.experts.by_hand import Loop, loops, plain_loop, remat_loop, summed
from suites.tensor_splitting.loops import LoopSizes, layers_problem, recurrent_problem
from suites.tensor_splitting.problems import Function, Problem, array, normal

Weights = dict[str, Any]


def _problem(loss: Function, ways: dict[str, Function], *arguments: Any) -> Problem:
    def values() -> tuple[Any, ...]:
        generator = np.random.default_rng(0)
        weights, *others = arguments
        return normal(generator, weights, 0.1), *(normal(generator, each) for each in others)

    return Problem(
        plain=jax.value_and_grad(loss),
        ways={name: jax.value_and_grad(way) for name, way in ways.items()},
        arguments=arguments,
        values=values,
    )


def _by_loops(loss: Callable[..., jax.Array], *arguments: Any) -> Problem:
    """The problem of a loss that runs a loop; its ways checkpoint this loop."""
    ways: dict[str, Function] = {name: partial(loss, loop) for name, loop in loops().items()}
    return _problem(partial(loss, plain_loop), ways, *arguments)


def _convolved(x: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=numbers)


def resnet(blocks: int, batch: int, side: int, channels: int) -> Problem:
    """Residual blocks with batch norm; by hand: a checkpoint around each, in a scan or not."""

    def normalised(x: jax.Array) -> jax.Array:
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return (x - mean) * lax.rsqrt(variance + 1e-5)

    def block(weights: Weights, x: jax.Array) -> jax.Array:
        made = jax.nn.relu(normalised(_convolved(x, weights["first"])))
        return jax.nn.relu(x + normalised(_convolved(made, weights["second"])))

    def loss(block: Function, weights: list[Weights], x: jax.Array) -> jax.Array:
        for one in weights:
            x = block(one, x)
        return jnp.mean(x**2)

    def scanned(weights: list[Weights], x: jax.Array) -> jax.Array:
        stacked = jax.tree.map(lambda *each: jnp.stack(each), *weights)
        return jnp.mean(remat_loop(lambda x, w: (block(w, x), None), x, stacked, blocks) ** 2)

    kernel = array(3, 3, channels, channels)
    weights = [{"first": kernel, "second": kernel}] * blocks
    checkpointed = partial(loss, jax.checkpoint(block))
    ways: dict[str, Function] = {"checkpoint": checkpointed, "scan": scanned}
    return _problem(partial(loss, block), ways, weights, array(batch, side, side, channels))


def unet(batch: int, side: int, channels: int, rows: int) -> Problem:
    """A U-Net of three levels; by hand: a sum of the gradients of ``rows`` images at a time."""

    def twice(x: jax.Array, kernels: Any) -> jax.Array:
        for kernel in kernels:
            x = jax.nn.gelu(_convolved(x, kernel))
        return x

    def lost(weights: Weights, x: jax.Array) -> jax.Array:
        kept = []
        for kernels in weights["down"]:
            x = twice(x, kernels)
            kept.append(x)
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = twice(x, weights["middle"])
        for kernels, other in zip(weights["up"], reversed(kept), strict=True):
            x = jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)
            x = twice(jnp.concatenate([x, other], -1), kernels)
        return jnp.sum(x**2)

    def accumulated(weights: Weights, x: jax.Array) -> Any:
        return summed(partial(lost, weights), rows, x)

    def kernels(given: int, made: int) -> Any:
        return array(3, 3, given, made), array(3, 3, made, made)

    first, second, third = channels, 2 * channels, 4 * channels
    weights = {
        "down": [kernels(channels, first), kernels(first, second)],
        "middle": kernels(second, third),
        "up": [kernels(third + second, second), kernels(second + first, first)],
    }
    images = array(batch, side, side, channels)
    return _problem(lost, {"accumulated": accumulated}, weights, images)


def wave(steps: int, side: int) -> Problem:
    """The gradient of a wave's mean square by speed at each point: a leapfrog scan on a cube."""

    def loss(loop: Loop, speed: jax.Array, field: jax.Array) -> jax.Array:
        def step(state: Any, _: None) -> tuple[Any, None]:
            before, now = state
            padded = jnp.pad(now, 1)
            core = (slice(1, -1),) * 3
            laplacian = -6 * now
            for axis in range(3):
                for at in (slice(None, -2), slice(2, None)):
                    laplacian += padded[tuple(at if a == axis else core[a] for a in range(3))]
            return (now, 2 * now - before + 0.1 * (1 + speed) ** 2 * laplacian), None

        return jnp.mean(loop(step, (field, field), None, steps)[1] ** 2)

    return _by_loops(loss, array(side, side, side), array(side, side, side))


def neural_ode(steps: int, batch: int, width: int) -> Problem:
    """The gradients of a neural differential equation, by fixed Runge-Kutta steps."""

    def loss(loop: Loop, weights: Weights, x: jax.Array) -> jax.Array:
        def field(x: jax.Array) -> Any:
            return jnp.tanh(x @ weights["up"]) @ weights["down"]

        def step(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            first = field(x)
            second = field(x + 0.05 * first)
            third = field(x + 0.05 * second)
            fourth = field(x + 0.1 * third)
            return x + 0.1 / 6 * (first + 2 * second + 2 * third + fourth), None

        return jnp.mean(loop(step, x, None, steps) ** 2)

    weights = {"up": array(width, 2 * width), "down": array(2 * width, width)}
    return _by_loops(loss, weights, array(batch, width))


def perceptron(sizes: LoopSizes) -> Problem:
    """The gradients of a perceptron as a scan over its layers."""

    def loss(loop: Loop, weights: jax.Array, x: jax.Array) -> jax.Array:
        step = lambda x, w: (jnp.tanh(x @ w), None)  # noqa: E731 - a step
        return jnp.mean(loop(step, x, weights, sizes.steps) ** 2)

    return _beside(layers_problem(sizes), loss)


def recurrent(sizes: LoopSizes) -> Problem:
    """The gradients of a recurrent network over its sequences."""

    def loss(loop: Loop, weight: jax.Array, x: jax.Array) -> jax.Array:
        step = lambda state, row: (jnp.tanh(state @ weight + row), None)  # noqa: E731 - a step
        start = jnp.zeros((x.shape[0], x.shape[2]), x.dtype)
        return jnp.mean(loop(step, start, jnp.swapaxes(x, 0, 1), sizes.steps) ** 2)

    return _beside(recurrent_problem(sizes), loss)


def _beside(suite: Problem, loss: Callable[..., jax.Array]) -> Problem:
    """Gradients of a suite's problem; ways: a loop over the batch, checkpoints in its own loop."""
    by_hand = suite.ways["lax-map"]
    found = _by_loops(loss, *suite.arguments)
    of_rows = jax.value_and_grad(lambda *given: jnp.mean(by_hand(*given) ** 2))
    return replace(found, ways={"lax-map": of_rows, **found.ways})
