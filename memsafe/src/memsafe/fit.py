"""A program that keeps a budget: as written, in slices of a size, or as a search finds it.

The plain program is compiled first: what the compiler fuses by itself is left alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import jax

from memsafe.blockers import blockers_of
from memsafe.compiled_plan import Fit
from memsafe.device_model import model_of
from memsafe.emit import emitted
from memsafe.errors import BudgetError
from memsafe.graph import Graph
from memsafe.jax_internals import aval_of
from memsafe.measure import Measured, measured
from memsafe.placement import constrained
from memsafe.planner import Planner
from memsafe.preparations import checkpointed_steps, deepest, for_slices, recomputing
from memsafe.programs import evaluate, flattened, nbytes
from memsafe.search import FAR, Search
from memsafe.shards import free_in_loops, gathered, input_parts, padded_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jax import Array, Device
    from jax.core import ShapedArray
    from jax.extend.core import ClosedJaxpr

    from memsafe.measure import Place
    from memsafe.options import Known, Options
    from memsafe.shards import Parts

__all__ = ["fitted", "planner_for"]


def planner_for(device: Device, options: Options) -> Planner:
    """A planner for programs on a kind of device."""
    model = model_of(device)
    wanted = options.split_size or model.slice_bytes
    size = min(wanted, options.size_threshold or wanted)
    planner = Planner(slice_bytes=size, model=model, most=FAR * options.max_slowdown)
    if "checkpoints" not in options.rewrites:
        return planner
    return replace(planner, recompute=checkpointed_steps)


def fitted(program: ClosedJaxpr, options: Options, place: Place, *, runs: bool) -> Fit:
    """`program` (without constants), compiled so that its peak keeps the budget of `options`.

    `runs` says whether the program will run. If not, it is compiled only to measure its memory.

    Raises BudgetError, with the smallest peak reached, if no plan keeps the budget.
    """
    budget = options.budget_on(place.device)
    planner = planner_for(place.device, options)
    if not place.is_on_one_device:  # The partitioner of jax 0.10.2 would gather the slices.
        planner = replace(planner, model=replace(planner.model, copies_transposed=False))
        options = options.without("reductions")  # Nor does it divide that rewrite's sums.
    arguments = [aval_of(variable) for variable in program.jaxpr.invars]
    _refuse_symbols(arguments)
    measure = partial(measured, arguments=arguments, place=place)
    parts = _parts(program, place)
    written = planner.plan(program, float("inf"), parts)
    needed = written.predicted + sum(map(nbytes, program.jaxpr.invars))
    fits = budget is not None and needed <= budget
    plain = _written(program, partial(measure, runs=runs and fits))
    if budget is not None and options.size_threshold is None and plain.keeps(budget):
        return Fit(plan=written, written=written.graph, plain=plain, result=plain, attempts=0)
    if place.shardings is not None and not place.is_on_one_device:
        most = float("inf") if budget is None else budget
        measure = partial(_placed_alike, measure, plain, most)
    flat = flattened(program)
    if not place.is_on_one_device:
        flat = padded_first(gathered(flat, place.shardings))
    own = Graph(flat, model=planner.model)
    if options.size_threshold is not None:
        prepared = options.prepared(flat, place.device.platform)
        plan = planner.split_above(prepared.program, options.size_threshold, parts)
        result = measure(emitted(plan), runs=runs)
        if budget is not None and not result.keeps(budget):
            blockers, smallest = blockers_of(plan), result.nbytes
            raise BudgetError(budget=budget, smallest=smallest, blockers=blockers, quick=smallest)
        return Fit(
            plan=plan, written=own, plain=plain, result=result, attempts=1, notes=prepared.notes
        )
    assert budget is not None
    known: Known = {}
    search = Search(
        budget=budget,
        most=options.max_slowdown,
        written=own,
        plain=plain,
        planner=planner,
        parts=parts,
        measure=measure,
        deepest=deepest(options, flat, place.device, known),
        runs=runs,
    )
    rewritten = partial(for_slices, options, platform=place.device.platform, known=known)
    sliced = rewritten(flat)
    if any(parts):
        free = free_in_loops(flat)
        forms = sliced if free is flat else rewritten(free)
        sliced += [replace(each, across=True) for each in forms]
    again = recomputing(options, flat, place.device, parts, search.room, known)
    return search.cheapest(sliced, again)


def _refuse_symbols(arguments: Iterable[ShapedArray]) -> None:
    """Raises TypeError if a shape has a symbolic size, as shapes under `jax.export` may have."""
    for each in arguments:
        if not all(isinstance(dim, int) for dim in each.shape):
            raise TypeError(
                f"got an argument {each.str_short()}, whose size is a symbol; wanted numbers, for "
                "a plan depends on them; do this: export one program for each size"
            )


def _parts(program: ClosedJaxpr, place: Place) -> tuple[Parts, ...]:
    """How the arguments are divided over several devices; empty on one device."""
    if place.shardings is None or place.is_on_one_device:
        return ()
    avals = [aval_of(variable) for variable in program.jaxpr.invars]
    pairs = zip(place.shardings, avals, strict=True)
    return tuple(input_parts(sharding, aval.shape) for sharding, aval in pairs)


def _placed_alike(
    measure: Callable[..., Measured],
    plain: Measured,
    budget: float,
    program: Callable[..., list[Array]],
    *,
    runs: bool,
) -> Measured:
    """`program`, compiled with its results divided over devices like those of the plain program.

    The results move there at its end. If the partitioner gets only the final places, it divides the
    loops another way: the gradient of six layers took 2.2 in place of 1.5 MB (4 devices,
    jax 0.10.2, 2026-11-27).
    """
    found = measure(program, runs=runs)
    if plain.compiled is None or found.compiled is None or found.nbytes > budget:
        return found
    places = tuple(tuple(each.output_shardings) for each in (found.compiled, plain.compiled))
    if places[0] == places[1]:
        return found
    return replace(measure(constrained(program, places), runs=runs), places=places)


def _written(program: ClosedJaxpr, measure: Callable[..., Measured]) -> Measured:
    """The program as written, compiled; infinitely large if the compiler fails at it.

    A compiler can fail at a large array that a plan removes. If it fails at the plan too, the
    compiler's error is raised.
    """
    try:
        return measure(partial(_as_written, program))
    except jax.errors.JaxRuntimeError:
        return Measured.of_nothing(float(sum(map(nbytes, program.jaxpr.invars))))


def _as_written(program: ClosedJaxpr, *arguments: Array) -> list[Array]:
    return evaluate(program, arguments)
