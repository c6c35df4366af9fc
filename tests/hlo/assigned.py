"""HLO texts with a buffer assignment beside them, made by hand.

Values are named by instruction, a place in a tuple by a path behind it: ``state/1``. A value lies
in the allocation and at the offset that it is given, or is another name of a value's buffer. What
is not mentioned gets an allocation of its own; None leaves it out of the assignment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from assay.hlo import schema
from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation, Module
from assay.hlo.summary import read
from assay.model.summary import ModuleSummary

from .conftest import proto_of

Places = Mapping[str, tuple[int, int] | str | None]
Event = tuple[str, ...]
"""``("alloc", value)``, ``("free", value)`` or ``("share", value, the value it shares with)``."""

_KINDS = {"alloc": 0, "free": 1, "share": 2}
_FIRST_OWN = 1000  # allocations that no test names are counted from here
# What has no buffer of its own: another name of a value, or what runs computations.
_UNNAMED = {
    "async-done",
    "async-update",
    "bitcast",
    "call",
    "conditional",
    "copy-done",
    "get-tuple-element",
    "opt-barrier",
    "tuple",
    "while",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A serialized HloModuleProto and a serialized BufferAssignmentProto."""

    module: bytes
    assignment: bytes

    def summary(self, platform: str = "") -> ModuleSummary:
        return read(self.module, self.assignment, platform=platform)


@dataclass(slots=True, kw_only=True)
class _Draft:
    """An assignment in the making; buffers are named as in the tests."""

    buffers: dict[str, int] = field(default_factory=dict)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    colors: dict[int, int] = field(default_factory=dict)


def assigned(
    text: str,
    places: Places | None = None,
    *,
    outputs: Sequence[int] = (),
    constants: Sequence[int] = (),
    traces: Sequence[Sequence[Event]] = (),
) -> Assigned:
    """The module of a text and its assignment; ``outputs`` and ``constants`` are allocations."""
    encoded = proto_of(text)
    module = Module.from_proto(encoded)
    message = schema.BUFFER_ASSIGNMENT()
    draft = _Draft()
    aliases: list[tuple[str, tuple[int, tuple[int, ...]]]] = []
    wanted = dict(places or {})
    unknown = set(wanted) - {name for name, *_ in _positions(module)}
    assert not unknown, f"{unknown} name no array of the module"
    for name, instruction, path, is_own in _positions(module):
        place = wanted.get(name, () if is_own else None)
        location = instruction.unique_id, path
        if place is None:
            continue
        if isinstance(place, str):
            aliases.append((place, location))
            continue
        number = len(draft.buffers) + 1
        draft.buffers[name] = number
        draft.places[name] = place or (_FIRST_OWN + number, 0)
        draft.sizes[name] = instruction.shape.at(path).nbytes
        draft.colors[draft.places[name][0]] = instruction.shape.at(path).memory_space
        buffer = message.logical_buffers.add(id=number, size=draft.sizes[name])
        _locate(buffer.defined_at, location)
        aliases.append((name, location))
    for name, location in aliases:
        _locate(message.buffer_aliases.add(source_buffer_id=draft.buffers[name]).location, location)
    _allocate(message, draft, module, outputs, constants)
    for trace in traces:
        _record(message, draft, trace)
    return Assigned(module=encoded, assignment=message.SerializeToString())


def _positions(module: Module) -> Iterator[tuple[str, Instruction, tuple[int, ...], bool]]:
    """Every array of the module by its name, and whether it has a buffer unless told otherwise."""
    run = set(_run(module.entry))
    for computation in module.computations:
        for instruction in computation.instructions:
            for path, _ in instruction.shape.arrays():
                name = "/".join((instruction.name, *map(str, path)))
                is_own = computation in run and instruction.opcode not in _UNNAMED
                yield name, instruction, path, is_own and not _repeats(instruction, path)


def _repeats(instruction: Instruction, path: tuple[int, ...]) -> bool:
    """Whether a place in a start's result only repeats an operand."""
    written = {"async-start": 1, "copy-start": 0}.get(instruction.opcode)
    return written is not None and path[0] != written


def _run(computation: Computation) -> Iterator[Computation]:
    """The computations that control flow reaches."""
    yield computation
    for instruction in computation.calls:
        if instruction.opcode in {"call", "conditional", "while"}:
            for callee in instruction.called:
                yield from _run(callee)


def _allocate(
    message: schema.Message,
    draft: _Draft,
    module: Module,
    outputs: Sequence[int],
    constants: Sequence[int],
) -> None:
    arguments = {
        draft.places[name][0]: (instruction.parameter_number, path)
        for name, instruction, path, _ in _positions(module)
        if instruction.opcode == "parameter"
        and instruction.computation is module.entry
        and name in draft.places
    }
    for index in dict.fromkeys(index for index, _ in draft.places.values()):
        members = [name for name, place in draft.places.items() if place[0] == index]
        number, path = arguments.get(index, (0, ()))
        allocation = message.buffer_allocations.add(
            index=index,
            size=max(draft.places[each][1] + draft.sizes[each] for each in members),
            color=draft.colors[index],
            is_entry_computation_parameter=index in arguments,
            parameter_number=number,
            parameter_shape_index=path,
            maybe_live_out=index in outputs,
            is_constant=index in constants,
        )
        for each in members:
            allocation.assigned.add(
                logical_buffer_id=draft.buffers[each],
                offset=draft.places[each][1],
                size=draft.sizes[each],
            )


def _record(message: schema.Message, draft: _Draft, events: Sequence[Event]) -> None:
    trace = message.heap_simulator_traces.add(buffer_allocation_index=99_999)  # as XLA's: of no use
    for kind, name, *shared in events:
        trace.events.add(
            kind=_KINDS[kind],
            buffer_id=draft.buffers[name],
            share_with_canonical_id=draft.buffers[shared[0]] if shared else 0,
        )


def _locate(location: schema.Message, position: tuple[int, tuple[int, ...]]) -> None:
    location.instruction_id, path = position
    location.shape_index.extend(path)
