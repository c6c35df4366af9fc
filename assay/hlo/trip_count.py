"""Trip counts: how often a while loop's body runs, and how often each computation is executed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from assay.hlo.instruction import Instruction
from assay.hlo.loop_evaluation import Budget, NotEvaluated, evaluated_trip_count
from assay.hlo.module import Computation, Module
from assay.hlo.values import Value, argument, origin
from assay.model.module import Shape, TripSource

_DEPTH: Final = 64
_MOST_TRIPS: Final = 2**64
"""A counter has at most 64 bits."""

_MOST_EXECUTIONS: Final = 2**63 - 1
"""A machine needs centuries for that many; a larger number is not known to be right."""

_NEGATION: Final = {"LT": "GE", "GE": "LT", "LE": "GT", "GT": "LE", "EQ": "NE", "NE": "EQ"}

Variable = tuple[int, ...]
"""A parameter of a computation: its number, then the path into its tuple."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TripCount:
    """Runs of a while body per run of the while; ``trips`` is None for the ``reason`` given."""

    trips: int | None
    found: TripSource
    reason: str = ""


class _NotDerivable(Exception):
    """A value does not follow from integer constants; the text becomes TripCount.reason."""


class _Endless(_NotDerivable):
    """The loop has the known form and runs forever, or until a counter wraps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Linear:
    """An integer: ``offset`` plus multiples of the parameters of one computation."""

    offset: int
    multiples: Mapping[Variable, int] = field(default_factory=dict)

    def plus(self, other: "_Linear", times: int = 1) -> "_Linear":
        """This plus ``times`` the other."""
        multiples = dict(self.multiples)
        for variable, multiple in other.multiples.items():
            multiples[variable] = multiples.get(variable, 0) + times * multiple
        return _Linear(
            offset=self.offset + times * other.offset,
            multiples={variable: multiple for variable, multiple in multiples.items() if multiple},
        )


class TripCounter:
    """Trip counts of one module's while loops.

    The compiler's ``known_trip_count`` is used if there is one. Otherwise both sides of the
    condition's comparison are sums of loop-carried integers. One that the body changes by a
    constant is ``init + k * step`` in iteration k, so the comparison decides the first k at which
    the loop ends. A bound that is carried unchanged has step 0. Other loops are evaluated iteration
    by iteration, if they are integer arithmetic on known values.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._linears: dict[Value, _Linear] = {}
        self._counts: dict[Instruction, TripCount] = {}
        self._depth = 0
        self._budget = Budget()

    def count(self, loop: Instruction) -> TripCount:
        """The trip count of a while instruction."""
        if loop not in self._counts:
            known = _known_trip_count(loop.backend_config)
            if known is not None:
                self._counts[loop] = TripCount(trips=known, found=TripSource.KNOWN)
            else:
                self._counts[loop] = self._derived(loop)
        return self._counts[loop]

    def _derived(self, loop: Instruction) -> TripCount:
        try:
            return TripCount(trips=self._trips(loop), found=TripSource.DERIVED)
        except _Endless as error:
            return TripCount(trips=None, found=TripSource.UNKNOWN, reason=str(error))
        except _NotDerivable as error:
            reason = str(error)
        try:
            trips = evaluated_trip_count(loop, lambda path: self._initial(loop, path), self._budget)
        except (NotEvaluated, _NotDerivable):
            return TripCount(trips=None, found=TripSource.UNKNOWN, reason=reason)
        return TripCount(trips=trips, found=TripSource.EVALUATED)

    def _trips(self, loop: Instruction) -> int:
        compare, direction = _comparison(loop.called[1])
        lines = [self._line(loop, side) for side in compare.operands]
        (left, left_step), (right, right_step) = lines
        trips = _first_end(left - right, left_step - right_step, direction)
        for side, (first, step) in zip(compare.operands, lines, strict=True):
            held = side.shape.integer_range
            if held is None or first not in held or first + trips * step not in held:
                raise _Endless(f"the counter leaves the range of {side.shape}")
        return trips

    def _line(self, loop: Instruction, side: Value) -> tuple[int, int]:
        """A side of the comparison as (value in iteration 0, change per iteration)."""
        linear = self._linear(side)
        first, change = linear.offset, 0
        for variable, multiple in linear.multiples.items():
            first += multiple * self._initial(loop, variable[1:])
            change += multiple * self._step(loop, variable[1:])
        return first, change

    def _initial(self, loop: Instruction, path: tuple[int, ...]) -> int:
        """The loop-carried integer at ``path`` before the loop."""
        return self._constant(Value(loop.operands[0], path))

    def _step(self, loop: Instruction, path: tuple[int, ...]) -> int:
        """What one iteration adds to the loop-carried integer at ``path``."""
        change = self._linear(Value(loop.called[0].root, path)).plus(_carried(path), -1)
        step = change.offset
        for variable, multiple in change.multiples.items():
            if variable == (0, *path) or not self._is_kept(loop, variable[1:]):
                raise _NotDerivable("the body changes the counter by no constant")
            step += multiple * self._initial(loop, variable[1:])
        return _shortest(step, loop.shape.at(path))

    def _is_kept(self, loop: Instruction, path: tuple[int, ...]) -> bool:
        return self._linear(Value(loop.called[0].root, path)) == _carried(path)

    def _constant(self, value: Value) -> int:
        linear = self._linear(value)
        return linear.offset + sum(
            multiple * self._argument(value.instruction.computation, variable)
            for variable, multiple in linear.multiples.items()
        )

    def _argument(self, computation: Computation, variable: Variable) -> int:
        """The value that a computation's only caller passes for a parameter."""
        number, *path = variable
        callers = self._module.callers.get(computation, ())
        if len(callers) != 1:
            where = f"{len(callers)} callers" if callers else "the program's arguments"
            raise _NotDerivable(f"a value depends on {where} of {computation.name}")
        (caller,) = callers
        if caller.opcode == "while" and not self._is_kept(caller, tuple(path)):
            raise _NotDerivable(f"a value changes in the loop around it, {caller.name}")
        passed = argument(Value(computation.parameter(number), tuple(path), callers))
        if passed is None:
            raise _NotDerivable(f"a value is an operand that {caller.name} does not name")
        return self._constant(passed)

    def _linear(self, value: Value) -> _Linear:
        value = origin(value)
        if value not in self._linears:
            if self._depth == _DEPTH:
                raise _NotDerivable("a value is computed in too many steps")
            self._depth += 1
            try:
                self._linears[value] = self._computed(value)
            finally:
                self._depth -= 1
        return self._linears[value]

    def _computed(self, value: Value) -> _Linear:
        instruction = value.instruction
        opcode = instruction.opcode
        if opcode == "parameter":
            return _Linear(offset=0, multiples={(instruction.parameter_number, *value.path): 1})
        constant = instruction.integer
        if constant is not None:
            return _Linear(offset=constant)
        if opcode == "while":
            return self._after(value)
        if opcode in {"add", "subtract"}:
            left, right = map(self._linear, value.operands)
            return left.plus(right, 1 if opcode == "add" else -1)
        if opcode == "negate":
            return _Linear(offset=0).plus(self._linear(value.operand()), -1)
        if opcode in {"convert", "bitcast"}:
            return _converted(value, self._linear(value.operand()))
        raise _NotDerivable(f"a value comes from {opcode}, which is not followed")

    def _after(self, value: Value) -> _Linear:
        """An integer that a loop carried, after the loop."""
        loop, path = value.instruction, value.path
        change = 0 if self._is_kept(loop, path) else self._step(loop, path)
        if change:
            count = self.count(loop)
            if count.trips is None:
                raise _NotDerivable(f"a value comes from the loop {loop.name}: {count.reason}")
            change *= count.trips
        before = self._linear(value.operand(0, path))
        return before.plus(_Linear(offset=change))


