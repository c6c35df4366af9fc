"""Programs with a matrix of pairs that no budget here has room for, and what is asked of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import memsafe
from memsafe import device_model
from memsafe.libraries import library_bytes
from memsafe.measure import compiled_modules
from memsafe.transform import Staged

COUNT = 256
ROOM = 200_000
"""Bytes: less than half of one matrix of pairs in doubles."""


def assume(monkeypatch: pytest.MonkeyPatch, **numbers: float) -> None:
    """Has memsafe take a CPU for another, which is faster or slower at something."""
    other = replace(device_model.CPU, **numbers)
    monkeypatch.setattr(device_model, "_BY_PLATFORM", {"cpu": other})


def points(count: int = COUNT) -> Array:
    return jnp.asarray(np.random.default_rng(0).standard_normal((count, 3)))


def weights(count: int = COUNT) -> Array:
    return jnp.asarray(np.random.default_rng(1).standard_normal(count))


def pairs(x: Array) -> Array:
    return jnp.exp(-((x[:, None] - x[None, :]) ** 2).sum(-1))


def product(x: Array, v: Array) -> Array:
    return pairs(x) @ v


def turned(x: Array) -> Array:
    """The points after a step; XLA's CPU compiler keeps the pairs for it."""
    return jnp.tanh(x + (pairs(x) @ x[:, 0])[:, None])


def balanced(x: Array) -> Array:
    """Rows and columns of pairs are scaled in turns, each by sums that no slice of it has alone."""
    k = pairs(x)
    k = k / k.sum(0)
    k = k / k.sum(1)[:, None]
    return jnp.sum(k / k.sum(0))


def energy(x: Array, v: Array) -> Array:
    return jnp.sum(jnp.tanh(product(x, v)) * v)


def peak_bytes(function: Callable[..., Any], *arguments: Any) -> int:
    """What the compiler reports, and the most that libraries hold besides."""
    return compiled_bytes(jax.jit(function).lower(*arguments).compile())


def compiled_bytes(compiled: jax.stages.Compiled) -> int:
    """The same of a compiled program."""
    taken = compiled.memory_analysis()
    return int(
        taken.temp_size_in_bytes
        + taken.argument_size_in_bytes
        + taken.output_size_in_bytes
        - taken.alias_size_in_bytes
        + held_bytes(compiled)
    )


def held_bytes(compiled: jax.stages.Compiled) -> int:
    """The most that libraries hold of a compiled program."""
    (module,) = compiled_modules(compiled)
    return library_bytes(module)


def in_libraries(function: Callable[..., Any], *arguments: Any) -> int:
    return held_bytes(jax.jit(function).lower(*arguments).compile())


def assert_same(got: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    """Holds where trees, types, shapes, and values to `tolerance` of the largest are equal."""
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert (one.dtype, one.shape, one.weak_type) == (other.dtype, other.shape, other.weak_type)
        most = float(np.max(np.abs(np.asarray(other, float)), initial=0))
        np.testing.assert_allclose(
            np.asarray(one, float), np.asarray(other, float), rtol=0, atol=tolerance * most
        )


def safe(function: Callable[..., Any], **options: Any) -> Staged[..., Any]:
    return memsafe.memsafe(function, ROOM, **options)
