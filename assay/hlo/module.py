"""The graph of an HLO module: its computations, their callers, and the source line of each.

Instructions are decoded on first use, so that time and memory grow with the module's bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePath
from typing import Final, TypeVar

from assay.hlo.instruction import Instruction, may_mention_host, mentions_host, read_shape
from assay.hlo.schema import (
    INSTRUCTION,
    OUTLINE,
    MalformedModule,
    Message,
    decode,
    decode_all,
    decode_module,
)
from assay.hlo.structure import LOCAL_ID, check, nonnegative
from assay.model.module import Shape, SharedBuffer

_T = TypeVar("_T")
_INSTALLED = frozenset({"site-packages", "dist-packages"})


class SourceIndex:
    """Reads ``file:line`` (``model.py:41``) from an OpMetadata.

    New compilers store a frame of the module's stack frame index, older ones the file and the
    line. Of a stack, the innermost frame outside installed packages counts: a user's line says
    more than a line of the framework. If all are installed, the innermost counts.
    """

    __slots__ = ("_found", "_index")

    def __init__(self, stack_frame_index: Message) -> None:
        self._index = stack_frame_index
        self._found: dict[int, str | None] = {}

    def line(self, metadata: Message) -> str | None:
        """``file:line`` of an instruction, None if its metadata names no source."""
        frame = metadata.stack_frame_id
        if frame not in self._found:
            self._found[frame] = self._line_of_frame(frame)
        if self._found[frame] is None and metadata.source_file:
            return _brief(metadata.source_file, metadata.source_line)
        return self._found[frame]

    def _line_of_frame(self, frame: int) -> str | None:
        stack = list(self._locations(frame))
        users = [each for each in stack if _INSTALLED.isdisjoint(PurePath(each[0]).parts)]
        return next((_brief(*each) for each in [*users, *stack]), None)

    def _locations(self, frame: int) -> Iterator[tuple[str, int]]:
        """Files and lines from the innermost frame outwards. All positions count from 1."""
        index = self._index
        visited: set[int] = set()
        while 0 < frame <= len(index.stack_frames) and frame not in visited:
            visited.add(frame)
            entry = index.stack_frames[frame - 1]
            if 0 < entry.file_location_id <= len(index.file_locations):
                location = index.file_locations[entry.file_location_id - 1]
                if 0 < location.file_name_id <= len(index.file_names):
                    yield index.file_names[location.file_name_id - 1], location.line
            frame = entry.parent_frame_id


def _brief(file: str, line: int) -> str:
    return f"{PurePath(file).name}:{line}"


def _find(table: Mapping[int, _T], key: int, what: str) -> _T:
    try:
        return table[key]
    except KeyError:
        raise MalformedModule(
            f"got no {what}, which is referred to; serialize the whole module again"
        ) from None


CALLERS: Final = frozenset({"async-start", "call", "conditional", "fusion", "while"})
"""Opcodes that run a computation as a whole; a reduce, say, applies one to single elements."""

_COMPUTATION_SHIFT: Final = 32
_MUST_ALIAS: Final = 2


class Computation:
    """A function of the module. Compared by identity; operands come before their users.

    An Instruction is decoded when it is first asked for, as analyses need only few of them. `of`
    and `around_host` do not decode the others. ``encoded`` are all instructions, as written.
    """

    def __init__(self, message: Message, module: "Module") -> None:
        self.module = module
        self.id: int = message.id
        self.name: str = message.name
        self.execution_thread: str = message.execution_thread
        self.root_id: int = message.root_id & LOCAL_ID
        self.encoded: Sequence[bytes] = message.instructions
        self._opcodes: Mapping[int, str] = {}
        self._decoded: dict[int, Instruction] = {}

    def __repr__(self) -> str:
        return f"<computation {self.name}>"

    def __len__(self) -> int:
        return len(self.encoded)

    def know_opcodes(self, opcodes: Mapping[int, str]) -> None:
        """Keep the opcode of each instruction by its id, in order; done once, by the module."""
        self._opcodes = opcodes

    @cached_property
    def _positions(self) -> Mapping[int, int]:
        return {identifier: position for position, identifier in enumerate(self._opcodes)}

    @cached_property
    def parameters(self) -> Mapping[int, Instruction]:
        """The parameters by their numbers, in order."""
        found = {each.parameter_number: each for each in self.of(frozenset({"parameter"}))}
        return dict(sorted(found.items()))

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions."""
        return tuple(map(self.at, range(len(self))))

    @cached_property
    def root(self) -> Instruction:
        """The instruction whose result the computation returns."""
        return self.instruction(self.root_id)

    @cached_property
    def calls(self) -> tuple[Instruction, ...]:
        """The instructions that run other computations as a whole."""
        return self.of(CALLERS)

    @cached_property
    def is_inlined(self) -> bool:
        """Whether a fusion or an asynchronous start runs it, with which it is then analysed."""
        callers = self.module.callers.get(self, ())
        return any(caller.opcode in {"async-start", "fusion"} for caller in callers)

    @property
    def order(self) -> Sequence[int] | None:
        """The ids of its instructions in the order in which they start; None if not scheduled."""
        return self.module.scheduled_ids.get(self.id)

    @cached_property
    def readers(self) -> Mapping[int, Sequence[int]]:
        """The positions of the instructions that read each result, by its id, if any read it."""
        found: dict[int, list[int]] = {}
        for position, outline in enumerate(decode_all(OUTLINE, self.encoded)):
            for operand in outline.operand_ids:
                found.setdefault(operand & LOCAL_ID, []).append(position)
        return found

    @cached_property
    def around_host(self) -> tuple[Instruction, ...]:
        """The instructions with a result or an operand that lies, at least in part, on the host."""
        suspects = decode_all(INSTRUCTION, filter(may_mention_host, self.encoded))
        on_host = {each.id for each in suspects if mentions_host(each.shape)}
        if not on_host:
            return ()
        on_host |= {identifier & LOCAL_ID for identifier in on_host}
        return tuple(
            self.at(position)
            for position, outline in enumerate(decode_all(OUTLINE, self.encoded))
            if outline.id in on_host or not on_host.isdisjoint(outline.operand_ids)
        )

    def opcode(self, identifier: int) -> str:
        """The opcode of the instruction with this id, which is not decoded for it."""
        return self._opcodes[identifier]

    def of(self, opcodes: frozenset[str]) -> tuple[Instruction, ...]:
        """The instructions with one of these opcodes."""
        found = self._opcodes.values()
        if opcodes.isdisjoint(found):
            return ()
        return tuple(self.at(at) for at, opcode in enumerate(found) if opcode in opcodes)

    def but(self, opcodes: frozenset[str]) -> tuple[Instruction, ...]:
        """The instructions with none of these opcodes."""
        return self.of(frozenset(self._opcodes.values()) - opcodes)

    def has(self, identifier: int) -> bool:
        """Whether an instruction has this id."""
        return identifier in self._opcodes

    def instruction(self, identifier: int) -> Instruction:
        """The instruction with this id.

        Raises:
            MalformedModule: there is none.
        """
        what = f"instruction {identifier} in computation {self.name!r}"
        return self.at(_find(self._positions, identifier, what))

    def at(self, position: int) -> Instruction:
        """The instruction at a position; operands come before their users."""
        if position not in self._decoded:
            message = decode(INSTRUCTION, self.encoded[position])
            self._decoded[position] = Instruction(message, self)
        return self._decoded[position]

    def parameter(self, number: int) -> Instruction:
        """The parameter with this number.

        Raises:
            MalformedModule: there is none.
        """
        what = f"parameter {number} of computation {self.name!r}"
        return _find(self.parameters, number, what)


