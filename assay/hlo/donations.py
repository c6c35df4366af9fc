"""Donations: the arguments that a caller gives away, and what became of their buffers."""

from collections.abc import Iterable, Iterator

from assay.hlo.assignment import BufferAssignment
from assay.hlo.module import Module
from assay.hlo.rewrites import WholeWrite
from assay.hlo.values import Value, behind
from assay.model.buffers import Content, Donation

_Given = tuple[int, tuple[int, ...], tuple[int, ...] | None, bool]


def donations(
    module: Module, found: Iterable[WholeWrite], assignment: BufferAssignment | None
) -> tuple[Donation, ...]:
    """Every donated array, whether an output took it over or not.

    An array that an output took over is copied all the same where the program still needs the
    old value when the new one is written: then an instruction outside of loops copies from it, or
    into it.
    """
    outside = [
        each for each in found if each.loop is None and each.origin.content is not Content.COMPUTED
    ]
    return tuple(_donation(module, given, outside, assignment) for given in _given(module))


def _given(module: Module) -> Iterator[_Given]:
    for alias in module.aliases:
        yield alias.parameter_number, alias.parameter_index, alias.output_index, alias.must
    for number, path in module.donors:
        yield number, path, None, False


def _donation(
    module: Module,
    given: _Given,
    outside: Iterable[WholeWrite],
    assignment: BufferAssignment | None,
) -> Donation:
    number, path, output, must = given
    parameter = module.entry.parameter(number)
    argument = Value(parameter, path)
    copies = [
        each for each in outside if output is not None and _concerns(each, argument, assignment)
    ]
    return Donation(
        parameter_number=number,
        parameter_index=path,
        argument=parameter.op_name or parameter.name,
        shape=parameter.shape.at(path),
        output_index=output,
        must=must,
        copied_by=tuple(_named(each) for each in copies),
    )


def _concerns(found: WholeWrite, argument: Value, assignment: BufferAssignment | None) -> bool:
    """Whether a write copies the whole argument, or copies another array into its buffer.

    A copy into another memory, or out of it, is how a device reads and writes, not a second copy.
    """
    assert found.origin.base is not None  # only new values have none
    given = argument.instruction.shape.at(argument.path)
    base = found.origin.base.instruction.shape.at(found.origin.base.path)
    shape = found.instruction.shape.at(found.path)
    if shape.nbytes != given.nbytes or {shape.memory_space, base.memory_space} != {
        given.memory_space
    }:
        return False
    if behind(found.origin.base) == argument:
        return True
    if assignment is None:
        return False
    into = assignment.slice_of(found.instruction, found.path)
    return into is not None and into == assignment.slice_of(argument.instruction, argument.path)


def _named(found: WholeWrite) -> str:
    name = found.instruction.name
    return f"{name} at {found.source}" if found.source else name
