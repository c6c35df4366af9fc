"""Cost analysis: against hand counts, and against that of XLA itself."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from assay.hlo.cost_analysis import CostAnalysis
from assay.hlo.instruction import WindowDimension
from assay.hlo.module import Module
from assay.hlo.trip_count import TripCounter
from assay.model.module import Cost
from assay.model.target import TargetName
from assay.targets import jax_internals, known
from assay.targets.devices import prepare

from .programs import counting_loop, entry, with_computations

Read = Callable[[str], Module]
GEMM = """backend_config={"gemm_backend_config":{"dot_dimension_numbers":
  {"lhs_contracting_dimensions":["2"],"lhs_batch_dimensions":["0"]}}}"""


@pytest.fixture(scope="module", autouse=True)
def _ready_for_every_compiler() -> None:
    prepare(map(TargetName.parse, known()))


def cost_of(module: Module) -> Cost | None:
    return CostAnalysis(TripCounter(module)).of_computation(module.entry)


# f32[8,4] is 32 elements, 128 bytes; a row of it is 16 bytes
ARGUMENTS = (
    "x = f32[8,4] parameter(0)",
    "y = f32[8,4] parameter(1)",
    "i = s32[] parameter(2)",
    "r = f32[1,4] parameter(3)",
    "a = bf16[3,5,7] parameter(4)",
    "b = bf16[3,7,2] parameter(5)",
    "image = f32[2,6,6,3] parameter(6)",
    "kernel = f32[3,3,3,4] parameter(7)",
)
OPERATIONS = {
    "addition": ("f32[8,4] add(x, y)", 32, 384),
    "square, read once": ("f32[8,4] multiply(x, x)", 32, 256),
    "copy": ("f32[8,4] copy(x)", 0, 256),
    "broadcast": ("f32[8,4] broadcast(i), dimensions={}", 0, 132),
    "bitcast": ("f32[32] bitcast(x)", 0, 0),
    "tuple": ("(f32[8,4], f32[8,4]) tuple(x, y)", 0, 0),
    "allocation": ('f32[8,4] custom-call(), custom_call_target="AllocateBuffer"', 0, 0),
    "unknown kernel": ('f32[8,4] custom-call(x), custom_call_target="kernel"', 0, 256),
    "row": ("f32[1,4] dynamic-slice(x, i, i), dynamic_slice_sizes={1,4}", 0, 16 + 16 + 8),
    "update": ("f32[8,4] dynamic-update-slice(x, r, i, i)", 0, 16 + 16 + 8),
    "batched product": (
        (
            "bf16[3,5,2] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, "
            "lhs_contracting_dims={2}, rhs_contracting_dims={1}"
        ),
        2 * 3 * 5 * 2 * 7,
        2 * (3 * 5 * 7 + 3 * 7 * 2 + 3 * 5 * 2),
    ),
    "library's product": (
        f'(bf16[3,5,2], s8[64]) custom-call(a, b), custom_call_target="f", {GEMM}',
        2 * 3 * 5 * 2 * 7,
        2 * (3 * 5 * 7 + 3 * 7 * 2 + 3 * 5 * 2) + 64,
    ),
    "convolution": (
        "f32[2,4,4,4] convolution(image, kernel), window={size=3x3}, dim_labels=b01f_01io->b01f",
        2 * (2 * 4 * 4 * 4) * 3 * 9,
        4 * (216 + 108 + 128),
    ),
    "padded convolution": (  # 16 of 18 positions per dimension meet no padding
        (
            "f32[2,6,6,4] convolution(image, kernel), window={size=3x3 pad=1_1x1_1}, "
            "dim_labels=b01f_01io->b01f"
        ),
        2 * 2 * 4 * 3 * 16 * 16,
        4 * (216 + 108 + 288),
    ),
    "library's convolution": (
        (
            "(f32[2,4,4,4], u8[0]) custom-call(image, kernel), window={size=3x3}, "
            'dim_labels=b01f_01io->b01f, custom_call_target="__cudnn$convForward"'
        ),
        2 * (2 * 4 * 4 * 4) * 3 * 9,
        4 * (216 + 108 + 128),
    ),
    "start": ("(f32[8,4], f32[8,4], u32[]) copy-start(x)", 0, 0),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_counts_its_arithmetic_and_its_traffic(module: Read, name: str) -> None:
    operation, flops, nbytes = OPERATIONS[name]
    text = entry(*ARGUMENTS, f"ROOT z = {operation}")
    assert cost_of(module(text)) == Cost(flops=flops, nbytes=nbytes)


P, Q = "p = f32[8,4] parameter(0)", "q = f32[8,4] parameter(1)"
ROW = """row { p = f32[8,4] parameter(0)
  at = s32[] parameter(1)
  taken = f32[1,4] dynamic-slice(p, at, at), dynamic_slice_sizes={1,4}
  ROOT minus = f32[1,4] negate(taken) }"""
FUSIONS = {
    "whole operands": (
        f"{P} {Q} ROOT f = f32[8,4] add(p, q)",
        "f32[8,4] fusion(x, y)",
        Cost(flops=32, nbytes=3 * 128),
    ),
    "two rows of one operand": (
        f"""{P} at = s32[] parameter(1)
  one = f32[1,4] dynamic-slice(p, at, at), dynamic_slice_sizes={{1,4}}
  view = f32[8,4] bitcast(p)
  two = f32[1,4] slice(view), slice={{[2:3], [0:4]}}
  ROOT f = f32[1,4] add(one, two)""",
        "f32[1,4] fusion(x, i)",
        Cost(flops=4, nbytes=2 * 16 + 4 + 16),
    ),
    "update in place": (
        f"""{P} {Q} at = s32[] parameter(2)
  row = f32[1,4] slice(q), slice={{[2:3], [0:4]}}
  sum = f32[1,4] add(row, row)
  new = f32[8,4] dynamic-update-slice(p, sum, at, at)
  ROOT f = f32[8,4] bitcast(new)""",
        "f32[8,4] fusion(x, y, i)",
        Cost(flops=4, nbytes=16 + 4 + 16),
    ),
    "update of what was computed": (
        f"""{P} {Q} at = s32[] parameter(2)
  sum = f32[8,4] add(p, p)
  row = f32[1,4] slice(q), slice={{[2:3], [0:4]}}
  ROOT f = f32[8,4] dynamic-update-slice(sum, row, at, at)""",
        "f32[8,4] fusion(x, y, i)",
        Cost(flops=32, nbytes=128 + 16 + 4 + 128),
    ),
    "fusion inside, which takes a row": (
        f"""{P} at = s32[] parameter(1)
  ROOT f = f32[1,4] fusion(p, at), kind=kLoop, calls=row""",
        "f32[1,4] fusion(x, i)",
        Cost(flops=4, nbytes=16 + 4 + 16),
    ),
    "operand passed on in its own buffer": (
        f"{P} {Q} minus = f32[8,4] negate(q) ROOT f = (f32[8,4], f32[8,4]) tuple(p, minus)",
        "(f32[8,4], f32[8,4]) fusion(x, y), output_to_operand_aliasing={{0}: (0, {})}",
        Cost(flops=32, nbytes=2 * 128),
    ),
    "operand of an asynchronous collective passed on": (
        f"""{P} {Q}
  all = f32[16,4] all-gather(p), channel_id=7, replica_groups={{{{0,1}}}}, dimensions={{0}}
  row = f32[1,4] slice(q), slice={{[2:3], [0:4]}}
  minus = f32[1,4] negate(row)
  ROOT f = (f32[8,4], f32[1,4]) tuple(p, minus)""",
        "(f32[8,4], f32[1,4]) fusion(x, y), output_to_operand_aliasing={{0}: (0, {})}",
        Cost(flops=4, nbytes=2 * 16),
    ),
}


@pytest.mark.parametrize("name", FUSIONS)
def test_a_fusion_counts_all_its_arithmetic_but_only_its_own_traffic(
    module: Read, name: str
) -> None:
    body, call, expected = FUSIONS[name]
    call, _, aliasing = call.partition("), ")
    call = f"ROOT z = {call.removesuffix(')')}), kind=kLoop, calls=fused"
    call += f", {aliasing}" if aliasing else ""
    text = with_computations(f"{ROW}\nfused {{ {body} }}", *ARGUMENTS, call)
    assert cost_of(module(text)) == expected


def test_a_loop_counts_its_body_and_its_condition_with_their_trips(module: Read) -> None:
    text = counting_loop(init="0", bound="5", step="1", direction="LT")
    # body: s32 + s32; condition: s32 < s32 to a pred; before the loop: the copy of an s32
    expected = Cost(flops=5 + 6, nbytes=5 * 12 + 6 * 9 + 8)
    assert cost_of(module(text)) == expected


def test_the_work_of_a_loop_with_unknown_trips_is_unknown(module: Read) -> None:
    text = counting_loop(init="0", bound="5", step="1", direction="LT")
    text = text.replace("copy(init)", 'custom-call(init), custom_call_target="f"')
    assert cost_of(module(text)) is None


def test_a_conditional_counts_its_dearest_branch(module: Read) -> None:
    branches = """cheap { x = f32[8,4] parameter(0) ROOT minus = f32[8,4] negate(x) }
