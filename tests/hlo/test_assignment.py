"""Where a value lies: by what the assignment names, else by what the value is another name of."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from assay.hlo import schema
from assay.hlo.assignment import BufferAssignment, Slice
from assay.hlo.instruction import Instruction
from assay.hlo.module import Module
from assay.hlo.schema import MalformedModule, split

from .assigned import Places, assigned
from .compilers import compiled, installed
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


INVARIANT = """HloModule invariant
condition { going = (pred[], f32[4]) parameter(0)
  ROOT go = pred[] get-tuple-element(going), index=0 }
body { state = (pred[], f32[4]) parameter(0)
  again = pred[] get-tuple-element(state), index=0
  kept = f32[4] get-tuple-element(state), index=1
  ROOT after = (pred[], f32[4]) tuple(again, kept) }
yes { in_branch = f32[4] parameter(0)
  ROOT used = f32[4] negate(in_branch) }
no { ROOT in_other = f32[4] parameter(0) }
called { in_call = f32[4] parameter(0)
  more = pred[] constant(true)
  start = (pred[], f32[4]) tuple(more, in_call)
  loop = (pred[], f32[4]) while(start), condition=condition, body=body
  ROOT result = f32[4] get-tuple-element(loop), index=1 }
ENTRY main { x = f32[4] parameter(0)
  sum = f32[4] add(x, x)
  called_with = f32[4] call(sum), to_apply=called
  flag = pred[] constant(true)
  ROOT chosen = f32[4] conditional(flag, x, called_with), true_computation=yes, false_computation=no }
"""  # noqa: E501 - one HLO instruction per line


@pytest.mark.parametrize(
    "name", ["in_call", "kept", "after/1", "loop/1", "result", "called_with", "in_other"]
)
def test_what_a_loop_or_a_call_never_changes_lies_where_it_is_made(name: str) -> None:
    """The CPU, GPU and TPU compilers of jax 0.12 name it nowhere inside."""
    unnamed = dict.fromkeys(("in_call", "in_branch", "in_other", "state/1", "going/1"))
    name, *path = name.split("/")
    found = slice_of(INVARIANT, {"sum": (1, 16), **unnamed}, name, tuple(map(int, path)))
    assert found == Slice(1, 16, 16)


def test_a_branch_is_told_from_the_other() -> None:
    assert slice_of(INVARIANT, {"x": (3, 0), "in_branch": None}, "in_branch") == Slice(3, 0, 16)


@pytest.mark.parametrize("target", installed("cpu", "gpu-h100", "tpu-v5e:2x4"))
def test_every_array_in_a_compiled_loop_lies_somewhere(target: str) -> None:
    def scaled(weights: jax.Array, rows: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), rows, weights)[0]

    data, buffers = split(compiled(target, scaled, (8, 512, 512), (256, 512)).hlo_proto())
    module, assignment = Module.from_proto(data), BufferAssignment.from_proto(buffers)
    loops = [each for inside in module.computations for each in inside.of(frozenset({"while"}))]
    assert loops
    for parameter in (each.called[0].parameter(0) for each in loops):
        paths = [path for path, _ in parameter.shape.arrays()]
        assert None not in [assignment.slice_of(parameter, path) for path in paths]


def with_old_ids(encoded: bytes) -> bytes:
    """The module as older XLA numbered it: ids unique in the module, no computation in them."""
    message = schema.decode_module(encoded)
    count = 0
    for computation in message.computations:
        instructions = list(schema.decode_all(schema.INSTRUCTION, computation.instructions))
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
    with pytest.raises(MalformedModule, match="wanted a serialized BufferAssignmentProto"):
        BufferAssignment.from_proto(b"\xff\xff")
