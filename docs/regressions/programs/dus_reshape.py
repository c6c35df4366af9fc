"""A stack is updated through a reshape in a loop: https://github.com/jax-ml/jax/issues/17640."""

import jax
import jax.numpy as jnp
from jax import lax

ROWS, ROW = 15, (1, 2, 64, 8, 16)


def update(stack, x):
    def body(i, carry):
        stack, x = carry
        x = jnp.tanh(x) * 1.01
        view = stack.reshape(ROWS, -1)
        view = lax.dynamic_update_index_in_dim(view, x.reshape(-1), i, 0)
        return view.reshape(stack.shape), x

    return lax.fori_loop(0, ROWS, body, (stack, x))


f = jax.jit(update, donate_argnums=0)


def example_args():
    stack = jax.ShapeDtypeStruct((ROWS, *ROW), jnp.float32)
    return stack, jax.ShapeDtypeStruct(ROW, jnp.float32)
