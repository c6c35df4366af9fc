"""What keeps a plan from needing less memory, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memsafe.budget import as_text
from memsafe.candidates import candidate
from memsafe.errors import NAMED_SHARE
from memsafe.jax_internals import aval_of, scan_operands, source_line
from memsafe.plan import Loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jax.extend.core import JaxprEqn, Var

    from memsafe.candidates import Obstacle
    from memsafe.graph import Graph
    from memsafe.plan import Plan

__all__ = ["blockers_of", "described", "located"]

_ADVICE = {
    "rng_bit_generator": "; use threefry2x32 keys (jax_default_prng_impl), or draw a part at a "
    "time with split keys",
}
"""What to do about a primitive without a rule."""

_SHOWN = 5
"""Maximum number of values that are named."""


def blockers_of(plan: Plan) -> list[str]:
    """The largest values alive at the plan's peak, each with what kept it from being split.

    A value, whole or in a slice, is named if it takes at least `NAMED_SHARE` of the peak. The peak
    is the bytes of arguments and results, with the bytes predicted beside them.
    """
    floor = plan.graph.floor
    least = NAMED_SHARE * (plan.predicted + floor)
    return [f"arguments and results alone take {as_text(floor)}", *_alive(plan, least)]


def _alive(plan: Plan, least: float) -> Iterator[str]:
    obstacles = {each.value: each for each in plan.obstacles}
    for value in plan.live[:_SHOWN]:
        if plan.graph.size[value] < least:
            break
        text = described(plan.graph, value)
        if value in plan.graph.outputs:
            text += ": it is a result"
        elif obstacle := obstacles.get(value) or _alone(plan.graph, value):
            equation = plan.graph.equations[obstacle.equation]
            name = equation.primitive.name
            text += f": {obstacle.why} ({name}{located(equation)}){_ADVICE.get(name, '')}"
        elif _is_stacked(plan.graph, value):
            text += ": each step leaves a row; jax.checkpoint around the step recomputes it"
        yield text
    if isinstance(plan.fullest, Loop):
        yield from _of_slice(plan, plan.fullest, least)
    elif plan.fullest is not None:
        for inner in plan.fullest.sub_jaxprs.values():
            yield from (f"inside: {text}" for text in _alive(inner, least))


def _alone(graph: Graph, value: Var) -> Obstacle | None:
    """The obstacle to splitting `value` if only the results of its equation are split."""
    if value not in graph.definition:
        return None
    split = set(graph.equations[graph.definition[value]].outvars)
    found = (each for each in candidate(graph, split).obstacles if each.value is value)
    return next(found, None)


def _is_stacked(graph: Graph, value: Var) -> bool:
    """Whether a scan stacks `value`, one row for each step, as a backward pass needs them."""
    index = graph.definition.get(value)
    if index is None or graph.equations[index].primitive.name != "scan":
        return False
    _, carried = scan_operands(graph.equations[index])
    return graph.equations[index].outvars.index(value) >= carried


def _of_slice(plan: Plan, loop: Loop, least: float) -> Iterator[str]:
    """What one slice of the loop at the peak holds, if that is at least `least` bytes."""
    if loop.transient < least:
        return
    largest = max(loop.region.axes, key=lambda value: plan.graph.size[value])
    slices = f"{loop.length} of {loop.region.size}"
    held = f"{as_text(loop.transient)} in a slice of {slices}"
    yield f"{held} of {described(plan.graph, largest)}"
    if loop.inner is not None:
        yield from (f"in that slice: {text}" for text in _alive(loop.inner, least))


def described(graph: Graph, value: Var) -> str:
    """Text for a value: its size, type and shape, what makes it, and the user's source line."""
    aval = aval_of(value)
    text = f"{as_text(graph.size[value])} {aval.str_short(short_dtypes=True)}"
    index = graph.definition.get(value)
    if index is None:
        return f"{text}, an argument"
    equation = graph.equations[index]
    return f"{text} of {equation.primitive.name}{located(equation)}"


def located(equation: JaxprEqn) -> str:
    """` at file:line` of the user's code that made `equation`, or nothing."""
    line = source_line(equation)
    return f" at {line}" if line else ""
