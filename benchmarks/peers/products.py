"""The operations of a program's matrix products and convolutions, as torch counts them."""

import math
from collections.abc import Callable
from typing import Any

import jax  # noqa: TID251 — what is counted is written in JAX.
from jax.extend.core import jaxprs_in_params  # noqa: TID251


def products_of(function: Callable[..., Any], *arguments: Any) -> float:
    """Operations of matrix products and convolutions: 2 for each multiplication and addition.

    All steps of a ``scan`` count, one step of a ``while``, and the most expensive branch of a
    ``cond``. As in torch's ``FlopCounterMode``, the zeros that dilate the gradient of a strided
    convolution count nothing.
    """
    return _of_jaxpr(jax.make_jaxpr(function)(*arguments).jaxpr)


def _of_jaxpr(jaxpr: Any) -> float:
    return sum(map(_of_equation, jaxpr.eqns), 0.0)


def _of_equation(equation: Any) -> float:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        inner = math.prod(shape[dim] for dim in contracted)
        return 2.0 * equation.outvars[0].aval.size * inner
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval
        made = kernel.shape[params["dimension_numbers"].rhs_spec[0]]
        inner = kernel.size / made / math.prod(params["lhs_dilation"])
        return float(2.0 * equation.outvars[0].aval.size * inner)
    if name == "cond":
        return max(_of_jaxpr(branch.jaxpr) for branch in params["branches"])
    inner_jaxprs = jaxprs_in_params(params)
    return float(params.get("length", 1) * sum(map(_of_jaxpr, inner_jaxprs), 0.0))
