"""A program as a graph: definitions, uses, dependencies, and the factors of each equation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.extend.core import Literal, Var

from memsafe.costs import fuses_with_consumer
from memsafe.device_model import CPU, DeviceModel
from memsafe.jax_internals import has_effects, has_ordered_effects
from memsafe.memory import Unit, equation_unit
from memsafe.over_devices import over_devices
from memsafe.program_costs import Costs
from memsafe.programs import nbytes
from memsafe.rules import factors_of, has_halos, unshifted, wraps
from memsafe.shards import Part, Parts, as_read, body_parts, divisions, propagated
from memsafe.sub_jaxprs import sub_jaxprs_of
from memsafe.ties import ties_of
from memsafe.turns import held_during

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.factors import Axis, Factor
    from memsafe.growth import Grown
    from memsafe.region import Blocked
    from memsafe.ties import Tie

__all__ = ["Graph", "variables"]


def variables(equation: JaxprEqn) -> Iterator[Var]:
    """The operands of `equation` that are variables, not literals; one for each use."""
    return (atom for atom in equation.invars if not isinstance(atom, Literal))


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """How a loop takes in an equation to slice one of its results along one axis.

    Attributes:
        equation: The index of the equation.
        result: The position of the sliced result.
        factor: The factor that carries the axis, as coarse as the axis is. If there is none, the
            number of indices that must be taken as one for there to be one, or 0.
        ways: Number of factors that carry the axis.
        operands: The operands that other equations make, each with its axis, if `factor` is the
            only factor that carries the axis; else None.
    """

    equation: int
    result: int
    factor: Factor | int
    ways: int
    operands: tuple[tuple[Var, Axis | None], ...] | None


_RESHAPING = frozenset(("broadcast_in_dim", "expand_dims", "reshape", "squeeze"))


@dataclass(frozen=True)
class Graph:
    """The equations of one program, in its order.

    Sets of equations are bit masks: bit i stands for equation i.

    Attributes:
        closed: The program.
        parts: How each argument is divided over devices; empty if none is.
        model: The cost model of the device.
        across: Whether loops may run along dimensions that are divided over devices.
    """

    closed: ClosedJaxpr
    parts: tuple[Parts, ...] = ()
    model: DeviceModel = CPU
    across: bool = False

    @cached_property
    def equations(self) -> list[JaxprEqn]:
        """All equations."""
        return list(self.closed.jaxpr.eqns)

    @cached_property
    def reads(self) -> list[tuple[Var, ...]]:
        """The operands of each equation that are variables, not literals."""
        return [tuple(variables(equation)) for equation in self.equations]

    @cached_property
    def made(self) -> list[int]:
        """Bytes of the results of each equation."""
        return [sum(self.size[value] for value in each.outvars) for each in self.equations]

    @cached_property
    def definition(self) -> dict[Var, int]:
        """The equation that defines each value that is no input."""
        return {value: index for index, each in enumerate(self.equations) for value in each.outvars}

    @cached_property
    def uses(self) -> dict[Var, list[int]]:
        """The equations that use each value."""
        found: dict[Var, list[int]] = {}
        for index, equation in enumerate(self.equations):
            for value in set(variables(equation)):
                found.setdefault(value, []).append(index)
        return found

    @cached_property
    def factors(self) -> list[tuple[Factor, ...]]:
        """The factors along which each equation can be split.

        A factor that is divided over devices is split within each device's part, or not at all.
        """
        if not self.divided:
            return self._all_factors
        pairs = zip(self.equations, self._all_factors, strict=True)
        return [tuple(self._placed(each, all_of)) for each, all_of in pairs]

    @cached_property
    def has_stencils(self) -> bool:
        """Whether any factor of an equation has a halo."""
        factors = chain.from_iterable(self.factors)
        axes = chain.from_iterable((*each.operands, *each.results) for each in factors)
        return any(axis is not None and axis.has_halo for axis in axes)

    def _placed(self, equation: JaxprEqn, factors: tuple[Factor, ...]) -> Iterator[Factor]:
        parts = divisions(equation, factors, self.divided)
        for factor, part in zip(factors, parts, strict=True):
            if part is None:
                yield factor
            elif self.across:
                early = self._lie_along(part, equation.outvars)
                over = over_devices(equation, factor, part.devices, early)
                if over is not None:
                    yield over

    def _lie_along(self, part: Part, values: Sequence[Var]) -> list[int]:
        """The positions of the `values` that are divided along a mesh axis of `part`."""
        return [
            at
            for at, value in enumerate(values)
            if any(not set(part.axes).isdisjoint(each.axes) for each in self.divided.get(value, ()))
        ]

    def carrier(self, value: Var, axis: Axis) -> Carrier:
        """How a loop takes in the equation that makes `value`, to slice it along `axis`."""
        found = self._carriers.get((value, axis))
        if found is None:
            found = self._carriers[value, axis] = self._carrier(value, axis)
        return found

    @cached_property
    def grown(self) -> dict[Hashable, Grown | Blocked]:
        """What a region takes in with its first sink: the cache of `Splitting.grown`."""
        return {}

    @cached_property
    def ways(self) -> dict[Hashable, list[tuple[Factor, list[int]]]]:
        """How a region takes in another sink: the cache of `Splitting.ways`."""
        return {}

    @cached_property
    def _carriers(self) -> dict[tuple[Var, Axis], Carrier]:
        return {}

    def _carrier(self, value: Var, axis: Axis) -> Carrier:
        index = self.definition[value]
        result = self.equations[index].outvars.index(value)
        factors = self._carrying(index, axis)
        factor = _first_carrying(factors, result, axis)
        found = (each.carrying(result, axis) for each in factors)
        ways = [each for each in found if each is not None]
        only = len(ways) == 1 and factor == ways[0]
        return Carrier(
            equation=index,
            result=result,
            factor=factor,
            ways=len(ways),
            operands=self.made_operands(index, ways[0]) if only else None,
        )

    def _carrying(self, index: int, axis: Axis) -> list[Factor]:
        """The factors of an equation that support the devices and the halo of `axis`."""
        equation, factors = self.equations[index], self.factors[index]
        if axis.devices > 1:
            found = (over_devices(equation, each, axis.devices) for each in factors)
            return [each for each in found if each is not None]
        factors = tuple(each for each in factors if each.devices == 1)
        if axis.wraps:
            return [each for each in factors if wraps(equation, each)]
        return list(factors) if not axis.has_halo or has_halos(equation) else []

    def made_operands(self, index: int, factor: Factor) -> tuple[tuple[Var, Axis | None], ...]:
        """The operands that other equations make, each with its axis in `factor`."""
        return tuple((value, factor.operands[at]) for at, value, _ in self.makers[index])

    @cached_property
    def makers(self) -> list[list[tuple[int, Var, int]]]:
        """For each equation, the operands that equations make: position, value and maker."""
        return [
            [
                (at, value, self.definition[value])
                for at, value in enumerate(equation.invars)
                if not isinstance(value, Literal) and value in self.definition
            ]
            for equation in self.equations
        ]

    @cached_property
    def _all_factors(self) -> list[tuple[Factor, ...]]:
        return [
            tuple(
                factor
                for factor in factors_of(equation)
                if factor.size > 1 and (self.across or factor.devices == 1)
            )
            if all(_is_of_numbers(atom) for atom in (*equation.invars, *equation.outvars))
            else ()
            for equation in self.equations
        ]

    @cached_property
    def divided(self) -> dict[Var, Parts]:
        """How values are divided over devices."""
        found = {v: parts for v, parts in zip(self.closed.jaxpr.invars, self.parts) if parts}  # noqa: B905 — no parts: none
        if not found:
            return found
        pairs = zip(self.equations, self._all_factors, strict=True)
        along = [tuple(unshifted(each, factor) for factor in factors) for each, factors in pairs]
        for equation, factors in zip(self.equations, along, strict=True):
            found.update(propagated(equation, factors, found))
        return as_read(self.equations, along, found)

    @cached_property
    def sub_jaxprs(self) -> dict[int, dict[str, ClosedJaxpr]]:
        """The programs that each equation runs, by name; only for equations that run any."""
        found = {index: sub_jaxprs_of(each) for index, each in enumerate(self.equations)}
        return {index: sub_jaxprs for index, sub_jaxprs in found.items() if sub_jaxprs}

    @cached_property
    def body_parts(self) -> dict[int, tuple[Parts, ...]]:
        """How the arguments of the programs in `sub_jaxprs` are divided over devices."""
        return {index: body_parts(self.equations[index], self.divided) for index in self.sub_jaxprs}

    @cached_property
    def units(self) -> list[Unit]:
        """Each equation computed by itself, for the memory model."""
        return [self._unit(equation) for equation in self.equations]

    def _unit(self, equation: JaxprEqn) -> Unit:
        unit = equation_unit(equation)
        same = tuple((self.views[each], each) for each in equation.outvars if each in self.views)
        unit = replace(unit, same=same) if same else unit
        if self.model.has_libraries and not self.divided:
            unit = replace(unit, held=held_during(equation))
        absorbed = unit.absorbed and self.model.fuses and self.stored.isdisjoint(unit.makes)
        return replace(unit, absorbed=absorbed)

    @cached_property
    def in_turn(self) -> frozenset[int]:
        """The equations that wait for one another, see `turns`; none if values are divided."""
        return frozenset(index for index, unit in enumerate(self.units) if unit.held)

    @cached_property
    def takes_turns(self) -> bool:
        """Whether equations wait for one another, here or in the programs that equations run."""
        inside = (body.takes_turns for bodies in self.bodies.values() for body in bodies)
        return len(self.in_turn) > 1 or any(inside)

    @cached_property
    def costs(self) -> Costs:
        """The costs of each equation."""
        return Costs(self, self.model)

    @cached_property
    def bodies(self) -> dict[int, list[Graph]]:
        """The programs that equations run, as graphs."""
        return {
            index: [Graph(body, model=self.model) for body in bodies.values()]
            for index, bodies in self.sub_jaxprs.items()
        }

    @cached_property
    def inputs(self) -> frozenset[Var]:
        """The program's arguments and constants."""
        return frozenset((*self.closed.jaxpr.invars, *self.closed.jaxpr.constvars))

    @cached_property
    def views(self) -> dict[Var, Var]:
        """Reshaped inputs, which take no memory of their own, each with the value it reshapes."""
        found: dict[Var, Var] = {}
        for equation, reads in zip(self.equations, self.reads, strict=True):
            if equation.primitive.name in _RESHAPING and len(reads) == len(equation.invars) == 1:
                (source,), (value,) = reads, equation.outvars
                is_there = source in found or source in self.inputs
                if is_there and nbytes(source) == nbytes(value):
                    found[value] = source
        return found

    @cached_property
    def outputs(self) -> frozenset[Var]:
        """The program's results."""
        return frozenset(a for a in self.closed.jaxpr.outvars if not isinstance(a, Literal))

    @cached_property
    def size(self) -> dict[Var, int]:
        """Bytes of every value on one device."""
        return {
            value: nbytes(value) // math.prod(part.devices for part in self.divided.get(value, ()))
            for value in (*self.inputs, *self.definition)
        }

    @cached_property
    def ties(self) -> tuple[Tie, ...]:
        """The comparisons of values with something computed from them, see `ties`."""
        return tuple(ties_of(self))

    @cached_property
    def stored(self) -> frozenset[Var]:
        """The values that a compiler must round only once, see `storing`: tied ones that fuse."""
        values = (tie.value for tie in self.ties)
        return frozenset(
            each for each in values if fuses_with_consumer(self.equations[self.definition[each]])
        )

    @cached_property
    def floor(self) -> int:
        """Bytes of the arguments and results, on one device."""
        jaxpr = self.closed.jaxpr
        return sum(self.size.get(atom, nbytes(atom)) for atom in (*jaxpr.invars, *jaxpr.outvars))

    @cached_property
    def constant(self) -> int:
        """The equations that depend on no input, such as those of a causal mask."""
        mask = 0
        for index, reads in enumerate(self.reads):
            makers = [self.definition.get(value, -1) for value in reads]
            if all(maker >= 0 and mask >> maker & 1 for maker in makers):
                mask |= 1 << index
        return mask

    @cached_property
    def ordered(self) -> frozenset[int]:
        """The equations whose effects keep their order."""
        pairs = enumerate(self.equations)
        return frozenset(index for index, each in pairs if has_ordered_effects(each))

    @cached_property
    def unread(self) -> frozenset[Var]:
        """The unread results of equations that have effects, such as callbacks."""
        made = (value for each in self.equations if has_effects(each) for value in each.outvars)
        return frozenset(made) - self.uses.keys() - self.outputs

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """For each equation, the equations that it depends on, and itself.

        An equation with ordered effects also depends on those with ordered effects before it.
        """
        found: list[int] = []
        before = 0
        for index, equation in enumerate(self.equations):
            mask = 1 << index
            for value in variables(equation):
                if value in self.definition:
                    mask |= found[self.definition[value]]
            if index in self.ordered:
                mask |= before
                before = mask
            found.append(mask)
        return tuple(found)


def _first_carrying(factors: Iterable[Factor], result: int, axis: Axis) -> Factor | int:
    """The first of `factors` that carries `axis`, see `Carrier.factor`."""
    for factor in factors:
        carried = factor.carrying(result, axis)
        if carried is not None:
            return carried
        own = factor.results[result]
        if own is not None and own.dim == axis.dim and own.block > axis.block:
            return 0 if own.block % axis.block else own.block // axis.block
    return 0


def _is_of_numbers(atom: Any) -> bool:
    """Whether an array can be cut and filled with zeros: random keys cannot."""
    return isinstance(getattr(atom.aval, "dtype", None), np.dtype)
