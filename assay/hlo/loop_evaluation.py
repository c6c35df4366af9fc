"""Loop evaluation: trip counts from a loop's scalar arithmetic, iteration by iteration.

The TPU compiler, for example, counts 64-bit integers in two words and compares both.
"""

from collections.abc import Callable, Mapping
from operator import add, and_, eq, ge, gt, invert, le, lt, mul, ne, neg, or_, pos, sub, xor
from typing import Final

from assay.hlo.instruction import Instruction
from assay.hlo.values import Value, origin

_AT_MOST: Final = 10_000
"""Iterations that are tried."""

MOST_SCALARS: Final = 250_000
"""Scalars that are computed in all loops of a module; about a second of work."""

_SCALARS: Final = 100
"""Scalars that one value may be computed from, and that a loop may carry."""

_OPERATIONS: Final[Mapping[str, Callable[..., int]]] = {
    "EQ": eq,
    "GE": ge,
    "GT": gt,
    "LE": le,
    "LT": lt,
    "NE": ne,
    "add": add,
    "and": and_,
    "bitcast": pos,
    "bitcast-convert": pos,
    "convert": pos,
    "maximum": max,
    "minimum": min,
    "multiply": mul,
    "negate": neg,
    "not": invert,
    "or": or_,
    "select": lambda condition, if_true, if_false: if_true if condition else if_false,
    "subtract": sub,
    "xor": xor,
}
"""By opcode, or by the direction of a compare."""

Path = tuple[int, ...]
"""Where in a loop's state a scalar is."""


class NotEvaluated(Exception):
    """The loop is not integer arithmetic on known scalars, or runs too long."""


class _State(dict[Path, int]):
    """The scalars that were read of a loop's state."""

    def __init__(self, first: Callable[[Path], int]) -> None:
        self._first = first

    def __missing__(self, path: Path) -> int:
        self[path] = self._first(path)
        return self[path]


class Budget:
    """The scalars that may still be computed."""

    def __init__(self, scalars: int = MOST_SCALARS) -> None:
        self._left = scalars

    def spend(self, scalars: int) -> None:
        """Take so many scalars from the budget; raise NotEvaluated if fewer are left."""
        self._left -= scalars
        if self._left < 0:
            raise NotEvaluated(f"the module's loops compute more than {MOST_SCALARS} scalars")


def evaluated_trip_count(loop: Instruction, first: Callable[[Path], int], budget: Budget) -> int:
    """How often the body of a while runs; ``first`` gives a scalar of its state before the loop.

    Raises:
        NotEvaluated: its condition depends on something other than integers, or it runs too long.
    """
    body, condition = loop.called
    state: dict[Path, int] = _State(first)

    def evaluate(value: Value) -> int:
        known: dict[Value, int | None] = {}
        found = _evaluate(value, state, known)
        budget.spend(len(known))
        return found

    goes_on = evaluate(Value(condition.root))
    after: dict[Path, int] = {}
    while new := state.keys() - after.keys():  # also what the next state is computed from
        if len(state) > _SCALARS:
            raise NotEvaluated("the loop carries too many scalars")
        after |= {path: evaluate(Value(body.root, path)) for path in new}
    met = set[tuple[int, ...]]()
    for count in range(_AT_MOST + 1):
        if not goes_on:
            return count
        if (numbers := tuple(state.values())) in met:
            raise NotEvaluated("the loop comes back to a state that it had before")
        met.add(numbers)
        state = {path: evaluate(Value(body.root, path)) for path in state}
        goes_on = evaluate(Value(condition.root))
    raise NotEvaluated(f"the loop does not end within {_AT_MOST} iterations")


def _evaluate(value: Value, state: Mapping[Path, int], known: dict[Value, int | None]) -> int:
    """The integer of a scalar; ``known`` holds those it is computed from, None at first."""
    value = origin(value)
    instruction = value.instruction
    if (found := known.get(value)) is not None:
        return found
    if len(known) >= _SCALARS:
        raise NotEvaluated("a scalar is computed in too many steps")
    known[value] = None
    found = state[value.path] if instruction.opcode == "parameter" else instruction.integer
    if found is None:
        operation = _OPERATIONS.get(instruction.comparison_direction or instruction.opcode)
        if operation is None:
            raise NotEvaluated(f"a scalar comes from {instruction.opcode}, which is not followed")
        operands = [_evaluate(operand, state, known) for operand in value.operands]
        found = _held(operation(*operands), instruction)
    known[value] = found
    return found


def _held(number: int, instruction: Instruction) -> int:
    """The number as the type of the result holds it.

    A truth value is true for any number but 0: XLA converts so, and adds two of them by "or".
    """
    shape = instruction.shape
    if shape.element_type == "pred":
        return number & 1 if instruction.opcode == "not" else int(number != 0)
    held = shape.integer_range
    if held is None:
        raise NotEvaluated(f"a scalar is {shape}, no integer")
    return (number - held.start) % (held.stop - held.start) + held.start
