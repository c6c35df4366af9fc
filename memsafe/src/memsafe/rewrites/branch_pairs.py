"""Pairs of `cond`s that take the same branch: one keeps values that only the other reads.

The derivative of a `cond` is such a second `cond`. If it computes the branch of the first again, it
needs only the operands of the first, as with `jax.checkpoint` on the branch. Values that a loop in
that branch keeps of every step are then made and read in one program, in which the loop can be cut
into segments.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from jax.extend.core import Literal, Var

from memsafe.jax_internals import has_effects
from memsafe.programs import evaluate, retraced
from memsafe.sub_jaxprs import draws_anew, rebuilt, sub_jaxprs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.programs import Read

    _Makers = Mapping[Var, JaxprEqn]

__all__ = ["branches_again"]

_OF_A_NUMBER = frozenset(("clamp", "convert_element_type"))
"""Primitives by which JAX computes the number of a branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Two equations that take the same branch.

    Attributes:
        first: The one that keeps values.
        second: The one that reads them; nothing else does.
        kept: For each kept value, its place among the operands of the second → its place among
            the results of the first.
    """

    first: JaxprEqn
    second: JaxprEqn
    kept: dict[int, int]

    def results(self, read: Read) -> list[Array]:
        """The results of the second, whose branches compute those of the first again."""
        index, *operands = map(read, self.first.invars)
        own = (atom for at, atom in enumerate(self.second.invars) if at and at not in self.kept)
        one, other = sub_jaxprs_of(self.first), sub_jaxprs_of(self.second)
        branches = {name: partial(self._branch, one[name], other[name]) for name in one}
        return rebuilt(self.second, [index, *operands, *map(read, own)], branches)

    def _branch(self, one: ClosedJaxpr, other: ClosedJaxpr, *operands: Array) -> list[Array]:
        count = len(one.jaxpr.invars)
        made, own = evaluate(one, operands[:count]), iter(operands[count:])
        places = range(1, len(self.second.invars))
        read = [made[self.kept[at]] if at in self.kept else next(own) for at in places]
        return evaluate(other, read)


def branches_again(closed: ClosedJaxpr) -> ClosedJaxpr:
    """`closed` with second `cond`s that compute the first ones again; itself if there are none."""
    again = {at: pair.results for at, pair in _pairs(closed)}
    return retraced(closed, again) if again else closed


def _pairs(closed: ClosedJaxpr) -> Iterator[tuple[int, _Pair]]:
    """The pairs, each with the index of its second equation."""
    equations = closed.jaxpr.eqns
    readers = Counter(atom for each in equations for atom in set(_variables(each.invars)))
    readers.update(_variables(closed.jaxpr.outvars))
    makers: _Makers = {value: each for each in equations for value in each.outvars}
    for at, equation in enumerate(equations):
        made = [
            (place, atom, makers[atom])
            for place, atom in enumerate(equation.invars)
            if isinstance(atom, Var) and atom in makers
        ]
        for _, _, first in made:
            if not _take_one_branch(first, equation, makers):
                continue
            kept = {
                place: first.outvars.index(atom)
                for place, atom, maker in made
                if maker is first and readers[atom] == 1
            }
            if kept:
                yield at, _Pair(first=first, second=equation, kept=kept)
                break


def _take_one_branch(first: JaxprEqn, second: JaxprEqn, makers: _Makers) -> bool:
    """Whether two equations are `cond`s that choose a branch by the same number."""
    are_choices = all(
        each.primitive.name == "cond" and not has_effects(each) and not draws_anew(each)
        for each in (first, second)
    )
    return are_choices and _is_same(first.invars[0], second.invars[0], makers)


def _is_same(one: object, other: object, makers: _Makers) -> bool:
    """Whether two numbers are equal. JAX computes the number of each `cond` anew from a boolean."""
    if isinstance(one, Literal) and isinstance(other, Literal):
        return bool(one.val == other.val)
    if one is other or not (isinstance(one, Var) and isinstance(other, Var)):
        return one is other
    made = makers.get(one), makers.get(other)
    if made[0] is None or made[1] is None or made[0].primitive.name not in _OF_A_NUMBER:
        return False
    return (
        made[0].primitive is made[1].primitive
        and made[0].params == made[1].params
        and all(
            _is_same(*pair, makers) for pair in zip(made[0].invars, made[1].invars, strict=True)
        )
    )


def _variables(atoms: Iterable[object]) -> Iterator[Var]:
    return (atom for atom in atoms if isinstance(atom, Var))
