"""Trip counts: how often a while loop's body runs, and how often each computation is executed."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from assay.hlo.instruction import Instruction
from assay.hlo.loop_evaluation import NotEvaluated, evaluated_trip_count
from assay.hlo.module import Computation, Module
from assay.hlo.values import Value, origin
from assay.model.module import Shape, TripSource

_DEPTH: Final = 64
_PASSES_OPERANDS: Final = frozenset({"while", "call", "fusion", "async-start"})
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
    """A value is no integer that follows from constants; the text becomes TripCount.reason."""


class _Endless(_NotDerivable):
    """The form is known, and by it the loop runs for ever or until a counter wraps."""


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

    The compiler's ``known_trip_count`` is believed. Without it, both sides of the condition's
    comparison are written as a sum of loop-carried integers; an integer that the body changes by a
    constant is ``init + k * step`` in iteration k, so the comparison decides the first k at which
    the loop ends. A bound that is carried unchanged is a step of 0. What has no such form is done
    iteration by iteration, if it is integer arithmetic on known values.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._linears: dict[Value, _Linear] = {}
        self._counts: dict[Instruction, TripCount] = {}

    def count(self, loop: Instruction) -> TripCount:
        """The trip count of a while instruction."""
        return self._count(loop, 0)

    def _count(self, loop: Instruction, depth: int) -> TripCount:
        if loop not in self._counts:
            known = _known_trip_count(loop.backend_config)
            if known is not None:
                self._counts[loop] = TripCount(trips=known, found=TripSource.KNOWN)
            else:
                self._counts[loop] = self._derived(loop, depth)
        return self._counts[loop]

    def _derived(self, loop: Instruction, depth: int) -> TripCount:
        try:
            trips = self._derive(loop, depth)
        except _Endless as reason:
            return TripCount(trips=None, found=TripSource.UNKNOWN, reason=str(reason))
        except _NotDerivable as reason:
            return self._evaluated(loop, depth, str(reason))
        return TripCount(trips=trips, found=TripSource.DERIVED)

    def _evaluated(self, loop: Instruction, depth: int, reason: str) -> TripCount:
        """The count by doing what the loop does; ``reason`` is why it could not be derived."""
        try:
            trips = evaluated_trip_count(
                loop, lambda path: self._constant(Value(loop.operands[0], path), depth + 1)
            )
        except (NotEvaluated, _NotDerivable):
            return TripCount(trips=None, found=TripSource.UNKNOWN, reason=reason)
        return TripCount(trips=trips, found=TripSource.EVALUATED)

    def _derive(self, loop: Instruction, depth: int) -> int:
        compare, direction = _comparison(loop.called[1])
        sides = [
            origin(Value(operand, (), compare.site)) for operand in compare.instruction.operands
        ]
        lines = [self._line(loop, side, depth) for side in sides]
        (left, left_step), (right, right_step) = lines
        trips = _first_end(left - right, left_step - right_step, direction)
        for operand, (first, step) in zip(compare.instruction.operands, lines, strict=True):
            held = operand.shape.integer_range
            if held is None or first not in held or first + trips * step not in held:
                raise _Endless(f"the counter leaves the range of {operand.shape}")
        return trips

    def _line(self, loop: Instruction, side: Value, depth: int) -> tuple[int, int]:
        """A side of the comparison as (value in iteration 0, change per iteration)."""
        linear = self._linear(side, depth)
        first, change = linear.offset, 0
        for variable, multiple in linear.multiples.items():
            path = variable[1:]
            first += multiple * self._constant(Value(loop.operands[0], path), depth + 1)
            change += multiple * self._step(loop, path, depth)
        return first, change

    def _step(self, loop: Instruction, path: tuple[int, ...], depth: int) -> int:
        """What one iteration adds to the loop-carried integer at ``path``."""
        before = _Linear(offset=0, multiples={(0, *path): 1})
        after = self._linear(Value(loop.called[0].root, path), depth + 1)
        change = after.plus(before, -1)
        step = change.offset
        for variable, multiple in change.multiples.items():
            if variable == (0, *path) or not self._is_kept(loop, variable[1:], depth):
                raise _NotDerivable("the body changes the counter by no constant")
            step += multiple * self._constant(Value(loop.operands[0], variable[1:]), depth + 1)
        return _shortest(step, loop.shape.at(path))

    def _is_kept(self, loop: Instruction, path: tuple[int, ...], depth: int) -> bool:
        kept = self._linear(Value(loop.called[0].root, path), depth + 1)
        return kept == _Linear(offset=0, multiples={(0, *path): 1})

    def _constant(self, value: Value, depth: int) -> int:
        linear = self._linear(value, depth)
        return linear.offset + sum(
            multiple * self._argument(value.instruction.computation, variable, depth + 1)
            for variable, multiple in linear.multiples.items()
        )

    def _argument(self, computation: Computation, variable: Variable, depth: int) -> int:
        """The value that a computation's only caller passes for a parameter."""
        number, *path = variable
        callers = self._module.callers.get(computation, ())
        if len(callers) != 1:
            where = f"{len(callers)} callers" if callers else "the program's arguments"
            raise _NotDerivable(f"a value depends on {where} of {computation.name}")
        (caller,) = callers
        if caller.opcode == "conditional":
            operand = caller.operands[1 + caller.called.index(computation)]
        elif caller.opcode in _PASSES_OPERANDS:
            operand = caller.operands[number]
        else:
            raise _NotDerivable(f"a value is a parameter of what {caller.opcode} calls")
        if caller.opcode == "while" and not self._is_kept(caller, tuple(path), depth):
            raise _NotDerivable(f"a value changes in the loop around it, {caller.name}")
        return self._constant(Value(operand, tuple(path)), depth)

    def _linear(self, value: Value, depth: int) -> _Linear:
        if depth > _DEPTH:
            raise _NotDerivable("a value is computed in too many steps")
        value = origin(value)
        if value not in self._linears:
            self._linears[value] = self._computed(value, depth + 1)
        return self._linears[value]

    def _computed(self, value: Value, depth: int) -> _Linear:
        instruction = value.instruction
        opcode = instruction.opcode
        if opcode == "parameter":
            return _Linear(offset=0, multiples={(instruction.parameter_number, *value.path): 1})
        constant = instruction.integer
        if constant is not None:
            return _Linear(offset=constant)
        if opcode == "while":
            return self._after(value, depth)
        operands = [Value(operand, (), value.site) for operand in instruction.operands]
        if opcode in {"add", "subtract"}:
            left, right = (self._linear(operand, depth) for operand in operands)
            return left.plus(right, 1 if opcode == "add" else -1)
        if opcode == "negate":
            return _Linear(offset=0).plus(self._linear(operands[0], depth), -1)
        if opcode in {"convert", "bitcast"}:
            return self._converted(value, self._linear(operands[0], depth))
        raise _NotDerivable(f"a value comes from {opcode}, which is not followed")

    def _converted(self, value: Value, linear: _Linear) -> _Linear:
        """``linear`` in another integer type, if no value can change on the way."""
        into = value.instruction.shape.integer_range
        come_from = value.instruction.operands[0].shape.integer_range
        if into is not None and come_from is not None:
            fits = linear.offset in into if not linear.multiples else _within(come_from, into)
            if fits:
                return linear
        raise _NotDerivable(f"a value is converted to {value.instruction.shape}")

    def _after(self, value: Value, depth: int) -> _Linear:
        """An integer that a loop carried, after the loop."""
        loop, path = value.instruction, value.path
        change = 0 if self._is_kept(loop, path, depth) else self._step(loop, path, depth)
        if change:
            count = self._count(loop, depth)
            if count.trips is None:
                raise _NotDerivable(f"a value comes from the loop {loop.name}: {count.reason}")
            change *= count.trips
        before = self._linear(Value(loop.operands[0], path, value.site), depth)
        return before.plus(_Linear(offset=change))


