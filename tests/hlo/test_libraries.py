"""What libraries hold that XLA's CPU compiler does not report: at most what a module shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array, lax

from assay.hlo.summary import read
from memsafe.libraries import library_bytes

from .conftest import proto_of
from .programs import with_computations

ROWS = 4 * 1000 * 1000

FUSED = """
largest { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT most = f32[] maximum(a, b) }
inside { x = f32[1000,10] parameter(0)
  product = f32[1000,1000] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  exponential = f32[1000,1000] exponential(product)
  lowest = f32[] constant(0)
  ROOT rows = f32[1000] reduce(exponential, lowest), dimensions={1}, to_apply=largest }
"""
INSIDE = 2 * ROWS + 4 + 4 * 10_000
"""Two arrays of rows, a number, and a copy of what the product reads."""

CALL = "{name} = f32[1000] fusion({x}), kind=kCustom, calls=inside"


def held(computations: str, entry: str, platform: str = "cpu") -> int:
    """By both readers: memsafe's own takes nothing but a CPU's modules."""
    proto = proto_of(with_computations(computations, entry))
    found = read(proto, platform=platform).library_bytes
    assert platform != "cpu" or found == library_bytes(proto)
    return found


def of_calls(*lines: str, root: str) -> int:
    given = "x = f32[1000,10] parameter(0)\n  y = f32[1000,10] parameter(1)\n  "
    return held(FUSED, given + "\n  ".join((*lines, f"ROOT {root}")))


def call(name: str, x: str) -> str:
    return CALL.format(name=name, x=x)


def test_a_library_may_hold_all_results_inside_of_a_fusion() -> None:
    assert of_calls(root=call("one", "x")) == INSIDE


def test_the_same_operations_by_the_compilers_own_loops_hold_none() -> None:
    assert of_calls(root=call("one", "x").replace("kCustom", "kLoop")) == 0


def test_another_platforms_fusions_are_not_those_of_libraries() -> None:
    text = f"x = f32[1000,10] parameter(0)\n  ROOT {call('one', 'x')}"
    assert held(FUSED, text, platform="cuda") == 0


def test_calls_that_may_run_at_once_add_up() -> None:
    calls = call("one", "x"), call("two", "y")
    assert of_calls(*calls, root="sum = f32[1000] add(one, two)") == 2 * INSIDE


def test_calls_that_wait_for_one_another_hold_the_largest() -> None:
    again = "again = f32[1000,10] broadcast(one), dimensions={0}"
    assert of_calls(call("one", "x"), again, root=call("two", "again")) == INSIDE


def test_calls_that_wait_by_a_control_dependency_do_too() -> None:
    second = f"{call('two', 'y')}, control-predecessors={{one}}"
    assert of_calls(call("one", "x"), second, root="sum = f32[1000] add(one, two)") == INSIDE


def test_a_loop_holds_what_its_body_does_once() -> None:
    loop = (
        FUSED
        + f"""