def _carried(path: tuple[int, ...]) -> _Linear:
    """The integer at ``path`` of a loop body's parameter."""
    return _Linear(offset=0, multiples={(0, *path): 1})


def _converted(value: Value, linear: _Linear) -> _Linear:
    """``linear`` in another integer type, if no value can change on the way."""
    into = value.instruction.shape.integer_range
    held = value.instruction.operands[0].shape.integer_range
    if into is not None and held is not None:
        fits = held.start >= into.start and held.stop <= into.stop
        if fits or (not linear.multiples and linear.offset in into):
            return linear
    raise _NotDerivable(f"a value is converted to {value.instruction.shape}")


def _comparison(condition: Computation) -> tuple[Value, str]:
    value = origin(Value(condition.root))
    negated = False
    while value.instruction.opcode == "not":
        negated = not negated
        value = origin(value.operand())
    if value.instruction.opcode != "compare":
        raise _NotDerivable(f"the condition ends in {value.instruction.opcode}, not in a compare")
    direction = value.instruction.comparison_direction
    return value, _NEGATION[direction] if negated else direction


def _first_end(difference: int, change: int, direction: str) -> int:
    """The first k >= 0 for which ``difference + k * change`` compared with 0 is false."""
    if direction in {"GT", "GE"}:
        difference, change = -difference, -change
    if direction in {"LE", "GE"}:
        difference -= 1
    if direction == "EQ":
        ends, left = difference != 0, int(change != 0)
    elif direction == "NE":
        ends = difference == 0
        left = -difference // change if change and difference % change == 0 else 0
    else:
        ends = difference >= 0
        left = -(difference // change) if change > 0 else 0
    if ends:
        return 0
    if left <= 0:
        raise _Endless("the counter never meets the bound")
    return left


def _shortest(step: int, shape: Shape) -> int:
    """The smallest equivalent step: an unsigned type adds -1 as ``2**n - 1``."""
    held = shape.integer_range
    if held is None:
        raise _NotDerivable(f"the counter is {shape}, no integer")
    count = held.stop - held.start  # len() refuses a range of 64-bit integers
    return (step + count // 2) % count - count // 2


def _known_trip_count(backend_config: bytes) -> int | None:
    if b"known_trip_count" not in backend_config:
        return None
    try:
        count = int(json.loads(backend_config)["known_trip_count"]["n"])
    # Another backend's format, or an infinite number, or what is nested too deep.
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return count if 0 <= count <= _MOST_TRIPS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Executions:
    """Runs per run of the module; ``count`` is None if a trip count on the way is unknown.

    ``at_most`` marks an upper bound: the computation lies in a branch of a conditional, and every
    branch is counted as often as the conditional.
    """

    count: int | None
    at_most: bool = False

    def times(self, factor: int | None, *, at_most: bool = False) -> "Executions":
        """Executions of what each execution runs ``factor`` times, or at most so often."""
        if self.count == 0 or factor == 0:
            return Executions(count=0)
        count = None if self.count is None or factor is None else self.count * factor
        return Executions(count=_plausible(count), at_most=self.at_most or at_most)

    def plus(self, other: "Executions") -> "Executions":
        """Executions through either of two callers."""
        known = self.count is not None and other.count is not None
        count = (self.count or 0) + (other.count or 0) if known else None
        return Executions(count=_plausible(count), at_most=self.at_most or other.at_most)


def _plausible(count: int | None) -> int | None:
    return None if count is None or count > _MOST_EXECUTIONS else count


def executions(module: Module, trips: TripCounter) -> Mapping[Computation, Executions]:
    """Executions of every computation that the entry reaches by control flow, fusion or async.

    Functions that a reduce, sort or scatter applies to single elements are not among them.
    """
    counts = {module.entry: Executions(count=1)}
    for computation in reversed(module.computations):  # callers come after what they call
        for instruction in computation.calls if computation in counts else ():
            factors: Sequence[int | None] = [1] * len(instruction.called)
            if instruction.opcode == "while":  # runs its condition once more than its body
                count = trips.count(instruction).trips
                factors = [count, None if count is None else count + 1]
            at_most = instruction.opcode == "conditional"
            for callee, factor in zip(instruction.called, factors, strict=True):
                runs = counts[computation].times(factor, at_most=at_most)
                counts[callee] = counts[callee].plus(runs) if callee in counts else runs
    return counts
