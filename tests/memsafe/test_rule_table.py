"""The table of all rules: one rule for each primitive, none for equations with effects."""

import jax.numpy as jnp
from jax import lax
from jax.extend.core import Jaxpr

from memsafe.rules import _TABLES, RULES, factors_of, rule_of

from .pieces import assert_stays_whole, last_equation


def test_no_two_modules_have_a_rule_of_the_same_primitive() -> None:
    assert len(RULES) == sum(map(len, _TABLES))


def test_an_equation_with_effects_stays_whole() -> None:
    equation = last_equation(lax.exp, jnp.ones(4)).equation
    assert len(factors_of(equation)) == 1
    assert factors_of(equation.replace(effects={Jaxpr})) == ()


def test_an_unknown_primitive_stays_whole() -> None:
    def product(x: jnp.ndarray) -> jnp.ndarray:
        return lax.ragged_dot(x, jnp.ones((2, 3, 5)), jnp.array([1, 3]))

    equation = last_equation(product, jnp.ones((4, 3)), primitive="ragged_dot_general").equation
    assert_stays_whole(product, jnp.ones((4, 3)), primitive="ragged_dot_general")
    assert rule_of(equation) is None