condition {{ state = (s32[], f32[1000,10]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  bound = s32[] constant(5)
  ROOT go = pred[] compare(i, bound), direction=LT }}
body {{ state = (s32[], f32[1000,10]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[1000,10] get-tuple-element(state), index=1
  {call("rows", "x")}
  after = f32[1000,10] broadcast(rows), dimensions={{0}}
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT states = (s32[], f32[1000,10]) tuple(next, after) }}"""
    )
    entry = """x = f32[1000,10] parameter(0)
  init = s32[] constant(0)
  start = (s32[], f32[1000,10]) tuple(init, x)
  ROOT loop = (s32[], f32[1000,10]) while(start), condition=condition, body=body"""
    assert held(loop, entry) == INSIDE


@pytest.mark.parametrize(
    ("shape", "lines"),
    [
        ("f32[100,100]", "ROOT product = {product}"),
        ("f32[10000]", "product = {product}\n  ROOT flat = f32[10000] bitcast(product)"),
    ],
)
def test_a_product_alone_is_computed_in_blocks(shape: str, lines: str) -> None:
    """Its result is the fusion's, also in another shape."""
    product = "f32[100,100] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    inside = f"inside {{ x = f32[100,10] parameter(0)\n  {lines.format(product=product)} }}"
    entry = f"x = f32[100,10] parameter(0)\n  ROOT all = {shape} fusion(x), kind=kCustom, "
    assert held(inside, entry + "calls=inside") == 0


@pytest.mark.parametrize(("over", "most"), [("0,1", 0), ("0", 4 * 1000), ("1", 4 * 1000)])
def test_a_sum_of_all_elements_is_computed_in_blocks(over: str, most: int) -> None:
    made = {"0,1": "f32[]", "0": "f32[10]", "1": "f32[100]"}[over]
    inside = f"""
sum {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT both = f32[] add(a, b) }}
inside {{ x = f32[100,10] parameter(0)
  square = f32[100,10] multiply(x, x)
  zero = f32[] constant(0)
  ROOT total = {made} reduce(square, zero), dimensions={{{over}}}, to_apply=sum }}"""
    entry = f"x = f32[100,10] parameter(0)\n  ROOT all = {made} fusion(x), kind=kCustom, "
    assert held(inside, entry + "calls=inside") == (most and most + 4)


def test_narrow_floats_take_32_bits_in_a_library() -> None:
    text = """
inside { x = bf16[100,10] parameter(0)
  exponential = bf16[100,10] exponential(x)
  ROOT again = bf16[100,10] negate(exponential) }"""
    entry = "x = bf16[100,10] parameter(0)\n  ROOT all = bf16[100,10] fusion(x), kind=kCustom, "
    assert held(text, entry + "calls=inside") == 4 * 1000


def test_every_window_of_a_convolution_may_be_laid_out() -> None:
    entry = """x = f32[2,32,32,3] parameter(0)
  k = f32[5,5,3,8] parameter(1)
  ROOT made = f32[2,28,28,8] convolution(x, k), window={size=5x5}, dim_labels=b01f_01io->b01f"""
    windows = 2 * 28 * 28 * 5 * 5 * 3
    assert held("", entry) == 4 * (windows + 2 * 32 * 32 * 3 + 5 * 5 * 3 * 8 + 2 * 28 * 28 * 8)


def attention(x: Array) -> Array:
    return jax.nn.softmax(x @ x.T, -1) @ x


def convolved(x: Array) -> Array:
    image, kernel = x.reshape(1, 64, 64, -1), x[:45].reshape(3, 3, 5, -1)
    labels = ("NHWC", "HWIO", "NHWC")
    made = lax.conv_general_dilated(
        image[..., :5], kernel, (1, 1), "SAME", dimension_numbers=labels
    )
    return jax.nn.softmax(made, -1).sum((1, 2))


@pytest.mark.parametrize(
    "function",
    [
        attention,
        convolved,
        jax.grad(lambda x: attention(x).sum()),
        lambda x: lax.scan(lambda c, _: (attention(c), None), x, None, length=3)[0],
        lambda x: lax.cond(x[0, 0] > 0, attention, lambda x: 2 * x, x),
    ],
)
def test_both_readers_find_the_same_in_compiled_programs(function: Callable[..., Any]) -> None:
    x = jax.ShapeDtypeStruct((1024, 64), jnp.float32)
    device = jax.devices("cpu")[0]
    with jax.default_device(device):
        compiled = jax.jit(function).lower(x).compile()
        alone = {"xla_cpu_experimental_ynn_fusion_type": ""}
        without = jax.jit(function).lower(x).compile(compiler_options=alone)
    (proto,) = (each.as_serialized_hlo_module_proto() for each in modules(compiled))
    found = read(proto, platform="cpu").library_bytes
    assert found == library_bytes(proto) > 0
    (own,) = (each.as_serialized_hlo_module_proto() for each in modules(without))
    if function is not convolved:  # Eigen computes convolutions.
        assert library_bytes(own) == 0
        assert without.memory_analysis().temp_size_in_bytes >= 4 * 1024 * 1024


def modules(compiled: Any) -> Any:
    return compiled.runtime_executable().hlo_modules()
