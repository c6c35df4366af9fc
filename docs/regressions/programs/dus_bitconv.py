"""A row of bits is written into a stack of floats: https://github.com/openxla/xla/pull/30864."""

import jax
import jax.numpy as jnp
from jax import lax

LENGTH, ROW = 15, 1 << 20


def f(stack, row):
    def body(i, carry):
        stack, row = carry
        bits = lax.bitcast_convert_type(stack, jnp.uint32)
        row_bits = lax.bitcast_convert_type(row, jnp.uint32)
        bits = lax.dynamic_update_slice(bits, row_bits[None], (i, 0))
        return lax.bitcast_convert_type(bits, jnp.float32), jnp.sin(row)

    return lax.fori_loop(0, LENGTH, body, (stack, row))


def example_args():
    return (
        jax.ShapeDtypeStruct((LENGTH, ROW), jnp.float32),
        jax.ShapeDtypeStruct((ROW,), jnp.float32),
    )
