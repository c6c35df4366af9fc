"""What memsafe knows of each primitive, in one table."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memsafe.jax_internals import has_effects
from memsafe.rules import (
    contractions,
    control_flow,
    convolutions,
    counters,
    counting,
    elementwise,
    halos,
    indexing,
    linear_algebra,
    online,
    ordering,
    philox,
    reductions,
    rolls,
    scatters,
    shapes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jax.extend.core import JaxprEqn

    from memsafe.factors import Axis, Factor, Rule

__all__ = [
    "LOCAL",
    "RULES",
    "factors_of",
    "has_halos",
    "rule_of",
    "tiles",
    "unshifted",
    "unshifted_factors_of",
    "wraps",
]

_TABLES = (
    elementwise.RULES,
    shapes.RULES,
    contractions.RULES,
    reductions.RULES,
    ordering.RULES,
    online.RULES,
    linear_algebra.RULES,
    convolutions.RULES,
    counters.RULES,
    counting.RULES,
    philox.RULES,
    rolls.RULES,
    indexing.RULES,
    scatters.RULES,
    control_flow.RULES,
)

RULES: Mapping[str, Rule] = MappingProxyType(
    {name: rule for table in (*_TABLES, halos.RULES) for name, rule in table.items()}
)
"""The rule of each primitive, by the primitive's name."""


LOCAL = frozenset(
    name
    for table in (
        elementwise.RULES,
        shapes.RULES,
        contractions.RULES,
        reductions.RULES,
        convolutions.RULES,
        halos.RULES,
        rolls.RULES,
    )
    for name in table
)
"""Primitives whose pieces may have halos, even beyond the ends of the arrays."""


def rule_of(equation: JaxprEqn) -> Rule | None:
    """The rule of an equation's primitive, or None where it must stay whole."""
    return RULES.get(equation.primitive.name)


def factors_of(equation: JaxprEqn) -> tuple[Factor, ...]:
    """An equation's factors; none without a rule, or where the equation has effects."""
    rule = rule_of(equation)
    return () if rule is None or has_effects(equation) else rule.factors(equation)


def has_halos(equation: JaxprEqn) -> bool:
    """Whether a piece may be computed with a halo."""
    return equation.primitive.name in LOCAL


def wraps(equation: JaxprEqn, factor: Factor) -> bool:
    """Whether results wrap around at their ends along a factor, if the operands do."""
    if not has_halos(equation) or equation.primitive.name == "iota":
        return False
    pairs = [*zip(equation.invars, factor.operands, strict=True)]
    pairs += zip(equation.outvars, factor.results, strict=True)
    return all(axis is None or axis.wraps or tiles(atom, factor, axis) for atom, axis in pairs)


def unshifted_factors_of(equation: JaxprEqn) -> tuple[Factor, ...]:
    """An equation's factors after `unshifted`, without those with a merge that it changes."""
    found = ((factor, unshifted(equation, factor)) for factor in factors_of(equation))
    return tuple(even for factor, even in found if even == factor or even.merge is None)


def unshifted(equation: JaxprEqn, factor: Factor) -> Factor:
    """`factor`, with each operand whole that its pieces do not tile (see `tiles`)."""
    operands = zip(equation.invars, factor.operands, strict=True)
    kept = tuple(axis if axis and tiles(atom, factor, axis) else None for atom, axis in operands)
    return factor if kept == factor.operands else replace(factor, operands=kept)


def tiles(atom: Any, factor: Factor, axis: Axis) -> bool:
    """Whether the pieces of an array lie side by side and cover the whole array."""
    return not axis.has_halo and atom.aval.shape[axis.dim] == factor.size * axis.block
