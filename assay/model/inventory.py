"""The inventory of a module: which operations it is made of, whatever they are called."""

from dataclasses import dataclass

from assay.model.module import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Instructions of one opcode, shape and source line; ``count`` is how often it is written.

    Runs are not counted: an instruction of a loop body counts once. A custom-call's ``opcode``
    names its target (``custom-call TopK``).
    """

    opcode: str
    shape: Shape
    source: str | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBuffer:
    """An output that may share, or must share, the buffer of an argument; paths into tuples."""

    shape: Shape
    output_index: tuple[int, ...]
    parameter_number: int
    parameter_index: tuple[int, ...]
    must: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a module takes, gives, and is made of.

    ``argument_names`` are in the order of the arguments. ``operations`` leaves out what only passes
    values on. ``host_arrays`` are the places at which an array comes to lie in host memory, with
    its shape. The layouts are those of the arguments and outputs, in the same order, as HLO text
    writes them (``{1,0:T(8,128)}``).
    """

    arguments: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    shared: tuple[SharedBuffer, ...]
    operations: tuple[Operations, ...]
    host_arrays: tuple[Operations, ...]
    argument_names: tuple[str, ...] = ()
    argument_layouts: tuple[str, ...] = ()
    output_layouts: tuple[str, ...] = ()