class Module:
    """An HLO module, read from a serialized HloModuleProto."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self.name: str = message.name
        self.source_index = SourceIndex(message.stack_frame_index)
        self.computations = tuple(Computation(each, self) for each in message.computations)
        self._by_id = {each.id: each for each in self.computations}
        self.entry = self.computation(message.entry_computation_id)
        check(self)

    @classmethod
    def from_proto(cls, data: bytes) -> "Module":
        """The module that ``as_serialized_hlo_module_proto()`` wrote.

        Raises:
            MalformedModule: ``data`` is no HloModuleProto, or only a part of one.
        """
        return cls(decode_module(data))

    def computation(self, identifier: int) -> Computation:
        """The computation with this id.

        Raises:
            MalformedModule: there is none.
        """
        return _find(self._by_id, identifier, f"computation {identifier} in module {self.name!r}")

    def instruction(self, unique_id: int) -> Instruction | None:
        """The instruction with the id that its proto has, None if the module has none."""
        owner = self._by_id.get(unique_id >> _COMPUTATION_SHIFT)
        owners: tuple[Computation, ...] = (owner,) if owner else ()
        if unique_id <= LOCAL_ID:  # the first computation's, or older XLA's: unique in the module
            owners += self.computations
        local = unique_id & LOCAL_ID
        return next((each.instruction(local) for each in owners if each.has(local)), None)

    def take_apart(self) -> None:
        """Break the reference cycles, so that the graph is freed at once. It is not used again.

        The garbage collector took a third of the reading time to free 400,000 instructions, and
        18 times as long as for a tenth of them.
        """
        for computation in self.computations:
            vars(computation).clear()
        vars(self).clear()

    @cached_property
    def callers(self) -> Mapping[Computation, tuple[Instruction, ...]]:
        """For each computation that is run as a whole, the instructions that run it."""
        found: dict[Computation, list[Instruction]] = {}
        for computation in self.computations:
            for instruction in computation.calls:
                for callee in instruction.called:
                    found.setdefault(callee, []).append(instruction)
        return {callee: tuple(callers) for callee, callers in found.items()}

    @cached_property
    def scheduled_ids(self) -> Mapping[int, Sequence[int]]:
        """For the id of each scheduled computation, ids in the order in which they start."""
        return {
            entry.key: [each & LOCAL_ID for each in entry.value.instruction_ids]
            for entry in self._message.schedule.sequences
        }

    @property
    def interface(self) -> tuple[tuple[Shape, ...], Shape]:
        """The shapes of the arguments and of the result, as the entry's layout gives them.

        Before a compiler is done with a module, its parameters and its root may say less.
        """
        shape = self._message.host_program_shape
        return tuple(map(read_shape, shape.parameters)), read_shape(shape.result)

    @property
    def device_counts(self) -> tuple[int, int]:
        """Replicas and partitions that the module is compiled for; 0 where it does not say."""
        assigned = self._message.device_assignment
        return assigned.replica_count, assigned.computation_count

    @cached_property
    def donors(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Parameters (number, path) that the caller gives away and no output took over."""
        return tuple(
            (entry.parameter_number, nonnegative(entry.parameter_shape_index))
            for entry in self._message.buffer_donor.entries
        )

    @cached_property
    def aliases(self) -> tuple[SharedBuffer, ...]:
        """Which outputs share the buffers of which arguments."""
        return tuple(
            SharedBuffer(
                shape=self.entry.root.shape.at(nonnegative(entry.output_shape_index)),
                output_index=tuple(entry.output_shape_index),
                parameter_number=entry.parameter_number,
                parameter_index=nonnegative(entry.parameter_shape_index),
                must=entry.kind == _MUST_ALIAS,
            )
            for entry in self._message.input_output_alias.entries
        )
