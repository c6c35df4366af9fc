"""What counts as writing a whole array, and the ways in which a simpler detector is wrong."""

from __future__ import annotations

import pytest

from assay.hlo.assignment import BufferAssignment
from assay.hlo.module import Module
from assay.hlo.summary import read
from assay.model.summary import (
    Content,
    FullBufferWrite,
    copied_bytes_per_iteration,
    full_buffer_writes_in_loops,
)

from .assigned import Assigned, Places, assigned
from .conftest import proto_of
from .full_buffer_write_traps import (
    APART,
    COPY,
    COPYING,
    IN_PLACE,
    MASKED,
    STACK_BYTES,
    TRAPS,
    UPDATED,
    WHOLE_UPDATE,
    Trap,
    looping,
)
from .provenance_traps import CONTENT_TRAPS, fused
from .simple_detectors import ROW_BYTES, by_opcode


def found_in(program: Assigned, platform: str = "") -> list[tuple[Content, int]]:
    """What the loops write whole, of more than a row."""
    return [
        (each.content, each.nbytes_per_execution)
        for each in full_buffer_writes_in_loops(
            program.summary(platform).full_buffer_writes, larger_than=ROW_BYTES
        )
    ]


ALL_TRAPS = {**TRAPS, **CONTENT_TRAPS}


@pytest.mark.parametrize("trap", ALL_TRAPS.values(), ids=ALL_TRAPS.keys())
def test_the_detector_is_right_where_a_simpler_one_is_wrong(trap: Trap) -> None:
    program = assigned(trap.text, trap.places)
    module = Module.from_proto(program.module)
    simple = trap.fools(module, BufferAssignment.from_proto(program.assignment))
    assert found_in(program) == list(trap.writes)
    assert simple != sum(nbytes for _, nbytes in trap.writes)


UPDATED_BITS = CONTENT_TRAPS["an update seen through another type of the same width is in place"]


@pytest.mark.parametrize(
    ("platform", "writes"), [("", ()), ("cpu", ()), ("tpu", ()), ("cuda", WHOLE_UPDATE)]
)
def test_a_gpu_writes_the_whole_stack_behind_a_bitcast_convert(
    platform: str, writes: tuple[tuple[Content, int], ...]
) -> None:
    program = assigned(UPDATED_BITS.text, UPDATED_BITS.places)
    assert found_in(program, platform) == list(writes)


def test_a_gpu_updates_in_place_behind_a_bitcast() -> None:
    text = UPDATED_BITS.text.replace("u32", "f32").replace("bitcast-convert(", "bitcast(")
    assert found_in(assigned(text, UPDATED_BITS.places), "cuda") == []


def full_buffer_writes(text: str, places: Places | None = None) -> tuple[FullBufferWrite, ...]:
    return assigned(text, places).summary().full_buffer_writes


MADE = "made = f32[8,4] fusion(a, row, i), kind=kLoop, calls=inner"
"""A choice by mask: a whole write only where the loop carries it on."""


def test_a_choice_by_mask_that_the_loop_does_not_carry_is_not_listed() -> None:
    assert full_buffer_writes(looping(MADE, UPDATED, functions=MASKED), IN_PLACE) == ()


@pytest.mark.parametrize(
    ("passed_on", "functions"),
    [
        ("new = f32[8,4] bitcast(made)", ""),
        ("new = f32[8,4] opt-barrier(made)", ""),
        (
            """pair_of = (f32[8,4], s32[]) tuple(made, i)
  held = (f32[8,4], s32[]) opt-barrier(pair_of)
  new = f32[8,4] get-tuple-element(held), index=0""",
            "",
        ),
        (
            """into = (s32[], f32[8,4]) tuple(i, made)
  inner_loop = (s32[], f32[8,4]) while(into), condition=unending, body=keep
  new = f32[8,4] get-tuple-element(inner_loop), index=1""",
            """unending { u = (s32[], f32[8,4]) parameter(0)
  n = s32[] get-tuple-element(u), index=0
  ROOT odd = pred[] compare(n, n), direction=NE }
keep { v = (s32[], f32[8,4]) parameter(0)
  n = s32[] get-tuple-element(v), index=0
  m = f32[8,4] get-tuple-element(v), index=1
  ROOT w = (s32[], f32[8,4]) tuple(n, m) }""",
        ),
        (
            "new = f32[8,4] call(made), to_apply=keeping",
            "keeping { p = f32[8,4] parameter(0)\n ROOT same = f32[8,4] bitcast(p) }",
        ),
        (
            "new = f32[8,4] conditional(i, made, made), branch_computations={keep0, keep1}",
            """keep0 { p = f32[8,4] parameter(0)
  ROOT same = f32[8,4] bitcast(p) }
keep1 { p = f32[8,4] parameter(0)
  ROOT same = f32[8,4] bitcast(p) }""",
        ),
    ],
    ids=["bitcast", "barrier", "tuple", "while", "call", "conditional"],
)
def test_what_a_loop_carries_is_followed_to_where_it_is_written(
    passed_on: str, functions: str
) -> None:
    text = looping(MADE, passed_on, functions=MASKED + functions)
    assert [(each.instruction, each.loop) for each in full_buffer_writes(text)] == [
        ("made", "body")
    ]


