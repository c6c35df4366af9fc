"""The maximum m and the sum of exp(x - m), as in `softmax`, computed by one equation.

With two equations, a loop over slices of the reduced dimension would have to run twice. Other
equations that read the maximum or the exponentials stay. If all is computed at once, the compiler
sees both exponentials and computes one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from memsafe.jax_internals import bind
from memsafe.programs import shape_of
from memsafe.rewrites.definitions import Definitions, type_of
from memsafe.rewrites.rewritten import Change, Rewritten, applied, noted
from memsafe.rules.elementwise import NAMES
from memsafe.rules.online import MAX_AND_SUMEXP

if TYPE_CHECKING:
    from jax import Array

    from memsafe.programs import Read

    Atom = Var | Literal

__all__ = ["online_sums"]

_KINDS = frozenset(map(jnp.dtype, (jnp.bfloat16, jnp.float16, jnp.float32, jnp.float64)))

_MOVES = frozenset(("broadcast_in_dim", "reshape", "squeeze"))

_LONGEST = 16
"""Maximum number of equations from a maximum to the subtracted value; `logsumexp` has five."""


class _NoShift(Exception):
    """The subtracted value is not made of one maximum alone, element by element."""


@dataclass(slots=True, kw_only=True)
class _Shift:
    """The subtracted value, and how it is made from the maximum.

    Attributes:
        definitions: The definitions of the program.
        maximum: The equation of the maximum, once it is found.
        places: For each value made of the maximum, its dimensions that the maximum's dimensions
            of more than one index have become.
    """

    definitions: Definitions
    maximum: JaxprEqn | None = None
    places: dict[Var, tuple[int, ...]] = field(default_factory=dict)

    def follow(self, atom: Atom) -> tuple[int, ...] | None:
        """The places of `atom`, or None if all its elements are one number."""
        if self.definitions.uniform(atom) is not None:
            return None
        assert isinstance(atom, Var)
        if atom not in self.places:
            equation = self.definitions.equation(atom)
            if equation is None or len(self.places) == _LONGEST:
                raise _NoShift
            self.places[atom] = self._followed(equation)
        return self.places[atom]

    def _followed(self, equation: JaxprEqn) -> tuple[int, ...]:
        if equation.primitive.name == "reduce_max":
            if self.maximum not in (None, equation):
                raise _NoShift
            self.maximum = equation
            return _wide(equation.outvars[0])
        if len(equation.outvars) != 1 or _is_placed(equation):
            raise _NoShift
        if equation.primitive.name in NAMES:
            found = {self.follow(operand) for operand in equation.invars} - {None}
            if len(found) != 1:
                raise _NoShift
            (places,) = found
            return places or ()
        moved = _moved(equation)
        return tuple(moved[place] for place in self.follow(equation.invars[0]) or ())

    def program(self, atom: Atom) -> ClosedJaxpr:
        """The program that computes an element of `atom` from its element of the maximum."""
        assert self.maximum is not None
        (largest,) = self.maximum.outvars

        def value(wanted: Atom, given: Array) -> Any:
            if wanted is largest:
                return given
            uniform = self.definitions.uniform(wanted)
            if uniform is not None:
                return uniform.val
            equation = self.definitions.equation(wanted)
            assert equation is not None
            operands = [value(operand, given) for operand in equation.invars]
            return bind(equation, operands)[0] if equation.primitive.name in NAMES else operands[0]

        number = jax.ShapeDtypeStruct((), type_of(largest))
        return jax.make_jaxpr(lambda given: value(atom, given))(number)


@dataclass(slots=True, kw_only=True)
class _Pair:
    """A maximum and a sum that one equation computes.

    Attributes:
        maximum: The equation of the maximum.
        params: The parameters of that one equation.
        total: The sum, stored from the maximum's place in the program until its own place.
    """

    maximum: JaxprEqn
    params: dict[str, Any]
    total: list[Array] = field(default_factory=list)

    def largest(self, read: Read) -> list[Array]:
        """Return the maximum, and store the sum in `total`."""
        largest, *self.total = MAX_AND_SUMEXP.bind(read(self.maximum.invars[0]), **self.params)
        return [largest]

    def summed(self, _read: Read) -> list[Array]:
        """Return the sum, and remove it from `total`, because it belongs to a trace."""
        total, self.total = self.total, []
        return total


def online_sums(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with each maximum m, and the sum of exp(x - shift(m)), as one equation.

    Computed whole, the values do not change; in slices, they are equal up to rounding.
    """
    definitions = Definitions.of(closed.jaxpr)
    places = {out: at for at, equation in enumerate(closed.jaxpr.eqns) for out in equation.outvars}
    changes: dict[int, Change] = {}
    for index, equation in enumerate(closed.jaxpr.eqns):
        pair = _pair(equation, definitions)
        if pair is None or (first := places[pair.maximum.outvars[0]]) in changes:
            continue
        shape, axes = list(shape_of(pair.maximum.invars[0])), list(pair.params["axes"])
        note = noted(equation, f"maximum and sum of exponentials of {shape} over {axes} as one")
        changes[first] = Change(replacement=pair.largest, note=note)
        changes[index] = Change(replacement=pair.summed, note="")
    return applied(closed, changes)


