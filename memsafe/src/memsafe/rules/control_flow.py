"""Loops and branches computed piece by piece: each piece runs all steps, or the branch taken."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray

from memsafe.factors import Axis, Factor, Rule
from memsafe.jax_internals import as_written, has_effects, scan_operands, switched
from memsafe.merges import SUM
from memsafe.programs import shape_of
from memsafe.rules.bodies import SUMMED, Body, Division, Kind
from memsafe.rules.dividing import Bodies, Indivisible
from memsafe.sub_jaxprs import as_closed, draws_anew

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.factors import Piece

__all__ = ["RULES", "Assembled", "unsliced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How an equation's operands and results map to inputs and results of its programs.

    Attributes:
        bodies: The programs.
        operands: The slot of each operand; None for the one that chooses a branch.
        results: The slot of each result.
        rows: The slots that have one row per step: their first dimension counts the steps.
    """

    bodies: Bodies
    operands: tuple[int | None, ...]
    results: tuple[int, ...]
    rows: frozenset[int] = frozenset()

    def divided(self, operands: Sequence[Axis | None]) -> Division:
        """How the programs run where these operands are sliced. Raises Indivisible."""
        pairs = zip(self.operands, operands, strict=True)
        return self.bodies.divided(
            {
                slot: Axis(axis.dim - (slot in self.rows), axis.block)
                for slot, axis in pairs
                if slot is not None and axis is not None
            }
        )

    def outside(self, slot: int | None, division: Division) -> Kind:
        """The state of an operand or a result."""
        kind = False if slot is None else division.slots[slot]
        return Axis(kind.dim + (slot in self.rows), kind.block) if isinstance(kind, Axis) else kind


def _form(equation: JaxprEqn) -> _Form:
    count = len(equation.invars)
    inputs = tuple(range(count))
    if equation.primitive.name == "cond":
        results = tuple(range(count, count + len(equation.outvars)))
        branches = [as_closed(branch) for branch in equation.params["branches"]]
        bodies = [Body(closed=each, inputs=inputs[1:], results=results) for each in branches]
        return _Form(bodies=Bodies(bodies), operands=(None, *inputs[1:]), results=results)
    constants, carried = scan_operands(equation)
    stacked = range(count, count + len(equation.outvars) - carried)
    results = (*inputs[constants : constants + carried], *stacked)
    closed = as_closed(equation.params["jaxpr"])
    return _Form(
        bodies=Bodies([Body(closed=closed, inputs=inputs, results=results)]),
        operands=inputs,
        results=results,
        rows=frozenset((*inputs[constants + carried :], *stacked)),
    )


def _factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """The factors that follow from slicing a dimension of an operand, except that of the steps."""
    if draws_anew(equation):
        return ()
    form = _form(equation)
    found: dict[tuple[Axis | None, ...], Factor] = {}
    for at, (slot, atom) in enumerate(zip(form.operands, equation.invars, strict=True)):
        shape = shape_of(atom)
        for dim in range(slot in form.rows, len(shape) if slot is not None else 0):
            seed = Axis(dim)
            if shape[dim] == 1 or any(each[at] == seed for each in found):
                continue
            operands = [seed if place == at else None for place in range(len(form.operands))]
            try:
                division = form.divided(operands)
            except Indivisible:
                continue
            factor = _factor(form, division, shape[dim])
            found[factor.operands] = factor
    return tuple(found.values())


def _factor(form: _Form, division: Division, size: int) -> Factor:
    operands = [form.outside(slot, division) for slot in form.operands]
    results = [form.outside(slot, division) for slot in form.results]
    is_sliced = all(isinstance(kind, Axis) for kind in results)
    axes = [kind if isinstance(kind, Axis) else None for kind in results]
    return Factor(
        size=size,
        operands=tuple(kind if isinstance(kind, Axis) else None for kind in operands),
        results=tuple(axes) if is_sliced else (None,) * len(axes),
        merge=None if is_sliced else Assembled(kinds=tuple(results)),
        least=division.least,
    )


def unsliced(equation: JaxprEqn, kind: Kind) -> frozenset[int]:
    """The results of a loop or branch that are of this kind while all others are sliced.

    Uses the factor that slices the most elements of the results.
    """
    if equation.primitive.name not in RULES or has_effects(equation):
        return frozenset()
    sizes = [math.prod(shape_of(result)) for result in equation.outvars]
    best = max(
        (each.merge.kinds for each in _factors(equation) if isinstance(each.merge, Assembled)),
        key=lambda kinds: sum(
            n for n, each in zip(sizes, kinds, strict=True) if isinstance(each, Axis)
        ),
        default=(),
    )
    found = frozenset(at for at, each in enumerate(best) if each is kind)
    others = [each for at, each in enumerate(best) if at not in found]
    return found if others and all(isinstance(each, Axis) for each in others) else frozenset()


