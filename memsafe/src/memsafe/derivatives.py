"""Programs derived from others: forward, in reverse, transposed.

A program takes flat arrays and has no constants. Each program is derived once.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp

from memsafe.bounded_loops import bounded_loops
from memsafe.errors import advising
from memsafe.jax_internals import aval_of, bind, no_dead_equations
from memsafe.programs import evaluate, is_inexact, silently, unplaced
from memsafe.sub_jaxprs import programs_in

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from jax import Array
    from jax.extend.core import ClosedJaxpr

__all__ = ["by_rules", "pulled_back", "pushed_forward", "transposed"]

_FORWARD_RULE, _REVERSE_RULE = "custom_jvp_call", "custom_vjp_call"

_KNOWN: WeakKeyDictionary[ClosedJaxpr, dict[Hashable, ClosedJaxpr]] = WeakKeyDictionary()

_A_BOUND = (
    "got none; wanted a condition that compares a counter, to which each step adds the same "
    "integer, with an end that has a bound; do this: add such a condition, as in `(i < 100) & …`, "
    "or give the end a bound, as in `fori_loop(0, jnp.minimum(n, 100), …)`"
)


def pushed_forward(
    program: ClosedJaxpr, active: tuple[int, ...], *, with_values: bool
) -> ClosedJaxpr:
    """A program for the tangents of the results of `program`, after its values if `with_values`.

    Its operands are the arguments of `program`, and the tangents of the arguments at `active`.
    """
    inputs, wanted = program.jaxpr.invars, list(map(is_inexact, program.jaxpr.outvars))

    def pushed(*operands: Array) -> list[Array]:
        given, tangents = operands[: len(inputs)], operands[len(inputs) :]
        primal = _of_some(program, active, given, wanted, silent=not with_values)
        varied = [given[at] for at in active]
        found, pushed, others = jax.jvp(primal, varied, list(tangents), has_aux=True)
        if not with_values:
            return list(pushed)
        values, rest = iter(found), iter(others)
        return [*(next(values) if smooth else next(rest) for smooth in wanted), *pushed]

    avals = (*map(aval_of, inputs), *(aval_of(inputs[at]).to_tangent_aval() for at in active))
    return _derived(program, ("forward", active, with_values), pushed, avals)


def by_rules(program: ClosedJaxpr, active: tuple[int, ...]) -> ClosedJaxpr:
    """`program` with its values computed as in a derivative by the arguments at `active`.

    A custom rule computes values too. A second derivative differentiates these values, not those of
    the function that has the rule. A `custom_vjp` refuses forward mode, so its values come from
    reverse mode.
    """
    names = set(_names_in(program))
    if names.isdisjoint((_FORWARD_RULE, _REVERSE_RULE)):
        return program
    in_reverse = _REVERSE_RULE in names
    wanted = [is_inexact(value) for value in program.jaxpr.outvars]

    def values(*given: Array) -> list[Array]:
        primal = _of_some(program, active, given, wanted, silent=False, in_reverse=in_reverse)
        varied = [given[at] for at in active]
        if in_reverse:
            found, _, others = jax.vjp(primal, *varied, has_aux=True)
        else:
            found, _, others = jax.jvp(primal, varied, list(map(_still, varied)), has_aux=True)
        smooth, rest = iter(found), iter(others)
        return [next(smooth) if asked else next(rest) for asked in wanted]

    avals = list(map(aval_of, program.jaxpr.invars))
    return _derived(program, ("values", active), values, avals)


def _still(value: Array) -> Array:
    aval = jax.typeof(value).to_tangent_aval()
    return jnp.zeros(aval.shape, aval.dtype)


def _names_in(program: ClosedJaxpr) -> Iterator[str]:
    for equation in program.jaxpr.eqns:
        yield equation.primitive.name
        yield from chain.from_iterable(map(_names_in, programs_in(equation)))


def pulled_back(
    program: ClosedJaxpr, varied: tuple[int, ...], wanted: tuple[int, ...], like: Sequence[Any]
) -> ClosedJaxpr:
    """A program for the cotangents of the arguments at `varied`, of operands `like` these.

    Its operands are the arguments of `program`, and the cotangents at `wanted` of inexact results.
    """
    count = len(program.jaxpr.invars)
    smooth = [at for at, value in enumerate(program.jaxpr.outvars) if is_inexact(value)]
    asked = {smooth[at] for at in wanted}
    flags = [at in asked for at in range(len(program.jaxpr.outvars))]

    def pull(*arguments: Array) -> list[Array]:
        given, pulled = arguments[:count], list(arguments[count:])
        primal = _of_some(program, varied, given, flags, silent=True, in_reverse=True)
        _, pullback, _ = jax.vjp(primal, *(given[at] for at in varied), has_aux=True)
        with advising(_A_BOUND):
            return list(pullback(pulled))

    how = ("reverse", varied, wanted, *map(jax.typeof, like))
    return _derived(program, how, pull, list(map(unplaced, like)))


def transposed(
    program: ClosedJaxpr, linear: tuple[int, ...], wanted: tuple[int, ...], like: Sequence[Any]
) -> ClosedJaxpr:
    """A program for the cotangents of the arguments at `linear`, of operands `like` these.

    `program` is linear in these arguments. The operands are its other arguments, and the cotangents
    of its results at `wanted`.
    """
    inputs = program.jaxpr.invars
    others = [at for at in range(len(inputs)) if at not in linear]
    flags = [at in wanted for at in range(len(program.jaxpr.outvars))]

    def pull(*arguments: Array) -> list[Array]:
        given: list[Any] = [None] * len(inputs)
        for at, value in zip(others, arguments, strict=False):
            given[at] = value
        primal = _of_some(program, linear, given, flags, silent=True)
        places = [aval_of(inputs[at]) for at in linear]
        transpose = jax.linear_transpose(lambda *varied: primal(*varied)[0], *places)
        return list(transpose(list(arguments[len(others) :])))

    how = ("transpose", linear, wanted, *map(jax.typeof, like))
    return _derived(program, how, pull, list(map(unplaced, like)))


def _of_some(
    program: ClosedJaxpr,
    varied: Sequence[int],
    given: Sequence[Any],
    wanted: Sequence[bool],
    *,
    silent: bool,
    in_reverse: bool = False,
) -> Callable[..., tuple[list[Array], list[Array]]]:
    """`program` as a function of its `varied` arguments, with the other arguments as `given`.

    The function returns the `wanted` results, and the others. If `silent`, it does not print,
    because it computes values again. If `in_reverse`, each `while` whose steps have a bound gets a
    reverse-mode derivative.
    """
    flags = [at in varied for at in range(len(program.jaxpr.invars))]
    loops = bounded_loops(program, flags) if in_reverse else {}

    def primal(*values: Array) -> tuple[list[Array], list[Array]]:
        whole = list(given)
        for at, value in zip(varied, values, strict=True):
            whole[at] = value
        calls = silently if silent else bind
        results = evaluate(program, whole, replace=loops, calls=calls)
        pairs = list(zip(results, wanted, strict=True))
        return [r for r, asked in pairs if asked], [r for r, asked in pairs if not asked]

    return primal


def _derived(
    program: ClosedJaxpr,
    how: tuple[Hashable, ...],
    function: Callable[..., list[Array]],
    avals: Sequence[Any],
) -> ClosedJaxpr:
    known = _KNOWN.setdefault(program, {})
    if how not in known:
        known[how] = no_dead_equations(jax.make_jaxpr(function)(*avals))
    return known[how]
