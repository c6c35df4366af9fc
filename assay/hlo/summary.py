"""The summary of one module: loops, transfers, copies, peak, inventory and the rest, as records."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from traceback import walk_tb

from assay.hlo.assignment import BufferAssignment
from assay.hlo.collectives import collectives
from assay.hlo.fingerprint import fingerprint
from assay.hlo.full_buffer_writes import donations, full_writes
from assay.hlo.host_transfers import HOST_THREAD, host_transfers
from assay.hlo.instruction import Instruction, read_shape
from assay.hlo.libraries import library_bytes
from assay.hlo.module import Computation, Module
from assay.hlo.opcodes import HOST_LINKS, MOVES_NOTHING, PASSES_ON
from assay.hlo.overlap import overlaps, source_line
from assay.hlo.peak import peak
from assay.hlo.schema import LABEL, METADATA, SHAPE, MalformedModule, decode, decode_all
from assay.hlo.structure import InconsistentModule
from assay.hlo.trip_count import Executions, TripCounter, executions
from assay.model.collector import collector_off
from assay.model.module import Inventory, Operations, Shape, Transfer, WhileLoop
from assay.model.summary import ModuleSummary


def inventory(module: Module) -> Inventory:
    """What the module takes, gives, and is made of; one more look at each instruction."""
    entry = module.entry
    parameters = entry.parameters.values()
    return Inventory(
        arguments=tuple(leaf for each in parameters for leaf in each.shape.leaves()),
        outputs=tuple(entry.root.shape.leaves()),
        shared=module.aliases,
        operations=_operations(module),
        host_arrays=_host_arrays(module),
        argument_names=tuple(
            (each.op_name or each.name) + "".join(f"[{index}]" for index in path)
            for each in parameters
            for path, _ in each.shape.arrays()
        ),
        argument_layouts=tuple(layout for each in parameters for layout in each.layouts),
        output_layouts=entry.root.layouts,
    )


def _operations(module: Module) -> tuple[Operations, ...]:
    """The histogram. Shapes and lines are decoded once for each that differs, not for each use."""
    counts = Counter[tuple[str, bytes, bytes]]()
    for computation in module.computations:
        for label in decode_all(LABEL, computation.encoded):
            if label.opcode not in PASSES_ON:
                target = f" {label.custom_call_target}" if label.opcode == "custom-call" else ""
                counts[label.opcode + target, label.shape, label.metadata] += 1
    shapes = {encoded: read_shape(decode(SHAPE, encoded)) for _, encoded, _ in counts}
    line = module.source_index.line
    lines = {encoded: line(decode(METADATA, encoded)) for _, _, encoded in counts}
    merged = Counter[tuple[str, Shape, str | None]]()
    for (opcode, shape, metadata), count in counts.items():
        merged[opcode, shapes[shape], lines[metadata]] += count
    return _sorted(merged)


def _host_arrays(module: Module) -> tuple[Operations, ...]:
    return _sorted(
        Counter(
            (instruction.opcode, leaf, instruction.source)
            for computation in module.computations
            if not computation.is_inlined
            for instruction in computation.around_host
            if instruction.opcode not in MOVES_NOTHING
            for leaf in _new_on_host(instruction)
        )
    )


def _new_on_host(instruction: Instruction) -> Iterator[Shape]:
    """The arrays in host memory that an instruction makes; an update in place makes none."""
    before = {leaf for operand in instruction.operands for leaf in operand.shape.leaves()}
    for leaf in instruction.shape.leaves():
        if leaf.on_host and leaf not in before:
            yield leaf


def _sorted(counts: Counter[tuple[str, Shape, str | None]]) -> tuple[Operations, ...]:
    found = (
        Operations(opcode=opcode, shape=shape, source=source, count=count)
        for (opcode, shape, source), count in counts.items()
    )
    return tuple(sorted(found, key=lambda each: (each.opcode, str(each.shape), each.source or "")))


def transfers(module: Module, counts: Mapping[Computation, Executions]) -> tuple[Transfer, ...]:
    """Every transfer of the computations in ``counts``."""
    return tuple(
        Transfer(
            direction=transfer.direction,
            nbytes_per_execution=transfer.nbytes,
            executions=counts[computation].count,
            at_most=counts[computation].at_most,
            opcode=transfer.by.opcode,
            computation=computation.name,
            instruction=instruction.name,
            source=source_line(instruction, transfer.by),
        )
        for computation in module.computations
        if computation in counts
        and not computation.is_inlined
        and computation.execution_thread != HOST_THREAD
        for instruction in _around_host(computation)
        for transfer in host_transfers(instruction)
    )


def _around_host(computation: Computation) -> Iterable[Instruction]:
    """The few instructions that may move bytes to or from the host."""
    on_host = [each for each in computation.calls if each.execution_thread == HOST_THREAD]
    links = computation.of(HOST_LINKS)
    return dict.fromkeys((*computation.around_host, *links, *on_host))


def loops(
    module: Module, trips: TripCounter, counts: Mapping[Computation, Executions]
) -> Iterator[WhileLoop]:
    """Every while loop of the module, in the module's order: callees before callers."""
    for computation in module.computations:
        runs = counts.get(computation, Executions(count=0))
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


