"""Where a value lies: by what the assignment names, else by what the value is another name of."""

from __future__ import annotations

import pytest

from assay.hlo import schema
from assay.hlo.assignment import BufferAssignment, Slice
from assay.hlo.module import Instruction, Module
from assay.hlo.schema import MalformedModule

from .assigned import Places, assigned
from .conftest import proto_of
from .programs import entry

NAMES = entry(
    "x = f32[4] parameter(0)",
    "y = (f32[2], f32[4]) parameter(1)",
    "sum = f32[4] add(x, x)",
    "view = f32[2,2] bitcast(sum)",
    "second = f32[4] get-tuple-element(y), index=1",
    "both = (f32[2,2], f32[4]) tuple(view, second)",
    "held = (f32[2,2], f32[4]) opt-barrier(both)",
    "taken = f32[4] get-tuple-element(held), index=1",
    "begun = (f32[4], f32[4], u32[]) copy-start(taken)",
    "ROOT copied = f32[4] copy-done(begun)",
)
WRAPPED = """HloModule wrapped
inner { p = f32[4] parameter(0)
  ROOT inside = f32[4] negate(p) }
outer { q = f32[4] parameter(0)
  begun_inside = ((f32[4]), f32[4], u32[]) async-start(q), calls=inner
  ROOT done_inside = f32[4] async-done(begun_inside) }
ENTRY main { x = f32[4] parameter(0)
  begun = ((f32[4]), f32[4], u32[]) async-start(x), calls=outer
  held = ((f32[4]), f32[4], u32[]) async-update(begun)
  ROOT done = f32[4] async-done(held) }
"""


def slice_of(text: str, places: Places, name: str, path: tuple[int, ...] = ()) -> Slice | None:
    program = assigned(text, places)
    found = instruction(Module.from_proto(program.module), name)
    return BufferAssignment.from_proto(program.assignment).slice_of(found, path)


def instruction(module: Module, name: str) -> Instruction:
    (found,) = (
        each
        for computation in module.computations
        for each in computation.instructions
        if each.name == name
    )
    return found


@pytest.mark.parametrize(
    ("name", "path", "place"),
    [
        ("x", (), (1, 0)),
        ("sum", (), (1, 16)),
        ("view", (), (1, 16)),
        ("second", (), (2, 64)),
        ("both", (0,), (1, 16)),
        ("held", (1,), (2, 64)),
        ("taken", (), (2, 64)),
        ("begun", (0,), (3, 0)),
        ("copied", (), (3, 0)),
    ],
)
def test_a_name_lies_where_the_value_that_it_names_lies(
    name: str, path: tuple[int, ...], place: tuple[int, int]
) -> None:
    places: Places = {"x": (1, 0), "sum": (1, 16), "y/0": (2, 0), "y/1": (2, 64), "begun/0": (3, 0)}
    assert slice_of(NAMES, places, name, path) == Slice(*place, nbytes=16)


def test_the_source_that_a_start_repeats_lies_where_the_source_lies() -> None:
    assert slice_of(NAMES, {"begun/1": "y/1", "y/1": (2, 64)}, "begun", (1,)) == Slice(2, 64, 16)


def test_what_the_assignment_does_not_name_lies_nowhere() -> None:
    assert slice_of(NAMES, {"sum": None}, "view") is None
    assert slice_of(NAMES, {}, "both") is None


def test_a_name_in_the_assignment_goes_before_what_the_value_renames() -> None:
    assert slice_of(NAMES, {"sum": (1, 0), "view": (5, 8)}, "view") == Slice(5, 8, 16)


@pytest.mark.parametrize("name", ["done", "held", "begun"])
def test_an_asynchronous_result_is_found_in_the_computations_inside(name: str) -> None:
    places: Places = {"begun/1": None, "inside": (7, 32)}
    path = () if name == "done" else (1,)
    assert slice_of(WRAPPED, places, name, path) == Slice(7, 32, 16)


def with_old_ids(encoded: bytes) -> bytes:
    """The module as older XLA numbered it: ids unique in the module, no computation in them."""
    message = schema.decode(encoded)
    count = 0
    for computation in message.computations:
        instructions = list(map(schema.decode_instruction, computation.instructions))
        ids = {each.id: count + number for number, each in enumerate(instructions)}
        count += len(ids)
        for each in instructions:
            each.id = ids[each.id]
            each.operand_ids[:] = [ids[operand] for operand in each.operand_ids]
        computation.instructions[:] = [each.SerializeToString() for each in instructions]
        computation.root_id = ids[computation.root_id]
    return bytes(message.SerializeToString())


def test_ids_without_the_computation_in_them_are_found_in_every_computation() -> None:
    module = Module.from_proto(with_old_ids(proto_of(WRAPPED)))
    numbers = [each.unique_id for inside in module.computations for each in inside.instructions]
    assert numbers == list(range(9))
    found = [module.instruction(number) for number in range(9)]
    assert [each.name for each in found if each] == [
        *("p", "inside", "q", "begun_inside", "done_inside", "x", "begun", "held", "done"),
    ]


def test_an_id_that_no_instruction_has_finds_none() -> None:
    module = Module.from_proto(proto_of(WRAPPED))
    assert module.instruction(99) is None
    assert module.instruction(7 << 32) is None


def test_bytes_that_are_no_assignment_are_refused() -> None:
    with pytest.raises(MalformedModule, match="wanted a BufferAssignmentProto"):
        BufferAssignment.from_proto(b"\xff\xff")
