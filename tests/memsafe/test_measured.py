"""A program compiled only to measure its memory is not optimised, and needs the same memory."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.extend.core import jaxpr_as_fun

import memsafe
from memsafe import measure
from memsafe.jax_internals import aval_of
from memsafe.measure import Measured, Place, measured
from tests.memsafe.budgets import ROOM, energy, points, safe, weights

pytestmark = pytest.mark.usefixtures("doubles")


def ordered(x: Array, v: Array) -> Array:
    return jnp.sort(x, axis=0)[jnp.argsort(v)].cumsum(0)


def stepped(x: Array, v: Array) -> Array:
    last, each = jax.lax.scan(lambda c, r: (jnp.tanh(c + r), c @ c), v[:3], x)
    return last + each.sum()


def scattered(x: Array, v: Array) -> Array:
    return jnp.zeros((7, 3)).at[jnp.round(v).astype(int) % 7].add(jnp.sin(x))


def convolved(x: Array, v: Array) -> Array:
    kernel = jnp.outer(v[:5], v[:5])[None, None]
    return jax.lax.conv(x @ x.T[None, None], kernel, (1, 1), "SAME")


def told(function: Callable[..., Any], *, runs: bool) -> Measured:
    program = jax.make_jaxpr(function)(points(), weights())
    arguments = [aval_of(variable) for variable in program.jaxpr.invars]
    return measured(jaxpr_as_fun(program), arguments, Place(device=jax.devices()[0]), runs=runs)


@pytest.mark.parametrize(
    "function", [energy, jax.grad(energy), ordered, stepped, scattered, convolved]
)
def test_a_program_that_is_not_optimised_needs_the_same(function: Callable[..., Any]) -> None:
    quick, whole = (told(function, runs=runs) for runs in (False, True))
    assert (quick.nbytes, quick.temp_bytes) == (whole.nbytes, whole.temp_bytes)
    assert quick.library_bytes == whole.library_bytes


def test_the_control_a_compiler_without_a_library_tells_another_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without = {"xla_cpu_experimental_ynn_fusion_type": ""}
    monkeypatch.setattr(measure, "_UNOPTIMISED", without)
    assert told(energy, runs=False).nbytes < told(energy, runs=True).nbytes


@pytest.fixture
def optimised(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each compiled program is optimised, in the order of compilation."""
    found: list[bool] = []
    compiled = jax.stages.Lowered.compile

    def listed(lowered: Any, options: Any = None, **others: Any) -> Any:
        found.append(options is None)
        return compiled(lowered, options, **others)

    monkeypatch.setattr(jax.stages.Lowered, "compile", listed)
    return found


def test_a_plan_that_runs_is_optimised_and_what_does_not_fit_is_not(optimised: list[bool]) -> None:
    safe(energy)(points(), weights())
    assert optimised[0] is False  # as written
    assert all(optimised[1:])
    assert len(optimised) > 1


def test_what_should_fit_as_written_is_compiled_once_for_all(optimised: list[bool]) -> None:
    memsafe.memsafe(energy, "1GB")(points(), weights())
    assert set(optimised) == {True}


def test_what_should_not_fit_is_not_optimised(optimised: list[bool]) -> None:
    with pytest.raises(memsafe.BudgetError):
        memsafe.memsafe(energy, 9_000)(points(), weights())
    assert optimised
    assert not any(optimised)


def test_a_plan_for_another_program_only_tells_what_it_needs(optimised: list[bool]) -> None:
    jax.jit(safe(energy))(points(), weights())
    assert optimised
    assert not any(optimised)


def test_a_plan_that_told_what_it_needs_is_optimised_before_it_runs(optimised: list[bool]) -> None:
    within = safe(energy)
    fit = within._calls.fit((points(), weights()), {})
    assert not any(optimised)
    result = within(points(), weights())
    assert optimised[-1] is True
    assert fit.result.nbytes <= ROOM
    np.testing.assert_allclose(result, energy(points(), weights()), rtol=1e-12)
