"""Equations that compute nothing new: repeated, changing nothing, or asking what is known.

A recomputation that `jax.checkpoint` asks for reads values from behind a barrier. These are other
values, so it is never merged with the first computation. Two barriers are never merged either.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from memsafe.jax_internals import as_written, bind
from memsafe.rewrites.definitions import size_of, type_of
from memsafe.rewrites.rewritten import Change, Rewritten, applied, noted

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from jax import Array

    from memsafe.programs import Read

    Atom = Var | Literal

__all__ = ["redundant"]

_NAMES_ONLY = frozenset({"copy"})
"""Primitives that return their operand unchanged."""

_NEVER_ONE = frozenset({
    "after_all",
    "create_token",
    "device_put",
    "ffi_call",
    "optimization_barrier",
    "pallas_call",
    "pure_callback",
    "rng_uniform",
})  # fmt: skip
"""Primitives whose equations are never merged: with a state, opaque, or meant to be apart."""


_COMPARISONS = {"max": lax.ge, "min": lax.le}
"""The comparison of `x` with `y` that stands for `x == max(x, y)` or `x == min(x, y)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meaning:
    """How a variable is computed, from the earliest variables with the same values."""

    equation: JaxprEqn
    operands: tuple[Atom, ...]
    params: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.equation.primitive.name

    def result(self) -> Any:
        """The aval of the result."""
        return self.equation.outvars[0].aval

    def key(self) -> Hashable | None:
        """A key, equal for equations that compute the same; None for equations that never merge."""
        nested = any(isinstance(value, (Jaxpr, ClosedJaxpr)) for value in self.params.values())
        if nested or self.equation.effects or self.name in _NEVER_ONE:
            return None
        results = tuple(_aval_key(out.aval) for out in self.equation.outvars)
        operands = tuple(map(_atom_key, self.operands))
        params = tuple((name, _value_key(value)) for name, value in sorted(self.params.items()))
        key = (self.name, operands, params, results, id(self.equation.ctx))
        return key if _hashable(key) else None

    def computed(self, read: Read) -> Sequence[Array]:
        return bind(self.equation, [read(atom) for atom in self.operands], dict(self.params))


@dataclass(slots=True)
class _Values:
    """The values known so far, each by its earliest variable."""

    earliest: dict[Var, Var] = field(default_factory=dict)
    meanings: dict[Var, _Meaning] = field(default_factory=dict)
    computed: dict[Hashable, JaxprEqn] = field(default_factory=dict)

    def first(self, atom: Atom) -> Atom:
        return atom if isinstance(atom, Literal) else self.earliest.get(atom, atom)

    def meaning(self, atom: Atom) -> _Meaning | None:
        return None if isinstance(atom, Literal) else self.meanings.get(atom)

    def scalar(self, atom: Atom) -> Any:
        """The number that every element of `atom` equals, or None."""
        meaning = self.meaning(atom)
        if meaning is not None and meaning.name == "broadcast_in_dim":
            (atom, *_) = meaning.operands
        if isinstance(atom, Literal) and np.ndim(atom.val) == 0:
            return atom.val
        return None


def redundant(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with every value computed once, bit for bit the same.

    Repeated equations are merged. A transpose of a transpose becomes one transpose, and likewise
    for reshapes, broadcasts and choices. Products with one, conversions to the same type and other
    equations that change nothing are left out.
    In derivatives, `x == max(x, y)` becomes `x >= y`, because XLA may compute `x` twice, with two
    roundings. From jax 0.12 on, derivatives compare `x` with `y` themselves.
    (A subnormal number times one is zero on a CPU that flushes it; XLA leaves the product out too.)
    """
    values = _Values()
    changes: dict[int, Change] = {}
    for index, equation in enumerate(closed.jaxpr.eqns):
        change = _change(equation, values)
        if change is not None:
            changes[index] = change
    return applied(closed, changes)


def _change(equation: JaxprEqn, values: _Values) -> Change | None:
    operands = tuple(values.first(atom) for atom in equation.invars)
    written = _Meaning(equation=equation, operands=operands, params=equation.params)
    same = _operand_it_equals(written, values)
    if same is not None:
        return _taken_from(equation, [same], values, "left out, as it changes nothing")
    meaning = _of_its_source(_of_its_choices(written, values), values)
    if len(equation.outvars) == 1 and (same := _source_it_equals(meaning)) is not None:
        return _taken_from(equation, [same], values, "left out, with the one that it undoes")
    key = meaning.key()
    if key is not None and (before := values.computed.get(key)) is not None:
        return _taken_from(equation, before.outvars, values, "computed once, not again")
    if key is not None:
        values.computed[key] = equation
    values.meanings.update(dict.fromkeys(equation.outvars, meaning))
    if meaning is written:
        return _of_its_operands(written, values)
    text = f"{meaning.name} of a {meaning.name} as one"
    return Change(replacement=meaning.computed, note=noted(equation, text))


def _taken_from(equation: JaxprEqn, same: Sequence[Var], values: _Values, text: str) -> Change:
    values.earliest.update(zip(equation.outvars, same, strict=True))
    return Change(
        replacement=lambda read: [read(atom) for atom in same],
        note=noted(equation, f"{equation.primitive.name} {text}"),
    )


def _operand_it_equals(meaning: _Meaning, values: _Values) -> Var | None:
    """The operand that the equation gives back unchanged, or None."""
    if meaning.name in ("mul", "div", "add"):
        candidate = _other_than_neutral(meaning, values)
    else:
        candidate = meaning.operands[0] if _changes_nothing(meaning) else None
    if candidate is None or isinstance(candidate, Literal):
        return None
    return candidate if _aval_key(candidate.aval) == _aval_key(meaning.result()) else None


def _other_than_neutral(meaning: _Meaning, values: _Values) -> Atom | None:
    """The operand that a product with one, or an exact sum with zero, gives back."""
    left, right = meaning.operands
    kind = meaning.result().dtype
    if not isinstance(kind, np.dtype) or kind.kind == "c":
        return None  # (a + bi) · (1 + 0i) is not exact where a or b is infinite.
    if meaning.name == "add" and kind.kind not in "iu":
        return None  # −0.0 + 0.0 is 0.0.
    neutral = 0 if meaning.name == "add" else 1
    if (number := values.scalar(right)) is not None and number == neutral:
        return left
    number = None if meaning.name == "div" else values.scalar(left)
    return right if number is not None and number == neutral else None


def _changes_nothing(meaning: _Meaning) -> bool:
    """Whether an equation returns its operand unchanged, given that shape and type are equal."""
    if len(meaning.operands) != 1:
        return False
    params = meaning.params
    match meaning.name:
        case "transpose":
            return tuple(params["permutation"]) == tuple(range(len(params["permutation"])))
        case "slice":
            return all(stride == 1 for stride in params["strides"] or ())
        case "convert_element_type" | "broadcast_in_dim" | "squeeze":
            return params.get("sharding") is None
        case "reshape":
            return _plain(meaning)
        case name:
            return name in _NAMES_ONLY


def _of_its_source(meaning: _Meaning, values: _Values) -> _Meaning:
    """One change of layout in place of two, where possible."""
    source = values.meaning(meaning.operands[0]) if len(meaning.operands) == 1 else None
    if source is None or len(source.operands) != 1:
        return meaning
    params = None
    if meaning.name == source.name == "transpose":
        order = source.params["permutation"]
        params = {"permutation": tuple(order[dim] for dim in meaning.params["permutation"])}
    elif meaning.name == source.name == "broadcast_in_dim" and _plain(meaning) and _plain(source):
        places = meaning.params["broadcast_dimensions"]
        own = source.params["broadcast_dimensions"]
        params = {"broadcast_dimensions": tuple(places[dim] for dim in own)}
    elif _keeps_the_elements(meaning) and _keeps_the_elements(source):
        (first,) = source.operands
        same = isinstance(first, Var) and _aval_key(first.aval) == _aval_key(meaning.result())
        params = {} if same or meaning.name == "reshape" else None
    if params is None:
        return meaning
    return replace(meaning, operands=source.operands, params={**meaning.params, **params})


def _of_its_choices(meaning: _Meaning, values: _Values) -> _Meaning:
    """One choice in place of nested choices by one predicate, such as a triangle of a triangle."""
    if meaning.name != "select_n":
        return meaning
    which, *cases = meaning.operands
    chosen = [which]
    for number, case in enumerate(cases, start=1):
        inner = values.meaning(case)
        same = inner is not None and inner.name == "select_n" and inner.operands[0] is which
        chosen.append(inner.operands[number] if inner is not None and same else case)
    operands = tuple(chosen)
    return meaning if operands == meaning.operands else replace(meaning, operands=operands)


def _of_its_operands(meaning: _Meaning, values: _Values) -> Change | None:
    """A comparison of `x` with `y` in place of `x == max(x, y)` or `x == min(x, y)`, or None."""
    if meaning.name != "eq":
        return None
    equation = meaning.equation
    for one, chosen in (meaning.operands, meaning.operands[::-1]):
        source = values.meaning(chosen)
        if source is None or source.name not in _COMPARISONS or type_of(one).kind == "c":
            continue
        keys = [_atom_key(atom) for atom in source.operands]
        if _atom_key(one) in keys:
            pair = (one, source.operands[1 - keys.index(_atom_key(one))])
            compare = _COMPARISONS[source.name]
            text = f"eq of a {source.name} as {compare.__name__} of its operands"
            replacement = partial(_compared, equation, compare, pair)
            return Change(replacement=replacement, note=noted(equation, text))
    return None


def _compared(
    equation: JaxprEqn, compare: Callable[..., Array], pair: tuple[Atom, Atom], read: Read
) -> list[Array]:
    with as_written(equation), equation.ctx.manager:
        return [compare(*map(read, pair))]


def _source_it_equals(meaning: _Meaning) -> Var | None:
    """The operand of a composed layout change that leaves it unchanged, or None."""
    if not (_keeps_the_elements(meaning) or _changes_nothing(meaning)):
        return None
    (source,) = meaning.operands
    if isinstance(source, Literal):
        return None
    return source if _aval_key(source.aval) == _aval_key(meaning.result()) else None


def _keeps_the_elements(meaning: _Meaning) -> bool:
    """Whether it gives all its operand's elements, once each and in the same order."""
    if len(meaning.operands) != 1 or not _plain(meaning):
        return False
    if meaning.name == "broadcast_in_dim":
        return size_of(meaning.operands[0]) == size_of(meaning.equation.outvars[0])
    return meaning.name in ("reshape", "squeeze")


def _plain(meaning: _Meaning) -> bool:
    """Whether a reshape or broadcast asks for no other order and no placement."""
    order = meaning.params.get("dimensions") if meaning.name == "reshape" else None
    return order is None and meaning.params.get("sharding") is None


def _aval_key(aval: Any) -> Hashable:
    """Shape, type and placement."""
    return (aval, getattr(aval, "weak_type", None))


def _atom_key(atom: Atom) -> Hashable:
    if not isinstance(atom, Literal):
        return atom
    # Bytes, as 0.0 == -0.0 and NaN equals nothing.
    return (_aval_key(atom.aval), type(atom.val), np.asarray(atom.val).tobytes())


def _value_key(value: Any) -> Hashable:
    """A parameter's value, hashable where possible; floats differ from equal integers."""
    if isinstance(value, (list, tuple)):
        return (type(value), *map(_value_key, value))
    if isinstance(value, float):
        return value.hex()
    return cast("Hashable", value)


def _hashable(key: Hashable) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True
