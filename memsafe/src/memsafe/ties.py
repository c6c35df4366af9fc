"""Comparisons of values with something computed from them, as in a maximum's derivative.

Both sides must see the same bits. Otherwise no element equals the maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memsafe.programs import is_inexact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from jax.extend.core import JaxprEqn, Var

    from memsafe.graph import Graph

__all__ = ["Tie", "compares_numbers", "ties_of"]

_MOVING = frozenset(("broadcast_in_dim", "expand_dims", "reshape", "rev", "squeeze", "transpose"))
_CUTTING = _MOVING | {"dynamic_slice", "slice"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """A comparison for equality of a value with something made of it, such as its maximum.

    Attributes:
        value: The value.
        comparison: The equation that compares the two, maybe in another shape or order.
        between: The equation that makes the value, and those that compute the other side from it.
    """

    value: Var
    comparison: int
    between: tuple[int, ...]


def compares_numbers(equation: JaxprEqn) -> bool:
    """Whether an equation compares inexact numbers for equality."""
    return equation.primitive.name in ("eq", "ne") and all(map(is_inexact, equation.invars))


def ties_of(graph: Graph) -> Iterator[Tie]:
    """The comparisons of values that `graph` computes with something computed from them."""
    for comparison, equation in enumerate(graph.equations):
        if compares_numbers(equation) and len(graph.reads[comparison]) == len(equation.invars):
            left, right = (_source(graph, value, _MOVING) for value in graph.reads[comparison])
            for value, other in ((left, right), (right, left)):
                if between := _between(graph, value, other):
                    yield Tie(value=value, comparison=comparison, between=between)


def _source(graph: Graph, value: Var, through: AbstractSet[str]) -> Var:
    """The value from which primitives in `through` alone make `value`."""
    while value in graph.definition:
        maker = graph.definition[value]
        if graph.equations[maker].primitive.name not in through or not graph.reads[maker]:
            break
        value = graph.reads[maker][0]
    return value


def _between(graph: Graph, value: Var, other: Var) -> tuple[int, ...]:
    """The equation that makes `value`, and those that compute `other` from it.

    There are none if `other` does not depend on `value`, or if `value` is a part of an input, which
    is never rounded.
    """
    if not {_source(graph, value, _CUTTING), other} <= graph.definition.keys():
        return ()
    first, last = graph.definition[value], graph.definition[other]
    return tuple(
        index
        for index in range(first, last + 1)
        if graph.ancestors[index] >> first & 1 and graph.ancestors[last] >> index & 1
    )
