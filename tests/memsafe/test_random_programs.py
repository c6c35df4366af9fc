"""memsafe on random programs: equal values within the budget, or a consistent BudgetError."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from jax import Array
from jax.extend.core import JaxprEqn

import memsafe
from memsafe import merges, rules
from memsafe.factors import Axis, Factor, Piece
from tests.memsafe.random_programs import Outcome, Program, differences, outcome_of, programs

pytestmark = pytest.mark.exhaustive

EXAMPLES = 12
"""Few, because ``python -m benchmarks.memsafe_programs`` looks for rare faults."""


def test_random_programs_keep_their_values_and_their_budgets() -> None:
    outcomes: list[Outcome] = []

    @settings(
        max_examples=EXAMPLES,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def holds(program: Program) -> None:
        outcome = outcome_of(program)
        outcomes.append(outcome)
        assert not outcome.faults

    holds()
    assert len(outcomes) >= EXAMPLES
    assert sum(outcome.split for outcome in outcomes) >= EXAMPLES // 6
    assert sum(outcome.refused for outcome in outcomes) <= EXAMPLES // 2


ATTENTION = Program(
    sizes=(127, 97, 5),
    steps=(("attended", 54), ("selected", 73)),
    seed=10,
    mode="plain",
    share=0.5,
)
"""It is split into slices that do not divide it, and decides by positions and by values."""


SORTED_AND_MADE_AGAIN = Program(
    sizes=(97, 96, 8),
    steps=(
        ("attended", 793),
        ("ordered", 291),
        ("scattered", 38),
        ("looped", 853),
        ("factored", 204),
    ),
    seed=986,
    mode="gradient",
    share=0.8,
)
"""Several loops compute one equation's results; only one result would be worth keeping."""


def test_of_an_equation_all_results_are_kept_or_none() -> None:
    assert outcome_of(SORTED_AND_MADE_AGAIN) == Outcome(split=True)


MADE_AGAIN_BY_XLA = Program(
    sizes=(150, 120, 5),
    steps=(("contracted", 857), ("accumulated", 40), ("normalised", 244)),
    seed=94,
    mode="gradient",
    share=0.48,
)
"""Ends with a maximum whose operand plain jit of jax 0.10 and 0.12 computes in several fusions."""


CHOSEN_AND_MADE_AGAIN = Program(
    sizes=(97, 96, 6),
    steps=(("contracted", 272), ("accumulated", 874)),
    seed=728,
    mode="gradient",
    share=0.4,
)
"""XLA 0.10 makes a number in two fusions, by one rounding or two; neither asks which is larger."""


CHAOTIC = Program(
    sizes=(127, 96, 5),
    steps=(("outer", 778), ("stepped", 491), ("reduced", 879), ("extremes", 515)),
    seed=672,
    mode="plain",
    share=0.8,
)
"""Each of 36 steps adds the cosine of a product of 508 numbers, so rounding errors grow.

Its results are the smallest values of its last state, and a mean that is independent of the steps.
"""


STENCILS = Program(
    sizes=(97, 64, 5),
    steps=(("outer", 197), ("stenciled", 721)),
    seed=87,
    mode="plain",
    share=0.2,
)
"""A program that is split with halos."""


def unmasked(operand: Array, *_: Any) -> Array:
    return operand


def at_zero(equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece) -> Any:
    return RIGHT["iota"].apply(equation, factor, operands, replace(piece, start=0 * piece.start))


def too_small(equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece) -> Any:
    results = RIGHT[equation.primitive.name].apply(equation, factor, operands, piece)
    return [result * (1 - 1e-7) for result in results]


RIGHT = rules.RULES


def test_a_program_that_the_controls_break_is_right_with_the_right_rules() -> None:
    assert outcome_of(ATTENTION) == Outcome(split=True)


def test_a_merge_that_forgets_its_mask_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merges, "masked", unmasked)
    assert any("wrong values" in fault for fault in outcome_of(ATTENTION).faults)


@pytest.mark.parametrize(("name", "apply"), [("iota", at_zero), ("exp", too_small)])
def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch, name: str, apply: Any) -> None:
    monkeypatch.setattr(rules, "RULES", {**RIGHT, name: replace(RIGHT[name], apply=apply)})
    assert any("wrong values" in fault for fault in outcome_of(ATTENTION).faults)


def test_a_program_of_stencils_is_right_with_its_halos() -> None:
    assert outcome_of(STENCILS) == Outcome(split=True)


def test_a_halo_that_is_off_by_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(axis: Axis, piece: Piece) -> Array:
        return piece.start * axis.block - axis.before + axis.has_halo

    monkeypatch.setattr(Axis, "first", late)
    assert any("wrong values" in fault for fault in outcome_of(STENCILS).faults)


def test_a_derivative_does_not_hang_on_the_rounding_of_the_larger_of_two() -> None:
    assert outcome_of(CHOSEN_AND_MADE_AGAIN) == Outcome(split=True)


def test_memsafe_is_not_held_against_plain_jit_where_that_is_wrong() -> None:
    assert not outcome_of(MADE_AGAIN_BY_XLA).faults


def test_a_wrong_rule_is_found_where_plain_jit_is_wrong_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "RULES", {**RIGHT, "iota": replace(RIGHT["iota"], apply=at_zero)})
    assert any("wrong values" in fault for fault in outcome_of(MADE_AGAIN_BY_XLA).faults)


def test_what_rounding_decides_is_no_fault() -> None:
    assert outcome_of(CHAOTIC) == Outcome(split=True, ill_conditioned=True)


def test_a_wrong_rule_is_found_where_rounding_decides_another_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        rules, "RULES", {**RIGHT, "rsqrt": replace(RIGHT["rsqrt"], apply=too_small)}
    )
    assert any("result 1" in fault for fault in outcome_of(CHAOTIC).faults)


@pytest.mark.parametrize("wanted", [np.nan, np.inf, -np.inf])
def test_nothing_equals_what_is_no_number(wanted: float) -> None:
    for got in (0.0, wanted):
        assert differences([np.array([got, 1.0])], [np.array([wanted, 1.0])])
    assert not differences([np.ones(2)], [np.ones(2)])


def test_a_budget_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memsafe, "memsafe", lambda function, _: function)
    assert any("over budget" in fault for fault in outcome_of(ATTENTION).faults)
