"""Products of several matrices in the cheapest order.

`(a @ b) @ v` costs a matrix product where `a @ (b @ v)` costs two matrix-vector products. A
matrix here is an array whose dimensions form three groups: batch, rows and columns. Each group has
any number of dimensions, so a vector is a matrix without dimensions for columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from string import ascii_letters
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.extend.core import JaxprEqn, Literal, Var

from memsafe.jax_internals import bind
from memsafe.programs import shape_of
from memsafe.rewrites.definitions import Definitions, type_of
from memsafe.rewrites.rewritten import Change, Rewritten, applied, noted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array
    from jax.extend.core import ClosedJaxpr

    from memsafe.programs import Read

    Dims = tuple[int, ...]
    Splits = dict[tuple[int, int], int]

__all__ = ["matrix_chains"]

_LONGEST = 32
"""Maximum number of matrices in a chain: the search takes the cube of it. Longer ones are cut."""

_WORTH = 0.9
"""A new order must cost fewer flops than this share of those of the written order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matrix:
    """An array seen as matrices: which of its dimensions are batch, rows and columns."""

    atom: Var | Literal
    batch: Dims
    rows: Dims
    columns: Dims

    def size(self, dims: Dims) -> int:
        return math.prod(shape_of(self.atom)[dim] for dim in dims)

    def through(self, transpose: JaxprEqn) -> _Matrix:
        """The same matrices, seen in the operand of the transpose that defines the array."""
        source = transpose.params["permutation"]
        return _Matrix(
            atom=transpose.invars[0],
            batch=tuple(source[dim] for dim in self.batch),
            rows=tuple(source[dim] for dim in self.rows),
            columns=tuple(source[dim] for dim in self.columns),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """A product of matrices, and what it costs as written.

    Attributes:
        root: The equation that gives the whole product.
        matrices: The factors from left to right.
        written: The matrices in the order of their products, as text.
        flops: Operations of the products as written.
        inner: The equations of the inner products.
    """

    root: JaxprEqn
    matrices: tuple[_Matrix, ...]
    written: str
    flops: int
    inner: tuple[JaxprEqn, ...]

    def sizes(self) -> list[int]:
        """Rows of the first matrix, then the columns of each."""
        first, *_ = self.matrices
        return [first.size(first.rows), *(one.size(one.columns) for one in self.matrices)]

    def best(self) -> tuple[int, Splits]:
        """The least flops, and where the best order splits each part of the chain."""
        sizes, count = self.sizes(), len(self.matrices)
        costs = {(one, one): 0 for one in range(count)}
        splits: Splits = {}
        for length in range(1, count):
            for first in range(count - length):
                last = first + length
                costs[first, last], splits[first, last] = min(
                    (
                        costs[first, at]
                        + costs[at + 1, last]
                        + sizes[first] * sizes[at + 1] * sizes[last + 1],
                        at,
                    )
                    for at in range(first, last)
                )
        first_matrix, *_ = self.matrices
        return 2 * first_matrix.size(first_matrix.batch) * costs[0, count - 1], splits


def matrix_chains(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with chains of matrix products in the order of fewest flops, if that saves enough.

    Only products of one type and precision are reordered, and only if their inner results have no
    other use. Rounding changes as with another order of additions.
    """
    definitions = Definitions.of(closed.jaxpr)
    changes: dict[int, Change] = {}
    inner: set[int] = set()
    for index, equation in reversed(list(enumerate(closed.jaxpr.eqns))):
        if id(equation) in inner or not _is_product(equation):
            continue
        chain = _chain(equation, definitions)
        inner.update(map(id, chain.inner))
        if (change := _reordered(chain)) is not None:
            changes[index] = change
    return applied(closed, changes)


def _reordered(chain: _Chain) -> Change | None:
    flops, splits = chain.best() if chain.inner else (chain.flops, {})
    if flops >= _WORTH * chain.flops:
        return None

    def product(read: Read) -> Sequence[Array]:
        matrices = [(read(one.atom), one) for one in chain.matrices]
        result, seen = _multiplied(chain.root, matrices, splits, 0, len(matrices) - 1)
        order = (*seen.batch, *seen.rows, *seen.columns)
        return [result if order == tuple(sorted(order)) else jax.lax.transpose(result, order)]

    better = _ordered(splits, 0, len(chain.matrices) - 1).removeprefix("(").removesuffix(")")
    cost = f"{flops:.1e} flops instead of {chain.flops:.1e}"
    return Change(
        replacement=product, note=noted(chain.root, f"{chain.written} as {better}, {cost}")
    )


def _chain(root: JaxprEqn, definitions: Definitions) -> _Chain:
    """The longest chain that ends in `root`."""
    matrices: list[_Matrix] = []
    inner: list[JaxprEqn] = []
    text: list[str] = []
    flops = 0
    pending: list[_Matrix | str] = [_result(root)]
    unread = 1
    while pending:
        matrix = pending.pop()
        if isinstance(matrix, str):
            text.append(matrix)
            continue
        unread -= 1
        product = None
        if len(matrices) + unread + 2 <= _LONGEST:
            product = _factors(matrix, root, definitions)
        if product is None:
            text.append(ascii_letters[len(matrices)])
            matrices.append(matrix)
            continue
        equation, left, right = product
        flops += _flops(left, right)
        unread += 2
        if equation is root:
            pending += [right, " @ ", left]
        else:
            inner.append(equation)
            pending += [")", right, " @ ", left, "("]
    return _Chain(
        root=root,
        matrices=tuple(matrices),
        written="".join(text),
        flops=flops,
        inner=tuple(inner),
    )


def _factors(
    matrix: _Matrix, root: JaxprEqn, definitions: Definitions
) -> tuple[JaxprEqn, _Matrix, _Matrix] | None:
    """The product that gives `matrix`, and its factors; None if the chain reads `matrix` whole."""
    seen, equation = matrix, definitions.equation(matrix.atom)
    while equation is not root:
        if equation is None or not definitions.used_once(seen.atom):
            return None
        if equation.primitive.name != "transpose":
            break
        seen = seen.through(equation)
        equation = definitions.equation(seen.atom)
    if not _is_product(equation) or not _alike(equation, root):
        return None
    factors = _operands(equation, seen)
    return None if factors is None else (equation, *factors)


def _operands(equation: JaxprEqn, seen: _Matrix) -> tuple[_Matrix, _Matrix] | None:
    """The left and the right factor of a product whose result, maybe transposed, is `seen`."""
    (left_inner, right_inner), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left, right = equation.invars
    left_free = _others(left, (*left_inner, *left_batch))
    right_free = _others(right, (*right_inner, *right_batch))
    operand_dims = [*zip(left_batch, right_batch, strict=True)]
    count = len(operand_dims)
    if set(seen.batch) != set(range(count)):
        return None
    # A dimension of the result, as the dimension of the operand that it comes from.
    free = dict(enumerate((*left_free, *right_free), start=count))
    first = range(count, count + len(left_free))
    straight = set(seen.rows) == set(first)
    if not straight and set(seen.columns) != set(first):
        return None
    sides = (seen.rows, seen.columns) if straight else (seen.columns, seen.rows)
    ours = _Matrix(
        atom=left,
        batch=tuple(operand_dims[dim][0] for dim in seen.batch),
        rows=tuple(free[dim] for dim in sides[0]),
        columns=tuple(left_inner),
    )
    theirs = _Matrix(
        atom=right,
        batch=tuple(operand_dims[dim][1] for dim in seen.batch),
        rows=tuple(right_inner),
        columns=tuple(free[dim] for dim in sides[1]),
    )
    return (ours, theirs) if straight else (_transposed(theirs), _transposed(ours))


def _multiplied(
    root: JaxprEqn, matrices: Sequence[tuple[Array, _Matrix]], splits: Splits, first: int, last: int
) -> tuple[Array, _Matrix]:
    """The product of the matrices from `first` to `last`, each inner one in the best order."""
    if first == last:
        return matrices[first]
    at = splits[first, last]
    left, ours = _multiplied(root, matrices, splits, first, at)
    right, theirs = _multiplied(root, matrices, splits, at + 1, last)
    numbers = ((ours.columns, theirs.rows), (ours.batch, theirs.batch))
    (result,) = bind(root, [left, right], {**root.params, "dimension_numbers": numbers})
    rows = len(ours.batch)
    columns = rows + len(ours.rows)
    seen = replace(
        ours,
        batch=tuple(range(rows)),
        rows=tuple(rows + rank for rank in _ranks(ours.rows)),
        columns=tuple(columns + rank for rank in _ranks(theirs.columns)),
    )
    return result, seen


def _ranks(dims: Dims) -> Dims:
    """The places of free dimensions in a product, which keeps them in their operand's order."""
    return tuple(sorted(dims).index(dim) for dim in dims)


def _ordered(splits: Splits, first: int, last: int) -> str:
    if first == last:
        return ascii_letters[first]
    at = splits[first, last]
    return f"({_ordered(splits, first, at)} @ {_ordered(splits, at + 1, last)})"


def _result(product: JaxprEqn) -> _Matrix:
    """The result of `product` as matrices, with the left operand's dimensions as rows."""
    (inner, _), (batch, _) = product.params["dimension_numbers"]
    count = len(batch)
    end = count + len(_others(product.invars[0], (*inner, *batch)))
    (out,) = product.outvars
    return _Matrix(
        atom=out,
        batch=tuple(range(count)),
        rows=tuple(range(count, end)),
        columns=tuple(range(end, len(shape_of(out)))),
    )


def _flops(left: _Matrix, right: _Matrix) -> int:
    return 2 * math.prod(shape_of(left.atom)) * right.size(right.columns)


def _transposed(matrix: _Matrix) -> _Matrix:
    return replace(matrix, rows=matrix.columns, columns=matrix.rows)


def _others(atom: Var | Literal, dims: Sequence[int]) -> Dims:
    return tuple(dim for dim in range(len(shape_of(atom))) if dim not in dims)


def _is_product(equation: JaxprEqn) -> bool:
    """Whether `equation` multiplies arrays of one type into the same type.

    Types with a smaller range than float32 are excluded: in another order, sums may be larger, and
    half precision ends at 65,504.
    """
    if equation.primitive.name != "dot_general" or equation.params.get("out_sharding") is not None:
        return False
    atoms = (*equation.invars, *equation.outvars)
    kind, *others = {type_of(atom) for atom in atoms}
    if others or not jnp.issubdtype(kind, jnp.inexact):
        return not others
    limits: Any = jnp.finfo
    return bool(limits(kind).maxexp >= limits(jnp.float32).maxexp)


def _alike(product: JaxprEqn, root: JaxprEqn) -> bool:
    """Whether two products ask for the same type and precision."""
    return _asked(product) == _asked(root)


def _asked(product: JaxprEqn) -> tuple[Any, dict[str, Any]]:
    others = {key: value for key, value in product.params.items() if key != "dimension_numbers"}
    return type_of(product.invars[0]), others
