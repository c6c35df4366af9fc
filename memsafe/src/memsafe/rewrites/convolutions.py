"""Convolutions with their dimensions in the order that XLA's CPU compiler computes fast in loops.

The compiler passes a convolution to a library if images are ordered as batch, space, features and
kernels as space, input features, output features. It transposes others only outside of loops (its
pass `ConvCanonicalization` is for top-level convolutions, jax-ml/jax#12868). JAX's derivatives of
convolutions have other orders, so in a loop over slices XLA's own loops compute them, slowly.

Times in a loop, relative to the order as written, of kernels and images of 3 × 3, 1 × 1 and strides
of 2: 0.05 to 0.25 in f32 and bf16, 0.06 to 0.97 in f64. For convolutions in three dimensions and
transposed convolutions: 0.3 to 0.8, in f64 up to 1.11. Outside of loops: 0.7 to 1.7, because XLA
transposes them there itself. Derivatives by images with a kernel for each feature take 1.8 times as
long, so convolutions with groups of features are not changed (2 cores, jax 0.10.2, 2026-11-27).

Derivatives by the kernels of these are convolutions with groups of images. They get groups of
features instead, and one more dimension of space, which holds their input features: the images of
the convolution that is differentiated. In a loop over 8 images of 64 × 64 × 32, with a kernel of 7
× 7 for each feature, that takes 0.14 times the time as written; outside of a loop 1.6 times (f32, 2
cores, jax 0.10.2, 2026-11-29).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import lax

from memsafe.jax_internals import bind
from memsafe.rewrites.rewritten import Change, Rewritten, applied, noted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.programs import Read

__all__ = ["ordered_convolutions"]

_MOST_SPACE = 3
"""Maximum number of dimensions of space that the library takes."""


def ordered_convolutions(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with operands and results of convolutions transposed; sums may round differently."""
    changes = {}
    for index, equation in enumerate(closed.jaxpr.eqns):
        if _is_out_of_order(equation):
            note = noted(equation, "dimensions of a convolution in the order of the CPU's library")
            changes[index] = Change(replacement=partial(_ordered, equation), note=note)
        elif _has_groups_of_images(equation):
            note = noted(equation, "images of a convolution as a dimension of space, for a library")
            changes[index] = Change(replacement=partial(_in_space, equation), note=note)
    return applied(closed, changes)


def _is_out_of_order(equation: JaxprEqn) -> bool:
    if equation.primitive.name != "conv_general_dilated":
        return False
    params = equation.params
    if params["batch_group_count"] != 1 or params["feature_group_count"] != 1:
        return False
    return params.get("out_sharding") is None and params["dimension_numbers"] != _order(equation)


def _order(equation: JaxprEqn) -> lax.ConvDimensionNumbers:
    """The order that the library takes, for a convolution of the equation's rank."""
    return _order_of(len(equation.params["dimension_numbers"].lhs_spec))


def _order_of(rank: int) -> lax.ConvDimensionNumbers:
    """Images and results: batch, space, features. Kernels: space, input and output features."""
    image = (0, rank - 1, *range(1, rank - 1))
    return lax.ConvDimensionNumbers(image, (rank - 1, rank - 2, *range(rank - 2)), image)


def _has_groups_of_images(equation: JaxprEqn) -> bool:
    if equation.primitive.name != "conv_general_dilated":
        return False
    params = equation.params
    if params["batch_group_count"] == 1 or len(params["window_strides"]) == _MOST_SPACE:
        return False
    return params.get("out_sharding") is None


def _in_space(equation: JaxprEqn, read: Read) -> list[Array]:
    """The result of the convolution, computed with groups of features, not groups of images.

    A group of images becomes one input feature, and an input feature becomes an index of space.
    """
    params = equation.params
    asked, groups = params["dimension_numbers"], params["batch_group_count"]
    left, right = map(read, equation.invars)
    left = lax.transpose(left, asked.lhs_spec)
    left = jnp.moveaxis(left.reshape(groups, -1, *left.shape[1:]), 0, -1)
    right = lax.transpose(right, (*asked.rhs_spec[1:], asked.rhs_spec[0]))
    right = jnp.expand_dims(right, -2)
    changed = {
        **{each: (1, *params[each]) for each in ("window_strides", "lhs_dilation", "rhs_dilation")},
        "padding": ((0, 0), *params["padding"]),
        "dimension_numbers": _order_of(left.ndim),
        "feature_group_count": groups,
        "batch_group_count": 1,
    }
    (result,) = bind(equation, [left, right], {**params, **changed})
    result = jnp.squeeze(result, 1)
    return [_transposed(result, _order_of(result.ndim).out_spec, asked.out_spec)]


def _ordered(equation: JaxprEqn, read: Read) -> list[Array]:
    asked, wanted = equation.params["dimension_numbers"], _order(equation)
    left, right = map(read, equation.invars)
    left = _transposed(left, asked.lhs_spec, wanted.lhs_spec)
    right = _transposed(right, asked.rhs_spec, wanted.rhs_spec)
    params = {**equation.params, "dimension_numbers": wanted}
    (result,) = bind(equation, [left, right], params)
    return [_transposed(result, wanted.out_spec, asked.out_spec)]


def _transposed(array: Array, before: Sequence[int], after: Sequence[int]) -> Array:
    """`array`, transposed so that its dimensions `before` become the dimensions `after`."""
    places = dict(zip(after, before, strict=True))
    order = [places[dim] for dim in range(array.ndim)]
    return array if order == sorted(order) else lax.transpose(array, order)
