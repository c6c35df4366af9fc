"""Elementwise rules cut dimensions of size above 1; scalars and stretched operands stay whole."""

import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.extend.core import Primitive

from memsafe import storing
from memsafe.factors import Factor, Piece, Rule
from memsafe.rules import elementwise, rule_of

from .pieces import assert_pieces_give_the_whole, assert_stays_whole, last_equation

pytestmark = pytest.mark.exhaustive

SHAPE = (3, 1, 2)
VALUES = np.linspace(0.1, 0.9, 6, dtype=np.float32).reshape(SHAPE)
WHOLE = np.arange(-3, 3, dtype=np.int32).reshape(SHAPE)
ODD = np.array([np.nan, np.inf, -np.inf, -0.0, 1e30, -2.5], np.float32).reshape(SHAPE)
FEW = VALUES[..., :1]
"""Operand of primitives that take seconds to compile in each loop."""
COMPLEX = np.stack([VALUES, ODD], -1).view(np.complex64)[..., 0]

_UNARY = """
    abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil cos cosh digamma erf
    erf_inv erfc exp exp2 expm1 floor is_finite lgamma log log1p logistic neg round rsqrt sign
    sin sinh sqrt square tan tanh
"""
_BINARY = "add atan2 div eq ge gt le lt max min mul ne nextafter pow rem sub"
UNARY: dict[str, Callable[[Any], Any]] = {name: getattr(lax, name) for name in _UNARY.split()}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(lax, name) for name in _BINARY.split()
}
BITS: dict[str, Callable[[Any, Any], Any]] = {
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "shift_left": lax.shift_left,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "shift_right_logical": lax.shift_right_logical,
}
OTHERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "add_any": (lambda x: jax.vjp(lambda y: lax.sin(y) + y, x)[1](x), (VALUES,)),
    "bitcast_convert_type": (lambda x: lax.bitcast_convert_type(x, jnp.uint32), (ODD,)),
    "clamp": (lambda x: lax.clamp(x, x, x), (ODD,)),
    "clz": (lax.clz, (WHOLE,)),
    "complex": (lax.complex, (VALUES, ODD)),
    "conj": (lax.conj, (COMPLEX,)),
    "convert_element_type": (lambda x: lax.convert_element_type(x, jnp.bfloat16), (ODD,)),
    "copy": (lambda x: jnp.array(x, copy=True), (jnp.asarray(ODD),)),
    "igamma": (lax.igamma, (FEW, FEW)),
    "igamma_grad_a": (lax.igamma_grad_a, (FEW, FEW)),
    "igammac": (lax.igammac, (FEW, FEW)),
    "imag": (lax.imag, (COMPLEX,)),
    "integer_pow": (lambda x: lax.integer_pow(x, -3), (ODD,)),
    "mulhi": (lax.mulhi, (WHOLE, WHOLE)),
    "name": (lambda x: jax.ad_checkpoint.checkpoint_name(x, "kept"), (ODD,)),
    "not": (lax.bitwise_not, (WHOLE,)),
    "optimization_barrier": (lax.optimization_barrier, (ODD,)),
    "polygamma": (lax.polygamma, (jnp.ones(SHAPE), VALUES)),
    "population_count": (lax.population_count, (WHOLE,)),
    "real": (lax.real, (COMPLEX,)),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 5, 4), (ODD,)),
    "regularized_incomplete_beta": (lax.betainc, (FEW, FEW, FEW)),
    "select_n": (lax.select_n, (WHOLE > 0, ODD, VALUES)),
    "zeta": (lax.zeta, (VALUES + 1, VALUES)),
    storing.NAME: (storing.stored, (ODD,)),
}
SERIES = {"igamma", "igamma_grad_a", "igammac", "polygamma", "regularized_incomplete_beta", "zeta"}
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{name: (function, (ODD,)) for name, function in UNARY.items()},
    **{name: (function, (ODD, ODD[::-1])) for name, function in BINARY.items()},
    **{name: (function, (WHOLE, abs(WHOLE))) for name, function in BITS.items()},
    **OTHERS,
}
EXACT = {
    "abs", "add", "ceil", "clamp", "div", "floor", "integer_pow", "is_finite", "max", "min", "mul",
    "neg", "nextafter", "rem", "round", "sign", "sqrt", "square", "sub",
    *BITS, *(OTHERS.keys() - SERIES), "eq", "ge", "gt", "le", "lt", "ne",
}  # fmt: skip
"""Primitives whose results are exact to the last bit, by IEEE 754 or without arithmetic."""

UNTESTED = {
    "eq_to": "lax.sort's own order, which no public function asks for",
    "le_to": "the same",
    "lt_to": "the same",
    "log2": "only in newer jax",
    "one_minus_square": "only in newer jax",
    "sharding_constraint": "places its result, tested with shards",
    **dict.fromkeys(
        ("pmax", "pmin", "psum", "psum_invariant", "pvary"),
        "only inside shard_map, tested on four devices",
    ),
    "threefry2x32": "several results, tested apart",
}


def everywhere(operands: int, shape: tuple[int, ...]) -> list[Any]:
    return [((dim,) * operands, (dim,), False) for dim, size in enumerate(shape) if size > 1]


@pytest.mark.parametrize("name", CASES)
def test_pieces_of_every_elementwise_primitive_give_the_whole(name: str) -> None:
    function, operands = CASES[name]
    operands = tuple(map(jnp.asarray, operands))
    count = len(last_equation(function, *operands, primitive=name).operands)
    assert_pieces_give_the_whole(
        function,
        *operands,
        expect=everywhere(count, operands[0].shape),
        primitive=name,
        rounds=name not in EXACT,
    )


def test_every_rule_is_tested() -> None:
    assert elementwise.RULES.keys() == CASES.keys() | UNTESTED.keys()