def test_a_hundred_conditionals_in_a_row_are_each_followed_once() -> None:
    functions, lines, last = MASKED, [MADE.replace("made", "v0")], "v0"
    for k in range(100):
        for branch in ("l", "r"):
            functions += f"{branch}{k} {{ ROOT p = f32[8,4] parameter(0) }}\n"
        lines.append(
            f"v{k + 1} = f32[8,4] conditional(i, {last}, {last}), "
            f"branch_computations={{l{k}, r{k}}}"
        )
        last = f"v{k + 1}"
    text = looping(*lines, functions=functions, hands_on=last)
    assert [each.instruction for each in full_buffer_writes(text)] == ["v0"]


def test_a_hundred_turns_in_one_fusion_are_each_followed_once() -> None:
    lines, last = ["p = f32[8,4] parameter(0)"], "p"
    for k in range(100):
        lines.append(f"low{k} = f32[3,4] slice({last}), slice={{[0:3], [0:4]}}")
        lines.append(f"high{k} = f32[5,4] slice({last}), slice={{[3:8], [0:4]}}")
        last = f"turn{k}"
        lines.append(f"{last} = f32[8,4] concatenate(high{k}, low{k}), dimensions={{0}}")
    lines[-1] = "ROOT " + lines[-1]
    functions = "inner {\n" + "\n".join(lines) + "}"
    text = looping("new = f32[8,4] fusion(a), kind=kLoop, calls=inner", functions=functions)
    (found,) = full_buffer_writes(text, APART)
    assert (found.content, found.nbytes_per_execution) == WHOLE_UPDATE[0]


NESTED = """HloModule nested
inner_condition { g = (s32[], f32[8,4]) parameter(0)
  k = s32[] get-tuple-element(g), index=0
  bound = s32[] constant(5)
  ROOT go = pred[] compare(k, bound), direction=LT }
inner { state = (s32[], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  a = f32[8,4] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  deep = f32[8,4] copy(a)
  ROOT after = (s32[], f32[8,4]) tuple(next, deep) }
outer_condition { g2 = (s32[], f32[8,4]) parameter(0)
  k2 = s32[] get-tuple-element(g2), index=0
  bound2 = s32[] constant(3)
  ROOT go2 = pred[] compare(k2, bound2), direction=LT }
outer { state2 = (s32[], f32[8,4]) parameter(0)
  i2 = s32[] get-tuple-element(state2), index=0
  a2 = f32[8,4] get-tuple-element(state2), index=1
  one2 = s32[] constant(1)
  next2 = s32[] add(i2, one2)
  zero2 = s32[] constant(0)
  shallow = f32[8,4] copy(a2)
  twice = f32[8,4] copy(shallow)
  into = (s32[], f32[8,4]) tuple(zero2, twice)
  inside = (s32[], f32[8,4]) while(into), condition=inner_condition, body=inner
  result = f32[8,4] get-tuple-element(inside), index=1
  ROOT after2 = (s32[], f32[8,4]) tuple(next2, result) }
ENTRY main { x = f32[8,4] parameter(0)
  begin = s32[] constant(0)
  start = (s32[], f32[8,4]) tuple(begin, x)
  ROOT loop = (s32[], f32[8,4]) while(start), condition=outer_condition, body=outer }
"""


