"""Host transfers: which bytes one instruction carries between host and device memory.

The memory spaces of what is read and what is written decide, never a name. In a fusion and an
asynchronous operation, parameters lie where the caller's operands lie, results where the caller's
results lie, and intermediate values on the device.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation
from assay.hlo.opcodes import HOST_LINKS, MOVES_NOTHING, SLICES, UPDATES
from assay.model.module import Direction, Shape

HOST_THREAD: Final = "host"
"""The execution thread of computations that run on the host's processor."""

_VIEWS: Final = frozenset({"bitcast", "reshape"})
# Of a start's result, the element that it writes; the rest repeats operands or is bookkeeping.
_WRITTEN: Final = {
    "all-gather-start": 1,
    "async-start": 1,
    "collective-permute-start": 1,
    "copy-start": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTransfer:
    """Bytes that one execution moves. ``by`` is the operation; ``buffer`` is what it reads."""

    direction: Direction
    nbytes: int
    by: Instruction
    buffer: Instruction | None = None


def host_transfers(instruction: Instruction) -> tuple[HostTransfer, ...]:
    """What one execution of an instruction of an entry, a loop body, a branch or a call moves."""
    operands = [operand.shape for operand in instruction.operands]
    return tuple(_host_transfers(instruction, operands, instruction.shape))


def _host_transfers(
    instruction: Instruction, operands: Sequence[Shape], result: Shape
) -> Iterable[HostTransfer]:
    """What an instruction moves whose operands and result have these memory spaces."""
    opcode = instruction.opcode
    if instruction.allocates or opcode in MOVES_NOTHING:
        return ()
    if opcode in HOST_LINKS:
        return _through_link(instruction)
    if opcode in _WRITTEN and result.elements:
        result = result.elements[_WRITTEN[opcode]]
    if instruction.execution_thread == HOST_THREAD:
        return _around_host_computation(instruction, operands, result)
    if opcode in {"async-start", "fusion"}:
        return _inside(instruction, operands, result)
    if opcode in UPDATES:
        return _by_update(instruction, operands, result)
    return _by_operation(instruction, operands, result)


def _through_link(instruction: Instruction) -> Iterator[HostTransfer]:
    """What crosses the link to the host outside of the program's own memory."""
    incoming = instruction.opcode in {"infeed", "recv"}
    if instruction.opcode in {"recv", "send"} and not instruction.is_host_transfer:
        return
    shape = instruction.shape.elements[0] if incoming else instruction.operands[0].shape
    direction = Direction.TO_DEVICE if incoming else Direction.TO_HOST
    yield HostTransfer(direction=direction, nbytes=shape.nbytes, by=instruction)


def _around_host_computation(
    instruction: Instruction, operands: Iterable[Shape], result: Shape
) -> Iterator[HostTransfer]:
    """Operands in device memory go to the host that computes; results may come back."""
    for operand in operands:
        yield from _move(Direction.TO_HOST, _nbytes(operand, on_host=False), instruction)
    yield from _move(Direction.TO_DEVICE, _nbytes(result, on_host=False), instruction)


def _by_operation(
    instruction: Instruction, operands: Sequence[Shape], result: Shape
) -> Iterator[HostTransfer]:
    """An operation on the device reads its operands, a slice only what it takes."""
    slices = instruction.opcode in SLICES
    sources = dict(zip(instruction.operands, operands[: 1 if slices else None], strict=False))
    arrays = [leaf for source in sources.values() for leaf in source.leaves()]
    if arrays and all(leaf.on_host for leaf in (*arrays, *result.leaves())):
        return
    for operand, source in sources.items():
        if nbytes := _nbytes(source, on_host=True):
            nbytes = result.nbytes if slices else nbytes
            yield from _move(Direction.TO_DEVICE, nbytes, instruction, operand)
    yield from _move(Direction.TO_HOST, _nbytes(result, on_host=True), instruction)


def _by_update(
    instruction: Instruction, operands: Sequence[Shape], result: Shape
) -> Iterator[HostTransfer]:
    """An update in place moves the update; an update into other memory moves the base.

    Into device memory, an update that lies on the host moves too.
    """
    # scatter: n bases, the indices, n updates; dynamic-update-slice: base, update, indices
    scatters = instruction.opcode == "scatter"
    first_update = (len(operands) - 1) // 2 + 1 if scatters else 1
    for number, written in enumerate(result.elements or (result,)):
        base, update = number, first_update + number
        if written.on_host:
            source = operands[update if operands[base].on_host else base]
            yield from _move(Direction.TO_HOST, _nbytes(source, on_host=False), instruction)
            continue
        for at in (base, update):
            nbytes = _nbytes(operands[at], on_host=True)
            yield from _move(Direction.TO_DEVICE, nbytes, instruction, instruction.operands[at])


def _inside(
    carrier: Instruction, operands: Sequence[Shape], result: Shape
) -> Iterator[HostTransfer]:
    """What a fusion or a started operation moves, each buffer at most once as a whole."""
    (computation,) = carrier.called
    if len(operands) < len(computation.parameters):
        # A TPU starts some kernels (gathers on its SparseCore) with neither operands nor result.
        # The kernel's own shapes then have the memory spaces.
        operands = [each.shape for each in computation.parameters.values()]
        result = computation.root.shape
    shapes, views = _results(computation, result)
    reads: dict[Instruction, list[HostTransfer]] = {}
    found = list(_of_views(views, operands))
    for instruction in computation.instructions:
        if instruction.opcode == "parameter":
            shapes[instruction] = operands[instruction.parameter_number]
        elif instruction not in shapes:
            shapes[instruction] = _intermediate(instruction, shapes)
        if instruction.opcode not in _VIEWS:
            sources = [shapes[operand] for operand in instruction.operands]
            found += _host_transfers(instruction, sources, shapes[instruction])
    for transfer in found:
        buffer = transfer.buffer
        if buffer is None:
            yield transfer
            continue
        while buffer.opcode != "parameter":
            buffer = buffer.operands[0]  # only views and elements of parameters lie on the host
        reads.setdefault(buffer, []).append(transfer)
    for parameter, transfers in reads.items():
        nbytes = min(sum(each.nbytes for each in transfers), parameter.shape.nbytes)
        named = carrier.operands[parameter.parameter_number :]
        yield replace(transfers[0], nbytes=nbytes, buffer=named[0] if named else parameter)


_Views = Sequence[tuple[Instruction, Instruction, Shape]]
"""A result, the parameter that it only repeats, and the shape with the result's memory space."""


def _results(computation: Computation, result: Shape) -> tuple[dict[Instruction, Shape], _Views]:
    """The results in their memory, back through views and through bases updated in place."""
    shapes: dict[Instruction, Shape] = {}
    views = []
    pending = [(computation.root, computation.root, result)]
    while pending:
        instruction, seen, shape = pending.pop()
        if instruction.opcode == "parameter":
            views.append((seen, instruction, shape))
            continue
        shapes[instruction] = shape
        if instruction.opcode == "tuple":
            pending += zip(instruction.operands, instruction.operands, shape.elements, strict=True)
        elif instruction.opcode in _VIEWS:
            base = instruction.operands[0]
            pending.append((base, seen, replace(base.shape, memory_space=shape.memory_space)))
        elif instruction.opcode == "dynamic-update-slice":
            base = instruction.operands[0]
            if base.opcode != "parameter":
                pending.append((base, seen, shape))
    return shapes, views


def _of_views(views: _Views, operands: Sequence[Shape]) -> Iterator[HostTransfer]:
    """Results that only repeat a parameter: where the two lie apart, the whole moves."""
    for root, parameter, result in views:
        operand = operands[parameter.parameter_number]
        for read, written in zip(operand.leaves(), result.leaves(), strict=True):
            if read.on_host and not written.on_host:
                yield from _move(Direction.TO_DEVICE, written.nbytes, root, parameter)
            if written.on_host and not read.on_host:
                yield from _move(Direction.TO_HOST, written.nbytes, root)


def _intermediate(instruction: Instruction, shapes: Mapping[Instruction, Shape]) -> Shape:
    """The shape, with its memory spaces, of a value that is no result."""
    operands = [shapes[operand] for operand in instruction.operands]
    if instruction.opcode in _VIEWS:
        return replace(instruction.shape, memory_space=operands[0].memory_space)
    if instruction.opcode == "tuple":
        return replace(instruction.shape, elements=tuple(operands))
    if instruction.opcode == "get-tuple-element":
        return operands[0].elements[instruction.tuple_index]
    return _on_device(instruction.shape)


def _on_device(shape: Shape) -> Shape:
    return replace(shape, memory_space=0, elements=tuple(map(_on_device, shape.elements)))


def _move(
    direction: Direction, nbytes: int, by: Instruction, buffer: Instruction | None = None
) -> Iterator[HostTransfer]:
    if nbytes:
        yield HostTransfer(direction=direction, nbytes=nbytes, by=by, buffer=buffer)


def _nbytes(shape: Shape, *, on_host: bool) -> int:
    """Bytes of the arrays that lie on the host, or of those that do not."""
    return sum(leaf.nbytes for leaf in shape.leaves() if leaf.on_host is on_host)
