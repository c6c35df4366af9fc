"""Third-party code, passed to memsafe unchanged, fits a quarter of its memory or less."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from memsafe.compiled_plan import Fit
from memsafe.engine import Engine
from memsafe.function import flattened_call, traced
from memsafe.measure import Measured
from memsafe.options import Asked, Options
from tests.memsafe.third_party import (
    labelled,
    loss_by_index,
    loss_by_optax,
    sparse_regression,
    training_step,
    transported,
)

pytestmark = pytest.mark.exhaustive

DOUBLE = 1e-9
"""Maximum error from the order of sums in doubles, as a share of the largest value."""

SINGLE = 2.0**-14
"""Like `DOUBLE`, in single precision: flax takes softmax in it, whatever the parameters' type."""

NOTHING = 5e-5
"""Gradients below this count as rounding: that of a key's bias is zero.

The rounding of that gradient differs by up to 8e-10 between the two programs, depending on the
processor's kernels (measured on an AMD EPYC). That is a quarter of `SINGLE * NOTHING`.
"""


class Ran(NamedTuple):
    """How a program fits its budget, and its results as written and within the budget."""

    fit: Fit
    plain: list[Array]
    safe: list[Array]


@pytest.mark.parametrize(
    ("layers", "scanned", "budget", "share"),
    [
        pytest.param(1, False, "8.7MB", 1 / 4, id="unrolled"),
        pytest.param(2, True, "9MB", 1 / 4, id="scanned"),
    ],
)
def test_a_training_step_of_flax_and_optax_takes_a_share(
    *, layers: int, scanned: bool, budget: str, share: float
) -> None:
    step, arguments = training_step(sequence=512, layers=layers, scanned=scanned)
    assert_agrees(within(budget, step, arguments, donated=(0, 1)), SINGLE, at_most=share)


@pytest.mark.parametrize("loss", [loss_by_index, loss_by_optax])
def test_a_loss_over_a_large_vocabulary_takes_a_twentieth(loss: Callable[..., Array]) -> None:
    with jax.enable_x64(new_val=True):
        arguments = labelled(tokens=600, vocabulary=20_000, width=4, dtype=jnp.float64)
        ran = within("8MB", jax.value_and_grad(loss, argnums=(0, 1)), arguments)
        assert_agrees(ran, DOUBLE, at_most=1 / 20)


def test_the_bound_of_gpjax_takes_a_quarter() -> None:
    pytest.importorskip("gpjax", reason="GPJax is not installed: pip install gpjax")
    with jax.enable_x64(new_val=True):
        bound, arguments = sparse_regression(data=3_000, inducing=40)
        ran = within("1.6MB", jax.value_and_grad(bound), arguments)
        assert_agrees(ran, DOUBLE, at_most=1 / 4)


def test_a_sinkhorn_loop_that_computes_its_costs_takes_an_eighth() -> None:
    assert_sinkhorn_takes_an_eighth(costs_once=False)


def test_a_sinkhorn_loop_that_reads_its_costs_takes_an_eighth() -> None:
    assert_sinkhorn_takes_an_eighth(costs_once=True)


def assert_sinkhorn_takes_an_eighth(*, costs_once: bool) -> None:
    with jax.enable_x64(new_val=True):
        x, y = (jax.random.normal(jax.random.key(at), (700 - 50 * at, 3)) for at in range(2))
        ran = within("900kB", partial(transported, costs_once=costs_once), (x, y))
        assert_agrees(ran, DOUBLE, at_most=1 / 8)


def test_results_that_differ_are_told_apart() -> None:
    assert difference([jnp.ones(3)], [jnp.ones(3).at[1].add(1e-3)]) > SINGLE
    assert difference([jnp.arange(3)], [jnp.arange(3) + 1]) == np.inf


def within(
    budget: str, function: Callable[..., Any], arguments: tuple[Any, ...], donated: Any = ()
) -> Ran:
    """`function` run as written and within `budget`; raises BudgetError."""
    options = Options.checked(budget, Asked(donate_argnums=donated))
    call = flattened_call(arguments, {}, options)
    program = traced(function, call)
    reused = [len(program.constants) + at for at in call.donated]
    inputs = [*program.constants, *call.leaves]
    fit = Engine(options=options).fit(program.closed, inputs, reused)
    return Ran(fit, *(_results(each, inputs) for each in (fit.plain, fit.result)))


def _results(measured: Measured | None, inputs: Sequence[Array]) -> list[Array]:
    """Results of a compiled program on copies, because it may reuse its arguments' memory."""
    assert measured is not None
    assert measured.compiled is not None
    return list(measured.compiled(*[jnp.copy(each) for each in inputs]))


def assert_agrees(ran: Ran, tolerance: float, *, at_most: float) -> None:
    """Assert that a split program needs at most a share of the memory, and computes the same."""
    assert not ran.fit.plan.is_plain
    assert ran.fit.result.nbytes <= at_most * ran.fit.plain.nbytes
    assert difference(ran.plain, ran.safe) <= tolerance


def difference(wanted: Sequence[Array], got: Sequence[Array]) -> float:
    """The largest difference in a result, as a share of its largest value or of `NOTHING`."""
    return max(map(_share, wanted, got))


def _share(wanted: Array, got: Array) -> float:
    if not jnp.issubdtype(wanted.dtype, jnp.floating):
        return 0.0 if np.array_equal(wanted, got) else np.inf
    return float(jnp.abs(wanted - got).max() / jnp.maximum(jnp.abs(wanted).max(), NOTHING))
