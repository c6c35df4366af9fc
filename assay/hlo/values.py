"""Where a value comes from: the instruction that made it, behind all that only passes it on."""

from dataclasses import dataclass

from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation

_SAME_VALUE = frozenset({"copy", "reshape", "opt-barrier", "async-done", "async-update"})
# Path of the result in the operand that holds it.
_RESULT_OF_START = {
    "all-gather-done": (1,),
    "all-reduce-done": (),
    "async-done": (1,),
    "async-update": (),
    "bitcast": (),
    "collective-permute-done": (1,),
    "copy-done": (0,),
    "opt-barrier": (),
}
_CALLS_ONCE = frozenset({"call", "fusion", "async-start"})


@dataclass(frozen=True, slots=True)
class Site:
    """A call that was entered on the way to a value, and the call around it."""

    caller: Instruction
    outer: "Site | None"


@dataclass(frozen=True, slots=True)
class Value:
    """An instruction's result, or the element of it at ``path``.

    ``site`` is the call through which its computation was entered; without one, its computation's
    parameters stand for themselves.
    """

    instruction: Instruction
    path: tuple[int, ...] = ()
    site: Site | None = None


def origin(value: Value) -> Value:
    """The value behind tuples, copies, barriers, calls and fusions, which only pass it on.

    Ends at an instruction that computes, at a while or conditional, at a constant, or at a
    parameter of the computation that ``value`` started in.
    """
    while (before := _predecessor(value)) is not None:
        value = before
    return value


def renamed(value: Value) -> Value | None:
    """The value in the same memory that this one is another name of, None if it has its own.

    What was started asynchronously has its result in the start already.
    """
    instruction, path, site = value.instruction, value.path, value.site
    opcode = instruction.opcode
    if opcode == "get-tuple-element":
        return Value(instruction.operands[0], (instruction.tuple_index, *path), site)
    if opcode == "tuple" and path:
        return Value(instruction.operands[path[0]], path[1:], site)
    if opcode in _RESULT_OF_START:
        return Value(instruction.operands[0], (*_RESULT_OF_START[opcode], *path), site)
    return None


def behind(value: Value) -> Value:
    """The value that this one is, at last, another name of."""
    while (before := renamed(value)) is not None:
        value = before
    return value


def argument(value: Value) -> Value | None:
    """What the caller passes for a parameter of the computation that was entered through it.

    None of anything else, and where the caller names fewer operands, as a TPU's start may that
    hands a kernel its operands by other means.
    """
    instruction, path, site = value.instruction, value.path, value.site
    if instruction.opcode != "parameter" or site is None:
        return None
    number, operands = instruction.parameter_number, site.caller.operands
    if site.caller.opcode == "conditional":  # its first operand chooses the branch
        number = 1 + site.caller.called.index(instruction.computation)
    return Value(operands[number], path, site.outer) if number < len(operands) else None


def _predecessor(value: Value) -> Value | None:
    instruction, path, site = value.instruction, value.path, value.site
    opcode = instruction.opcode
    if opcode in {"get-tuple-element", "copy-done"}:  # a copy is its start's first element
        return Value(instruction.operands[0], (instruction.tuple_index, *path), site)
    if opcode in {"tuple", "copy-start"} and path:
        operand = instruction.operands[path[0] if opcode == "tuple" else 0]
        return Value(operand, path[1:], site)
    if opcode in _SAME_VALUE:
        return Value(instruction.operands[0], path, site)
    if opcode in _CALLS_ONCE:
        return Value(_callee(instruction).root, path, Site(instruction, site))
    return argument(value)


def _callee(instruction: Instruction) -> Computation:
    (callee,) = instruction.called
    return callee
