"""The summary of one module: loops, transfers, copies, peak, inventory and the rest, as records."""

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from assay.hlo.assignment import BufferAssignment
from assay.hlo.fingerprint import fingerprint
from assay.hlo.full_buffer_writes import donations, full_writes, plain
from assay.hlo.host_transfers import (
    HOST_LINKS,
    HOST_THREAD,
    MOVES_NOTHING,
    HostTransfer,
    host_transfers,
)
from assay.hlo.instruction import Instruction, read_shape
from assay.hlo.module import Computation, Module
from assay.hlo.overlap import overlaps
from assay.hlo.peak import peak
from assay.hlo.schema import LABEL, METADATA, SHAPE, decode, decode_all
from assay.hlo.trip_count import Executions, TripCounter, executions
from assay.model.module import Inventory, Operations, Shape, Transfer, WhileLoop
from assay.model.summary import ModuleSummary

_PASSES_ON: Final = frozenset(
    {
        "add-dependency",
        "after-all",
        "bitcast",
        "constant",
        "domain",
        "get-tuple-element",
        "opt-barrier",
        "parameter",
        "tuple",
    }
)
_OPENED_BY_CALLER: Final = frozenset({"async-start", "fusion"})


def inventory(module: Module) -> Inventory:
    """What the module takes, gives, and is made of; one more look at each instruction."""
    entry = module.entry
    parameters = sorted(
        entry.of(frozenset({"parameter"})), key=lambda parameter: parameter.parameter_number
    )
    return Inventory(
        arguments=tuple(leaf for each in parameters for leaf in each.shape.leaves()),
        outputs=tuple(entry.root.shape.leaves()),
        shared=module.aliases,
        operations=_operations(module),
        host_arrays=_host_arrays(module),
        argument_names=tuple(_names(parameters)),
        argument_layouts=tuple(layout for each in parameters for layout in each.layouts),
        output_layouts=entry.root.layouts,
    )


def _names(parameters: Iterable[Instruction]) -> Iterator[str]:
    for each in parameters:
        for path, _ in each.shape.arrays():
            yield (each.op_name or each.name) + "".join(f"[{index}]" for index in path)


def _operations(module: Module) -> tuple[Operations, ...]:
    """The histogram. Shapes and lines are read once for each that differs, not for each use."""
    counts: Counter[tuple[str, bytes, bytes]] = Counter()
    for computation in module.computations:
        counts.update(_keys(computation))
    shapes = {encoded: read_shape(decode(SHAPE, encoded)) for _, encoded, _ in counts}
    line = module.source_index.line
    lines = {encoded: line(decode(METADATA, encoded)) for _, _, encoded in counts}
    merged: Counter[tuple[str, Shape, str | None]] = Counter()
    for (opcode, shape, metadata), count in counts.items():
        merged[opcode, shapes[shape], lines[metadata]] += count
    return _sorted(merged)


def _keys(computation: Computation) -> Iterator[tuple[str, bytes, bytes]]:
    """Opcode, encoded shape and encoded metadata of each instruction that counts."""
    for label in decode_all(LABEL, computation.encoded):
        opcode = label.opcode
        if opcode == "custom-call":
            yield f"{opcode} {label.custom_call_target}", label.shape, label.metadata
        elif opcode not in _PASSES_ON:
            yield opcode, label.shape, label.metadata


def _host_arrays(module: Module) -> tuple[Operations, ...]:
    return _sorted(
        Counter(
            (instruction.opcode, leaf, instruction.source)
            for computation in module.computations
            if not _is_opened_by_its_caller(computation)
            for instruction in computation.around_host
            if instruction.opcode not in MOVES_NOTHING
            for leaf in _new_on_host(instruction)
        )
    )


def _is_opened_by_its_caller(computation: Computation) -> bool:
    callers = computation.module.callers.get(computation, ())
    return any(caller.opcode in _OPENED_BY_CALLER for caller in callers)


def _new_on_host(instruction: Instruction) -> Iterator[Shape]:
    """The arrays in host memory that an instruction makes; an update in place makes none."""
    before = {leaf for operand in instruction.operands for leaf in operand.shape.leaves()}
    for leaf in instruction.shape.leaves():
        if leaf.on_host and leaf not in before:
            yield leaf


