"""Failures of a compiler for other reasons than the size of a program."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import pytest

import memsafe
from memsafe import fit as fitting
from memsafe import measure as measuring
from tests.memsafe.budgets import ROOM, assert_same, energy, points, safe, weights

pytestmark = pytest.mark.usefixtures("doubles")


def as_written(program: Any) -> bool:
    return getattr(program, "func", None) is fitting._as_written


def failing_at(
    monkeypatch: pytest.MonkeyPatch,
    fails: Callable[[Any], bool],
    times: float = 1.0,
    told: str = "INTERNAL: no output tile sizes",
) -> None:
    """Makes the compiler fail at programs for which `fails` is true, not because of their size.

    All other plans are reported to need `times` their memory.
    """
    measured = fitting.measured

    def compiled(program: Any, **options: Any) -> Any:
        if fails(program):
            raise jax.errors.JaxRuntimeError(told)
        found = measured(program, **options)
        return found if as_written(program) else replace(found, nbytes=times * found.nbytes)

    monkeypatch.setattr(fitting, "measured", compiled)


def test_a_compiler_that_fails_as_written_may_take_the_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_at(monkeypatch, as_written)
    assert_same(safe(energy)(points(), weights()), energy(points(), weights()))
    memsafe.explain(energy, ROOM)(points(), weights())
    assert "as written: refused by the compiler" in capsys.readouterr().out


def test_a_compiler_that_fails_at_every_plan_too_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    failing_at(monkeypatch, lambda _: True)
    with pytest.raises(jax.errors.JaxRuntimeError, match="no output tile sizes"):
        safe(energy)(points(), weights())


class Failures:
    """A predicate that makes the compiler fail at the first `count` plans."""

    def __init__(self, count: float) -> None:
        self.count, self.plans = count, 0

    def __call__(self, program: Any) -> bool:
        self.plans += not as_written(program)
        return not as_written(program) and self.plans <= self.count


def test_a_compiler_that_fails_at_a_plan_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = Failures(1)
    failing_at(monkeypatch, fails)
    assert_same(safe(energy)(points(), weights()), energy(points(), weights()))
    assert fails.plans > 1


def test_a_plan_that_is_no_valid_program_is_not_hidden_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fails = Failures(1)
    failing_at(monkeypatch, fails, told="INVALID_ARGUMENT: shapes differ")
    with pytest.raises(jax.errors.JaxRuntimeError, match="shapes differ"):
        safe(energy)(points(), weights())
    assert fails.plans == 1


def test_a_compiler_that_fails_at_all_plans_but_not_as_written_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing_at(monkeypatch, Failures(float("inf")))
    with pytest.raises(jax.errors.JaxRuntimeError, match="no output tile sizes") as caught:
        safe(energy)(points(), weights())
    assert caught.value.__notes__ == ["It fails at plans of memsafe, not at the function itself."]


@pytest.mark.parametrize("count", [1, 0], ids=["it fails at one", "the control: at none"])
def test_a_refusal_names_the_plan_at_which_the_compiler_fails(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    failing_at(monkeypatch, Failures(count), times=100)
    with pytest.raises(memsafe.BudgetError) as caught:
        safe(energy)(points(), weights())
    told = [each for each in caught.value.blockers if "fails" in each]
    assert told == ["the compiler fails at a plan: INTERNAL: no output tile sizes"] * count


def test_a_version_beside_it_is_not_taken_for_the_size_of_a_refused_program() -> None:
    told = "RESOURCE_EXHAUSTED: Ran out of memory (jax (0.10.2)), HLO temporaries (64.50G) exceed"
    assert measuring._refused(told, []).nbytes == 64.5 * 2**30
