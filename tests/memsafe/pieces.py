"""The law of every rule: a loop over pieces of any factor gives the results of the equation.

The law also holds for loops over the part of each device, where `over_devices` has such a loop.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import JaxprEqn

from memsafe.factors import Axis, Factor, Piece, Rule
from memsafe.jax_internals import bind
from memsafe.over_devices import on_each_device, over_devices
from memsafe.programs import evaluate, flattened
from memsafe.rules import factors_of, has_halos, rule_of, unshifted

WrittenAxis = int | tuple[int, int] | None
WrittenFactor = tuple[tuple[WrittenAxis, ...], tuple[WrittenAxis, ...], bool]


class Seen(NamedTuple):
    """An equation, the operands that it was evaluated on, and its results."""

    equation: JaxprEqn
    operands: list[Array]
    results: list[Array]


def assert_pieces_give_the_whole(
    function: Callable[..., Any],
    *arguments: Any,
    expect: Sequence[WrittenFactor],
    primitive: str | None = None,
    rule: Rule | None = None,
    rounds: bool = False,
    halos: Sequence[int] = (),
) -> None:
    """Asserts that the factors of the equation in `function` are right and those of `expect`.

    Results must be equal, except merged floats, which may differ by rounding. So may all floats if
    `rounds`: the compiler rounds an element by how it vectorises the loop of this element.

    The equation is the only one of `function`, or the last of the named `primitive`. An expected
    factor is `(operand axes, result axes, merged?)`; an axis is None, a dim, or `(dim, block)`.
    None also stands for an operand that is cut with a halo, or not to its end. `rule` replaces the
    rule of the table. `halos` are dimensions of the only result. Their factors, with None for all
    operands, are expected as well.
    """
    seen = last_equation(function, *arguments, primitive=primitive)
    rule = rule or rule_of(seen.equation)
    factors = () if rule is None else rule.factors(seen.equation)
    whole = (None,) * len(seen.equation.invars)
    expected = [*expect, *((whole, (dim,), False) for dim in halos)]
    got = [written(unshifted(seen.equation, factor)) for factor in factors]
    assert sorted(got, key=repr) == sorted(map(_exact, expected), key=repr)
    if rule is not None:
        _assert_right(rule, factors, seen, rounds=rounds)


def assert_stays_whole(
    function: Callable[..., Any], *arguments: Any, primitive: str | None = None
) -> None:
    """Asserts that the equation in `function` has no factors."""
    assert factors_of(last_equation(function, *arguments, primitive=primitive).equation) == ()


def last_equation(
    function: Callable[..., Any], *arguments: Any, primitive: str | None = None
) -> Seen:
    """The only equation of `function`, or the last of the named `primitive`, with its values."""
    traced = jax.make_jaxpr(function)(*arguments)
    flat = flattened(traced)
    # In newer jax, flattening drops an equation that changes nothing, such as a name.
    closed = flat if any(_is(equation, primitive) for equation in flat.jaxpr.eqns) else traced
    seen: list[Seen] = []

    def recorded(equation: JaxprEqn, operands: Sequence[Array]) -> list[Array]:
        results = bind(equation, operands)
        seen.append(Seen(equation, [jnp.asarray(value) for value in operands], results))
        return results

    evaluate(closed, jax.tree.leaves(arguments), calls=recorded)
    named = [one for one in seen if _is(one.equation, primitive)]
    assert named, f"no {primitive} among {[one.equation.primitive.name for one in seen]}"
    assert primitive is not None or len(named) == 1, [str(one.equation) for one in named]
    return named[-1]


def _is(equation: JaxprEqn, primitive: str | None) -> bool:
    return primitive in {None, equation.primitive.name}


def written(factor: Factor) -> WrittenFactor:
    """`factor` in the notation of tests, each axis with its block."""
    return (
        tuple(axis and (axis.dim, axis.block) for axis in factor.operands),
        tuple(axis and (axis.dim, axis.block) for axis in factor.results),
        factor.merge is not None,
    )


def _exact(factor: WrittenFactor) -> WrittenFactor:
    operands, results, merged = factor
    return tuple(map(_with_block, operands)), tuple(map(_with_block, results)), merged


def _with_block(axis: WrittenAxis) -> WrittenAxis:
    return (axis, 1) if isinstance(axis, int) else axis


def _assert_right(rule: Rule, factors: Sequence[Factor], seen: Seen, *, rounds: bool) -> None:
    cuts = [cut for factor in factors for cut in _cuts(factor)]
    if has_halos(seen.equation):
        cuts += [(_wider(factor), 2) for factor in factors if factor.merge is None]
    cuts += [cut for factor in factors for cut in _cuts_over_devices(seen.equation, factor)]
    loops = [_loop(rule, grain, length, seen.equation) for grain, length in cuts]
    # One program for all loops: most of a small program's compile time is the same for any size.
    all_results = jax.jit(lambda operands: [loop(operands) for loop in loops])(seen.operands)
    for (grain, _), results in zip(cuts, all_results, strict=True):
        for got, wanted in zip(results, seen.results, strict=True):
            _assert_same(got, wanted, rounds=rounds or grain.merge is not None)


def _cuts(factor: Factor) -> list[tuple[Factor, int]]:
    """Grains and lengths of the pieces that are tested: the finest grain and a coarser one.

    There are few, because each is compiled. At the finest grain, the length does not divide the
    factor. Merged factors are also cut by a length that does, because only a piece that is moved
    back is masked. From size 6, a coarser grain has such a piece too.
    """
    assert factor.size > 1, "a factor of one index cannot be split"
    coarser = [factor.coarser(times) for times in _proper_divisors(factor.size)[1:2]]
    if factor.merge is None:
        finest, coarse = _lengths(factor.size)[-1:], [_lengths(grain.size)[0] for grain in coarser]
    else:
        finest, coarse = _lengths(factor.size), [_lengths(grain.size)[-1] for grain in coarser]
    return [*((factor, length) for length in finest), *zip(coarser, coarse, strict=True)]


def _cuts_over_devices(equation: JaxprEqn, factor: Factor) -> Iterator[tuple[Factor, int]]:
    """Pieces of each device's part; if the part has three indices, the last piece is moved back."""
    for devices in _proper_divisors(factor.size)[1:2]:
        own = factor.size // devices
        for early in [()] if factor.merge is None else [(), range(len(equation.outvars))]:
            over = over_devices(equation, factor, devices, early)
            if over is not None:
                yield over, devices * (2 if own > 2 else 1)


