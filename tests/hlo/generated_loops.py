"""Random loops over carried stacks: as HLO with a buffer assignment, and what they should write.

`expected` reads the tree alone, `emitted` writes it down; the two share no more than the names of
the actions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from math import prod

from hypothesis import strategies

from .assigned import Assigned, assigned

MOST_STACKS = 4
_DEPTH = 3


class Action(Enum):
    """What one iteration does with one stack."""

    PASS = "pass"
    UPDATE = "update in place"
    HIDDEN = "update out of place"
    COPY = "copy"
    FUSED_COPY = "copy in a fusion"
    TRANSPOSE = "transpose in a fusion, in the same bytes"
    ASYNC_COPY = "asynchronous copy"
    ONTO_ITSELF = "copy onto itself"
    BRANCH_COPY = "copy in a branch"


COSTS_NOTHING = {Action.PASS, Action.UPDATE, Action.ONTO_ITSELF}
_UPDATES = {Action.UPDATE: True, Action.HIDDEN: False}  # whether in place


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A while loop; ``trips`` is None where nothing tells how often it runs.

    ``joins`` puts its updates into one fusion of several results. The loop stands in a branch of a
    conditional if ``in_branch``.
    """

    trips: int | None
    actions: tuple[Action, ...]
    inner: tuple[Loop, ...]
    joins: bool
    in_branch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A whole write that is to be found; ``depth`` is 1 in the outermost loop."""

    content: str
    nbytes: int
    executions: int | None
    at_most: bool
    depth: int


def side(stack: int) -> int:
    """The rows and columns of a stack; all stacks differ in size."""
    return 4 + 2 * stack


@strategies.composite
def loops(draw: strategies.DrawFn) -> Loop:
    stacks = draw(strategies.integers(1, MOST_STACKS))
    return _draw_loop(draw, stacks, 1)


def _draw_loop(draw: strategies.DrawFn, stacks: int, depth: int) -> Loop:
    most_inside = 2 if depth < _DEPTH else 0
    return Loop(
        trips=draw(strategies.sampled_from((0, 1, 2, 3, 4, 5, None))),
        actions=tuple(draw(strategies.sampled_from(Action)) for _ in range(stacks)),
        inner=tuple(
            _draw_loop(draw, stacks, depth + 1)
            for _ in range(draw(strategies.integers(0, most_inside)))
        ),
        joins=draw(strategies.booleans()),
        in_branch=draw(strategies.booleans()),
    )


def expected(loop: Loop) -> Counter[Written]:
    """What the loop and those inside it write whole."""
    return Counter(_expected(loop, trips=(), at_most=False))


def _expected(loop: Loop, *, trips: tuple[int | None, ...], at_most: bool) -> Iterator[Written]:
    trips = (*trips, loop.trips)
    at_most = at_most or loop.in_branch
    if 0 in trips:
        return
    known = [each for each in trips if each is not None]
    executions = prod(known) if len(known) == len(trips) else None
    for stack, action in enumerate(loop.actions):
        if action not in COSTS_NOTHING:
            yield Written(
                content="update" if action is Action.HIDDEN else "copy",
                nbytes=4 * side(stack) ** 2,
                executions=executions,
                at_most=at_most or action is Action.BRANCH_COPY,
                depth=len(trips),
            )
    for inner in loop.inner:
        yield from _expected(inner, trips=trips, at_most=at_most)


def emitted(loop: Loop) -> Assigned:
    """The module of a loop, with its buffer assignment."""
    writer = _Writer(len(loop.actions))
    values = [f"x{stack}" for stack in range(writer.stacks)]
    lines = [
        f"{value} = {writer.shape(stack)} parameter({stack})" for stack, value in enumerate(values)
    ]
    lines.append(f"truth = s32[] parameter({writer.stacks})")
    results, more = writer.loop(loop, values, "truth", 1)
    lines += more
    lines.append(f"ROOT out = {writer.carry(counted=False)} tuple({', '.join(results)})")
    entry = "ENTRY main {\n" + "\n".join(lines) + "\n}\n"
    return assigned("HloModule generated\n" + "\n".join(writer.functions) + entry, writer.places)


@dataclass(slots=True)
class _Writer:
    """HLO text in the making: finished computations, and the places of values."""

    stacks: int
    functions: list[str] = field(default_factory=list)
    places: dict[str, tuple[int, int] | str | None] = field(default_factory=dict)
    _count: int = 0

    def name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}_{self._count}"

    def shape(self, stack: int) -> str:
        return f"f32[{side(stack)},{side(stack)}]"

    def carry(self, *, counted: bool = True) -> str:
        shapes = [self.shape(stack) for stack in range(self.stacks)]
        return f"({', '.join([*['s32[]'] * counted, *shapes])})"

    def at_home(self, value: str, stack: int) -> None:
        self.places[value] = (1 + stack, 0)

    def all_at_home(self, value: str) -> None:
        for stack in range(self.stacks):
            self.at_home(f"{value}/{stack + 1}", stack)

    def loop(
        self, loop: Loop, values: list[str], index: str, depth: int
    ) -> tuple[list[str], list[str]]:
        """The names of the stacks after the loop, and the lines that run it."""
        begin, start, result = self.name("begin"), self.name("start"), self.name("loop")
        lines = [
            f"{begin} = s32[] constant(0)",
            f"{start} = {self.carry()} tuple({', '.join([begin, *values])})",
        ]
        body, condition = self._body(loop, depth), self._condition(loop)
        attributes = f"condition={condition}, body={body}"
        if loop.in_branch:
            lines.append(self._branch(result, start, index, attributes))
        else:
            lines.append(f"{result} = {self.carry()} while({start}), {attributes}")
        self.all_at_home(result)
        return self._elements(result, lines)

    def _elements(self, result: str, lines: list[str]) -> tuple[list[str], list[str]]:
        names = [self.name("after") for _ in range(self.stacks)]
        lines += [
            f"{name} = {self.shape(stack)} get-tuple-element({result}), index={stack + 1}"
            for stack, name in enumerate(names)
        ]
        return names, lines

    def _branch(self, result: str, start: str, index: str, attributes: str) -> str:
        run, skip, state, same = map(self.name, ("run", "skip", "given", "same"))
        self.all_at_home(state)
        self.all_at_home(same)
        inside = self.name("inside")
        self.all_at_home(inside)
        carry = self.carry()
        self.functions.append(
            f"{run} {{ {state} = {carry} parameter(0)\n"
            f"ROOT {inside} = {carry} while({state}), {attributes} }}\n"
            f"{skip} {{ ROOT {same} = {carry} parameter(0) }}"
        )
        return (
            f"{result} = {carry} conditional({index}, {start}, {start}), "
            f"branch_computations={{{skip}, {run}}}"
        )

    def _condition(self, loop: Loop) -> str:
        name, state, k, bound, go = map(self.name, ("condition", "going", "k", "bound", "go"))
        limit = (
            f'custom-call({k}), custom_call_target="length"'
            if loop.trips is None
            else f"constant({loop.trips})"
        )
        self.functions.append(
            f"{name} {{ {state} = {self.carry()} parameter(0)\n"
            f"{k} = s32[] get-tuple-element({state}), index=0\n"
            f"{bound} = s32[] {limit}\n"
            f"ROOT {go} = pred[] compare({k}, {bound}), direction=LT }}"
        )
        return name

    def _body(self, loop: Loop, depth: int) -> str:
        name, state, i = self.name(f"body_{depth}"), self.name("state"), self.name("i")
        self.all_at_home(state)
        values, lines = self._elements(state, [])
        zero, one, after = self.name("zero"), self.name("one"), self.name("next")
        lines = [
            f"{state} = {self.carry()} parameter(0)",
            f"{i} = s32[] get-tuple-element({state}), index=0",
            f"{zero} = s32[] constant(0)",
            f"{one} = s32[] constant(1)",
            f"{after} = s32[] add({i}, {one})",
            *lines,
        ]
        for inner in loop.inner:
            values, more = self.loop(inner, values, i, depth + 1)
            lines += more
        values = self._acted(loop, values, lines, i, zero)
        root = f"ROOT {self.name('root')} = {self.carry()} tuple({', '.join([after, *values])})"
        self.functions.append("\n".join([f"{name} {{", *lines, root, "}"]))
        return name

    def _acted(
        self, loop: Loop, values: list[str], lines: list[str], i: str, zero: str
    ) -> list[str]:
        """The stacks after their actions."""
        joined = [stack for stack, each in enumerate(loop.actions) if each in _UPDATES]
        if not loop.joins or len(joined) == 1:
            joined = []
        results = list(values)
        if joined:
            self._joined(loop, joined, results, lines, i)
        for stack, action in enumerate(loop.actions):
            if stack not in joined and action is not Action.PASS:
                results[stack] = self._one(action, stack, values[stack], lines, (i, zero))
        return results

    def _joined(
        self, loop: Loop, joined: list[int], values: list[str], lines: list[str], i: str
    ) -> None:
        """One fusion for the updates of several stacks."""
        name, fusion, at, zero = map(self.name, ("joined", "fusion", "at", "zero"))
        inside = [f"{at} = s32[] parameter({len(joined)})", f"{zero} = s32[] constant(0)"]
        updated = []
        for number, stack in enumerate(joined):
            base, row, new = map(self.name, ("base", "row", "updated"))
            inside += [
                f"{base} = {self.shape(stack)} parameter({number})",
                f"{row} = f32[1,{side(stack)}] constant({{...}})",
                f"{new} = {self.shape(stack)} dynamic-update-slice({base}, {row}, {at}, {zero})",
            ]
            updated.append(new)
        result = f"({', '.join(map(self.shape, joined))})"
        inside.append(f"ROOT {self.name('all')} = {result} tuple({', '.join(updated)})")
        self.functions.append("\n".join([f"{name} {{", *inside, "}"]))
        operands = ", ".join([*(values[stack] for stack in joined), i])
        lines.append(f"{fusion} = {result} fusion({operands}), kind=kLoop, calls={name}")
        for number, stack in enumerate(joined):
            if _UPDATES[loop.actions[stack]]:
                self.at_home(f"{fusion}/{number}", stack)
            values[stack] = self.name("joined_result")
            lines.append(
                f"{values[stack]} = {self.shape(stack)} get-tuple-element({fusion}), index={number}"
            )

    def _one(
        self, action: Action, stack: int, value: str, lines: list[str], indices: tuple[str, str]
    ) -> str:
        """The name of one stack after its own action."""
        result, shape = self.name("result"), self.shape(stack)
        if action in _UPDATES:
            row = self.name("row")
            lines.append(f"{row} = f32[1,{side(stack)}] constant({{...}})")
            operands = ", ".join([value, row, *indices])
            lines.append(f"{result} = {shape} dynamic-update-slice({operands})")
        elif action in {Action.COPY, Action.ONTO_ITSELF}:
            lines.append(f"{result} = {shape} copy({value})")
        elif action in {Action.FUSED_COPY, Action.TRANSPOSE}:
            operation = "transpose({}), dimensions={{1,0}}"
            inside = self._unary(stack, "copy({})" if action is Action.FUSED_COPY else operation)
            lines.append(f"{result} = {shape} fusion({value}), kind=kLoop, calls={inside}")
        elif action is Action.ASYNC_COPY:
            begun, inside = self.name("begun"), self._unary(stack, "copy({})")
            pair = f"(({shape}), {shape}, u32[])"
            lines.append(f"{begun} = {pair} async-start({value}), calls={inside}")
            lines.append(f"{result} = {shape} async-done({begun})")
        else:
            branches = f"{self._unary(stack, 'bitcast({})')}, {self._unary(stack, 'copy({})')}"
            operands = f"{indices[0]}, {value}, {value}"
            lines.append(
                f"{result} = {shape} conditional({operands}), branch_computations={{{branches}}}"
            )
        if action in {Action.UPDATE, Action.ONTO_ITSELF, Action.TRANSPOSE}:
            self.at_home(result, stack)
        return result

    def _unary(self, stack: int, operation: str) -> str:
        """A computation of one operation on a stack."""
        name, given, made = map(self.name, ("unary", "given", "made"))
        shape = self.shape(stack)
        self.functions.append(
            f"{name} {{ {given} = {shape} parameter(0)\n"
            f"ROOT {made} = {shape} {operation.format(given)} }}"
        )
        return name
