"""Full-buffer writes: arrays that a module writes whole where only a part changed; and donations.

A loop that updates one row of a stack per iteration should write that row. If the compiler does not
share the buffers of the stack before and after, each iteration moves the whole stack. The module
then contains a copy, a fusion with a copy or a transpose at its root, an asynchronous operation, or
an update whose base and result lie in different buffers. Only the buffer assignment shows the last.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from assay.hlo.assignment import BufferAssignment, Slice
from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation, Module
from assay.hlo.trip_count import Executions
from assay.hlo.value_provenance import REPEATS, Origin, origin_of, written
from assay.hlo.values import Value, argument, behind, renamed
from assay.model.module import Shape, SharedBuffer
from assay.model.summary import Content, Donation, FullBufferWrite

_UPDATES: Final = frozenset(
    {"async-start", "copy", "custom-call", "dynamic-update-slice", "fusion", "scatter"}
)
"""Opcodes that may write a part of a base in place."""

_RUNS_OTHERS: Final = frozenset({"call", "conditional"})
_WRITES_NOTHING: Final = frozenset({"constant", "parameter"})

Array = tuple[Instruction, tuple[int, ...]]
"""An instruction, and the path of one array in its result."""


_Filling = Callable[[Array], tuple[Origin | None, bool | None]]
"""What an array repeats, and whether both have the same memory; None if that is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullWrite:
    """An array that an instruction writes whole, in the graph and as a record."""

    instruction: Instruction
    path: tuple[int, ...]
    origin: Origin
    record: FullBufferWrite


def full_writes(
    module: Module,
    counts: Mapping[Computation, Executions],
    assignment: BufferAssignment | None,
    platform: str = "",
) -> tuple[FullWrite, ...]:
    """Every array that is written whole and repeats another array, at least in part.

    An update in place does not count, nor a copy of a buffer onto itself, computed values, or a
    scalar. Without a buffer assignment an update counts as in place, and a copy does not.

    XLA's GPU compiler emits an update in place only at the root of a fusion, or behind bitcasts
    there (``GetOutputDefiningDynamicUpdateSlices`` in xla/service/gpu/ir_emission_utils.cc). Behind
    a bitcast-convert the kernel stores every element, also in the memory that it reads.
    """
    loops = _loops_around(module)
    views_bits = platform != "cuda"

    @cache
    def filling(array: Array) -> tuple[Origin | None, bool | None]:
        origin = origin_of(*array, views_bits=views_bits)
        if origin is None or assignment is None:
            return origin, None
        base = assignment.slice_of(origin.base.instruction, origin.base.path)
        place = assignment.slice_of(*array)
        return origin, None if base is None or place is None else base == place

    bodies = {body for body in loops.values() if body}
    carried = {array for body in bodies for array in _carried(body, filling)}
    found = []
    for computation in module.computations:
        if computation not in loops or counts[computation].count == 0:
            continue
        for array in _arrays(computation):
            origin, in_place = filling(array)
            if origin and _is_full_write(origin, in_place=in_place, is_carried=array in carried):
                record = _record(array, origin, loops[computation], counts, in_place=in_place)
                instruction, path = array
                found.append(
                    FullWrite(instruction=instruction, path=path, origin=origin, record=record)
                )
    return tuple(found)


def _arrays(computation: Computation) -> Iterator[Array]:
    """The arrays that may repeat another."""
    for instruction in computation.of(REPEATS):
        for path in written(instruction):
            if instruction.shape.at(path).dimensions:
                yield instruction, path


def _record(
    array: Array,
    origin: Origin,
    loop: Computation | None,
    counts: Mapping[Computation, Executions],
    *,
    in_place: bool | None,
) -> FullBufferWrite:
    instruction, path = array
    runs, shape = counts[instruction.computation], instruction.shape.at(path)
    # A compiler that adds a copy may leave its source on the value that it moves.
    candidates = (instruction, origin.by, origin.base.instruction)
    return FullBufferWrite(
        content=origin.content,
        shape=shape,
        executions=runs.count,
        at_most=runs.at_most,
        loop=loop.name if loop else "",
        iterations=counts[loop].count if loop else None,
        in_place=in_place,
        opcode=(origin.by or instruction).opcode,
        computation=instruction.computation.name,
        instruction=instruction.name,
        source=next((each.source for each in candidates if each and each.source), None),
        crosses_host_link=shape.on_host != origin.base.shape.on_host,
    )


