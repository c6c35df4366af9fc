"""A small matrix times many rows, then a sum: https://github.com/jax-ml/jax/issues/39103."""

import jax
import jax.numpy as jnp
import numpy as np

ROWS = 32_769


def f(x):
    matrix = jnp.eye(3, dtype=jnp.float32)
    return jax.vmap(lambda row: jnp.sum((matrix @ row) ** 2))(x)


def example_args():
    x = np.zeros((ROWS, 3), np.float32)
    x[:, 0] = np.arange(ROWS)
    return (x,)
