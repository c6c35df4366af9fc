"""What memsafe knows of each primitive, in one table."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from memsafe.rules import (
    contractions,
    control_flow,
    convolutions,
    counters,
    elementwise,
    halos,
    indexing,
    linear_algebra,
    online,
    ordering,
    reductions,
    scatters,
    shapes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jax.extend.core import JaxprEqn

    from memsafe.factors import Factor, Rule

__all__ = ["RULES", "factors_of", "rule_of"]

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
    indexing.RULES,
    scatters.RULES,
    control_flow.RULES,
)

RULES: Mapping[str, Rule] = MappingProxyType(
    {name: rule for table in (*_TABLES, halos.RULES) for name, rule in table.items()}
)
"""The rule of each primitive, by the primitive's name."""


def rule_of(equation: JaxprEqn) -> Rule | None:
    """The rule of an equation's primitive, or None where it must stay whole."""
    return RULES.get(equation.primitive.name)


def factors_of(equation: JaxprEqn) -> tuple[Factor, ...]:
    """An equation's factors; none without a rule, or where the equation has effects."""
    rule = rule_of(equation)
    return () if rule is None or equation.effects else rule.factors(equation)
