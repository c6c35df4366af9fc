"""A loop writes one number per iteration: https://github.com/jax-ml/jax/issues/40101."""

import time
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

SHORT, LONG, REPETITIONS = 2_500, 100_000, 5


@partial(jax.jit, static_argnums=0)
def fill(length, x):
    def body(i, array):
        return array.at[i + 1].set(0.5 * array[i] + 1.0)

    return lax.fori_loop(0, length, body, jnp.zeros(length + 1).at[0].set(x))


def seconds_per_write(length):
    fill(length, 1.0).block_until_ready()
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        fill(length, 1.0).block_until_ready()
        times.append(time.perf_counter() - start)
    return min(times) / length


def f():
    """The time of one write in a long array over that in a short one."""
    return round(seconds_per_write(LONG) / seconds_per_write(SHORT), 1)