def _apply(
    equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
) -> list[Array]:
    """The results on a piece, each in its state."""
    form = _form(equation)
    return _run(equation, form, form.divided(factor.operands), operands, piece)


def _run(
    equation: JaxprEqn,
    form: _Form,
    division: Division,
    operands: Sequence[Array],
    piece: Piece,
) -> list[Array]:
    with as_written(equation):
        if equation.primitive.name == "scan":
            return _steps(equation, form, division, operands, piece)
        branches = [
            lambda *given, number=number: division.run(number, given, piece)
            for number in range(len(division.bodies))
        ]
        index, *given = operands
        return switched(equation, index, branches, given)


def _steps(
    equation: JaxprEqn,
    form: _Form,
    division: Division,
    operands: Sequence[Array],
    piece: Piece,
) -> list[Array]:
    constants, carried = scan_operands(equation)
    fixed, rows = operands[:constants], list(operands[constants + carried :])
    start = [
        division.begun(slot, value, piece)
        for slot, value in zip(form.results[:carried], operands[constants:], strict=False)
    ]

    def step(carry: list[Array], row: list[Array]) -> tuple[list[Array], list[Array]]:
        made = division.run(0, [*fixed, *carry, *row], piece)
        return made[:carried], made[carried:]

    params = equation.params
    keywords = {name: params[name] for name in ("length", "reverse", "unroll")}
    last, stacked = lax.scan(step, start, rows, **keywords)
    return [*last, *stacked]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """The merge if some results are summed, and others are assembled from slices.

    Its state ends with the place of each slice.

    Attributes:
        kinds: The state of each result; of an axis, only the dimension is used.
    """

    kinds: tuple[Kind, ...]

    def start(self, equation: JaxprEqn) -> tuple[Array, ...]:
        """Zeros."""
        return tuple(jnp.zeros(aval.shape, aval.dtype) for aval in self.state_avals(equation))

    def part(
        self, equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
    ) -> tuple[Array, ...]:
        """The results on the piece, and where slices begin."""
        form = _form(equation)
        division = form.divided(factor.operands)
        made = _run(equation, form, division, operands, piece)
        kinds = [form.outside(slot, division) for slot in form.results]
        place = piece.start if piece.place is None else piece.place
        starts = [place * kind.block for kind in kinds if isinstance(kind, Axis)]
        avals = self.state_avals(equation)
        return tuple(
            lax.convert_element_type(value, aval.dtype)
            for value, aval in zip((*made, *starts), avals, strict=True)
        )

    def combine(
        self, state: tuple[Array, ...], part: tuple[Array, ...], *, first: Array
    ) -> tuple[Array, ...]:
        """Adds sums, puts slices in place, and takes whole values from the last piece."""
        places = iter(part[len(self.kinds) :])
        done = []
        for kind, old, new in zip(self.kinds, state, part, strict=False):
            if isinstance(kind, Axis):
                at = next(places)
                placed = lax.dynamic_update_slice_in_dim(
                    old, new, at, kind.dim, allow_negative_indices=False
                )
                done.append(placed)
            else:
                done.append(old + new if kind is SUMMED else new)
        return (*done, *part[len(self.kinds) :])

    def finish(
        self, equation: JaxprEqn, state: tuple[Array, ...], operands: Sequence[Array | None]
    ) -> list[Array]:
        """The results in their types."""
        results = state[: len(self.kinds)]
        return SUM.finish(equation, results, operands)

    def state_avals(self, equation: JaxprEqn) -> tuple[ShapedArray, ...]:
        """Results (sums in the type that they are held in), then the places of slices."""
        avals: list[Any] = [variable.aval for variable in equation.outvars]
        held = SUM.state_avals(equation)
        results = [
            sums if kind is SUMMED else ShapedArray(aval.shape, aval.dtype)
            for kind, sums, aval in zip(self.kinds, held, avals, strict=True)
        ]
        slices = sum(isinstance(kind, Axis) for kind in self.kinds)
        return (*results, *[ShapedArray((), jnp.dtype(jnp.int32))] * slices)


RULES: Mapping[str, Rule] = MappingProxyType(
    {name: Rule(factors=_factors, apply=_apply) for name in ("cond", "scan")}
)