def test_every_name_is_a_primitive_of_this_jax_or_of_a_newer_one() -> None:
    modules = (
        "core", "lax.lax", "lax.parallel", "lax.special", "ad_util", "ad_checkpoint", "pjit",
        "random.threefry2x32",
    )  # fmt: skip
    there = {
        value.name
        for module in modules
        for value in vars(importlib.import_module(f"jax._src.{module}")).values()
        if isinstance(value, Primitive)
    }
    assert elementwise.RULES.keys() - there <= {"log2", "one_minus_square", storing.NAME}


@pytest.mark.parametrize(
    ("function", "operands", "expect"),
    [
        (lambda x: x * 2.0, (ODD,), [((0, None), (0,), False), ((2, None), (2,), False)]),
        (
            lambda x: lax.clamp(0.0, x, 1.0),
            (ODD,),
            [((None, 0, None), (0,), False), ((None, 2, None), (2,), False)],
        ),
        (
            lambda p, x: lax.select_n(p, x, -x),
            (np.array([True])[0], ODD),
            [((None, 0, 0), (0,), False), ((None, 2, 2), (2,), False)],
        ),
        (
            lax.add,
            (ODD, ODD[:1]),
            [((0, None), (0,), False), ((2, 2), (2,), False)],
        ),
    ],
    ids=["literal", "scalar_bounds", "scalar_predicate", "stretched"],
)
def test_an_operand_stretched_along_a_dimension_is_carried_whole(
    function: Callable[..., Any], operands: tuple[Any, ...], expect: list[Any]
) -> None:
    operands = tuple(map(jnp.asarray, operands))
    name = jax.make_jaxpr(function)(*operands).jaxpr.eqns[-1].primitive.name
    assert_pieces_give_the_whole(function, *operands, expect=expect, primitive=name)


def test_random_bits_of_explicit_counters_are_elementwise() -> None:
    key = jax.random.key_data(jax.random.key(7))

    def bits(counters: Array) -> list[Array]:
        threefry = importlib.import_module("jax._src.random.threefry2x32").threefry2x32_p
        return list(threefry.bind(key[0], key[1], counters, counters + 1))

    assert_pieces_give_the_whole(
        bits,
        jnp.arange(6, dtype=jnp.uint32),
        expect=[((None, None, 0, 0), (0, 0), False)],
        primitive="threefry2x32",
    )


def test_keys_are_selected_piece_by_piece() -> None:
    keys = jax.random.split(jax.random.key(0), 4)
    assert_pieces_give_the_whole(
        lax.select_n,
        jnp.arange(4) % 2 == 0,
        keys,
        keys[::-1],
        expect=[((0, 0, 0), (0,), False)],
    )


@pytest.mark.parametrize(
    ("operand", "to"),
    [(jnp.uint32(7), jnp.uint8), (jnp.arange(4, dtype=jnp.uint8), jnp.uint32)],
    ids=["scalar_to_bytes", "bytes_to_scalar"],
)
def test_a_bitcast_to_another_width_stays_whole(operand: Array, to: Any) -> None:
    assert_stays_whole(lambda x: lax.bitcast_convert_type(x, to), operand)


def test_a_barrier_around_two_arrays_stays_whole() -> None:
    x = jnp.ones((3, 4))
    assert_stays_whole(lambda a, b: lax.optimization_barrier((a, b)), x, x)


def test_a_conversion_that_says_where_its_result_lies_stays_whole() -> None:
    seen = last_equation(lambda x: lax.convert_element_type(x, jnp.int32), jnp.ones(4))
    placed = seen.equation.replace(params={**seen.equation.params, "sharding": object()})
    rule = rule_of(placed)
    assert rule is not None
    assert rule.factors(seen.equation)
    assert rule.factors(placed) == ()


def test_the_transpose_of_a_cast_is_split_although_it_names_a_mesh_of_no_devices() -> None:
    def narrowed(x: Array) -> Array:
        return jnp.sum(x.astype(jnp.bfloat16) * jnp.bfloat16(2))

    widened = jax.make_jaxpr(jax.grad(narrowed))(jnp.ones((4, 6))).eqns[-1]
    assert widened.primitive.name == "convert_element_type"
    assert widened.params["sharding"] is not None
    assert_pieces_give_the_whole(
        jax.grad(narrowed),
        jnp.ones((4, 6)),
        primitive="convert_element_type",
        expect=[((0,), (0,), False), ((1,), (1,), False)],
    )


def _reversed_pieces(equation: Any, _factor: Factor, operands: Any, _piece: Piece) -> list[Array]:
    return [
        value[::-1] for value in elementwise.apply_unchanged(equation, _factor, operands, _piece)
    ]


def test_a_rule_that_computes_another_value_is_caught() -> None:
    right = elementwise.RULES["exp"]
    wrong = Rule(factors=right.factors, apply=_reversed_pieces)
    x = jnp.asarray(VALUES[:, 0])
    expect = [((0,), (0,), False), ((1,), (1,), False)]
    assert_pieces_give_the_whole(lax.exp, x, expect=expect, rule=right)
    with pytest.raises(AssertionError, match="Mismatched"):
        assert_pieces_give_the_whole(lax.exp, x, expect=expect, rule=wrong)


def test_a_rule_that_loses_a_factor_is_caught() -> None:
    right = elementwise.RULES["exp"]
    lossy = Rule(factors=lambda equation: right.factors(equation)[:1], apply=right.apply)
    x = jnp.asarray(VALUES[:, 0])
    with pytest.raises(AssertionError):
        assert_pieces_give_the_whole(
            lax.exp, x, expect=[((0,), (0,), False), ((1,), (1,), False)], rule=lossy
        )
