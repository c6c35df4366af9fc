"""Equations computed on the separate dimensions that an earlier reshape merges.

Equations that give the same bits either way have a rule: elementwise equations, broadcasts,
transposes, products, and reductions whose additions keep their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
from jax.extend.core import JaxprEqn, Literal, Var

from memsafe.jax_internals import bind
from memsafe.programs import shape_of
from memsafe.rewrites.definitions import Definitions, size_of
from memsafe.rewrites.groups import apart, expanded, merging, places

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

    from memsafe.programs import Read
    from memsafe.rewrites.groups import Groups

    Atom = Var | Literal
    Separate = dict[Var, Array]
    Source = Callable[[Read, Separate], Array]

__all__ = ["Operand", "Step", "is_reshape", "separated"]

_ELEMENTWISE = frozenset(
    """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil
    clamp clz complex conj convert_element_type copy cos cosh digamma div eq erf erf_inv erfc exp
    exp2 expm1 floor ge gt imag integer_pow is_finite le lgamma log log1p log2 logistic lt max min
    mul name ne neg nextafter not or population_count pow real reduce_precision rem round rsqrt
    select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square
    stop_gradient sub tan tanh xor
    """.split()  # noqa: SIM905 (one name per line would be a page)
)
_REDUCTIONS = {
    "reduce_and": True,
    "reduce_max": True,
    "reduce_min": True,
    "reduce_or": True,
    "reduce_prod": False,
    "reduce_sum": False,
}
"""Reductions, and whether their result is the same in any order of the elements.

(The sign of a zero that is a maximum or minimum may differ; XLA leaves it open either way.)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """An operand with separate dimensions.

    Attributes:
        source: Computes the operand.
        groups: How the program merges its dimensions.
        region: The variable whose separate form it reads, or None.
        whole: The variable that it reads in the program's own shape, or None.
        reshaped: Number of elements that a new reshape makes for it; 0 without one.
    """

    source: Source
    groups: Groups
    region: Var | None = None
    whole: Var | None = None
    reshaped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An equation on arrays with separate dimensions.

    Attributes:
        equation: The program's equation that the step stands for.
        operands: The operands of the step.
        groups: How the equation's result merges the dimensions of the step's result.
        params: Parameters in place of the equation's; None if the result is the operand itself.
    """

    equation: JaxprEqn
    operands: tuple[Operand, ...]
    groups: Groups
    params: dict[str, Any] | None

    def result(self) -> Var:
        """The variable that the equation defines."""
        return self.equation.outvars[0]

    def merged(self) -> bool:
        """Whether the equation's result has another shape than the step's result."""
        return expanded(self.groups) != tuple(shape_of(self.result()))

    def computed(self, read: Read, separate: Separate) -> Array:
        """The result with separate dimensions; `separate` holds the results of earlier steps."""
        operands = [operand.source(read, separate) for operand in self.operands]
        if self.params is None:
            return operands[0]
        (result,) = bind(self.equation, operands, self.params)
        return result


def separated(equation: JaxprEqn, steps: dict[Var, Step], definitions: Definitions) -> Step | None:
    """`equation` on separate dimensions, or None where it needs them merged."""
    name = equation.primitive.name
    if is_reshape(equation):
        return _reshape(equation, steps)
    known = [atom for atom in equation.invars if not isinstance(atom, Literal) and atom in steps]
    if not known or equation.params.get("sharding") or equation.params.get("out_sharding"):
        return None
    if name in _ELEMENTWISE:
        return _elementwise(equation, steps, definitions)
    if name == "dot_general":
        return _product(equation, steps)
    return _of_one(equation, _read(known[0], steps)) if len(equation.invars) == 1 else None


def _of_one(equation: JaxprEqn, operand: Operand) -> Step | None:
    name = equation.primitive.name
    if name == "broadcast_in_dim":
        return _broadcast(equation, operand)
    if name == "transpose":
        return _transpose(equation, operand)
    return _reduction(equation, operand) if name in _REDUCTIONS else None


def is_reshape(equation: JaxprEqn) -> bool:
    """Whether it only gives its operand's elements another shape, in their order."""
    if len(equation.invars) != 1 or equation.params.get("sharding") is not None:
        return False
    name = equation.primitive.name
    return name == "squeeze" or (name == "reshape" and equation.params.get("dimensions") is None)


def _read(atom: Atom, steps: dict[Var, Step]) -> Operand:
    """`atom` with the separate dimensions that an earlier step gives it, or as written."""
    if isinstance(atom, Literal) or atom not in steps:
        return _as_written(atom)
    return Operand(
        source=lambda _, separate: separate[atom], groups=steps[atom].groups, region=atom
    )


def _as_written(atom: Atom) -> Operand:
    return Operand(
        source=lambda read, _: read(atom),
        groups=apart(shape_of(atom)),
        whole=None if isinstance(atom, Literal) else atom,
    )


def _reshape(equation: JaxprEqn, steps: dict[Var, Step]) -> Step | None:
    """A reshape that merges, as a step that computes nothing yet, or None."""
    operand = _read(equation.invars[0], steps)
    groups = merging(expanded(operand.groups), shape_of(equation.outvars[0]))
    if groups is None or (operand.region is None and max(map(len, groups)) <= 1):
        return None
    return Step(equation=equation, operands=(operand,), groups=groups, params=None)


