"""Gathers, and slices and updates of slices at computed places."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray
from jax.lax import GatherScatterMode

from memsafe.factors import Axis, Factor, Rule
from memsafe.jax_internals import bind
from memsafe.mapped_axes import varying_like
from memsafe.programs import shape_of
from memsafe.rules.windows import factor_of, has_known_mode, is_opaque, of_gather, widened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.factors import Piece

__all__ = ["RULES"]


def _gather_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """Stacks, index vectors, dimensions that windows span, and pointed ones, which are merged."""
    if not has_known_mode(equation):
        return ()
    one = of_gather(equation)
    factors = [
        *(factor_of(one.array[dim], (dim, of), one.vector_dims[of]) for dim, of in one.stacks),
        *(factor_of(one.vectors[of], (None, of), one.vector_dims[of]) for of in one.free_vectors()),
        *(factor_of(one.array[dim], (dim, None), one.window_dims[dim]) for dim in one.whole()),
    ]
    if not is_opaque(equation):
        factors += [factor_of(one.array[dim], (dim, None), _Taken()) for dim in one.pointed()]
    return tuple(factor for factor in factors if factor.size > 1)


def _gather(
    equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
) -> list[Array]:
    array, vectors = factor.operands
    one, (source, indices) = of_gather(equation), operands
    indices = widened(indices)
    if array is None or vectors is not None:
        return bind(equation, [source, indices])
    if equation.params["mode"] != GatherScatterMode.FILL_OR_DROP:
        # XLA of jax 0.10 merges a slice of a slice without clamping the inner start.
        indices = one.clamped(indices)
    return bind(equation, [source, indices], _resized(equation, array, piece))


def _resized(equation: JaxprEqn, axis: Axis, piece: Piece) -> dict[str, Any]:
    """The parameters of an equation whose slices span a piece along `axis`, not the whole."""
    sizes = list(equation.params["slice_sizes"])
    sizes[axis.dim] = piece.length * axis.block
    return {**equation.params, "slice_sizes": tuple(sizes)}


@dataclass(frozen=True, slots=True)
class _Taken:
    """The window of each index vector, taken from the one piece that the vector points into.

    The state is the result so far, and which of its windows are found.
    """

    def start(self, equation: JaxprEqn) -> tuple[Array, ...]:
        """No window is found."""
        return tuple(jnp.zeros(aval.shape, aval.dtype) for aval in self.state_avals(equation))

    def part(
        self, equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
    ) -> tuple[Array, ...]:
        """The windows found in the piece; a window found before has the same value again."""
        one, axis = of_gather(equation), factor.operands[0]
        assert axis is not None
        indices, mode = widened(operands[1]), equation.params["mode"]
        if mode != GatherScatterMode.FILL_OR_DROP:
            indices, mode = one.clamped(indices), GatherScatterMode.CLIP
        # A gather that fills reads only 32 bits of an index, and so does this code.
        local = one.shifted(lax.convert_element_type(indices, jnp.int32), axis, piece)
        params = {**equation.params, "mode": mode, "indices_are_sorted": False}
        (values,) = bind(equation, [operands[0], local], params)
        place = one.place(local, axis)
        found = (place >= 0) & (place < operands[0].shape[axis.dim])
        return values, found.reshape(self.state_avals(equation)[1].shape)

    def combine(
        self, state: tuple[Array, ...], part: tuple[Array, ...], *, first: Array
    ) -> tuple[Array, ...]:
        """The windows that the part found; the others come from the state."""
        found = jnp.broadcast_to(part[1], part[0].shape)
        return lax.select(found, part[0], state[0]), state[1] | part[1]

    def finish(
        self, equation: JaxprEqn, state: tuple[Array, ...], operands: Sequence[Array | None]
    ) -> list[Array]:
        """Fills windows that no piece held, if the mode says so; in other modes there are none."""
        values, found = state
        if equation.params["mode"] != GatherScatterMode.FILL_OR_DROP:
            return [values]
        fill = lax.full_like(values, equation.params["fill_value"])
        return [lax.select(jnp.broadcast_to(found, values.shape), values, fill)]

    def state_avals(self, equation: JaxprEqn) -> tuple[ShapedArray, ...]:
        """The result, and a bit for each window."""
        result: Any = equation.outvars[0].aval
        vectors = of_gather(equation).vector_dims
        windows = tuple(size if dim in vectors else 1 for dim, size in enumerate(result.shape))
        return ShapedArray(result.shape, result.dtype), ShapedArray(windows, jnp.dtype(bool))


def _slice_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """The dimensions that the slice spans whole: its start along them can only be 0."""
    (array, *starts), (taken,) = equation.invars, equation.outvars
    return tuple(
        factor_of(size, (dim, *(None for _ in starts)), dim)
        for dim, (size, own) in enumerate(zip(shape_of(array), shape_of(taken), strict=True))
        if size == own > 1
    )


def _slice(
    equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
) -> list[Array]:
    axis = factor.operands[0]
    assert axis is not None
    array, *starts = operands
    return bind(equation, [array, *_pinned(starts, axis)], _resized(equation, axis, piece))


def _pinned(starts: Sequence[Array], axis: Axis) -> list[Array]:
    """The starts, with 0 along `axis`: a slice that spans a dimension has no other start.

    XLA of jax 0.10 merges a slice of a slice without clamping the inner start.
    """
    return [
        varying_like(jnp.zeros((), start.dtype), start) if dim == axis.dim else start
        for dim, start in enumerate(starts)
    ]


def _update_slice_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """The dimensions that the update spans whole: its start along them can only be 0."""
    array, update, *starts = equation.invars
    return tuple(
        factor_of(size, (dim, dim, *(None for _ in starts)), dim)
        for dim, (size, own) in enumerate(zip(shape_of(array), shape_of(update), strict=True))
        if size == own > 1
    )


def _update_slice(
    equation: JaxprEqn, factor: Factor, operands: Sequence[Array], _: Piece
) -> list[Array]:
    axis = factor.operands[0]
    assert axis is not None
    array, update, *starts = operands
    return bind(equation, [array, update, *_pinned(starts, axis)])


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "gather": Rule(factors=_gather_factors, apply=_gather),
        "dynamic_slice": Rule(factors=_slice_factors, apply=_slice),
        "dynamic_update_slice": Rule(factors=_update_slice_factors, apply=_update_slice),
    }
)
