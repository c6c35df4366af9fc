"""Squared Euclidean distances by one matrix product: |x|² + |y|² − 2xy.

`sum((x[:, None] - y[None]) ** 2, -1)` does its work on every coordinate of every pair; a product
runs on matrix units. The product rounds differently: where x and y are close, the result has an
absolute error in the order of |x|² times the type's precision, and an infinite coordinate gives
NaN. Hence this rewrite is done only on request, and never for types of 16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.extend.core import Literal, Var

from memsafe.programs import shape_of
from memsafe.rewrites.definitions import Definitions, type_of
from memsafe.rewrites.rewritten import Change, Rewritten, applied, noted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.programs import Read

    Dims = tuple[int, ...]

__all__ = ["euclidean_distances"]

_SMALLEST_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Points:
    """One side of the difference, before it was broadcast.

    Attributes:
        atom: The array.
        carried: For each dimension of the array, the dimension of the difference that it becomes;
            None if its size is one.
    """

    atom: Var
    carried: tuple[int | None, ...]

    def dims(self) -> Dims:
        """The dimensions of the difference that these points vary along, in their own order."""
        return tuple(dim for dim in self.carried if dim is not None)

    def read(self, read: Read) -> Array:
        """The points without the dimensions of size one."""
        ones = [place for place, dim in enumerate(self.carried) if dim is None]
        points = read(self.atom)
        return jax.lax.squeeze(points, ones) if ones else points


@dataclass(frozen=True, slots=True, kw_only=True)
class _Distance:
    """A sum of squared differences of two sets of points.

    Attributes:
        left: The one set.
        right: The other.
        summed: The dimensions of the difference that are summed over.
        kept: The other dimensions, in the order of the result.
        shape: The shape of the difference.
    """

    left: _Points
    right: _Points
    summed: frozenset[int]
    kept: Dims
    shape: Dims

    def outer(self) -> bool:
        """Whether points are paired: each set has its own dimension, and both have all summed."""
        left, right = set(self.left.dims()), set(self.right.dims())
        wide = {dim for dim, size in enumerate(self.shape) if size != 1}
        summed = self.summed & wide
        everywhere = left | right == wide
        return bool(left - right and right - left and summed) and (
            everywhere and summed <= left & right
        )

    def computed(self, read: Read) -> list[Array]:
        """The squared distances, by a product."""
        left, right = self.left.read(read), self.right.read(read)
        squares = self._squares(left, self.left) + self._squares(right, self.right)
        return [jnp.maximum(squares - 2 * self._products(left, right), 0)]

    def _squares(self, points: Array, side: _Points) -> Array:
        dims = side.dims()
        squares = jnp.sum(points * points, [dims.index(dim) for dim in dims if dim in self.summed])
        return self._placed(squares, [dim for dim in dims if dim not in self.summed])

    def _products(self, left: Array, right: Array) -> Array:
        ours, theirs = self.left.dims(), self.right.dims()
        both = [dim for dim in ours if dim in theirs]
        inner = [dim for dim in both if dim in self.summed]
        batch = [dim for dim in both if dim not in self.summed]
        products = jax.lax.dot_general(
            left,
            right,
            (
                ([ours.index(dim) for dim in inner], [theirs.index(dim) for dim in inner]),
                ([ours.index(dim) for dim in batch], [theirs.index(dim) for dim in batch]),
            ),
            precision=jax.lax.Precision.HIGHEST,
        )
        own = [dim for dim in ours if dim not in both] + [dim for dim in theirs if dim not in both]
        return self._placed(products, batch + own)

    def _placed(self, values: Array, dims: Sequence[int]) -> Array:
        """`values`, which lie along `dims` of the difference, in the shape of the result."""
        order = sorted(range(len(dims)), key=lambda place: self.kept.index(dims[place]))
        places = [self.kept.index(dims[place]) for place in order]
        shape = [self.shape[dim] for dim in self.kept]
        if order != list(range(len(dims))):
            values = jax.lax.transpose(values, order)
        if list(values.shape) == shape:
            return values
        return jax.lax.broadcast_in_dim(values, shape, places)


def euclidean_distances(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with squared distances of pairs of points as |x|² + |y|² − 2xy, at least zero.

    Only for real types of 32 bits or more, and only where each side of the difference is broadcast
    along a dimension of the other.
    """
    definitions = Definitions.of(closed.jaxpr)
    changes = {}
    for index, equation in enumerate(closed.jaxpr.eqns):
        distance = _distance(equation, definitions)
        if distance is not None and distance.outer():
            sizes = [distance.shape[dim] for dim in distance.kept]
            text = f"squared distances {sizes} as |x|² + |y|² − 2xy, with other rounding"
            changes[index] = Change(
                replacement=distance.computed,
                note=noted(equation, text),
            )
    return applied(closed, changes)