dear { x = f32[8,4] parameter(0) y = f32[8,4] negate(x) ROOT sum = f32[8,4] add(x, y) }"""
    call = "ROOT z = f32[8,4] conditional(i, x, y), branch_computations={cheap, dear}"
    text = with_computations(branches, *ARGUMENTS, call)
    assert cost_of(module(text)) == Cost(flops=64, nbytes=256 + 384)


def convolution(**options: Any) -> Callable[..., jax.Array]:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lambda x, kernel: lax.conv_general_dilated(
        x, kernel, dimension_numbers=numbers, **options
    )


DILATED = {
    "window_strides": (1, 1),
    "padding": ((2, 3), (0, 1)),
    "lhs_dilation": (3, 1),
    "rhs_dilation": (1, 2),
}
PROGRAMS: dict[str, tuple[Any, ...]] = {
    "product": (lambda a, b: a @ b, (64, 32), (32, 48)),
    "batched product": (lambda a, b: jnp.einsum("bij,bjk->bik", a, b), (3, 20, 30), (3, 30, 40)),
    "convolution": (
        convolution(window_strides=(2, 1), padding="SAME"),
        (2, 9, 10, 4),
        (3, 5, 4, 6),
    ),
    "dilated convolution": (convolution(**DILATED), (2, 9, 10, 4), (3, 2, 4, 6)),
    "grouped convolution": (
        convolution(window_strides=(1, 1), padding="VALID", feature_group_count=2),
        (2, 9, 10, 4),
        (3, 2, 2, 6),
    ),
    "elementwise": (lambda a, b: jnp.where(a > b, a * b - a, a / b), (16, 16), (16, 16)),
    "reduction": (lambda a: a.sum(0), (64, 32)),
    "reduction of pairs": (lambda a: a.argmax(1), (64, 32)),
    "windows": (
        lambda a: lax.reduce_window(a, 0.0, lax.add, (3, 3), (1, 1), "VALID"),
        (20, 20),
    ),
    "update of rows": (lambda a, b: a.at[2:4].set(b * 2), (100, 8), (2, 8)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_xla_counts_the_same_work(name: str) -> None:
    function, *shapes = PROGRAMS[name]
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    cpu = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    compiled = jax.jit(function, in_shardings=cpu).lower(*arguments).compile()
    (data,) = jax_internals.loaded_protos(compiled.runtime_executable())
    analysis = compiled.cost_analysis()
    assert analysis is not None
    expected = Cost(flops=int(analysis["flops"]), nbytes=int(analysis["bytes accessed"]))
    assert cost_of(Module.from_proto(data)) == expected


WINDOWS = st.builds(
    WindowDimension,
    size=st.integers(1, 7),
    stride=st.integers(1, 5),
    padding_low=st.integers(-4, 5),
    window_dilation=st.integers(1, 4),
    base_dilation=st.integers(1, 6),
)


def meets(window: WindowDimension, base: int, output: int, tap: int) -> bool:
    at = output * window.stride + tap * window.window_dilation - window.padding_low
    return at in range(0, (base - 1) * window.base_dilation + 1, window.base_dilation)


@given(window=WINDOWS, base=st.integers(1, 9), outputs=st.integers(1, 12))
def test_valid_positions_are_those_that_meet_the_base(
    window: WindowDimension, base: int, outputs: int
) -> None:
    pairs = [(output, tap) for output in range(outputs) for tap in range(window.size)]
    met = sum(meets(window, base, *pair) for pair in pairs)
    assert window.valid_positions(base, outputs) == met


def test_a_count_that_multiplies_padding_too_is_told_from_the_true_one(module: Read) -> None:
    operation, flops, _ = OPERATIONS["padded convolution"]
    found = cost_of(module(entry(*ARGUMENTS, f"ROOT z = {operation}")))
    naive = 2 * (2 * 6 * 6 * 4) * 3 * 9
    assert found is not None
    assert found.flops == flops < naive
