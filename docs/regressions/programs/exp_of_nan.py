"""The exponential of NaN in float64: https://github.com/jax-ml/jax/issues/29537."""

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)


def f(x):
    return jnp.exp(x * jnp.nan)


def example_args():
    return (np.float64(0.123),)