def _distance(equation: JaxprEqn, definitions: Definitions) -> _Distance | None:
    squared = _squared_sum(equation, definitions)
    if squared is None:
        return None
    atom, kept = squared
    difference = definitions.equation(atom)
    if difference is None or difference.primitive.name != "sub" or not _precise(atom):
        return None
    shape = shape_of(difference.outvars[0])
    sides = [_points(side, shape, definitions) for side in difference.invars]
    left, right = sides
    if left is None or right is None:
        return None
    summed = frozenset(range(len(shape))) - set(kept)
    return _Distance(left=left, right=right, summed=summed, kept=kept, shape=shape)


def _squared_sum(equation: JaxprEqn, definitions: Definitions) -> tuple[Var, Dims] | None:
    """The array whose squares `equation` sums, and the dimensions that it keeps, in order."""
    name = equation.primitive.name
    if name == "dot_general":
        return _product_with_itself(equation)
    if name != "reduce_sum" or equation.params.get("out_sharding") is not None:
        return None
    base = _squared(definitions.equation(equation.invars[0]))
    if base is None:
        return None
    axes = equation.params["axes"]
    return base, tuple(dim for dim in range(len(shape_of(base))) if dim not in axes)


def _product_with_itself(product: JaxprEqn) -> tuple[Var, Dims] | None:
    """The array and its batch dimensions, where all others are multiplied with themselves."""
    (left_inner, right_inner), (left_batch, right_batch) = product.params["dimension_numbers"]
    left, right = product.invars
    numbers = (*left_inner, *left_batch), (*right_inner, *right_batch)
    same = left is right and numbers[0] == numbers[1] and len(numbers[0]) == len(shape_of(left))
    kept_type = type_of(product.outvars[0]) == type_of(left)
    if not same or not kept_type or product.params.get("out_sharding") is not None:
        return None
    return None if isinstance(left, Literal) else (left, tuple(left_batch))


def _squared(equation: JaxprEqn | None) -> Var | None:
    """The array that `equation` squares, or None."""
    if equation is None:
        return None
    name, (base, *rest) = equation.primitive.name, equation.invars
    power = name == "integer_pow" and equation.params["y"] == 2  # noqa: PLR2004 (a square)
    product = name == "mul" and rest[0] is base
    found = power or name == "square" or product
    return base if found and not isinstance(base, Literal) else None


def _precise(atom: Var) -> bool:
    kind = type_of(atom)
    return bool(jnp.issubdtype(kind, jnp.floating)) and kind.itemsize >= _SMALLEST_BYTES


def _points(side: Var | Literal, shape: Dims, definitions: Definitions) -> _Points | None:
    """`side` of a difference of `shape`, followed back to the array before broadcasts."""
    if isinstance(side, Literal) or len(shape_of(side)) != len(shape):
        return None
    sizes = enumerate(shape_of(side))
    points = _Points(atom=side, carried=tuple(None if size == 1 else dim for dim, size in sizes))
    while (equation := definitions.equation(points.atom)) is not None:
        carried = _carried_before(equation, points.carried)
        source = equation.invars[0] if equation.invars else None
        if carried is None or source is None or isinstance(source, Literal):
            break
        points = _Points(atom=source, carried=carried)
    return points


def _carried_before(
    equation: JaxprEqn, carried: tuple[int | None, ...]
) -> tuple[int | None, ...] | None:
    """`_Points.carried` of the operand, if that of the result is `carried`; None if not known."""
    if len(equation.invars) != 1:
        return None
    before = shape_of(equation.invars[0])
    match equation.primitive.name:
        case "broadcast_in_dim":
            places = equation.params["broadcast_dimensions"]
            return tuple(
                None if size == 1 else carried[place]
                for size, place in zip(before, places, strict=True)
            )
        case "transpose":
            places = equation.params["permutation"]
            return tuple(carried[list(places).index(dim)] for dim in range(len(before)))
        case "reshape" | "squeeze" if equation.params.get("dimensions") is None or (
            equation.primitive.name == "squeeze"
        ):
            return _without_ones(before, shape_of(equation.outvars[0]), carried)
    return None


def _without_ones(
    before: Iterable[int], after: Iterable[int], carried: tuple[int | None, ...]
) -> tuple[int | None, ...] | None:
    """`carried` before a reshape that only adds and removes dimensions of size one; else None."""
    before = list(before)
    wide = [(size, dim) for size, dim in zip(after, carried, strict=True) if size != 1]
    if [size for size in before if size != 1] != [size for size, _ in wide]:
        return None
    dims = iter([dim for _, dim in wide])
    return tuple(None if size == 1 else next(dims) for size in before)
