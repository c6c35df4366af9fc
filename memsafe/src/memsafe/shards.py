"""Which dimensions of which values lie on several devices, as far as the arguments tell.

A loop over such a dimension would fetch its slices from the other devices, so none is made; and a
value takes, on each device, only that device's part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jax.extend.core import Literal

from memsafe.jax_internals import scan_operands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax.extend.core import JaxprEqn, Var

    from memsafe.factors import Axis, Factor

__all__ = ["Parts", "body_parts", "factor_parts", "input_parts", "propagated"]

Parts = tuple[tuple[int, int], ...]
"""Of one array: (dimension, devices it is divided over), for each dimension that is divided."""


def input_parts(sharding: Any, shape: tuple[int, ...]) -> Parts:
    """How an argument of `shape` lies; nothing where it lies whole."""
    if sharding is None:
        return ()
    local = sharding.shard_shape(shape)
    pairs = enumerate(zip(shape, local, strict=True))
    return tuple((dim, whole // part) for dim, (whole, part) in pairs if part and whole > part)


def propagated(
    equation: JaxprEqn, factors: Sequence[Factor], known: dict[Var, Parts]
) -> dict[Var, Parts]:
    """How the results of `equation` lie, if each stays where its operands are."""
    found: dict[Var, dict[int, int]] = {}
    for factor in factors:
        parts = factor_parts(equation, factor, known)
        for value, axis in zip(equation.outvars, factor.results, strict=True):
            if axis is not None and parts > 1:
                found.setdefault(value, {})[axis.dim] = parts
    return {value: tuple(sorted(parts.items())) for value, parts in found.items()}


def factor_parts(equation: JaxprEqn, factor: Factor, known: dict[Var, Parts]) -> int:
    """Over how many devices the operands of `equation` are divided along `factor`."""
    pairs = zip(equation.invars, factor.operands, strict=True)
    return max((_along(atom, axis, known) for atom, axis in pairs), default=1)


def _along(atom: Var | Literal, axis: Axis | None, known: dict[Var, Parts]) -> int:
    if axis is None or isinstance(atom, Literal):
        return 1
    return dict(known.get(atom, ())).get(axis.dim, 1)


def body_parts(equation: JaxprEqn, known: dict[Var, Parts]) -> tuple[Parts, ...]:
    """How the arguments of the program that `equation` runs lie."""
    parts = [() if isinstance(a, Literal) else known.get(a, ()) for a in equation.invars]
    match equation.primitive.name:
        case "scan":
            fixed = sum(scan_operands(equation))
            rows = [tuple((dim - 1, n) for dim, n in each if dim) for each in parts[fixed:]]
            return (*parts[:fixed], *rows)
        case "while":
            return tuple(parts[equation.params["cond_nconsts"] :])
        case "cond":
            return tuple(parts[1:])
        case _:
            return ()
