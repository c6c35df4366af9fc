"""A keyword argument is named `f`: https://github.com/jax-ml/jax/issues/25329."""

import jax
import jax.numpy as jnp


def scale(x, f):
    return x * f


def f(x):
    return jax.jit(scale)(x, f=2.0)


def example_args():
    return (jnp.float32(1.0),)
