"""Compile, look at what the compiler needs, plan again: until the budget is kept.

The plain program is compiled first: what the compiler fuses by itself is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import jax

from memsafe.blockers import blockers_of
from memsafe.emit import emitted
from memsafe.errors import BudgetError
from memsafe.jax_internals import aval_of
from memsafe.measure import Measured, measured
from memsafe.planner import Planner
from memsafe.programs import evaluate, flattened, nbytes
from memsafe.shards import gathered, input_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array, Device
    from jax.extend.core import ClosedJaxpr

    from memsafe.measure import Place
    from memsafe.options import Options
    from memsafe.plan import Plan
    from memsafe.shards import Parts

__all__ = ["Fit", "fitted", "planner_for"]

_ATTEMPTS = 6
"""How often a plan is compiled before the budget is given up."""

_MARGIN = 0.95
"""The share of a budget that is planned for, since the compiler's figure will differ."""

_REFUSED = 0.5
"""What is planned for next where the compiler refused: its device may hold less than the budget."""

_SLICES = {"cpu": (16e6, 8), "gpu": (128e6, 8), "tpu": (128e6, 128)}
"""By platform: bytes of a slice that keep it busy, and what slices' lengths are multiples of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A program that keeps its budget.

    Attributes:
        plan: How it is computed.
        plain: The program as written, compiled; None where it was not.
        result: The planned program, compiled; None where it could not be tried alone.
        attempts: How many plans were compiled.
        notes: What was rewritten before.
    """

    plan: Plan
    plain: Measured | None
    result: Measured | None
    attempts: int
    notes: tuple[str, ...] = ()

    @property
    def program(self) -> Callable[..., list[Array]]:
        """The planned program: the same arguments, the same results."""
        if self.plan.is_plain:
            return lambda *arguments: evaluate(self.plan.graph.closed, arguments)
        return emitted(self.plan)


def planner_for(device: Device, options: Options) -> Planner:
    """A planner for programs on a kind of device."""
    slice_bytes, multiple = _SLICES.get(device.platform, _SLICES["gpu"])
    wanted = options.split_size or slice_bytes
    return Planner(slice_bytes=min(wanted, options.size_threshold or wanted), multiple=multiple)


def fitted(program: ClosedJaxpr, options: Options, place: Place) -> Fit:
    """`program` (without constants) as one whose compiled peak keeps the budget of `options`.

    Raises BudgetError, with the smallest peak reached, where no plan does.
    """
    budget = options.budget_on(place.device)
    planner = planner_for(place.device, options)
    arguments = [aval_of(variable) for variable in program.jaxpr.invars]
    measure = partial(measured, arguments=arguments, place=place)
    plain = _written(program, measure)
    parts = _parts(program, place)
    written = planner.plan(program, float("inf"), parts)
    if budget is not None and options.size_threshold is None and plain.keeps(budget):
        return Fit(plan=written, plain=plain, result=plain, attempts=0)
    flat = gathered(flattened(program), place.shardings)
    if options.size_threshold is not None:
        prepared, notes = options.prepared(flat, place.device.platform)
        plan = planner.split_above(prepared, options.size_threshold, parts)
        result = measure(emitted(plan))
        if budget is not None and not result.keeps(budget):
            raise BudgetError(
                budget=budget, smallest=result.nbytes, blockers=blockers_of(plan, _floor(program))
            )
        return Fit(plan=plan, plain=plain, result=result, attempts=1, notes=notes)
    assert budget is not None
    refusals: list[BudgetError] = []
    for prepared, notes in options.preparations(flat, place.device.platform):
        plans = partial(planner.plan, prepared, parts=parts)
        blind = partial(_split_above, planner, prepared, parts)
        try:
            return _searched(prepared, budget, plain, plans, blind, measure, notes)
        except BudgetError as refusal:
            refusals.append(refusal)
    raise min(refusals, key=lambda refusal: refusal.smallest)


def _parts(program: ClosedJaxpr, place: Place) -> tuple[Parts, ...]:
    """How the arguments lie over several devices."""
    if place.shardings is None:
        return ()
    avals = [aval_of(variable) for variable in program.jaxpr.invars]
    pairs = zip(place.shardings, avals, strict=True)
    return tuple(input_parts(sharding, aval.shape) for sharding, aval in pairs)


def _written(program: ClosedJaxpr, measure: Callable[..., Measured]) -> Measured:
    """The program as written, compiled; infinitely large if the compiler fails at it.

    A compiler can fail at a large array that a plan removes. If it fails at the plan too, that
    error is raised.
    """
    try:
        return measure(partial(_as_written, program))
    except jax.errors.JaxRuntimeError:
        own = float(sum(nbytes(variable) for variable in program.jaxpr.invars))
        infinite = float("inf")
        return Measured(
            nbytes=infinite, argument_bytes=own, temp_bytes=infinite, seconds=0.0, compiled=None
        )


def _as_written(program: ClosedJaxpr, *arguments: Array) -> list[Array]:
    return evaluate(program, arguments)


def _split_above(
    planner: Planner, prepared: ClosedJaxpr, parts: tuple[Parts, ...], nbytes: float
) -> Plan:
    """A plan without values or slices of more than `nbytes`, whatever is predicted of them."""
    finer = replace(planner, slice_bytes=min(planner.slice_bytes, nbytes), plans={})
    return finer.split_above(prepared, int(nbytes), parts)


def _searched(
    prepared: ClosedJaxpr,
    budget: int,
    plain: Measured,
    planned: Callable[[float], Plan],
    blind: Callable[[float], Plan],
    measure: Callable[..., Measured],
    notes: tuple[str, ...],
) -> Fit:
    room = max(budget - plain.argument_bytes, 1.0)
    best = planned(float("inf"))
    smallest = plain.nbytes
    target = _MARGIN * room * min(1.0, 2 * _ratio(best, plain))
    for attempt in range(_ATTEMPTS):
        plan = planned(target)
        if plan.is_plain and plan.predicted > target:  # The compiler keeps what seemed fused away.
            plan = blind(room / 4 ** (attempt + 1))
        result = measure(emitted(plan))
        if result.keeps(budget):
            return Fit(plan=plan, plain=plain, result=result, attempts=attempt + 1, notes=notes)
        if result.nbytes < smallest:
            smallest, best = result.nbytes, plan
        needed = result.nbytes - plain.argument_bytes
        refused = 0.9 if result.compiled is not None else _REFUSED
        target = min(target, plan.predicted) * min(refused, _MARGIN * room / needed)
    blockers = blockers_of(best, _floor(prepared))
    if smallest <= budget:
        blockers.insert(0, "the compiler refuses it: the device has less memory than the budget")
    raise BudgetError(budget=budget, smallest=smallest, blockers=blockers)


def _floor(program: ClosedJaxpr) -> float:
    return sum(nbytes(atom) for atom in (*program.jaxpr.invars, *program.jaxpr.outvars))


def _ratio(written: Plan, plain: Measured) -> float:
    """How much larger the prediction is than what the compiler needs; 1 where it did not say."""
    needed = plain.nbytes - plain.argument_bytes
    return written.predicted / needed if 0 < needed < float("inf") else 1.0