def _comparison(condition: Computation) -> tuple[Value, str]:
    value = origin(Value(condition.root))
    negated = False
    while value.instruction.opcode == "not":
        negated = not negated
        value = origin(Value(value.instruction.operands[0], (), value.site))
    if value.instruction.opcode != "compare":
        raise _NotDerivable(f"the condition ends in {value.instruction.opcode}, not in a compare")
    direction = value.instruction.comparison_direction
    return value, _NEGATION[direction] if negated else direction


def _first_end(difference: int, change: int, direction: str) -> int:
    """The first k >= 0 at which ``difference + k * change`` no longer compares so with 0."""
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
    """The step of least size that gives the same integers: an unsigned type adds -1 as 2**n - 1."""
    held = shape.integer_range
    if held is None:
        raise _NotDerivable(f"the counter is {shape}, no integer")
    count = held.stop - held.start  # len() refuses a range of 64-bit integers
    return (step + count // 2) % count - count // 2


def _within(inner: range, outer: range) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop


def _known_trip_count(backend_config: bytes) -> int | None:
    if b"known_trip_count" not in backend_config:
        return None
    try:
        return int(json.loads(backend_config)["known_trip_count"]["n"])
    except (ValueError, KeyError, TypeError):  # another backend's words, by chance with this name
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Executions:
    """Runs per run of the module; ``count`` is None if a trip count on the way is unknown.

    ``at_most`` marks an upper bound: the computation lies in a branch of a conditional, and every
    branch is counted as often as the conditional.
    """

    count: int | None
    at_most: bool = False

    def times(self, factor: int | None) -> "Executions":
        """Executions of what each execution runs ``factor`` times."""
        if self.count == 0 or factor == 0:
            return Executions(count=0)
        count = None if self.count is None or factor is None else self.count * factor
        return Executions(count=count, at_most=self.at_most)

    def plus(self, other: "Executions") -> "Executions":
        """Executions through either of two callers."""
        known = self.count is not None and other.count is not None
        count = (self.count or 0) + (other.count or 0) if known else None
        return Executions(count=count, at_most=self.at_most or other.at_most)


def executions(module: Module, trips: TripCounter) -> Mapping[Computation, Executions]:
    """Executions of every computation that the entry reaches by control flow, fusion or async.

    Functions that a reduce, sort or scatter applies to single elements are not among them.
    """
    counts = {module.entry: Executions(count=1)}
    for computation in _callers_first(module):
        runs = counts[computation]
        for callee, factor, at_most in _calls(computation, trips):
            through = runs.times(factor)
            if at_most and through.count != 0:
                through = Executions(count=through.count, at_most=True)
            counts[callee] = counts[callee].plus(through) if callee in counts else through
    return counts


def _calls(
    computation: Computation, trips: TripCounter
) -> Iterator[tuple[Computation, int | None, bool]]:
    """Callee, its runs per run of ``computation``, and whether that is an upper bound."""
    for instruction in computation.calls:
        if instruction.opcode == "while":
            count = trips.count(instruction).trips
            body, condition = instruction.called
            yield body, count, False
            yield condition, None if count is None else count + 1, False
        else:
            for callee in instruction.called:
                yield callee, 1, instruction.opcode == "conditional"


def _callers_first(module: Module) -> list[Computation]:
    """Every reached computation, after all that call it."""
    finished: dict[Computation, None] = {}
    pending = [(module.entry, False)]
    entered: set[Computation] = set()
    while pending:
        computation, leaving = pending.pop()
        if leaving:
            finished[computation] = None
        elif computation not in entered:
            entered.add(computation)
            pending.append((computation, True))
            pending.extend(
                (callee, False)
                for instruction in computation.calls
                for callee in instruction.called
            )
    return list(reversed(finished))