def test_executions_multiply_and_bytes_per_iteration_belong_to_the_innermost_loop() -> None:
    found = full_buffer_writes(NESTED)
    assert [(each.instruction, each.loop, each.executions, each.iterations) for each in found] == [
        ("deep", "inner", 15, 15),
        ("shallow", "outer", 3, 3),
        ("twice", "outer", 3, 3),
    ]
    assert copied_bytes_per_iteration(found, larger_than=ROW_BYTES) == 2 * STACK_BYTES
    in_all_bodies = by_opcode(Module.from_proto(proto_of(NESTED)), None)  # type: ignore[arg-type]
    assert in_all_bodies == 3 * STACK_BYTES


def test_a_condition_that_copies_runs_once_more_than_its_body() -> None:
    text = looping(UPDATED).replace(
        "bound = s32[] constant(6)",
        "bound = s32[] constant(6)\n  b = f32[8,4] get-tuple-element(going), index=1\n"
        "  kept = f32[8,4] copy(b)",
    )
    (found,) = full_buffer_writes(text, IN_PLACE)
    assert (found.instruction, found.loop) == ("kept", "body")
    assert (found.executions, found.iterations) == (7, 6)


def test_a_loop_of_unknown_length_has_full_buffer_writes_of_unknown_count() -> None:
    text = looping("new = f32[8,4] copy(a)").replace(
        "constant(6)", 'custom-call(k), custom_call_target="length"'
    )
    (found,) = full_buffer_writes(text)
    assert (found.executions, found.iterations, found.nbytes_per_run) == (None, None, None)
    assert copied_bytes_per_iteration([found], larger_than=ROW_BYTES) == STACK_BYTES


def test_a_loop_that_never_runs_writes_nothing() -> None:
    assert full_buffer_writes(looping("new = f32[8,4] copy(a)", trips="0")) == ()


def test_a_copy_in_a_branch_is_an_upper_bound() -> None:
    (found,) = full_buffer_writes(TRAPS["a branch by index copies"].text)
    assert (found.executions, found.at_most, found.loop) == (6, True, "body")


def test_without_a_buffer_assignment_updates_are_trusted_and_copies_counted() -> None:
    updating = read(proto_of(looping(UPDATED)))
    assert updating.full_buffer_writes == ()
    assert not updating.buffers_assigned
    (found,) = read(proto_of(looping("new = f32[8,4] copy(a)"))).full_buffer_writes
    assert (found.content, found.in_place, found.executions) == (COPY, None, 6)


def test_without_a_buffer_assignment_a_view_is_trusted() -> None:
    bits = CONTENT_TRAPS["a view in another type that lies apart is a copy"].text
    assert read(proto_of(bits)).full_buffer_writes == ()


def test_scalars_are_not_counted() -> None:
    text = looping("ii = s32[] copy(i)", "j = s32[] add(ii, one)", UPDATED).replace(
        "tuple(next, new)", "tuple(j, new)"
    )
    assert full_buffer_writes(text, IN_PLACE) == ()


def test_a_full_buffer_write_names_the_line_of_the_operation_in_the_fusion() -> None:
    root = 'copy(p), metadata={op_name="f" source_file="model.py" source_line=41}'
    text = looping("new = f32[8,4] fusion(a), kind=kLoop, calls=inner", **fused(root))
    (found,) = full_buffer_writes(text)
    assert (found.source, found.opcode, found.instruction) == ("model.py:41", "copy", "new")


@pytest.mark.parametrize(("there", "here"), [("S(5)", ""), ("", "S(5)"), ("S(1)", ""), ("", "")])
def test_a_copy_between_host_and_device_says_that_it_is_a_transfer(there: str, here: str) -> None:
    there, here = (f"f32[8,4]{{1,0{':' if place else ''}{place}}}" for place in (there, here))
    text = looping(f"there = {there} copy(a)", f"new = {here} copy(there)")
    crossed = [each.crosses_host_link for each in full_buffer_writes(text)]
    assert crossed == ["S(5)" in there, ("S(5)" in there) != ("S(5)" in here)]


ADDING = """adding { left = f32[] parameter(0)
  right = f32[] parameter(1)
  ROOT sum = f32[] add(left, right) }
"""