def _wider(factor: Factor) -> Factor:
    """The factor with a halo of one index below and of two above."""
    axis = factor.results[0]
    assert axis is not None
    wider = factor.carrying(0, axis._replace(before=axis.block, after=2 * axis.block))
    assert wider is not None
    return replace(wider, size=factor.size)


def _proper_divisors(size: int) -> list[int]:
    return [times for times in range(1, size) if size % times == 0]


def _lengths(size: int) -> list[int]:
    """The longest length that divides `size`, and the shortest above 1 that does not."""
    return _proper_divisors(size)[-1:] + [at for at in range(2, size) if size % at][:1]


def _loop(
    rule: Rule, factor: Factor, length: int, equation: JaxprEqn
) -> Callable[[list[Array]], list[Array]]:
    def program(operands: list[Array]) -> list[Array]:
        def body(index: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
            index = lax.convert_element_type(index, np.int32)
            start = jnp.minimum(index * length, factor.size - length)
            counted = index * length - start if factor.size % length else None
            piece = Piece(start=start, length=length, counted=counted, size=factor.size)
            sliced = [
                _sliced(value, axis, piece)
                for value, axis in zip(operands, factor.operands, strict=True)
            ]
            if factor.merge is None:
                apply = rule.apply if factor.devices == 1 else on_each_device
                return _placed(carry, apply(equation, factor, sliced, piece), factor, piece)
            part = factor.merge.part(equation, factor, sliced, piece)
            return factor.merge.combine(carry, part, first=index == 0)

        trips = -(-factor.size // length)
        last = lax.fori_loop(0, trips, body, _initial(factor, equation))
        if factor.merge is None:
            return list(last)
        whole = [
            value if axis is None else None
            for value, axis in zip(operands, factor.operands, strict=True)
        ]
        return factor.merge.finish(equation, last, whole)

    return program


def _sliced(value: Array, axis: Axis | None, piece: Piece) -> Array:
    """The piece of `value`, with rubbish beyond the ends unless the axis wraps."""
    if axis is None:
        return value
    if axis.devices > 1:
        return piece.of(value, axis)
    width = axis.width(piece.length)
    ends = [(0, 0)] * value.ndim
    ends[axis.dim] = (abs(axis.before) + width, abs(axis.after) + width)
    around = jnp.pad(value, ends, mode="wrap") if axis.wraps else _with_rubbish(value, ends)
    start = ends[axis.dim][0] + piece.start * axis.block - axis.before
    return lax.dynamic_slice_in_dim(around, start, width, axis.dim)


def _with_rubbish(value: Array, ends: list[tuple[int, int]]) -> Array:
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return jnp.pad(value, ends, mode="edge")
    rubbish = {"b": True, "i": 77, "u": 77}.get(value.dtype.kind, np.nan)
    return jnp.pad(value, ends, constant_values=rubbish)


def _placed(
    carry: tuple[Array, ...], results: list[Array], factor: Factor, piece: Piece
) -> tuple[Array, ...]:
    placed = []
    for whole, part, axis in zip(carry, results, factor.results, strict=True):
        assert axis is not None, "a factor without a merge is carried by every result"
        assert part.shape[axis.dim] == axis.width(piece.length)
        if axis.devices > 1:
            placed.append(piece.put(whole, part, axis))
            continue
        stop = axis.before + piece.length * axis.block
        inner = lax.slice_in_dim(part, axis.before, stop, axis=axis.dim)
        # If the block does not divide the size, the last piece goes beyond the end.
        ends = [(0, 0)] * whole.ndim
        ends[axis.dim] = (0, max(0, factor.size * axis.block - whole.shape[axis.dim]))
        at = piece.start * axis.block
        longer = jnp.pad(whole, ends, mode="edge")
        longer = lax.dynamic_update_slice_in_dim(longer, inner, at, axis.dim)
        placed.append(lax.slice_in_dim(longer, 0, whole.shape[axis.dim], axis=axis.dim))
    return tuple(placed)


def _initial(factor: Factor, equation: JaxprEqn) -> tuple[Array, ...]:
    if factor.merge is None:
        return tuple(_blank(variable.aval) for variable in equation.outvars)
    state = factor.merge.start(equation)
    avals = factor.merge.state_avals(equation)
    assert [(one.shape, one.dtype) for one in state] == [(one.shape, one.dtype) for one in avals]
    return state


def _blank(aval: Any) -> Array:
    if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(123), aval.shape)
    return jnp.ones(aval.shape, aval.dtype)


def _assert_same(got: Array, wanted: Array, *, rounds: bool) -> None:
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    if jnp.issubdtype(wanted.dtype, jax.dtypes.prng_key):
        got, wanted = jax.random.key_data(got), jax.random.key_data(wanted)
    if not jnp.issubdtype(wanted.dtype, jnp.inexact):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))
        return
    # NumPy does not treat two NaNs of a narrow type as equal.
    wide = np.complex128 if jnp.issubdtype(wanted.dtype, jnp.complexfloating) else np.float64
    values = np.asarray(wanted).astype(wide)
    finite = np.abs(values[np.isfinite(values)])
    tolerance = 32 * float(jnp.finfo(wanted.dtype).eps) if rounds else 0.0
    np.testing.assert_allclose(
        np.asarray(got).astype(wide), values, tolerance, tolerance * float(finite.max(initial=0))
    )