def _sorted(counts: Counter[tuple[str, Shape, str | None]]) -> tuple[Operations, ...]:
    return tuple(
        Operations(opcode=opcode, shape=shape, source=source, count=counts[opcode, shape, source])
        for opcode, shape, source in sorted(
            counts, key=lambda key: (key[0], str(key[1]), key[2] or "")
        )
    )


def transfers(module: Module, counts: Mapping[Computation, Executions]) -> tuple[Transfer, ...]:
    """Every transfer of the computations in ``counts``."""
    return tuple(
        _transfer(instruction, host_transfer, counts[computation])
        for computation in module.computations
        if computation in counts and not _is_looked_at_by_its_caller(computation)
        for instruction in _that_may_move(computation)
        for host_transfer in host_transfers(instruction)
    )


def _is_looked_at_by_its_caller(computation: Computation) -> bool:
    callers = computation.module.callers.get(computation, ())
    return computation.execution_thread == HOST_THREAD or any(
        caller.opcode in {"fusion", "async-start"} for caller in callers
    )


def _that_may_move(computation: Computation) -> Iterable[Instruction]:
    """The few instructions that touch the host."""
    unplaced = computation.of(HOST_LINKS) + tuple(
        each for each in computation.calls if each.execution_thread == HOST_THREAD
    )
    return dict.fromkeys((*computation.around_host, *unplaced))


def _transfer(instruction: Instruction, host_transfer: HostTransfer, runs: Executions) -> Transfer:
    return Transfer(
        direction=host_transfer.direction,
        nbytes_per_execution=host_transfer.nbytes,
        executions=runs.count,
        at_most=runs.at_most,
        opcode=host_transfer.by.opcode,
        computation=instruction.computation.name,
        instruction=instruction.name,
        source=instruction.source or host_transfer.by.source or _source_of_operands(instruction),
    )


def _source_of_operands(instruction: Instruction) -> str | None:
    """A compiler that makes a transfer may leave its source on the value that moves."""
    return next((each.source for each in instruction.operands if each.source), None)


def loops(
    module: Module, trips: TripCounter, counts: Mapping[Computation, Executions]
) -> tuple[WhileLoop, ...]:
    """Every while loop of the module, in the module's order: callees before callers."""
    never = Executions(count=0)
    return tuple(
        loop
        for computation in module.computations
        for loop in _loops_in(computation, trips, counts.get(computation, never))
    )


def _loops_in(
    computation: Computation, trips: TripCounter, runs: Executions
) -> Iterator[WhileLoop]:
    for instruction in computation.calls:
        if instruction.opcode == "while":
            body, condition = instruction.called
            count = trips.count(instruction)
            yield WhileLoop(
                instruction=instruction.name,
                computation=computation.name,
                body=body.name,
                condition=condition.name,
                trips=count.trips,
                trips_from=count.found,
                reason=count.reason,
                executions=runs.count,
                at_most=runs.at_most,
                carries=tuple(instruction.shape.leaves()),
                source=instruction.source,
            )


def read(data: bytes, buffer_assignment: bytes = b"") -> ModuleSummary:
    """The summary of a serialized HloModuleProto and its serialized BufferAssignmentProto.

    Raises:
        MalformedModule: either is another message, or only a part of one.
    """
    with _garbage_kept():
        module = Module.from_proto(data)
        assigned = BufferAssignment.from_proto(buffer_assignment) if buffer_assignment else None
        try:
            return _read(module, assigned)
        finally:
            module.take_apart()


def _read(module: Module, assignment: BufferAssignment | None) -> ModuleSummary:
    trips = TripCounter(module)
    counts = executions(module, trips)
    found = full_writes(module, counts, assignment)
    return ModuleSummary(
        name=module.name,
        instructions=sum(map(len, module.computations)),
        computations=len(module.computations),
        loops=loops(module, trips, counts),
        transfers=transfers(module, counts),
        full_buffer_writes=tuple(plain(each, counts) for each in found),
        donations=donations(module, found, assignment),
        overlaps=overlaps(module, counts, trips),
        peak=peak(module, assignment) if assignment else None,
        buffers_assigned=assignment is not None,
        inventory=inventory(module),
        fingerprint=fingerprint(module),
    )


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Keeps the garbage collector from looking through a graph that only grows while it is read.

    Its passes found nothing and took a tenth of the time of 400,000 instructions.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
