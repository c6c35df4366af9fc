"""Donations: the arguments that a caller gives away, and what became of their buffers."""

from collections.abc import Iterable, Iterator

from assay.hlo.assignment import BufferAssignment, Slice
from assay.hlo.full_buffer_writes import FullWrite
from assay.hlo.module import Module
from assay.hlo.values import Value, behind
from assay.model.summary import Donation

_Given = tuple[int, tuple[int, ...], tuple[int, ...] | None, bool]


def donations(
    module: Module, found: Iterable[FullWrite], assignment: BufferAssignment | None
) -> tuple[Donation, ...]:
    """Every donated array, whether an output took it over or not.

    An array that an output took over is copied all the same where the program still needs the
    old value when the new one is written: then an instruction outside of loops copies from it, or
    into it. One that changes the layout, or the type, is there for what reads it.
    """
    copies = _Copies(found, assignment)
    return tuple(_donation(module, given, copies) for given in _given(module))


def _given(module: Module) -> Iterator[_Given]:
    for alias in module.aliases:
        yield alias.parameter_number, alias.parameter_index, alias.output_index, alias.must
    for number, path in module.donors:
        yield number, path, None, False


def _donation(module: Module, given: _Given, copies: "_Copies") -> Donation:
    number, path, output, must = given
    parameter = module.entry.parameter(number)
    found = copies.of(Value(parameter, path)) if output is not None else ()
    return Donation(
        parameter_number=number,
        parameter_index=path,
        argument=parameter.op_name or parameter.name,
        shape=parameter.shape.at(path),
        output_index=output,
        must=must,
        copied_by=tuple(map(_named, found)),
        copies_known=copies.known,
    )


class _Copies:
    """The copies outside of loops, by the value that they read and by the bytes that they fill."""

    def __init__(self, found: Iterable[FullWrite], assignment: BufferAssignment | None) -> None:
        self._assignment = assignment
        self._of: dict[Value, list[FullWrite]] = {}
        self._into: dict[Slice, list[FullWrite]] = {}
        for each in found:
            base = each.origin.base
            if each.loop is not None or each.origin.rearranged:
                continue
            self._of.setdefault(behind(base), []).append(each)
            if assignment and (place := assignment.slice_of(each.instruction, each.path)):
                self._into.setdefault(place, []).append(each)

    @property
    def known(self) -> bool:
        """Whether every copy shows; without an assignment an update out of place does not."""
        return self._assignment is not None

    def of(self, argument: Value) -> Iterator[FullWrite]:
        """What copies the whole argument, or another array into its buffer.

        A copy into another memory, or out of it, is how a device reads and writes, not a second
        copy.
        """
        given = argument.instruction.shape.at(argument.path)
        into: Slice | None = None
        if self._assignment:
            into = self._assignment.slice_of(argument.instruction, argument.path)
        found = (*self._of.get(argument, ()), *(self._into.get(into, ()) if into else ()))
        for each in dict.fromkeys(found):
            shape, base = each.instruction.shape.at(each.path), each.origin.base
            spaces = {shape.memory_space, base.instruction.shape.at(base.path).memory_space}
            if shape.nbytes == given.nbytes and spaces == {given.memory_space}:
                yield each


def _named(found: FullWrite) -> str:
    name = found.instruction.name
    return f"{name} at {found.source}" if found.source else name
