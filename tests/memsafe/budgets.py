"""Programs with a matrix of pairs that no budget here has room for, and assertions about them."""

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
    """Replaces `numbers` of the `DeviceModel` that memsafe uses for CPUs."""
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
    """The points after a step; XLA's CPU compiler stores the matrix of pairs."""
    return jnp.tanh(x + (pairs(x) @ x[:, 0])[:, None])


def balanced(x: Array) -> Array:
    """Scales columns and rows of the pairs in turn, by sums that no slice can compute alone."""
    k = pairs(x)
    k = k / k.sum(0)
    k = k / k.sum(1)[:, None]
    return jnp.sum(k / k.sum(0))


def energy(x: Array, v: Array) -> Array:
    return jnp.sum(jnp.tanh(product(x, v)) * v)


def peak_bytes(function: Callable[..., Any], *arguments: Any) -> int:
    """Bytes that the compiler reports for a function, plus the most that libraries hold."""
    return compiled_bytes(jax.jit(function).lower(*arguments).compile())


def compiled_bytes(compiled: jax.stages.Compiled) -> int:
    """Bytes of a compiled program, like `peak_bytes`."""
    taken = compiled.memory_analysis()
    return int(
        taken.temp_size_in_bytes
        + taken.argument_size_in_bytes
        + taken.output_size_in_bytes
        - taken.alias_size_in_bytes
        + held_bytes(compiled)
    )


def held_bytes(compiled: jax.stages.Compiled) -> int:
    """The most bytes that libraries hold at once while a compiled program runs."""
    (module,) = compiled_modules(compiled)
    return library_bytes(module)


def in_libraries(function: Callable[..., Any], *arguments: Any) -> int:
    return held_bytes(jax.jit(function).lower(*arguments).compile())


def assert_same(got: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    """Asserts equal trees, types, shapes, and values up to `tolerance` times the largest value."""
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert (one.dtype, one.shape, one.weak_type) == (other.dtype, other.shape, other.weak_type)
        most = float(np.max(np.abs(np.asarray(other, float)), initial=0))
        np.testing.assert_allclose(
            np.asarray(one, float), np.asarray(other, float), rtol=0, atol=tolerance * most
        )


def safe(function: Callable[..., Any], **options: Any) -> Staged[..., Any]:
    return memsafe.memsafe(function, ROOM, **options)
