"""The JAX primitive of a memsafe function, planned where it is lowered or run.

Its rules keep the budget. If jax derives a program from it (forward, in reverse or over a batch),
the derived program is one equation of this primitive again, and is planned as a whole. It computes
again the values that it needs, so only the arguments are kept for a backward pass.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np
from jax.extend.core import Literal, Primitive
from jax.interpreters import ad, batching, mlir, partial_eval

from memsafe.derivatives import by_rules, pulled_back, pushed_forward, transposed
from memsafe.jax_internals import (
    aval_of,
    batched,
    checks_errors,
    effects_of,
    names_only,
    needs_devices,
    with_memory_spaces,
    without_constants,
    without_unused,
)
from memsafe.programs import is_inexact
from memsafe.sub_jaxprs import draws_anew

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

__all__ = ["Gives", "Runs", "as_traced", "bound", "computed"]

_DOUBLES = {np.dtype(name) for name in ("float64", "int64", "uint64", "complex128")}

_CALL = Primitive("memsafe")
_CALL.multiple_results = True


class Gives(Enum):
    """Which results of its program an equation returns."""

    VALUES = "values"
    TANGENTS = "tangents"
    BOTH = "both"


class Runs(Protocol):
    """An engine that plans and runs programs."""

    def executed(self, program: ClosedJaxpr, inputs: Sequence[Array]) -> list[Array]:
        """The results of `program` on concrete arrays, outside of traces."""
        ...

    def lowered(self, program: ClosedJaxpr, context: Any) -> Callable[..., Iterable[Array]]:
        """A function that computes `program`, planned for the `context` of a lowering rule."""
        ...


def bound(
    engine: Runs,
    program: ClosedJaxpr,
    operands: Sequence[Any],
    active: tuple[int, ...] = (),
    gives: Gives = Gives.VALUES,
) -> list[Any]:
    """The results of `program`, as one equation of a trace.

    For tangents, the operands are its arguments, then the tangents of the arguments at `active`.
    """
    return list(_CALL.bind(*operands, engine=engine, program=program, active=active, gives=gives))


def computed(program: ClosedJaxpr, active: tuple[int, ...], gives: Gives) -> ClosedJaxpr:
    """The program that an equation with these parameters computes from its operands."""
    if gives is Gives.VALUES:
        return program
    return pushed_forward(program, active, with_values=gives is Gives.BOTH)


def _executed(*operands: Array, engine: Runs, **params: Any) -> list[Array]:
    with as_traced(params["program"]):
        return engine.executed(computed(**params), operands)


def _typed(*_: Any, program: ClosedJaxpr, gives: Gives, **__: Any) -> tuple[list[Any], Any]:
    values = [aval_of(each) for each in program.jaxpr.outvars]
    tangents = [aval.to_tangent_aval() for aval in values if is_inexact(aval)]
    effects = effects_of(program)
    match gives:
        case Gives.VALUES:
            return values, effects
        case Gives.TANGENTS:
            return tangents, names_only(effects)
        case Gives.BOTH:
            return [*values, *tangents], effects


def _lowered(context: Any, *operands: Any, engine: Runs, **params: Any) -> Any:
    with as_traced(params["program"]):
        planned = engine.lowered(computed(**params), context)
        lowered = mlir.lower_fun(lambda *arguments: list(planned(*arguments)))
        inside = with_memory_spaces(context)
        results = lowered(inside, *operands)
        if inside.tokens_out is not None:  # Tokens of ordered effects.
            context.set_tokens_out(inside.tokens_out)
        return results


def as_traced(program: ClosedJaxpr) -> AbstractContextManager[Any]:
    """Context that enables 64-bit types if `program` uses any, or if they are enabled already."""
    made = (value for equation in program.jaxpr.eqns for value in equation.outvars)
    types = {getattr(value.aval, "dtype", None) for value in (*program.jaxpr.invars, *made)}
    settings: Any = jax.config
    found: AbstractContextManager[Any] = jax.enable_x64(
        bool(types & _DOUBLES) or bool(settings.jax_enable_x64)
    )
    return found


def _pushed(
    primals: Sequence[Any], tangents: Sequence[Any], *, engine: Runs, **params: Any
) -> tuple[list[Any], list[Any]]:
    program = computed(**params)
    inputs, results = program.jaxpr.invars, program.jaxpr.outvars
    zeros = [ad.Zero(aval_of(each).to_tangent_aval()) for each in results]
    varied = tuple(
        at
        for at, tangent in enumerate(tangents)
        if not isinstance(tangent, ad.Zero) and is_inexact(inputs[at])
    )
    if not varied:
        return bound(engine, program, primals), zeros
    operands = [*primals, *(tangents[at] for at in varied)]
    found = bound(engine, program, operands, varied, Gives.BOTH)
    pushed = iter(found[len(results) :])
    smooth = map(is_inexact, results)
    return found[: len(results)], [
        next(pushed) if one else zero for one, zero in zip(smooth, zeros, strict=True)
    ]


def _transposed(
    cotangents: Sequence[Any],
    *operands: Any,
    engine: Runs,
    program: ClosedJaxpr,
    active: tuple[int, ...],
    gives: Gives,
) -> list[Any]:
    linear = tuple(at for at, each in enumerate(operands) if ad.is_undefined_primal(each))
    wanted = tuple(at for at, each in enumerate(cotangents) if not isinstance(each, ad.Zero))
    found: dict[int, Any] = {at: ad.Zero(operands[at].aval.to_ct_aval()) for at in linear}
    if not wanted:
        return [found.get(at) for at in range(len(operands))]
    count, pulled = len(program.jaxpr.invars), [cotangents[at] for at in wanted]
    if gives is Gives.TANGENTS and linear[0] >= count:
        arguments = [*operands[:count], *pulled]
        varied = tuple(active[at - count] for at in linear)
        whole = pulled_back(program, varied, wanted, arguments)
    else:
        arguments = [*(each for at, each in enumerate(operands) if at not in linear), *pulled]
        whole = transposed(computed(program, active, gives), linear, wanted, arguments)
    found.update(zip(linear, bound(engine, whole, arguments), strict=True))
    return [found.get(at) for at in range(len(operands))]


def _batched(
    axis: Any, operands: Sequence[Any], dims: Sequence[int | None], *, engine: Runs, **params: Any
) -> tuple[list[Any], list[int | None]]:
    """The batched program as a new equation: it gets its own plan, which counts the whole batch."""
    program, is_batched = batched(computed(**params), axis, dims)
    return bound(engine, program, operands), [0 if each else None for each in is_batched]


def _partly_known(trace: Any, *tracers: Any, engine: Runs, **params: Any) -> list[Any]:
    """In reverse mode: values now; later the tangents, which compute the values again."""
    program = params["program"]
    known = [tracer.pval.get_known() for tracer in tracers[: len(program.jaxpr.invars)]]
    later, now = {**params, "engine": engine}, []
    if params["gives"] is Gives.BOTH and not any(each is None for each in known):
        if any(map(draws_anew, program.jaxpr.eqns)):
            raise ValueError(
                "got a function with lax.rng_uniform, or an io_callback with results; wanted one "
                "that gives the same when its derivative computes it again; do this: "
                "differentiate inside, memsafe(jax.value_and_grad(f))"
            )
        now = bound(engine, by_rules(program, params["active"]), known)
        later["gives"] = Gives.TANGENTS
    return [*now, *trace.default_process_primitive(_CALL, tracers, later)]


def _partly_staged(
    saveable: Callable[..., Any], unknown: Sequence[bool], staged: Sequence[bool], equation: Any
) -> tuple[JaxprEqn | None, JaxprEqn | None, list[bool], list[bool], list[Any]]:
    """Partial evaluation inside `jax.checkpoint`.

    Returns the equation that runs now, the equation that runs later, whether each result is
    unknown, whether the later equation makes it, and the known values that the later one reads.
    """
    params, results = equation.params, equation.outvars
    everything, nothing = [True] * len(results), [False] * len(results)
    pairs = zip(equation.invars, staged, strict=True)
    read = [value for value, has in pairs if not has and not isinstance(value, Literal)]
    if not any(unknown):
        avals = map(aval_of, equation.invars)
        if saveable(equation.primitive, *avals, **params) is True:
            return equation, None, nothing, nothing, []
        return equation, equation, nothing, everything, read
    if params["gives"] is not Gives.BOTH or any(unknown[: len(params["program"].jaxpr.invars)]):
        return None, equation, everything, everything, read
    known = _giving(equation, Gives.VALUES)
    later = [at >= len(known.outvars) for at in range(len(results))]
    if saveable(equation.primitive, *map(aval_of, equation.invars), **params) is True:
        return known, _giving(equation, Gives.TANGENTS), later, later, read
    return known, equation, later, everything, read


def _giving(equation: Any, gives: Gives) -> Any:
    """An equation that returns values and tangents, changed to return only one of the two."""
    program, params = equation.params["program"], {**equation.params, "gives": gives}
    count = len(program.jaxpr.outvars)
    if gives is Gives.TANGENTS:
        return equation.replace(outvars=equation.outvars[count:], params=params)
    return equation.replace(
        invars=equation.invars[: len(program.jaxpr.invars)],
        outvars=equation.outvars[:count],
        params={**params, "program": by_rules(params["program"], params["active"]), "active": ()},
    )


def _without_unused(used: Sequence[bool], *rest: Any) -> tuple[list[bool], Any]:
    """Whether each operand is read, and the reduced equation; jax passes the equation last."""
    equation = rest[-1]
    params, count = equation.params, len(equation.params["program"].jaxpr.outvars)
    is_heard = bool(set(equation.effects) - names_only(equation.effects))
    if not any(used) and not is_heard:
        return [False] * len(equation.invars), None
    both = params["gives"] is Gives.BOTH
    if both and not any(used[:count]) and not is_heard:
        return [True] * len(equation.invars), _giving(equation, Gives.TANGENTS)
    if both and not any(used[count:]):
        read, fewer = _without_unused(used[:count], _giving(equation, Gives.VALUES))
        return [*read, *(False for _ in params["active"])], fewer
    if both or params["gives"] is Gives.TANGENTS or all(used):
        return [True] * len(equation.invars), equation
    program, read = without_unused(params["program"], tuple(used))
    pairs, made = zip(equation.invars, read, strict=True), zip(equation.outvars, used, strict=True)
    return read, equation.replace(
        invars=[value for value, is_read in pairs if is_read],
        outvars=[value for value, is_used in made if is_used],
        params={**params, "program": program},
    )


def _checked(
    run: Callable[..., Any], error: Any, operands: Sequence[Any], *, engine: Runs, **params: Any
) -> tuple[Any, list[Any]]:
    """The error and the results with `checkify`'s checks, which count towards the budget."""
    program = computed(**params)
    leaves, tree = jax.tree.flatten(error)

    def checked(*inputs: Any) -> Any:
        before = jax.tree.unflatten(tree, inputs[: len(leaves)])
        return run(program, before, *inputs[len(leaves) :])

    with as_traced(program):
        closed, results = jax.make_jaxpr(checked, return_shape=True)(*leaves, *operands)
        found = bound(engine, without_constants(closed), [*closed.consts, *leaves, *operands])
    made: tuple[Any, list[Any]] = jax.tree.unflatten(jax.tree.structure(results), found)
    return made


checks_errors(_CALL, _checked)
needs_devices(_CALL)
_CALL.def_impl(_executed)
_CALL.def_effectful_abstract_eval(_typed)
mlir.register_lowering(_CALL, _lowered)
ad.primitive_jvps[_CALL] = _pushed
ad.primitive_transposes[_CALL] = _transposed
batching.fancy_primitive_batchers[_CALL] = _batched
partial_eval.custom_partial_eval_rules[_CALL] = _partly_known
partial_eval.partial_eval_jaxpr_custom_rules[_CALL] = _partly_staged
partial_eval.dce_rules[_CALL] = _without_unused
