"""Which equation defines a variable, how often it is read, and what array it is."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jax.extend.core import Jaxpr, Literal, Var

from memsafe.programs import shape_of

if TYPE_CHECKING:
    from jax.extend.core import JaxprEqn

__all__ = ["Definitions", "size_of", "type_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """Where the variables of a program come from and where they go.

    Attributes:
        equations: The equation that defines a variable; inputs and constants have none.
        uses: How many operands and outputs read a variable.
    """

    equations: dict[Var, JaxprEqn]
    uses: Counter[Var]

    @classmethod
    def of(cls, jaxpr: Jaxpr) -> Definitions:
        """The definitions of `jaxpr`, in time linear in its equations."""
        atoms = [atom for equation in jaxpr.eqns for atom in equation.invars]
        return cls(
            equations={out: equation for equation in jaxpr.eqns for out in equation.outvars},
            uses=Counter(a for a in (*atoms, *jaxpr.outvars) if not isinstance(a, Literal)),
        )

    def equation(self, atom: Var | Literal) -> JaxprEqn | None:
        """The equation that defines `atom`, or None."""
        return None if isinstance(atom, Literal) else self.equations.get(atom)

    def uniform(self, atom: Var | Literal) -> Literal | None:
        """The number that all elements of `atom` equal, or None."""
        equation = self.equation(atom)
        if equation is not None and equation.primitive.name == "broadcast_in_dim":
            atom = equation.invars[0]
        return atom if isinstance(atom, Literal) and shape_of(atom) == () else None

    def used_once(self, atom: Var | Literal) -> bool:
        """Whether exactly one operand or output reads `atom`."""
        return not isinstance(atom, Literal) and self.uses[atom] == 1


def size_of(atom: Var | Literal) -> int:
    """The number of elements of an array."""
    return math.prod(shape_of(atom))


def type_of(atom: Var | Literal) -> Any:
    """The type of an array's elements, which may be one of jax's own, or None of a token."""
    return getattr(atom.aval, "dtype", None)
