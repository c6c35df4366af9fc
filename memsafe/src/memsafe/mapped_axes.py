"""The axes of `shard_map` that values vary over; types name them where jax checks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jax import Array

__all__ = ["barrier", "varying", "varying_axes", "varying_like"]


def varying_like(value: Array, other: Any) -> Array:
    """`value`, varying over all the mapped axes of `shard_map` that `other` varies over."""
    return varying(value, varying_axes(other))


def varying(value: Array, axes: Iterable[str]) -> Array:
    """`value`, varying over these `axes` of `shard_map` as well."""
    missing = set(axes) - varying_axes(value)
    if not missing:
        return value
    found: Array = jax.lax.pcast(value, tuple(sorted(missing)), to="varying")
    return found


def varying_axes(value: Any) -> frozenset[str]:
    """The mapped axes of `shard_map` that an array, or its type, varies over."""
    aval = jax.typeof(value) if hasattr(value, "aval") else value
    axes = getattr(aval, "manual_axis_type", None)
    return frozenset(() if axes is None else axes.varying)


def barrier(values: Sequence[Array]) -> list[Array]:
    """`values`, with one `optimization_barrier` for all that vary over the same axes.

    One barrier for all values would make every value vary over the axes of all others.
    """
    found = list(values)
    axes = [varying_axes(value) for value in values]
    for each in dict.fromkeys(axes):
        places = [at for at, own in enumerate(axes) if own == each]
        held = jax.lax.optimization_barrier([values[at] for at in places])
        for at, value in zip(places, held, strict=True):
            found[at] = value
    return found
