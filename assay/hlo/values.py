"""Where a value comes from: the instruction that made it, behind those that only pass it on.

A step is a function from a value to the value before it, or None. ``behind`` and ``origin`` repeat
steps until there is no value before.
"""

from collections.abc import Callable
from dataclasses import dataclass

from assay.hlo.instruction import Instruction
from assay.model.module import Shape

# Opcode -> path of the result in the operand that holds it; an asynchronous start has it already.
_RENAMES = {
    "all-gather-done": (1,),
    "all-reduce-done": (),
    "async-done": (1,),
    "async-update": (),
    "bitcast": (),
    "collective-permute-done": (1,),
    "copy-done": (0,),
    "opt-barrier": (),
}


@dataclass(frozen=True, slots=True)
class Value:
    """An instruction's result, or the element of it at ``path``.

    ``callers`` are the calls through which its computation was entered, the outermost first;
    without one, its computation's parameters stand for themselves.
    """

    instruction: Instruction
    path: tuple[int, ...] = ()
    callers: tuple[Instruction, ...] = ()

    @property
    def shape(self) -> Shape:
        """The shape of the value."""
        return self.instruction.shape.at(self.path)

    def operand(self, number: int = 0, path: tuple[int, ...] = ()) -> "Value":
        """The element at ``path`` of an operand of the instruction."""
        return Value(self.instruction.operands[number], path, self.callers)

    @property
    def operands(self) -> tuple["Value", ...]:
        """The operands of the instruction."""
        return tuple(Value(each, (), self.callers) for each in self.instruction.operands)


def last(value: Value, step: Callable[[Value], Value | None]) -> Value:
    """The value after repeated steps."""
    while (before := step(value)) is not None:
        value = before
    return value


def renamed(value: Value) -> Value | None:
    """The value in the same memory that this one is another name of; None if it has its own."""
    path, opcode = value.path, value.instruction.opcode
    if opcode == "get-tuple-element":
        return value.operand(0, (value.instruction.tuple_index, *path))
    if opcode == "tuple" and path:
        return value.operand(path[0], path[1:])
    if opcode in _RENAMES:
        return value.operand(0, (*_RENAMES[opcode], *path))
    return None


def entered(value: Value) -> Value | None:
    """The same value inside the computation that a call, a fusion or an async-start runs once."""
    instruction, path = value.instruction, value.path
    if instruction.opcode == "async-start" and path[:1] == (1,):
        path = path[1:]  # its elements are its operands, its result and its context
    elif instruction.opcode not in {"call", "fusion"}:
        return None
    return Value(instruction.called[0].root, path, (*value.callers, instruction))


def argument(value: Value) -> Value | None:
    """What the caller passes for a parameter of the computation that was entered through it.

    None for anything else, and where the caller has fewer operands: a TPU may start a kernel whose
    operands the start does not name.
    """
    instruction = value.instruction
    if instruction.opcode != "parameter" or not value.callers:
        return None
    *outer, caller = value.callers
    number = instruction.parameter_number
    if caller.opcode == "conditional":  # its first operand chooses the branch
        number = 1 + caller.called.index(instruction.computation)
    if number >= len(caller.operands):
        return None
    return Value(caller.operands[number], value.path, tuple(outer))


def behind(value: Value) -> Value:
    """The value that this one is, at last, another name of."""
    return last(value, renamed)


def origin(value: Value) -> Value:
    """The value behind tuples, copies, barriers, calls and fusions, which only pass it on.

    Ends at an instruction that computes, at a bitcast, at a while or conditional, at a constant, or
    at a parameter of the computation that ``value`` started in.
    """
    return last(value, _same)


def _same(value: Value) -> Value | None:
    opcode = value.instruction.opcode
    if opcode in {"copy", "reshape"}:
        return value.operand(0, value.path)
    if opcode == "copy-start":  # its elements are the copy, the source and its context
        return value.operand(0, value.path[1:])
    if opcode == "bitcast":  # may be of another type
        return None
    return renamed(value) or entered(value) or argument(value)