def read(data: bytes, buffer_assignment: bytes = b"", *, platform: str = "") -> ModuleSummary:
    """The summary of a serialized HloModuleProto and its serialized BufferAssignmentProto.

    ``platform`` is jax's word for the compiler's: ``cpu``, ``cuda``, ``tpu``, or empty if unknown.
    It decides which updates a kernel executes in place, and whether libraries hold memory.

    Raises:
        MalformedModule: either is another message, only a part of one, or contradicts itself.
    """
    # The graph only grows while it is read: the garbage collector found nothing to free, and took
    # a tenth of the time of 400,000 instructions.
    with collector_off():
        module = Module.from_proto(data)
        assigned = BufferAssignment.from_proto(buffer_assignment) if buffer_assignment else None
        try:
            return _summary(module, assigned, platform)
        finally:
            module.take_apart()


def read_foreign(
    data: bytes, buffer_assignment: bytes = b"", *, platform: str = ""
) -> ModuleSummary:
    """The summary of a module that no compiler made for Assay; a failure is the module's fault.

    Raises:
        MalformedModule: as ``read``; also for fields of an opcode that do not fit one another,
            which ``structure.check`` does not check.
    """
    try:
        return read(data, buffer_assignment, platform=platform)
    except MalformedModule:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, ValueError) as error:
        frame = list(walk_tb(error.__traceback__))[-1]
        place = f"{frame[0].f_globals.get('__name__', '')}:{frame[1]}"
        raise InconsistentModule(
            f"got a module whose parts contradict one another ({type(error).__name__} in {place}: "
            f"{error}), wanted one as XLA writes it; serialize it again, and if XLA did write it, "
            "report this module"
        ) from error


def _summary(module: Module, assignment: BufferAssignment | None, platform: str) -> ModuleSummary:
    trips = TripCounter(module)
    counts = executions(module, trips)
    found = full_writes(module, counts, assignment, platform)
    return ModuleSummary(
        name=module.name,
        instructions=sum(map(len, module.computations)),
        computations=len(module.computations),
        loops=tuple(loops(module, trips, counts)),
        transfers=transfers(module, counts),
        full_buffer_writes=tuple(each.record for each in found),
        donations=donations(module, found, assignment),
        overlaps=overlaps(module, counts, trips),
        collectives=collectives(module, counts),
        peak=peak(module, assignment) if assignment else None,
        buffers_assigned=assignment is not None,
        library_bytes=library_bytes(module) if platform == "cpu" else 0,
        inventory=inventory(module),
        fingerprint=fingerprint(module),
    )