@pytest.mark.parametrize(
    ("opcode", "lines"),
    [
        ("copy", "found = f32[8,4] copy(x)"),
        (
            "copy-start",
            "found = (f32[8,4], f32[8,4], u32[]) copy-start(x)\n done = f32[8,4] copy-done(found)",
        ),
        (
            "copy",
            (
                "found = ((f32[8,4]), f32[8,4], u32[]) async-start(x), calls=copying\n"
                "  done = f32[8,4] async-done(found)"
            ),
        ),
        ("reverse", "found = f32[8,4] fusion(x), kind=kLoop, calls=inner"),
        ("transpose", "found = f32[4,8] transpose(x), dimensions={1,0}"),
        ("reshape", "found = f32[32] reshape(x)"),
        ("convert", "found = s32[8,4] convert(x)"),
        ("bitcast-convert", "found = s32[8,4] bitcast-convert(x)"),
        ("concatenate", "found = f32[9,4] concatenate(x, row), dimensions={0}"),
        ("pad", "found = f32[9,4] pad(x, zero), padding=0_1x0_0"),
        ("reverse", "found = f32[8,4] reverse(x), dimensions={0}"),
        ("slice", "found = f32[7,4] slice(x), slice={[0:7], [0:4]}"),
        ("dynamic-update-slice", "found = f32[8,4] dynamic-update-slice(x, row, i, i)"),
        (
            "scatter",
            (
                "found = f32[8,4] scatter(x, at, row), to_apply=adding, update_window_dims={0,1}, "
                "inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=0"
            ),
        ),
    ],
)
def test_each_operation_that_moves_an_array_is_found_outside_of_loops(
    opcode: str, lines: str
) -> None:
    inner = "inner { p = f32[8,4] parameter(0)\n  ROOT r = f32[8,4] reverse(p), dimensions={0} }\n"
    (found,) = full_buffer_writes(f"""HloModule moving
{COPYING}{inner}{ADDING}
ENTRY main {{ x = f32[8,4] parameter(0)
  row = f32[1,4] parameter(1)
  at = s32[1] parameter(2)
  i = s32[] parameter(3)
  zero = f32[] constant(0)
  {lines}
  ROOT out = f32[] add(zero, zero) }}
""")
    assert (found.instruction, found.opcode, found.loop) == ("found", opcode, "")
    assert (found.executions, found.in_place) == (1, False)


def test_a_mask_of_sixty_doubled_steps_is_followed_once() -> None:
    steps = "".join(f"  m{k + 1} = pred[8,4] or(m{k}, m{k})\n" for k in range(60))
    masked = MASKED.replace("mask = pred", "m0 = pred").replace(
        "  ROOT chosen = f32[8,4] select(mask,", f"{steps}  ROOT chosen = f32[8,4] select(m60,"
    )
    text = looping(MADE, "new = f32[8,4] bitcast(made)", functions=masked)
    assert [each.instruction for each in full_buffer_writes(text)] == ["made"]


def test_half_of_an_array_of_a_wider_type_is_taken_from_all_of_its_elements() -> None:
    text = """HloModule widening
inner { p = bf16[8,4] parameter(0)
  z = f32[4,4] parameter(1)
  c = f32[8,4] convert(p)
  h = f32[4,4] slice(c), slice={[0:4], [0:4]}
  ROOT r = f32[8,4] concatenate(h, z), dimensions={0} }
ENTRY main { x = bf16[8,4] parameter(0)
  y = f32[] parameter(1)
  z = f32[4,4] broadcast(y), dimensions={}
  ROOT found = f32[8,4] fusion(x, z), kind=kLoop, calls=inner }
"""
    (found,) = full_buffer_writes(text)
    assert (found.instruction, found.content) == ("found", Content.UPDATE)


def test_a_choice_by_value_is_arithmetic_for_a_single_element_too() -> None:
    relu = """inner { p = f32[1] parameter(0)
  none = f32[] constant(0)
  z = f32[1] broadcast(none), dimensions={}
  positive = pred[1] compare(p, z), direction=GT
  ROOT r = f32[1] select(positive, p, z) }"""
    text = looping(
        "new = f32[1] fusion(a), kind=kLoop, calls=inner", stack="f32[1]", functions=relu
    )
    assert full_buffer_writes(text, APART) == ()
