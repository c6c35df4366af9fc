"""Detectors of whole writes as one would first write them: each is wrong about some loop.

Each gives the bytes that one iteration writes in arrays larger than a row.
"""

from __future__ import annotations

from collections.abc import Iterator

from assay.hlo.assignment import BufferAssignment
from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation, Module

ROW_BYTES = 16
VIEWS = {"bitcast", "get-tuple-element", "parameter", "tuple", "constant", "while", "copy-done"}
UPDATES = {"dynamic-update-slice"}


def bodies(module: Module) -> Iterator[Computation]:
    for computation in module.computations:
        for instruction in computation.of(frozenset({"while"})):
            yield instruction.called[0]


def in_bodies(module: Module) -> Iterator[Instruction]:
    return (each for body in bodies(module) for each in body.instructions)


def large(instruction: Instruction) -> int:
    return sum(leaf.nbytes for leaf in instruction.shape.leaves() if leaf.nbytes > ROW_BYTES)


def by_name(module: Module, _assignment: BufferAssignment) -> int:
    """Bytes of what is called a copy."""
    return sum(large(each) for each in in_bodies(module) if "copy" in each.name)


def by_opcode(module: Module, _assignment: BufferAssignment) -> int:
    """Bytes of the copies that stand in a loop's body, as a search in the text finds them."""
    return sum(large(each) for each in in_bodies(module) if each.opcode == "copy")


def by_slice(module: Module, assignment: BufferAssignment) -> int:
    """Bytes of copies whose ends lie apart."""
    return sum(
        large(each)
        for each in in_bodies(module)
        if each.opcode == "copy"
        and assignment.slice_of(each) != assignment.slice_of(each.operands[0])
    )


def by_allocation(module: Module, assignment: BufferAssignment) -> int:
    """Bytes of copies whose ends lie in different allocations."""
    return sum(
        large(each)
        for each in in_bodies(module)
        if each.opcode == "copy"
        and _allocation(each, assignment) != _allocation(each.operands[0], assignment)
    )


def by_result(module: Module, _assignment: BufferAssignment) -> int:
    """Bytes of all large arrays in the results of what is no update."""
    return sum(large(each) for each in in_bodies(module) if _made_by(each) not in VIEWS | UPDATES)


def by_root(module: Module, _assignment: BufferAssignment) -> int:
    """Bytes of results that a copy or a transpose fills; what updates is trusted."""
    return sum(large(each) for each in in_bodies(module) if _made_by(each) in {"copy", "transpose"})


def by_select(module: Module, _assignment: BufferAssignment) -> int:
    """Bytes of everything that a select fills."""
    return sum(large(each) for each in in_bodies(module) if _made_by(each) == "select")


def _made_by(instruction: Instruction) -> str:
    root = instruction.called[0].root.opcode if instruction.opcode == "fusion" else "tuple"
    return instruction.opcode if root == "tuple" else root


def _allocation(instruction: Instruction, assignment: BufferAssignment) -> int | None:
    place = assignment.slice_of(instruction)
    return place.allocation if place else None
