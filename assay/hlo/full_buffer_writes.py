"""Full-buffer writes: arrays that a module writes whole although it need not; and donations.

A loop that updates one row of a stack per iteration should write that row. If the compiler cannot
share the buffer before with the buffer after, each iteration moves the whole stack, once or several
times. In the module this may be a copy, a fusion with a copy or a transpose at its root, one result
of several, an asynchronous operation, or an update whose base lies elsewhere than its result. The
last is visible only in the buffer assignment.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from assay.hlo.assignment import BufferAssignment, Slice
from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation, Module
from assay.hlo.trip_count import Executions
from assay.hlo.value_provenance import Origin, origin_of, written
from assay.hlo.values import Site, Value, argument, behind, renamed
from assay.model.summary import Content, Donation, FullBufferWrite

_MOVES_DATA: Final = frozenset(
    {
        "async-start",
        "bitcast-convert",
        "concatenate",
        "convert",
        "copy",
        "copy-start",
        "custom-call",
        "dynamic-update-slice",
        "fusion",
        "pad",
        "reshape",
        "reverse",
        "scatter",
        "select",
        "slice",
        "transpose",
    }
)
_UPDATES: Final = frozenset(
    {"async-start", "copy", "custom-call", "dynamic-update-slice", "fusion", "scatter"}
)
"""Opcodes whose results may lie where a base lay, and hold what it held."""

_RUNS_OTHERS: Final = frozenset({"call", "conditional"})
_WRITES_NOTHING: Final = frozenset({"constant", "parameter"})

Array = tuple[Instruction, tuple[int, ...]]
"""An instruction, and the path of one array in its result."""


@dataclass(frozen=True, slots=True)
class _Around:
    """The innermost loop around a computation, by its body; None outside of loops."""

    body: Computation | None


class _Fillings:
    """What arrays are filled with, and whether in place; each is looked at once."""

    def __init__(self, assignment: BufferAssignment | None) -> None:
        self._assignment = assignment
        self._known: dict[Array, tuple[Origin | None, bool | None]] = {}

    def of(self, array: Array) -> tuple[Origin | None, bool | None]:
        """What the array repeats, and whether it lies where that lay; None if it is not known."""
        if array not in self._known:
            origin = origin_of(*array)
            self._known[array] = origin, self._in_place(array, origin)
        return self._known[array]

    def _in_place(self, array: Array, origin: Origin | None) -> bool | None:
        if self._assignment is None or origin is None:
            return None
        into = self._assignment.slice_of(*array)
        from_ = self._assignment.slice_of(origin.base.instruction, origin.base.path)
        return None if into is None or from_ is None else into == from_


@dataclass(frozen=True, slots=True, kw_only=True)
class FullWrite:
    """An array that an instruction writes whole, in the graph; ``loop`` is the body around it."""

    instruction: Instruction
    path: tuple[int, ...]
    origin: Origin
    in_place: bool | None
    loop: Computation | None

    @property
    def crosses_host_link(self) -> bool:
        """Whether the array, or what it repeats, lies in host memory, and the other does not."""
        base = self.origin.base
        came_from = base.instruction.shape.at(base.path)
        return self.instruction.shape.at(self.path).on_host != came_from.on_host

    @property
    def source(self) -> str | None:
        """The line of the instruction, else of the operation at its root, else of what it moves."""
        candidates = (self.instruction, self.origin.by, self.origin.base.instruction)
        return next((each.source for each in candidates if each and each.source), None)


def full_writes(
    module: Module,
    counts: Mapping[Computation, Executions],
    assignment: BufferAssignment | None,
) -> tuple[FullWrite, ...]:
    """Every array written whole that holds, but for a part, what another array held.

    An update in place is none, nor a copy of a buffer onto itself, nor values that the program
    computes. Scalars are not counted. Without a buffer assignment an update is taken to be in
    place, and a copy to be real.
    """
    around, fillings = _loops_around(module, counts), _Fillings(assignment)
    carried: dict[Computation, dict[Array, None]] = {}
    for body in dict.fromkeys(each.body for each in around.values() if each.body):
        for array in _carried(body, fillings):
            carried.setdefault(array[0].computation, {})[array] = None
    return tuple(
        found
        for computation in module.computations
        if computation in around and counts[computation].count != 0
        for found in _in_computation(
            computation, around[computation].body, fillings, carried.get(computation, {})
        )
    )


def plain(found: FullWrite, counts: Mapping[Computation, Executions]) -> FullBufferWrite:
    """A whole write as a value that can be stored."""
    runs = counts[found.instruction.computation]
    return FullBufferWrite(
        content=found.origin.content,
        shape=found.instruction.shape.at(found.path),
        executions=runs.count,
        at_most=runs.at_most,
        loop=found.loop.name if found.loop else "",
        iterations=counts[found.loop].count if found.loop else None,
        in_place=found.in_place,
        opcode=(found.origin.by or found.instruction).opcode,
        computation=found.instruction.computation.name,
        instruction=found.instruction.name,
        source=found.source,
        crosses_host_link=found.crosses_host_link,
    )


def _loops_around(
    module: Module, counts: Mapping[Computation, Executions]
) -> Mapping[Computation, _Around]:
    """The computations that control flow reaches, not those that a fusion or a start is made of."""
    found = {module.entry: _Around(None)}
    for computation in reversed(module.computations):  # callers come after what they call
        if computation not in found:
            continue
        for instruction in computation.calls:
            if instruction.opcode == "while":
                body, condition = instruction.called
                found[body] = found[condition] = _Around(body)
            elif instruction.opcode in _RUNS_OTHERS:
                for callee in instruction.called:
                    found.setdefault(callee, found[computation])
    return {computation: each for computation, each in found.items() if computation in counts}


def _carried(body: Computation, fillings: _Fillings) -> Iterator[Array]:
    """The arrays that a loop body hands to its next iteration, where they are written.

    What is updated in place was written before, in the same memory.
    """
    pending = [Value(body.root, path) for path, _ in body.root.shape.arrays()]
    seen = set(pending)
    while pending:
        value = pending.pop()
        come_from = list(_handed_on_by(value))
        if not come_from and not _writes_nothing(value.instruction):
            yield value.instruction, value.path
            come_from = list(_updated_by(value, fillings))
        pending.extend(each for each in come_from if each not in seen)
        seen.update(come_from)


def _handed_on_by(value: Value) -> Iterator[Value]:
    """Whose memory a value lies in: what it renames, or what goes into a loop or comes out."""
    instruction, path, site = value.instruction, value.path, value.site
    if (before := renamed(value)) is not None:
        yield before
    elif instruction.opcode in _RUNS_OTHERS:
        for callee in instruction.called:
            yield Value(callee.root, path, Site(instruction, site))
    elif instruction.opcode == "while":  # its body is asked for what it carries by itself
        yield Value(instruction.operands[0], path, site)
    elif (passed := argument(value)) is not None:
        yield passed


def _updated_by(value: Value, fillings: _Fillings) -> Iterator[Value]:
    """What lay in a value's memory before the value's instruction wrote some of it."""
    if value.instruction.opcode not in _UPDATES:
        return
    origin, in_place = fillings.of((value.instruction, value.path))
    if origin and not _is_full_buffer_write(origin, is_carried=True, in_place=in_place):
        yield replace(origin.base, site=value.site)


def _writes_nothing(instruction: Instruction) -> bool:
    return instruction.allocates or instruction.opcode in _WRITES_NOTHING


def _in_computation(
    computation: Computation,
    loop: Computation | None,
    fillings: _Fillings,
    carried: Mapping[Array, None],
) -> Iterator[FullWrite]:
    for instruction in computation.of(_MOVES_DATA):
        for path in written(instruction):
            if not instruction.shape.at(path).dimensions:
                continue
            origin, in_place = fillings.of((instruction, path))
            is_carried = (instruction, path) in carried
            if origin and _is_full_buffer_write(origin, is_carried=is_carried, in_place=in_place):
                yield FullWrite(
                    instruction=instruction, path=path, origin=origin, in_place=in_place, loop=loop
                )


def _is_full_buffer_write(origin: Origin, *, is_carried: bool, in_place: bool | None) -> bool:
    if origin.chosen:  # a select that only the iteration sees is arithmetic, as a relu's is
        return is_carried
    if origin.rearranged:
        return True
    if in_place is None:  # a result that only repeats its operand, or an update, is taken on trust
        return origin.content is Content.COPY and origin.by is not None
    return not in_place


_Given = tuple[int, tuple[int, ...], tuple[int, ...] | None, bool]


def donations(
    module: Module, found: Iterable[FullWrite], assignment: BufferAssignment | None
) -> tuple[Donation, ...]:
    """Every donated array, whether an output took it over or not.

    An array that an output took over is copied all the same where the program still needs the
    old value when the new one is written: then an instruction outside of loops copies from it, or
    into it. One that changes the layout, or the type, is there for what reads it.
    """
    copies = _Copies(found, assignment)
    return tuple(_donation(module, given, copies) for given in _given(module))


def _given(module: Module) -> Iterator[_Given]:
    for alias in module.aliases:
        yield alias.parameter_number, alias.parameter_index, alias.output_index, alias.must
    for number, path in module.donors:
        yield number, path, None, False


def _donation(module: Module, given: _Given, copies: "_Copies") -> Donation:
    number, path, output, must = given
    parameter = module.entry.parameter(number)
    found = copies.of(Value(parameter, path)) if output is not None else ()
    return Donation(
        parameter_number=number,
        parameter_index=path,
        argument=parameter.op_name or parameter.name,
        shape=parameter.shape.at(path),
        output_index=output,
        must=must,
        copied_by=tuple(map(_named, found)),
        copies_known=copies.known,
    )


class _Copies:
    """The copies outside of loops, by the value that they read and by the bytes that they fill."""

    def __init__(self, found: Iterable[FullWrite], assignment: BufferAssignment | None) -> None:
        self._assignment = assignment
        self._of: dict[Value, list[FullWrite]] = {}
        self._into: dict[Slice, list[FullWrite]] = {}
        for each in found:
            base = each.origin.base
            if each.loop is not None or each.origin.rearranged:
                continue
            self._of.setdefault(behind(base), []).append(each)
            if assignment and (place := assignment.slice_of(each.instruction, each.path)):
                self._into.setdefault(place, []).append(each)

    @property
    def known(self) -> bool:
        """Whether every copy shows; without an assignment an update out of place does not."""
        return self._assignment is not None

    def of(self, argument: Value) -> Iterator[FullWrite]:
        """What copies the whole argument, or another array into its buffer.

        A copy into another memory, or out of it, is how a device reads and writes, not a second
        copy.
        """
        given = argument.instruction.shape.at(argument.path)
        into: Slice | None = None
        if self._assignment:
            into = self._assignment.slice_of(argument.instruction, argument.path)
        found = (*self._of.get(argument, ()), *(self._into.get(into, ()) if into else ()))
        for each in dict.fromkeys(found):
            shape, base = each.instruction.shape.at(each.path), each.origin.base
            spaces = {shape.memory_space, base.instruction.shape.at(base.path).memory_space}
            if shape.nbytes == given.nbytes and spaces == {given.memory_space}:
                yield each


def _named(found: FullWrite) -> str:
    name = found.instruction.name
    return f"{name} at {found.source}" if found.source else name