def _loops_around(module: Module) -> Mapping[Computation, Computation | None]:
    """The body of the innermost loop around each computation that control flow reaches.

    Computations that a fusion or an asynchronous operation runs are left out.
    """
    found: dict[Computation, Computation | None] = {module.entry: None}
    for computation in reversed(module.computations):  # callers come after what they call
        for instruction in computation.calls if computation in found else ():
            if instruction.opcode == "while":
                body, condition = instruction.called
                found[body] = found[condition] = body
            elif instruction.opcode in _RUNS_OTHERS:
                for callee in instruction.called:
                    found.setdefault(callee, found[computation])
    return found


def _carried(body: Computation, filling: _Filling) -> Iterator[Array]:
    """The arrays that a loop body passes to its next iteration, and what they update in place."""
    pending = [Value(body.root, path) for path, _ in body.root.shape.arrays()]
    seen = set(pending)
    while pending:
        value = pending.pop()
        come_from = list(_handed_on_by(value))
        instruction = value.instruction
        writes = not (instruction.allocates or instruction.opcode in _WRITES_NOTHING)
        if writes and not come_from:
            yield instruction, value.path
            come_from = list(_updated_by(value, filling))
        pending.extend(each for each in come_from if each not in seen)
        seen.update(come_from)


def _handed_on_by(value: Value) -> Iterator[Value]:
    """The values that this one is another name of, also outside of a loop or inside a call."""
    instruction, path = value.instruction, value.path
    if (before := renamed(value)) is not None:
        yield before
    elif instruction.opcode in _RUNS_OTHERS:
        for callee in instruction.called:
            yield Value(callee.root, path, (*value.callers, instruction))
    elif instruction.opcode == "while":  # what its body carries is found from its own root
        yield value.operand(0, path)
    elif (passed := argument(value)) is not None:
        yield passed


def _updated_by(value: Value, filling: _Filling) -> Iterator[Value]:
    """The value in whose memory an instruction writes a part."""
    if value.instruction.opcode not in _UPDATES:
        return
    origin, in_place = filling((value.instruction, value.path))
    if origin and not _is_full_write(origin, in_place=in_place, is_carried=True):
        yield replace(origin.base, callers=value.callers)


def _is_full_write(origin: Origin, *, in_place: bool | None, is_carried: bool) -> bool:
    if origin.chosen:  # a select that is not carried is arithmetic, as a relu's is
        return is_carried
    if origin.rearranged:
        return True
    if in_place is None:  # a view of an operand, or an update, counts as in place
        return origin.content is Content.COPY and origin.by is not None
    return not in_place


def donations(
    module: Module, found: Iterable[FullWrite], assignment: BufferAssignment | None
) -> tuple[Donation, ...]:
    """Every donated array, whether an output uses its buffer or not.

    If the program still needs the old value when it writes the new one, an instruction outside of
    loops copies from the array or into it, although an output uses its buffer. Copies that change
    the layout or the type do not count.
    """

    def place(instruction: Instruction, path: tuple[int, ...]) -> Slice | None:
        return assignment.slice_of(instruction, path) if assignment else None

    # Copies outside of loops, by the value that they read and by the bytes that they fill.
    copies: dict[Value | Slice | None, list[FullWrite]] = {}
    for each in found:
        if not each.record.loop and not each.origin.rearranged:
            copies.setdefault(behind(each.origin.base), []).append(each)
            copies.setdefault(place(each.instruction, each.path), []).append(each)
    copies.pop(None, None)
    donated: list[tuple[int, tuple[int, ...], SharedBuffer | None]] = [
        *((each.parameter_number, each.parameter_index, each) for each in module.aliases),
        *((number, path, None) for number, path in module.donors),
    ]
    donations = []
    for number, path, output in donated:
        parameter = module.entry.parameter(number)
        shape = parameter.shape.at(path)
        keys = (Value(parameter, path), place(parameter, path)) if output else ()
        copied_by = dict.fromkeys(each for key in keys for each in copies.get(key, ()))
        donations.append(
            Donation(
                parameter_number=number,
                parameter_index=path,
                argument=parameter.op_name or parameter.name,
                shape=shape,
                output_index=output.output_index if output else None,
                must=bool(output and output.must),
                copied_by=tuple(_named(each.record) for each in copied_by if _copies(each, shape)),
                # Without an assignment an update that is not in place does not show.
                copies_known=assignment is not None,
            )
        )
    return tuple(donations)


def _copies(write: FullWrite, given: Shape) -> bool:
    """Whether a write copies a whole argument within its memory.

    A copy into another memory, or out of it, is how a device reads and writes, not a second copy.
    """
    shape, base = write.record.shape, write.origin.base.shape
    spaces = {shape.memory_space, base.memory_space}
    return shape.nbytes == given.nbytes and spaces == {given.memory_space}


def _named(found: FullBufferWrite) -> str:
    return f"{found.instruction} at {found.source}" if found.source else found.instruction
