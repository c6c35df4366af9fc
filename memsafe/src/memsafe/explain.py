"""A plan in words."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ParamSpec, Unpack

from memsafe.blockers import described, located
from memsafe.budget import as_text
from memsafe.function import Calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memsafe.budget import Budget
    from memsafe.candidates import Obstacle
    from memsafe.compiled_plan import Fit
    from memsafe.options import Asked
    from memsafe.plan import Loop, Plan

__all__ = ["explain", "explanation"]

P = ParamSpec("P")

_SHOWN = 8

_REFUSED = "refused by the compiler"

_QUIET = ("as it changes nothing", "computed once, not again", "with the one that it undoes")
"""Ends of the notes of rewrites that tell a user nothing about memory."""


def explain(
    f: Callable[P, Any], budget: Budget | None = None, **options: Unpack[Asked]
) -> Callable[P, None]:
    """A function that prints how `memsafe(f, budget, **options)` computes such a call.

    It takes the arguments of `f`, or `jax.ShapeDtypeStruct`s in place of arrays, and computes
    nothing. It raises what `memsafe` raises.
    """
    calls = Calls.asked(f, budget, options)
    name = getattr(f, "__name__", "the function")

    def explained(*args: P.args, **kwargs: P.kwargs) -> None:
        lines = explanation(name, calls.fit(args, kwargs), calls.options.budget)
        sys.stdout.write("\n".join(lines) + "\n")

    return explained


def explanation(name: str, fit: Fit, budget: int | None) -> Iterator[str]:
    """The lines that say what a plan does, and how much memory and time it takes."""
    asked = "" if budget is None else f" in {as_text(budget)}"
    parts = f"{as_text(fit.result.temp_bytes)} of them temporary"
    refused = "compiled" if fit.result.lowered is not None else _REFUSED
    yield f"{name}{asked}: {as_text(fit.result.nbytes)} {refused}, {parts}"
    if fit.result.library_bytes:
        held = as_text(fit.result.library_bytes)
        yield f"  at most {held} of them in libraries, which the compiler does not report"
    if fit.attempts:
        needed = as_text(fit.plain.nbytes)
        if fit.plain.lowered is None:
            needed = _REFUSED if fit.plain.nbytes == float("inf") else f"{needed}, {_REFUSED}"
        yield f"  as written: {needed}"
    if not fit.attempts:
        yield "  unchanged: the program as written fits the budget"
        return
    yield f"  predicted {as_text(fit.plan.predicted)} without the arguments"
    plans = "1 plan" if fit.attempts == 1 else f"{fit.attempts} plans"
    time = f"{fit.slowdown:.2f} × its time predicted"
    yield f"  {fit.operations:.2f} × the operations of the program, {time}; {plans} compiled"
    if fit.moved:
        yield f"  {as_text(fit.moved)} go to the host and come back"
    for note in _once(fit.notes):
        if not note.endswith(_QUIET):
            yield f"  rewritten: {note}"
    yield from _steps(fit.plan, "  ")


def _steps(plan: Plan, indent: str) -> Iterator[str]:
    yield from (f"{indent}rewritten: {note}" for note in plan.notes)
    for step in plan.loops:
        if step.count > 1 or step.inner is not None:
            yield from _loop(plan, step, indent)
    for name, equation, body in plan.sub_jaxprs():
        if body.is_plain and not body.notes:
            continue
        yield f"{indent}inside {name}{located(equation)}:"
        yield from _steps(body, indent + "  ")
    lines = (_kept(plan, obstacle) for obstacle in plan.obstacles)
    yield from (f"{indent}kept: {line}" for line in _once(lines)[:_SHOWN])


def _kept(plan: Plan, obstacle: Obstacle) -> str:
    equation = plan.graph.equations[obstacle.equation]
    by = f"{equation.primitive.name}{located(equation)}"
    return f"{described(plan.graph, obstacle.value)}; {obstacle.why} ({by})"


def _loop(plan: Plan, loop: Loop, indent: str) -> Iterator[str]:
    graph, region = plan.graph, loop.region
    largest = max(region.axes, key=lambda value: graph.size[value])
    slices = f"{loop.count} slices of {loop.length}"
    if (devices := region.axes[largest].devices) > 1:
        slices += f" ({loop.length // devices} of each of {devices} devices)"
    yield (
        f"{indent}loop over {region.size} in {slices}, {as_text(loop.transient)} at a time: "
        f"dimension {region.axes[largest].dim} of {described(graph, largest)}"
    )
    made = [described(graph, value) for _, values in loop.leaving for value in values]
    for text in made[:_SHOWN]:
        yield f"{indent}  makes {text}"
    if len(made) > _SHOWN:
        yield f"{indent}  and {len(made) - _SHOWN} more"
    again = _recomputed(plan, loop)
    if again:
        yield f"{indent}  recomputes values of another loop: {', '.join(again)}"
    if loop.inner is not None:
        yield f"{indent}  inside each slice:"
        yield from _steps(loop.inner, indent + "    ")


def _recomputed(plan: Plan, loop: Loop) -> list[str]:
    """The products that an earlier loop computed as well."""
    before = plan.loops[: plan.loops.index(loop)]
    shared = {index for other in before for index in other.region.factors} & set(
        loop.region.factors
    )
    costly = [plan.graph.equations[index] for index in sorted(shared)]
    lines = (
        f"{each.primitive.name}{located(each)}"
        for each in costly
        if each.primitive.name in ("dot_general", "conv_general_dilated", "triangular_solve")
    )
    return _once(lines)


def _once(lines: Any) -> list[str]:
    return list(dict.fromkeys(lines))
