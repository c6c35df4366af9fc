"""Host transfers: which bytes one instruction carries between host and device memory.

Judged by the memory of what is read and what is written, never by a name. A fusion, or an
operation started asynchronously, is opened: its parameters lie where the caller's operands lie,
its results where the caller's results lie, and what is between them lies on the device.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation
from assay.hlo.opcodes import HOST_LINKS, MOVES_NOTHING, SLICES
from assay.model.module import Direction, Shape

HOST_THREAD: Final = "host"
"""The execution thread of computations that run on the host's processor."""

_TUPLES: Final = frozenset({"buffer", "tuple"})  # also those of no element, which hold no array
_CARRIERS: Final = frozenset({"async-start", "fusion"})
_VIEWS: Final = frozenset({"bitcast", "reshape"})
# Of a start's result, the element that it writes; the rest repeats operands or is bookkeeping.
_WRITTEN: Final = {
    "all-gather-start": 1,
    "async-start": 1,
    "collective-permute-start": 1,
    "copy-start": 0,
}

Place = bool | tuple["Place", ...]
"""Whether an array lies in host memory; for a tuple, the places of its elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTransfer:
    """Bytes that one execution moves. ``by`` is the operation; ``buffer`` is what it reads."""

    direction: Direction
    nbytes: int
    by: Instruction
    buffer: Instruction | None = None


def place(shape: Shape) -> Place:
    """Where a shape says that its arrays lie."""
    if shape.element_type in _TUPLES:
        return tuple(map(place, shape.elements))
    return shape.on_host


def host_transfers(instruction: Instruction) -> tuple[HostTransfer, ...]:
    """What one execution of an instruction of an entry, a loop body, a branch or a call moves."""
    operands = [place(operand.shape) for operand in instruction.operands]
    return _host_transfers(instruction, operands, place(instruction.shape))


def _host_transfers(
    instruction: Instruction, operands: Sequence[Place], result: Place
) -> tuple[HostTransfer, ...]:
    opcode, shape = instruction.opcode, instruction.shape
    if instruction.allocates or opcode in MOVES_NOTHING:
        return ()
    if opcode in HOST_LINKS:
        return tuple(_through_link(instruction))
    if opcode in _WRITTEN and shape.elements and not isinstance(result, bool):
        shape, result = shape.elements[_WRITTEN[opcode]], result[_WRITTEN[opcode]]
    if instruction.execution_thread == HOST_THREAD:
        return tuple(_around_host_computation(instruction, operands, shape, result))
    if opcode in _CARRIERS:
        return tuple(_inside(instruction, operands, result))
    if opcode in {"dynamic-update-slice", "scatter"}:
        return tuple(_by_update(instruction, operands, result))
    return tuple(_by_operation(instruction, operands, shape, result))


def _through_link(instruction: Instruction) -> Iterator[HostTransfer]:
    """What crosses the link to the host outside of the program's own memory."""
    incoming = instruction.opcode in {"infeed", "recv"}
    if instruction.opcode in {"recv", "send"} and not instruction.is_host_transfer:
        return
    shape = instruction.shape.elements[0] if incoming else instruction.operands[0].shape
    direction = Direction.TO_DEVICE if incoming else Direction.TO_HOST
    yield HostTransfer(direction=direction, nbytes=shape.nbytes, by=instruction)


def _around_host_computation(
    instruction: Instruction, operands: Sequence[Place], shape: Shape, result: Place
) -> Iterator[HostTransfer]:
    """Operands in device memory go to the host that computes; results may come back."""
    for operand, where in zip(instruction.operands, operands, strict=True):
        yield from _move(
            Direction.TO_HOST, _nbytes(operand.shape, where, on_host=False), instruction
        )
    yield from _move(Direction.TO_DEVICE, _nbytes(shape, result, on_host=False), instruction)


def _by_operation(
    instruction: Instruction, operands: Sequence[Place], shape: Shape, result: Place
) -> Iterator[HostTransfer]:
    """An operation on the device reads its operands, a slice only what it takes."""
    slices = instruction.opcode in SLICES
    sources = list(zip(instruction.operands, operands, strict=True))[: 1 if slices else None]
    places = [each for _, where in sources for each in _flat(where)]
    if places and all(places) and all(_flat(result)):
        return  # host to host
    for operand in dict.fromkeys(operand for operand, where in sources if any(_flat(where))):
        where = operands[instruction.operands.index(operand)]
        nbytes = shape.nbytes if slices else _nbytes(operand.shape, where, on_host=True)
        yield from _move(Direction.TO_DEVICE, nbytes, instruction, operand)
    yield from _move(Direction.TO_HOST, _nbytes(shape, result, on_host=True), instruction)


def _by_update(
    instruction: Instruction, operands: Sequence[Place], result: Place
) -> Iterator[HostTransfer]:
    """An update in place moves the update; one into other memory moves the base too."""
    # scatter: n bases, the indices, n updates; dynamic-update-slice: base, update, indices
    scatters = instruction.opcode == "scatter"
    bases = (len(operands) - 1) // 2 if scatters else 1
    first_update = bases + 1 if scatters else 1
    results = (result,) if isinstance(result, bool) else result
    for number, written in enumerate(results):
        update = first_update + number
        for source in (number, update):
            operand = instruction.operands[source]
            if operands[source] and not written:
                yield from _move(Direction.TO_DEVICE, operand.shape.nbytes, instruction, operand)
        if written and not operands[number]:
            yield from _move(
                Direction.TO_HOST, instruction.operands[number].shape.nbytes, instruction
            )
        elif written and not operands[update]:
            yield from _move(
                Direction.TO_HOST, instruction.operands[update].shape.nbytes, instruction
            )


