"""A loop reads a donated array between two updates: https://github.com/openxla/xla/issues/45912."""

import jax
import jax.numpy as jnp
from jax import lax

LENGTH = 1 << 22


def update(x):
    middle = jnp.exp(x)

    def body(i, total):
        return total + middle[i * (LENGTH // 8)]

    return middle * lax.fori_loop(0, 8, body, jnp.float32(0))


f = jax.jit(update, donate_argnums=0)


def example_args():
    return (jax.ShapeDtypeStruct((LENGTH,), jnp.float32),)
