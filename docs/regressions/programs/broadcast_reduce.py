"""A sum over one axis of a product of rank 8: https://github.com/jax-ml/jax/issues/39257."""

import jax.numpy as jnp
import numpy as np


def f(observed, likelihoods):
    wide = observed[..., None, None, None, None, None]
    return jnp.log(jnp.sum(wide * likelihoods, axis=2))


def example_args():
    observed = np.ones((10, 4, 6), np.float32)
    return observed, np.ones((10, 4, 6, 9, 9, 9, 9, 9), np.float32)