def _pair(summed: JaxprEqn, definitions: Definitions) -> _Pair | None:
    """The sum of exponentials with its maximum, or None where it is no such sum."""
    difference = _exponent(summed, definitions)
    if difference is None:
        return None
    values, under = difference.invars
    shift = _Shift(definitions=definitions)
    try:
        places = shift.follow(under)
    except _NoShift:
        return None
    maximum = shift.maximum
    if maximum is None or not _of_same(maximum.invars[0], values, definitions):
        return None
    if not _belong(maximum, summed):
        return None
    if places != tuple(dim for dim in _wide(values) if dim not in maximum.params["axes"]):
        return None
    kinds = {"within": type_of(values), "summed": type_of(summed.invars[0])}
    params = {"axes": tuple(maximum.params["axes"]), "shift": shift.program(under), **kinds}
    return _Pair(maximum=maximum, params=params)


def _exponent(summed: JaxprEqn, definitions: Definitions) -> JaxprEqn | None:
    """The subtraction in a sum of exponentials of differences, or None."""
    if summed.primitive.name != "reduce_sum":
        return None
    power = definitions.equation(_unconverted(summed.invars[0], definitions))
    if power is None or power.primitive.name != "exp" or power.params.get("accuracy") is not None:
        return None
    difference = definitions.equation(power.invars[0])
    is_sub = difference is not None and difference.primitive.name == "sub"
    return difference if is_sub else None


def _belong(maximum: JaxprEqn, summed: JaxprEqn) -> bool:
    """Whether both reduce over the same dimensions of one shape, and neither has a sharding."""
    axes = set(maximum.params["axes"])
    return (
        shape_of(maximum.invars[0]) == shape_of(summed.invars[0])
        and type_of(summed.invars[0]) in _KINDS
        and axes == set(summed.params["axes"])
        and not axes.isdisjoint(_wide(maximum.invars[0]))
        and not _is_placed(maximum)
        and not _is_placed(summed)
    )


def _of_same(largest_of: Atom, values: Atom, definitions: Definitions) -> bool:
    """Whether the maximum is that of `values`, or of the narrower array they are converted from."""
    kinds = type_of(largest_of), type_of(values)
    if not _KINDS.issuperset(kinds) or jnp.promote_types(*kinds) != kinds[1]:
        return False
    before = _unconverted(values, definitions)
    source = _unconverted(largest_of, definitions)  # jnp converts only to make a type definite.
    same = source is before and type_of(source) == type_of(largest_of)
    return largest_of in (values, before) or same


def _unconverted(atom: Atom, definitions: Definitions) -> Atom:
    """The operand of the conversion that makes `atom`, or `atom` itself."""
    equation = definitions.equation(atom)
    converts = equation is not None and equation.primitive.name == "convert_element_type"
    return equation.invars[0] if equation is not None and converts else atom


def _moved(equation: JaxprEqn) -> dict[int, int]:
    """The result's dimension for each wide one of the operand; raises if they merge or split."""
    is_transposed = equation.params.get("dimensions") is not None  # Of a reshape.
    if equation.primitive.name not in _MOVES or len(equation.invars) != 1 or is_transposed:
        raise _NoShift
    if equation.primitive.name == "broadcast_in_dim":
        return dict(enumerate(map(int, equation.params["broadcast_dimensions"])))
    operand, result = equation.invars[0], equation.outvars[0]
    before, after = _wide(operand), _wide(result)
    sizes = [shape_of(operand)[dim] for dim in before], [shape_of(result)[dim] for dim in after]
    if sizes[0] != sizes[1]:
        raise _NoShift
    return dict(zip(before, after, strict=True))


def _wide(atom: Atom) -> tuple[int, ...]:
    return tuple(dim for dim, size in enumerate(shape_of(atom)) if size != 1)


def _is_placed(equation: JaxprEqn) -> bool:
    """Whether an equation says on which devices its result lies."""
    return any(equation.params.get(name) is not None for name in ("sharding", "out_sharding"))
