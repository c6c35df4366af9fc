"""The subset schema against XLA's own writer, and the sizes of shapes."""

from collections.abc import Callable

import pytest

from assay.hlo.module import Module
from assay.hlo.schema import MalformedModule
from assay.model.module import HOST_MEMORY_SPACE, Shape

from .programs import counting_loop, entry

type_sizes = {
    "pred": 9, "s2": 3, "s4": 5, "s8": 9, "s16": 18, "s32": 36, "s64": 72,
    "u2": 3, "u4": 5, "u8": 9, "u16": 18, "u32": 36, "u64": 72,
    "f16": 18, "bf16": 18, "f32": 36, "f64": 72, "f4e2m1fn": 5,
    "f8e5m2": 9, "f8e4m3": 9, "f8e4m3fn": 9, "f8e4m3b11fnuz": 9, "f8e3m4": 9,
    "f8e5m2fnuz": 9, "f8e4m3fnuz": 9, "f8e8m0fnu": 9, "c64": 72, "c128": 144,
}  # fmt: skip


@pytest.mark.parametrize("kind", type_sizes)
def test_nine_elements_of_each_type_have_their_bytes(
    kind: str, module: Callable[[str], Module]
) -> None:
    shape = module(entry(f"ROOT x = {kind}[3,3] parameter(0)")).entry.root.shape
    assert str(shape) == f"{kind}[3,3]"
    assert shape.nbytes == type_sizes[kind]


def test_a_shape_reads_as_xla_writes_it(module: Callable[[str], Module]) -> None:
    text = entry("ROOT x = (f32[32,16,4096]{2,1,0:S(5)}, (s32[], token[])) parameter(0)")
    shape = module(text).entry.root.shape
    assert str(shape) == "(f32[32,16,4096]S(5), (s32[], token[]))"
    assert [leaf.memory_space for leaf in shape.leaves()] == [HOST_MEMORY_SPACE, 0, 0]
    assert shape.nbytes == 32 * 16 * 4096 * 4 + 4
    assert shape.at((1, 0)) == Shape(element_type="s32")


def test_subbyte_arrays_are_rounded_up_one_by_one(module: Callable[[str], Module]) -> None:
    shape = module(entry("ROOT x = (s4[3], s4[3]) parameter(0)")).entry.root.shape
    assert shape.nbytes == 4  # not the 3 that 6 joined elements would take


def test_an_instruction_has_what_xla_wrote(module: Callable[[str], Module]) -> None:
    text = entry(
        "a = f32[4] parameter(1)",
        "b = f32[4] parameter(0)",
        'c = f32[4] add(a, b), metadata={op_name="add" source_file="/home/me/model.py" '
        "source_line=41}",
        'd = f32[4] custom-call(c), custom_call_target="thing", backend_config="words"',
        "ROOT t = (f32[4], f32[4]) tuple(d, a)",
    )
    root = module(text).entry.root
    custom, first = root.operands
    (added,) = custom.operands
    assert (first.opcode, first.parameter_number) == ("parameter", 1)
    assert (custom.custom_call_target, custom.backend_config) == ("thing", b"words")
    assert added.source == "model.py:41"
    assert custom.source is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [("s8", -7), ("u8", 200), ("s16", -300), ("u16", 60000), ("s32", -5), ("u32", 4000000000),
     ("s64", -(2**40)), ("u64", 2**63)],
)  # fmt: skip
def test_integer_constants_keep_their_value(
    kind: str, value: int, module: Callable[[str], Module]
) -> None:
    assert module(entry(f"ROOT c = {kind}[] constant({value})")).entry.root.integer == value


def test_a_float_or_an_array_is_no_integer(module: Callable[[str], Module]) -> None:
    assert module(entry("ROOT c = f32[] constant(3)")).entry.root.integer is None
    assert module(entry("ROOT c = s32[2] constant({3, 4})")).entry.root.integer is None


def test_a_while_calls_its_body_and_then_its_condition(module: Callable[[str], Module]) -> None:
    loop = module(counting_loop(init="0", bound="4", step="1", direction="LT")).entry.root
    assert [each.name for each in loop.called] == ["body", "condition"]


def test_aliases_and_schedule_are_read(module: Callable[[str], Module]) -> None:
    text = """HloModule m, is_scheduled=true, input_output_alias={ {1}: (0, {}, must-alias) }
ENTRY main { x = f32[4] parameter(0)
  late = f32[4] negate(x)
  y = f32[4] add(x, x)
  ROOT t = (f32[4], f32[4]) tuple(late, y) }
"""
    read = module(text)
    (alias,) = read.aliases
    assert (alias.output_index, alias.parameter_number, alias.must) == ((1,), 0, True)
    order = read.entry.order or ()
    names = [read.entry.instruction(each).name for each in order]
    assert names == ["x", "late", "y", "t"]


@pytest.mark.parametrize("keep", [0, 1, 20, -1])
def test_part_of_a_module_is_refused(keep: int, proto: Callable[[str], bytes]) -> None:
    whole = proto(counting_loop(init="0", bound="4", step="1", direction="LT"))
    with pytest.raises(MalformedModule, match=r"got .*, wanted .*;"):
        Module.from_proto(whole[:keep])


def test_text_is_refused() -> None:
    with pytest.raises(MalformedModule, match="not HLO text"):
        Module.from_proto(b"HloModule m\nENTRY e { ROOT x = f32[] parameter(0) }")
