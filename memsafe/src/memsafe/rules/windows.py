"""How gathers and scatters use the dimensions of the array that they index.

A *window* is the part of the array that one index vector reads or writes: one element along some
dimensions, the whole extent along others. Dimensions with another extent, such as three rows of
eight, have no factor. For every piece, indices out of bounds do what `GatherScatterMode` says for
the whole array: they are clamped to the array, or give the fill value, or are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.lax import GatherScatterMode

from memsafe.factors import Axis, Factor
from memsafe.programs import shape_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.factors import Merge, Piece

__all__ = [
    "Indexing",
    "factor_of",
    "has_known_mode",
    "is_opaque",
    "of_gather",
    "of_scatter",
    "widened",
]

_LONGEST = (1 << 31) - 1
"""The longest dimension of an array that is indexed by 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexing:
    """The dimensions of a gather or scatter, by role; windows are its result or its updates.

    Attributes:
        array: The shape of the array that is indexed.
        window: The extent of a window along each dimension of the array.
        indexed: The dimension of the array that each component of an index vector points into.
        stacks: Pairs of batching dimensions, one of the array and one of the indices.
        window_dims: The windows' dimension for each dimension of the array that they keep.
        vectors: The shape of the indices without their last dimension.
        vector_dims: The windows' dimension that holds each dimension of `vectors`.
    """

    array: tuple[int, ...]
    window: tuple[int, ...]
    indexed: tuple[int, ...]
    stacks: tuple[tuple[int, int], ...]
    window_dims: dict[int, int]
    vectors: tuple[int, ...]
    vector_dims: tuple[int, ...]

    def whole(self) -> list[int]:
        """The array's dimensions that every window spans, wherever an index points."""
        return [dim for dim in self.window_dims if self.window[dim] == self.array[dim] > 1]

    def pointed(self) -> list[int]:
        """The array's dimensions along which an index picks one element."""
        if max(self.array, default=0) > _LONGEST:
            return []
        return [dim for dim in self.indexed if self.window[dim] == 1 < self.array[dim]]

    def is_single(self) -> bool:
        """Whether each stack has only one index vector; XLA turns this case into a slice."""
        return all(self.vectors[dim] == 1 for dim in self.free_vectors())

    def over_stacks(self, values: Array, shape: tuple[int, ...]) -> Array:
        """The value of each stack's only index vector, broadcast to `shape`, that of the array."""
        stacks = sorted(self.stacks)
        order = [of for _, of in stacks]
        lined = values.transpose(*order, *self.free_vectors())
        lined = lined.reshape([values.shape[of] for of in order])
        return lax.broadcast_in_dim(lined, shape, [dim for dim, _ in stacks])

    def free_vectors(self) -> list[int]:
        """The dimensions of the indices that belong to no stack."""
        stacked = {dim for _, dim in self.stacks}
        return [dim for dim in range(len(self.vector_dims)) if dim not in stacked]

    def clamped(self, indices: Array) -> Array:
        """The indices, clamped so that each window lies within the array."""
        most = np.iinfo(indices.dtype).max
        bounds = [min(self.array[dim] - self.window[dim], most) for dim in self.indexed]
        upper = jnp.broadcast_to(np.array(bounds, indices.dtype), indices.shape)
        return lax.clamp(jnp.zeros((), indices.dtype), indices, upper)

    def place(self, indices: Array, axis: Axis) -> Array:
        """Where each index vector points along `axis`."""
        return indices[..., self.indexed.index(axis.dim)]

    def shifted(self, indices: Array, axis: Axis, piece: Piece) -> Array:
        """Signed indices into the whole array as indices into a piece of it."""
        start = lax.convert_element_type(piece.start, indices.dtype) * axis.block
        component = np.array(self.indexed) == axis.dim
        return indices - jnp.where(component, start, 0)


def _window_dims(
    rank: int, gone: Sequence[int], stacked: Sequence[int], held: Sequence[int]
) -> dict[int, int]:
    kept = [dim for dim in range(rank) if dim not in {*gone, *stacked}]
    return dict(zip(kept, map(int, held), strict=True))


def _ints(dims: Sequence[int]) -> tuple[int, ...]:
    """Dimensions as Python integers: batching rules leave NumPy integers."""
    return tuple(map(int, dims))


def _others(rank: int, dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(dim for dim in range(rank) if dim not in dims)


def of_gather(equation: JaxprEqn) -> Indexing:
    """How a gather indexes its operand."""
    numbers = equation.params["dimension_numbers"]
    stacked = _ints(numbers.operand_batching_dims)
    array = shape_of(equation.invars[0])
    return Indexing(
        array=array,
        window=tuple(equation.params["slice_sizes"]),
        indexed=_ints(numbers.start_index_map),
        stacks=tuple(zip(stacked, _ints(numbers.start_indices_batching_dims), strict=True)),
        window_dims=_window_dims(
            len(array), numbers.collapsed_slice_dims, stacked, numbers.offset_dims
        ),
        vectors=shape_of(equation.invars[1])[:-1],
        vector_dims=_others(len(shape_of(equation.outvars[0])), numbers.offset_dims),
    )


def of_scatter(equation: JaxprEqn) -> Indexing:
    """How a scatter indexes its operand."""
    numbers = equation.params["dimension_numbers"]
    stacked = _ints(numbers.operand_batching_dims)
    array, updates = shape_of(equation.invars[0]), shape_of(equation.invars[2])
    window_dims = _window_dims(
        len(array), numbers.inserted_window_dims, stacked, numbers.update_window_dims
    )
    return Indexing(
        array=array,
        window=tuple(
            updates[window_dims[dim]] if dim in window_dims else 1 for dim in range(len(array))
        ),
        indexed=_ints(numbers.scatter_dims_to_operand_dims),
        stacks=tuple(zip(stacked, _ints(numbers.scatter_indices_batching_dims), strict=True)),
        window_dims=window_dims,
        vectors=shape_of(equation.invars[1])[:-1],
        vector_dims=_others(len(updates), numbers.update_window_dims),
    )


def factor_of(size: int, operands: tuple[int | None, ...], result: int | Merge) -> Factor:
    """The factor that these dimensions of the operands carry; `result` carries or merges it."""
    return Factor(
        size=size,
        operands=tuple(None if dim is None else Axis(dim) for dim in operands),
        results=(Axis(result) if isinstance(result, int) else None,),
        merge=None if isinstance(result, int) else result,
    )


def widened(indices: Array) -> Array:
    """The indices in at least 32 bits.

    XLA of jax 0.10 compares one int8 index with a bound of 129 in eight bits, and drops it.
    """
    narrow = indices.dtype.itemsize < np.dtype(np.int32).itemsize
    return lax.convert_element_type(indices, jnp.int32) if narrow else indices


def has_known_mode(equation: JaxprEqn) -> bool:
    """Whether indices out of bounds are clamped, filled or dropped, or promised not to occur."""
    known = (
        GatherScatterMode.CLIP,
        GatherScatterMode.FILL_OR_DROP,
        GatherScatterMode.PROMISE_IN_BOUNDS,
    )
    return equation.params["mode"] in known


def is_opaque(equation: JaxprEqn) -> bool:
    """Whether the elements are of an extended type, such as keys, which has no arithmetic."""
    aval: Any = equation.outvars[0].aval
    return bool(jnp.issubdtype(aval.dtype, jax.dtypes.extended))