def _inside(
    carrier: Instruction, operands: Sequence[Place], result: Place
) -> Iterator[HostTransfer]:
    """What a fusion or a started operation moves, each buffer at most once as a whole."""
    (computation,) = carrier.called
    parameters = computation.of(frozenset({"parameter"}))
    if len(operands) < len(parameters):
        # A TPU starts some kernels (gathers on its SparseCore) with neither operands nor result:
        # what they work on lies where the kernel itself says.
        ordered = sorted(parameters, key=lambda each: each.parameter_number)
        operands = [place(each.shape) for each in ordered]
        result = place(computation.root.shape)
    inner = _Inner(computation, operands, result)
    found = [
        host_transfer
        for each in computation.instructions
        for host_transfer in inner.host_transfers(each)
    ]
    return _each_buffer_once([*found, *inner.host_transfers_of_views()], carrier)


def _each_buffer_once(
    found: Iterable[HostTransfer], carrier: Instruction
) -> Iterator[HostTransfer]:
    """Reads of one parameter joined, at most its size, and credited to the carrier's operand."""
    reads: dict[Instruction, list[HostTransfer]] = {}
    for host_transfer in found:
        if host_transfer.buffer is None:
            yield host_transfer
        else:
            reads.setdefault(host_transfer.buffer, []).append(host_transfer)
    for parameter, host_transfers_of_it in reads.items():
        nbytes = min(
            sum(host_transfer.nbytes for host_transfer in host_transfers_of_it),
            parameter.shape.nbytes,
        )
        named = carrier.operands[parameter.parameter_number :]
        yield replace(
            host_transfers_of_it[0], nbytes=nbytes, buffer=named[0] if named else parameter
        )


class _Inner:
    """Where the values inside a fusion or a started operation lie."""

    def __init__(self, computation: Computation, operands: Sequence[Place], result: Place) -> None:
        self._places: dict[Instruction, Place] = {}
        self._views: list[tuple[Instruction, Instruction, Place]] = []
        self._write(computation.root, result)
        for instruction in computation.instructions:
            if instruction.opcode == "parameter":
                self._places[instruction] = operands[instruction.parameter_number]
            elif instruction not in self._places:
                self._places[instruction] = self._intermediate(instruction)

    def host_transfers(self, instruction: Instruction) -> Iterator[HostTransfer]:
        """What one inner instruction moves, its reads credited to the parameter behind views."""
        if instruction.opcode in _VIEWS:
            return
        operands = [self._places[operand] for operand in instruction.operands]
        for host_transfer in _host_transfers(instruction, operands, self._places[instruction]):
            buffer = host_transfer.buffer
            while buffer is not None and buffer.opcode != "parameter":
                buffer = buffer.operands[0]  # only views and elements of parameters lie on the host
            yield replace(host_transfer, buffer=buffer)

    def host_transfers_of_views(self) -> Iterator[HostTransfer]:
        """Results that only repeat a parameter: where the two lie apart, the whole moves."""
        for root, parameter, where in self._views:
            for shape, read, written in zip(
                root.shape.leaves(), _flat(self._places[parameter]), _flat(where), strict=True
            ):
                if read and not written:
                    yield from _move(Direction.TO_DEVICE, shape.nbytes, root, parameter)
                if written and not read:
                    yield from _move(Direction.TO_HOST, shape.nbytes, root)

    def _write(self, root: Instruction, result: Place) -> None:
        """Places the results, back through views and through bases that are updated in place."""
        pending = [(root, root, result)]
        while pending:
            instruction, seen, where = pending.pop()
            if instruction.opcode == "parameter":
                self._views.append((seen, instruction, where))
                continue
            self._places[instruction] = where
            if instruction.opcode == "tuple" and not isinstance(where, bool):
                pending.extend(
                    (operand, operand, each)
                    for operand, each in zip(instruction.operands, where, strict=True)
                )
            elif instruction.opcode in _VIEWS:
                pending.append((instruction.operands[0], seen, where))
            elif instruction.opcode == "dynamic-update-slice":
                base = instruction.operands[0]
                if base.opcode != "parameter":
                    pending.append((base, seen, where))

    def _intermediate(self, instruction: Instruction) -> Place:
        """The place of a value that is no result; operands come before their users."""
        if instruction.opcode in _VIEWS:
            return self._places[instruction.operands[0]]
        if instruction.opcode == "tuple":
            return tuple(self._places[operand] for operand in instruction.operands)
        if instruction.opcode == "get-tuple-element":
            whole = self._places[instruction.operands[0]]
            return whole if isinstance(whole, bool) else whole[instruction.tuple_index]
        return _on_device(instruction.shape)


def _on_device(shape: Shape) -> Place:
    return tuple(map(_on_device, shape.elements)) if shape.element_type in _TUPLES else False


def _move(
    direction: Direction, nbytes: int, by: Instruction, buffer: Instruction | None = None
) -> Iterator[HostTransfer]:
    if nbytes:
        yield HostTransfer(direction=direction, nbytes=nbytes, by=by, buffer=buffer)


def _nbytes(shape: Shape, where: Place, *, on_host: bool) -> int:
    """Bytes of the arrays that lie on the host, or of those that do not."""
    leaves = zip(shape.leaves(), _flat(where), strict=True)
    return sum(leaf.nbytes for leaf, host in leaves if host is on_host)


def _flat(where: Place) -> Iterator[bool]:
    if isinstance(where, bool):
        yield where
    else:
        for each in where:
            yield from _flat(each)
