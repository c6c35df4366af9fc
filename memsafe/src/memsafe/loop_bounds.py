"""Maximum number of steps of a `while`, where its program shows a bound.

The condition must require a comparison of a counter with an end. Each step adds the same number to
the counter, and the range of the end is known (`ranges.py`). The counter must not wrap around at
the limits of its type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jax.extend.core import Var

from memsafe.jax_internals import bind, scan_operands, without_unused
from memsafe.programs import evaluate, shape_of, traced_like
from memsafe.ranges import CALLS, Range, limits_of, range_of, ranges_in
from memsafe.rewrites.definitions import Definitions, type_of
from memsafe.sub_jaxprs import as_closed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

__all__ = ["carried_arguments", "most_steps", "over_steps", "shift_of"]

_MOST = 1 << 30
"""This many steps or more are no bound: an unknown end of 32 bits gives as many."""

_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
"""The comparisons that bound a counter, and each with its sides exchanged."""


def carried_arguments(equation: JaxprEqn) -> range | None:
    """Positions of the carried arguments of a loop's body, in the order of its results."""
    match equation.primitive.name:
        case "scan":
            constants, count = scan_operands(equation)
        case "while":
            constants, count = equation.params["body_nconsts"], len(equation.outvars)
        case _:
            return None
    return range(constants, constants + count)


def over_steps(start: Range | None, shift: int | None, steps: int) -> Range | None:
    """The range, over the starts of all steps, of a number to which each step adds `shift`."""
    if start is None or shift is None:
        return None
    last = max(steps - 1, 0) * shift
    return start + Range(min(0, last), max(0, last))


def most_steps(equation: JaxprEqn, known: Mapping[Var, Range]) -> int | None:
    """Maximum number of steps of a `while`; None if its program does not show a bound."""
    body, condition = (as_closed(equation.params[f"{part}_jaxpr"]) for part in ("body", "cond"))
    condition = _without_calls(condition)
    asking, doing = equation.params["cond_nconsts"], equation.params["body_nconsts"]
    starts = [range_of(atom, known) for atom in equation.invars[asking + doing :]]
    shifts = [
        None if start is None else shift_of(body, at, doing + at) for at, start in enumerate(starts)
    ]
    same = [start if shift == 0 else None for start, shift in zip(starts, shifts, strict=True)]
    given = [range_of(atom, known) for atom in equation.invars[:asking]]
    ends = ranges_in(condition, [*given, *same])
    places = {value: at for at, value in enumerate(condition.jaxpr.invars[asking:])}
    found = []
    for relation, counter, end in _comparisons(condition):
        at, limit = places.get(counter), range_of(end, ends)
        # A counter that a whole batch shares may bound only some of its elements.
        if at is not None and shape_of(counter) == shape_of(condition.jaxpr.outvars[0]):
            found.append(_steps_until(relation, starts[at], shifts[at], limit, limits_of(counter)))
    most = min((steps for steps in found if steps is not None), default=_MOST)
    return most if most < _MOST else None


def _steps_until(
    relation: str,
    start: Range | None,
    shift: int | None,
    end: Range | None,
    limits: Range | None,
) -> int | None:
    """Maximum number of steps while a counter is in `relation` to its end; None if unknown."""
    if start is None or shift is None or end is None or limits is None:
        return None
    if relation in ("gt", "ge"):
        start, shift, end, limits = -start, -shift, -end, -limits
    last = end.high - (relation in ("lt", "gt"))
    if shift <= 0 or last + shift > limits.high:  # It may wrap around.
        return None
    return max(0, (last - start.low) // shift + 1)


def _comparisons(condition: ClosedJaxpr) -> Iterator[tuple[str, Var, Any]]:
    """The comparisons that `condition` requires, each from both sides."""
    definitions = Definitions.of(condition.jaxpr)
    waiting = list(condition.jaxpr.outvars)
    while waiting:
        equation = definitions.equation(waiting.pop())
        if equation is None:
            continue
        name, operands = equation.primitive.name, equation.invars
        is_same = name in ("convert_element_type", "pvary") and type_of(operands[0]) == np.bool_
        if name == "and" or is_same:
            waiting += operands
        elif name in _MIRRORED:
            for relation, sides in ((name, operands), (_MIRRORED[name], operands[::-1])):
                counter = _as_narrow(definitions, sides[0])
                if isinstance(counter, Var):
                    yield relation, counter, sides[1]


def _as_narrow(definitions: Definitions, atom: Any) -> Any:
    """`atom` before its conversions to types that hold all of its numbers."""
    equation = definitions.equation(atom)
    if equation is None or equation.primitive.name != "convert_element_type":
        return atom
    (source,) = equation.invars
    limits = limits_of(source)
    is_kept = limits is not None and limits.within(limits_of(atom))
    return _as_narrow(definitions, source) if is_kept else atom


def shift_of(body: ClosedJaxpr, result: int, argument: int) -> int | None:
    """A result of `body` minus an argument; None if the difference is not known to be constant."""
    flags = [at == result for at in range(len(body.jaxpr.outvars))]
    live, read = without_unused(body, flags)
    if [at for at, is_read in enumerate(read) if is_read] != [argument]:
        return None
    live = _without_calls(live)
    definitions, known = Definitions.of(live.jaxpr), ranges_in(live, [None])

    def shift(atom: Any) -> int | None:
        if atom is live.jaxpr.invars[0]:
            return 0
        equation = definitions.equation(atom)
        if equation is None or equation.primitive.name not in ("add", "sub"):
            return None
        sign = 1 if equation.primitive.name == "add" else -1
        first, last = equation.invars
        for base, other in ((first, last), (last, first))[: 2 if sign > 0 else 1]:
            before, number = shift(base), range_of(other, known)
            if before is not None and number is not None and number.low == number.high:
                return before + sign * number.low
        return None

    return shift(live.jaxpr.outvars[0])


def _without_calls(closed: ClosedJaxpr) -> ClosedJaxpr:
    """`closed` with calls of `jax.jit` inlined; other calls have meanings of their own."""

    def inlined(equation: JaxprEqn, operands: Sequence[Array]) -> list[Array]:
        if equation.primitive.name not in CALLS:
            return bind(equation, operands)
        return evaluate(as_closed(equation.params["jaxpr"]), operands, calls=inlined)

    if not any(equation.primitive.name in CALLS for equation in closed.jaxpr.eqns):
        return closed
    return traced_like(lambda *arguments: evaluate(closed, arguments, calls=inlined), closed)
