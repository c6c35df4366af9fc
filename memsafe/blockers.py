"""What keeps a plan from being smaller, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memsafe.budget import as_text
from memsafe.jax_internals import aval_of, source_line

if TYPE_CHECKING:
    from jax.extend.core import JaxprEqn, Var

    from memsafe.graph import Graph
    from memsafe.plan import Plan

__all__ = ["blockers_of", "described", "located"]

_SHOWN = 5


def blockers_of(plan: Plan, floor: float) -> list[str]:
    """The largest values alive at the plan's peak, each with what kept it from being split."""
    lines = [f"arguments and results alone take {as_text(floor)}"]
    obstacles = {each.value: each for each in plan.obstacles}
    for value in plan.live[:_SHOWN]:
        text = described(plan.graph, value)
        if value in plan.graph.outputs:
            text += ": it is a result"
        elif value in obstacles:
            obstacle = obstacles[value]
            equation = plan.graph.equations[obstacle.equation]
            text += f": {obstacle.why} ({equation.primitive.name}{located(equation)})"
        lines.append(text)
    return lines


def described(graph: Graph, value: Var) -> str:
    """A value by size, type and shape, what makes it, and the user's line."""
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
