"""Properties of a program that the tests of rewrites read."""

import math
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from memsafe.programs import flattened


def program(function: Any, *arguments: Any) -> ClosedJaxpr:
    return flattened(jax.make_jaxpr(function)(*arguments))


def normal(*shape: int) -> np.ndarray:
    """Small normal numbers, drawn with the number of dimensions as the seed."""
    return 0.3 * np.random.default_rng(len(shape)).standard_normal(shape)


def outputs(closed: ClosedJaxpr, *arguments: Any) -> list[np.ndarray]:
    """Results, computed equation by equation, so that no compiler makes two programs equal."""
    return [np.asarray(out) for out in jaxpr_as_fun(closed)(*arguments)]


def same_bits(first: ClosedJaxpr, second: ClosedJaxpr, *arguments: Any) -> bool:
    pairs = zip(outputs(first, *arguments), outputs(second, *arguments), strict=True)
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs) and (
        first.out_avals == second.out_avals
    )


def names(closed: ClosedJaxpr) -> list[str]:
    return [equation.primitive.name for equation in closed.jaxpr.eqns]


def reshapes(closed: ClosedJaxpr) -> list[int]:
    """Number of elements of each reshape or squeeze."""
    return [
        equation.outvars[0].aval.size
        for equation in closed.jaxpr.eqns
        if equation.primitive.name in ("reshape", "squeeze")
    ]


def largest(closed: ClosedJaxpr) -> tuple[int, ...]:
    """The shape of the largest intermediate."""
    shapes = [out.aval.shape for equation in closed.jaxpr.eqns for out in equation.outvars]
    return max(shapes, key=math.prod)


def flops(closed: ClosedJaxpr) -> int:
    """Floating-point operations of all products."""
    total = 0
    for equation in closed.jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (inner, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2 * equation.outvars[0].aval.size * math.prod(shape[dim] for dim in inner)
    return total
