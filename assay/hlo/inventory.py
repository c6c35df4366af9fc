"""Inventory: the operations of a module, counted by opcode, shape and source line."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from assay.hlo.host_transfers import MOVES_NOTHING
from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation, Module
from assay.hlo.schema import decode_labels, decode_metadata, decode_shape
from assay.hlo.shape import read_shape
from assay.model.inventory import Inventory, Operations, SharedBuffer
from assay.model.module import Shape

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
        shared=tuple(
            SharedBuffer(
                shape=entry.root.shape.at(alias.output_index),
                output_index=alias.output_index,
                parameter_number=alias.parameter_number,
                parameter_index=alias.parameter_index,
                must=alias.must,
            )
            for alias in module.aliases
        ),
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
    shapes = {encoded: read_shape(decode_shape(encoded)) for _, encoded, _ in counts}
    line = module.source_index.line
    lines = {encoded: line(decode_metadata(encoded)) for _, _, encoded in counts}
    merged: Counter[tuple[str, Shape, str | None]] = Counter()
    for (opcode, shape, metadata), count in counts.items():
        merged[opcode, shapes[shape], lines[metadata]] += count
    return _sorted(merged)


def _keys(computation: Computation) -> Iterator[tuple[str, bytes, bytes]]:
    """Opcode, encoded shape and encoded metadata of each instruction that counts."""
    for label in decode_labels(computation.encoded):
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
            for instruction in computation.around_host(but=MOVES_NOTHING)
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
