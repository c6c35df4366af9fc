"""The JAX analogue of the minimal model: each group of callbacks is one call of a jitted function.

JAX keeps a program for each structure of arguments: for each group's shapes in their order.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np

from assay import Loop
from suites.fsdp_accumulation.callbacks import SHAPES, Plan

Arrays = dict[int, jax.Array]

_RATE = 0.1
_BATCH = 4


@jax.jit
def _loss_and_gradients(w: Arrays, batch: jax.Array) -> tuple[jax.Array, Arrays]:
    return jax.value_and_grad(_loss)(w, batch)


def _loss(w: Arrays, batch: jax.Array) -> jax.Array:
    hidden = jnp.tanh(jnp.tanh(batch @ w[0] + w[1]) @ w[2] + w[3])
    return jnp.mean(((hidden @ w[4].reshape(8, 32))[:, :4] + hidden @ w[5] + w[6]) ** 2)


@jax.jit
def _update_in_order(
    parameters: Sequence[jax.Array], gradients: Sequence[jax.Array]
) -> list[jax.Array]:
    return [p - _RATE * g for p, g in zip(parameters, gradients, strict=True)]


@jax.jit
def _update_by_name(parameters: Arrays, gradients: Arrays) -> Arrays:
    return {name: parameters[name] - _RATE * gradients[name] for name in parameters}


class _Steps:
    """A step for each plan, on a batch of its own."""

    def __init__(self, plans: Sequence[Plan], *, by_name: bool) -> None:
        generator = np.random.default_rng(0)
        draws = (0.1 * generator.standard_normal(s, dtype=np.float32) for s in SHAPES)
        self.parameters: Arrays = dict(enumerate(map(jnp.asarray, draws)))
        self._plans: Iterator[Plan] = cycle(plans)
        self._generator = generator
        self._by_name = by_name
        self._waiting: list[tuple[int, jax.Array]] = []

    def __call__(self) -> Mapping[str, jax.Array]:
        plan = next(self._plans)
        batch = self._generator.standard_normal((_BATCH, SHAPES[0][0]), dtype=np.float32)
        loss, gradients = _loss_and_gradients(self.parameters, batch)
        for arrived, number in enumerate(plan.order, 1):
            self._waiting.append((number, gradients[number]))
            if arrived in plan.flushes:
                self._flush()
        # A step's updates are its own: who times it must not find them in the next.
        jax.block_until_ready(self.parameters)
        return {"loss": loss}

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        numbers = [number for number, _ in waiting]
        if self._by_name:
            named = {number: self.parameters[number] for number in numbers}
            self.parameters |= _update_by_name(named, dict(waiting))
        else:
            listed = [self.parameters[number] for number in numbers]
            updated = _update_in_order(listed, [gradient for _, gradient in waiting])
            self.parameters |= dict(zip(numbers, updated, strict=True))


def build(plans: Sequence[Plan], *, by_name: bool) -> Loop:
    """The loop of these plans, one step each; ``by_name`` hands over each group as a dict."""
    steps = _Steps(plans, by_name=by_name)
    return Loop(step=steps, parameters={f"w{n}": each for n, each in steps.parameters.items()})
