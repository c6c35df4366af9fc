"""Loop evaluation: trip counts from a loop's scalar arithmetic, iteration by iteration.

A TPU has no 64-bit integers, for one: its compiler counts in two words, and compares both.
"""

from collections.abc import Callable, Iterator, Mapping
from operator import add, and_, eq, ge, gt, le, lt, mul, ne, or_, sub, xor
from typing import Final

from assay.hlo.instruction import Instruction
from assay.hlo.values import Value, origin

_AT_MOST: Final = 10_000
"""Iterations that are tried; a tenth of a second's work."""

_COMPARISONS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "EQ": eq,
    "GE": ge,
    "GT": gt,
    "LE": le,
    "LT": lt,
    "NE": ne,
}
_OF_TWO: Final[Mapping[str, Callable[[int, int], int]]] = {
    "add": add,
    "and": and_,
    "maximum": max,
    "minimum": min,
    "multiply": mul,
    "or": or_,
    "subtract": sub,
    "xor": xor,
}
_OF_ONE: Final = frozenset({"bitcast", "bitcast-convert", "convert", "negate", "not"})

_SCALARS: Final = 100
"""Scalars that one value may be computed from; each is computed within the next."""

Path = tuple[int, ...]
"""Where in a loop's state a scalar is."""


class NotEvaluated(Exception):
    """The loop does more than integer arithmetic on scalars that are known, or runs too long."""


def evaluated_trip_count(loop: Instruction, first: Callable[[Path], int]) -> int:
    """How often the body of a while runs; ``first`` gives a scalar of its state before the loop.

    Raises:
        NotEvaluated: its condition depends on something else than integers, or it runs longer.
    """
    body, condition = loop.called
    goes_on = Value(condition.root)
    after = _needed(goes_on, lambda path: Value(body.root, path))
    state = {path: first(path) for path in after}
    met = set[tuple[int, ...]]()
    for count in range(_AT_MOST + 1):
        if not _computed(goes_on, state, {}):
            return count
        if tuple(state.values()) in met:
            raise NotEvaluated("the loop comes back to a state that it had before")
        met.add(tuple(state.values()))
        known: dict[Value, int] = {}
        state = {path: _computed(value, state, known) for path, value in after.items()}
    raise NotEvaluated(f"the loop does not end within {_AT_MOST} iterations")


def _needed(goes_on: Value, after: Callable[[Path], Value]) -> dict[Path, Value]:
    """The scalars of the state that the condition depends on, each with its value one later."""
    found = {path: after(path) for path in _read(goes_on)}
    pending = list(found.values())
    while pending:
        for path in _read(pending.pop()):
            if path not in found:
                found[path] = after(path)
                pending.append(found[path])
    return found


def _read(value: Value) -> Iterator[Path]:
    """The scalars of the state that a value is computed from."""
    pending, seen = [origin(value)], set[Value]()
    while pending:
        each = pending.pop()
        if each in seen:
            continue
        seen.add(each)
        if len(seen) > _SCALARS:
            raise NotEvaluated("a scalar is computed in too many steps")
        if each.instruction.opcode == "parameter":
            yield each.path
            continue
        _check(each.instruction)
        pending += [origin(Value(operand, (), each.site)) for operand in each.instruction.operands]


def _check(instruction: Instruction) -> None:
    opcode, shape = instruction.opcode, instruction.shape
    followed = opcode in _OF_TWO or opcode in _OF_ONE or opcode in {"compare", "select"}
    if opcode == "constant":
        followed = instruction.integer is not None
    if not followed or shape.dimensions or shape.elements:
        raise NotEvaluated(f"a scalar comes from {opcode}, which is not followed")


def _computed(value: Value, state: Mapping[Path, int], known: dict[Value, int]) -> int:
    value = origin(value)
    if value not in known:
        known[value] = _anew(value, state, known)
    return known[value]


def _anew(value: Value, state: Mapping[Path, int], known: dict[Value, int]) -> int:
    instruction = value.instruction
    opcode = instruction.opcode
    if opcode == "parameter":
        return state[value.path]
    if (constant := instruction.integer) is not None:
        return constant
    operands = [
        _computed(Value(operand, (), value.site), state, known) for operand in instruction.operands
    ]
    if opcode == "compare":
        return int(_COMPARISONS[instruction.comparison_direction](*operands))
    if opcode == "select":
        return operands[1] if operands[0] else operands[2]
    if opcode in _OF_TWO:
        return _wrapped(_OF_TWO[opcode](*operands), instruction)
    (operand,) = operands
    return _wrapped({"negate": -operand, "not": ~operand}.get(opcode, operand), instruction)


def _wrapped(number: int, instruction: Instruction) -> int:
    """The number as the instruction's type holds it."""
    held = instruction.shape.integer_range
    if held is not None:
        return (number - held.start) % (held.stop - held.start) + held.start
    if instruction.shape.element_type == "pred":
        return number & 1
    raise NotEvaluated(f"a scalar is {instruction.shape}, no integer")
