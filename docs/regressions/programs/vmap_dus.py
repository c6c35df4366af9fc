"""Stages under `vmap` write rows at different indices: https://github.com/jax-ml/jax/issues/17640."""

import jax
import jax.numpy as jnp
from jax import lax

ROWS, ROW = 15, (2, 64, 8, 16)


def update(stack, x):
    def write(stage, row, index):
        return lax.dynamic_update_index_in_dim(stage, row, index, 0)

    def body(i, carry):
        stack, x = carry
        x = jnp.tanh(x) * 1.01
        indices = (i + jnp.arange(ROW[0])) % ROWS
        write_all = jax.vmap(write, in_axes=(2, 0, 0), out_axes=2)
        return write_all(stack, x[:, None], indices), x

    return lax.fori_loop(0, ROWS, body, (stack, x))


f = jax.jit(update, donate_argnums=0)


def example_args():
    stack = jax.ShapeDtypeStruct((ROWS, 1, *ROW), jnp.float32)
    return stack, jax.ShapeDtypeStruct(ROW, jnp.float32)
