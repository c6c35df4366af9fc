"""The views through which models write a stack."""

import jax
import jax.numpy as jnp
from jax import lax

from suites.dus_remat.stacks import StackSizes, View


def _whole(sizes: StackSizes, view: jax.Array) -> jax.Array:
    return view.reshape(sizes.stack)


def _turned(_sizes: StackSizes, stack: jax.Array) -> jax.Array:
    return stack.transpose()


SQUEEZED = View(
    there=lambda sizes, stack: stack.reshape(sizes.length, *sizes.row),
    back=_whole,
)
"""Upstream's: ``[15,1,2,2048,48,128]`` carried, ``[15,2,2048,48,128]`` written."""

FLAT = View(there=lambda sizes, stack: stack.reshape(sizes.length, -1), back=_whole)
"""One axis for a row."""

TURNED = View(there=_turned, back=_turned)
"""All axes in reverse."""

BITS = View(
    there=lambda _, stack: lax.bitcast_convert_type(stack, jnp.int32),
    back=lambda _, bits: lax.bitcast_convert_type(bits, jnp.float32),
)
"""The same bytes as integers."""

FENCED = View(
    there=lambda sizes, stack: lax.optimization_barrier(SQUEEZED.there(sizes, stack)),
    back=lambda sizes, view: SQUEEZED.back(sizes, lax.optimization_barrier(view)),
)
"""Upstream's view, fenced off so that nothing is simplified across it."""

HALVES = View(
    there=lambda sizes, stack: stack.reshape(
        sizes.length, sizes.row[0] * sizes.row[1], sizes.row[2] * sizes.row[3]
    ),
    back=_whole,
)
"""Two axes for a row, as a model flattens its batch and its heads."""