def _elementwise(
    equation: JaxprEqn, steps: dict[Var, Step], definitions: Definitions
) -> Step | None:
    shape = shape_of(equation.outvars[0])
    operands = [_read(atom, steps) for atom in equation.invars]
    known = [
        (operand.groups, shape_of(atom))
        for operand, atom in zip(operands, equation.invars, strict=True)
        if operand.region is not None and len(operand.groups) == len(shape)
    ]
    groups = tuple(
        next((own[dim] for own, sizes in known if sizes[dim] == size), (size,))
        for dim, size in enumerate(shape)
    )
    adapted = [
        _adapted(operand, atom, groups, definitions)
        for operand, atom in zip(operands, equation.invars, strict=True)
    ]
    fitting = tuple(operand for operand in adapted if operand is not None)
    if len(fitting) < len(adapted):
        return None
    return Step(equation=equation, operands=fitting, groups=groups, params=equation.params)


def _adapted(
    operand: Operand, atom: Atom, groups: Groups, definitions: Definitions
) -> Operand | None:
    """`operand` with dimensions separate as in `groups`, or of size one; None if it cannot."""
    sizes = shape_of(atom)
    if not sizes:
        return operand
    wanted = tuple(
        (1,) * len(group) if size == 1 else group for size, group in zip(sizes, groups, strict=True)
    )
    if operand.groups == wanted:
        return operand
    source = definitions.equation(atom)
    if operand.region is None and source is not None:
        again = _rebroadcast(source, wanted)
        if again is not None:
            return again
    same = all(
        size == 1 or own == group
        for size, own, group in zip(sizes, operand.groups, wanted, strict=True)
    )
    if not same:
        return None
    shape = expanded(wanted)
    return Operand(
        source=lambda read, separate: jax.lax.reshape(operand.source(read, separate), shape),
        groups=wanted,
        region=operand.region,
        reshaped=size_of(atom),
    )


def _rebroadcast(broadcast: JaxprEqn, wanted: Groups) -> Operand | None:
    """A broadcast straight to separate dimensions; None if its operand has a merged dimension."""
    if broadcast.primitive.name != "broadcast_in_dim":
        return None
    dims = broadcast.params["broadcast_dimensions"]
    carries = [
        len(wanted[dim]) == 1 or (size == 1 and len(wanted[dim]) > 1)
        for size, dim in zip(shape_of(broadcast.invars[0]), dims, strict=True)
    ]
    if not all(carries) or broadcast.params.get("sharding") or len(broadcast.invars) != 1:
        return None
    params = {
        **broadcast.params,
        "shape": expanded(wanted),
        "broadcast_dimensions": tuple(places(wanted, [dim])[0] for dim in dims),
    }
    return Operand(
        source=lambda read, _: bind(broadcast, [read(broadcast.invars[0])], params)[0],
        groups=wanted,
    )


def _broadcast(equation: JaxprEqn, operand: Operand) -> Step | None:
    shape = shape_of(equation.outvars[0])
    groups = list(apart(shape))
    dims = equation.params["broadcast_dimensions"]
    sizes = shape_of(equation.invars[0])
    for size, dim, group in zip(sizes, dims, operand.groups, strict=True):
        if size == shape[dim]:
            groups[dim] = group
        elif len(group) != 1:
            return None
    params = {
        **equation.params,
        "shape": expanded(tuple(groups)),
        "broadcast_dimensions": places(tuple(groups), dims),
    }
    return Step(equation=equation, operands=(operand,), groups=tuple(groups), params=params)


def _transpose(equation: JaxprEqn, operand: Operand) -> Step:
    order = equation.params["permutation"]
    params = {**equation.params, "permutation": places(operand.groups, order)}
    groups = tuple(operand.groups[dim] for dim in order)
    return Step(equation=equation, operands=(operand,), groups=groups, params=params)


def _reduction(equation: JaxprEqn, operand: Operand) -> Step | None:
    axes = equation.params["axes"]
    merged = any(sum(size != 1 for size in operand.groups[axis]) > 1 for axis in axes)
    if merged and not _REDUCTIONS[equation.primitive.name]:
        return None
    groups = tuple(group for dim, group in enumerate(operand.groups) if dim not in axes)
    params = {**equation.params, "axes": places(operand.groups, axes)}
    return Step(equation=equation, operands=(operand,), groups=groups, params=params)


def _product(equation: JaxprEqn, steps: dict[Var, Step]) -> Step | None:
    """A product on separate dimensions of both operands, or of one if they do not fit together."""
    apart_each = [_read(atom, steps) for atom in equation.invars]
    as_written = [_as_written(atom) for atom in equation.invars]
    left, right = zip(apart_each, as_written, strict=True)
    for operands in ((left[0], right[0]), (left[0], right[1]), (left[1], right[0])):
        step = _fitting_product(equation, *operands)
        if step is not None and any(operand.region is not None for operand in operands):
            return step
    return None


def _fitting_product(equation: JaxprEqn, left: Operand, right: Operand) -> Step | None:
    """The product; None if a dimension summed over merges several, or if batches differ."""
    (left_inner, right_inner), (left_batch, right_batch) = equation.params["dimension_numbers"]
    inner = [
        (left.groups[a], right.groups[b]) for a, b in zip(left_inner, right_inner, strict=True)
    ]
    batch = [
        (left.groups[a], right.groups[b]) for a, b in zip(left_batch, right_batch, strict=True)
    ]
    if any(ours != theirs for ours, theirs in (*inner, *batch)):
        return None
    if any(len(group) > 1 for group, _ in inner):
        return None
    numbers = (
        (places(left.groups, left_inner), places(right.groups, right_inner)),
        (places(left.groups, left_batch), places(right.groups, right_batch)),
    )
    free = [
        *(g for dim, g in enumerate(left.groups) if dim not in (*left_inner, *left_batch)),
        *(g for dim, g in enumerate(right.groups) if dim not in (*right_inner, *right_batch)),
    ]
    return Step(
        equation=equation,
        operands=(left, right),
        groups=(*(group for group, _ in batch), *free),
        params={**equation.params, "dimension_numbers": numbers},
    )
