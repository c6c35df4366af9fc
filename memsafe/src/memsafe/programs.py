"""A user's function as one flat list of equations, and its evaluation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from memsafe.jax_internals import (
    as_written,
    aval_of,
    bind,
    counter_bits,
    inside_of,
    no_dead_equations,
)
from memsafe.mapped_axes import varying_like
from memsafe.sub_jaxprs import as_closed, rebuilt, sub_jaxprs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    Read = Callable[[Any], Array]
    Replacement = Callable[[Read], Sequence[Array]]

__all__ = [
    "evaluate",
    "flattened",
    "is_inexact",
    "nbytes",
    "retraced",
    "shape_of",
    "signature",
    "signature_of",
    "silently",
    "traced_like",
    "unplaced",
    "with_sub_jaxprs",
    "zero_after",
]

_CALLS = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vmap_call": "call",
    "custom_vjp_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "remat2": "jaxpr",
}
"""Primitives that only call a program, and the parameter that holds it."""

_PLATFORMS = ("cpu", "cuda", "rocm", "gpu", "tpu")
"""The platforms whose branches `_same_everywhere` compares."""

_PLACES = ("sharding", "out_sharding")
"""Parameters that say where a result lies."""

_SPENT = frozenset(("stop_gradient", "name"))
"""Primitives that only autodiff reads, which is done before a program is flattened."""


def flattened(closed: ClosedJaxpr) -> ClosedJaxpr:
    """`closed` with every call inlined and dead equations removed.

    Recomputation by `jax.checkpoint` stays: a barrier keeps the compiler from merging the
    recomputed values with the first ones.
    """
    if not any(_is_to_flatten(equation) for equation in closed.jaxpr.eqns):
        return no_dead_equations(closed)

    def program(*arguments: Array) -> list[Array]:
        return evaluate(closed, arguments, calls=_inlined)

    return traced_like(program, closed)


def unplaced(value: Any) -> Any:
    """`value` for a trace; on an automatic mesh without its sharding, which is for the compiler."""
    mesh = jax.typeof(value).sharding.mesh
    if mesh.empty or any(kind is not jax.sharding.AxisType.Auto for kind in mesh.axis_types):
        return value
    weak_type = bool(getattr(value, "weak_type", False))
    return jax.ShapeDtypeStruct(value.shape, value.dtype, weak_type=weak_type)


def with_sub_jaxprs(
    closed: ClosedJaxpr, change: Callable[[ClosedJaxpr], ClosedJaxpr]
) -> ClosedJaxpr:
    """`closed` with `change` applied to each program that its equations run."""

    def replacement(equation: JaxprEqn, changed: dict[str, ClosedJaxpr]) -> Replacement:
        programs = {
            name: partial(lambda body, *arguments: evaluate(body, arguments), body)
            for name, body in changed.items()
        }
        return lambda read: rebuilt(equation, [read(a) for a in equation.invars], programs)

    replace = {}
    for index, equation in enumerate(closed.jaxpr.eqns):
        sub_jaxprs = sub_jaxprs_of(equation)
        with inside_of(equation):
            changed = {name: change(body) for name, body in sub_jaxprs.items()}
        if any(changed[name] is not body for name, body in sub_jaxprs.items()):
            replace[index] = replacement(equation, changed)
    return retraced(closed, replace) if replace else closed


def retraced(closed: ClosedJaxpr, replace: Mapping[int, Replacement]) -> ClosedJaxpr:
    """`closed` with the equations in `replace`, by index, computed by their replacements.

    Functions of jax.numpy that a replacement calls are inlined too.
    """

    def program(*arguments: Array) -> list[Array]:
        return evaluate(closed, arguments, replace=replace)

    found = traced_like(program, closed)
    is_flat = all(equation.primitive.name not in _CALLS for equation in found.jaxpr.eqns)
    return found if is_flat else flattened(found)


def evaluate(
    closed: ClosedJaxpr,
    arguments: Sequence[Array],
    *,
    replace: Mapping[int, Replacement] | None = None,
    calls: Callable[[JaxprEqn, Sequence[Array]], list[Array]] = bind,
) -> list[Array]:
    """The outputs of `closed`; `replace` computes some equations, `calls` all the others."""
    jaxpr = closed.jaxpr
    values: dict[Var, Array] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Var | Literal) -> Array:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for index, equation in enumerate(jaxpr.eqns):
        if replace and index in replace:
            with as_written(equation):
                results = replace[index](read)
        else:
            results = calls(equation, [read(atom) for atom in equation.invars])
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def silently(equation: JaxprEqn, operands: Sequence[Array]) -> list[Array]:
    """The results of `equation`, computed again without equations that only print."""
    if not equation.outvars:
        return []
    if not equation.effects:
        return bind(equation, operands)
    called = equation.params.get(_CALLS.get(equation.primitive.name, ""))
    if called is not None and not equation.primitive.name.startswith("custom"):
        with as_written(equation):
            return evaluate(as_closed(called), operands, calls=silently)
    if sub_jaxprs := sub_jaxprs_of(equation):
        runs = {name: partial(_silenced, body) for name, body in sub_jaxprs.items()}
        return rebuilt(equation, operands, runs)
    return bind(equation, operands)


def _silenced(body: ClosedJaxpr, *arguments: Array) -> list[Array]:
    return evaluate(body, arguments, calls=silently)


def zero_after(results: Iterable[Array]) -> Any:
    """A zero computed from one of `results`: what reads the zero starts after that result.

    Otherwise, compilers that look for parallel work start loops side by side and hold the memory
    of all at once. No simplifier sees that a number clamped between 0 and 0 is 0.
    """
    for result in results:
        if result.size and jnp.issubdtype(result.dtype, jnp.number):
            corner = lax.slice(result, (0,) * result.ndim, (1,) * result.ndim)
            number = lax.real(corner) if jnp.iscomplexobj(corner) else corner
            whole = lax.convert_element_type(lax.squeeze(number, range(result.ndim)), np.int32)
            return lax.clamp(np.int32(0), whole, np.int32(0))
    return np.int32(0)


def is_inexact(each: Any) -> bool:
    """Whether a variable of a program has derivatives."""
    dtype = getattr(getattr(each, "aval", each), "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jnp.inexact))


def shape_of(atom: Any) -> tuple[int, ...]:
    """The shape of an array; that of a token is empty."""
    return tuple(getattr(atom.aval, "shape", ()))


def nbytes(atom: Var | Literal) -> int:
    """Bytes of an array in device memory; 0 for tokens and for arrays in host memory."""
    aval: Any = atom.aval
    if not hasattr(aval, "shape") or getattr(aval, "memory_space", None) is jax.memory.Space.Host:
        return 0
    return int(aval.size * aval.dtype.itemsize)


def signature(closed: ClosedJaxpr) -> Hashable:
    """A key that is equal for programs with equal equations. Names of variables do not count.

    Constants, and parameters that cannot be hashed, are equal only to themselves.
    """
    return _signature(closed.jaxpr), tuple(map(id, closed.consts))


def _signature(jaxpr: Jaxpr) -> Hashable:
    return signature_of((*jaxpr.constvars, *jaxpr.invars), jaxpr.eqns, jaxpr.outvars)


def signature_of(
    inputs: Sequence[Var], equations: Iterable[JaxprEqn], outputs: Sequence[Var | Literal]
) -> Hashable:
    """A key that is equal for equal equations from `inputs` to `outputs`, up to variable names.

    The key is one flat tuple: many nested tuples would keep the garbage collector busy.
    """
    numbers: dict[Var, int] = {}
    found: list[Hashable] = []

    def read(atoms: Sequence[Any]) -> None:
        found.append(len(atoms))
        for atom in atoms:
            if isinstance(atom, Literal):
                found.extend((None, atom.aval, _number(atom.val)))
            else:
                found.append(numbers[atom])

    def make(values: Sequence[Var]) -> None:
        found.append(len(values))
        for value in values:
            numbers[value] = len(numbers)
            found.append(value.aval)

    make(inputs)
    for equation in equations:
        context = equation.ctx
        found += (equation.primitive, context.threefry_partitionable, context.compute_type)
        read(equation.invars)
        make(equation.outvars)
        for name, value in sorted(equation.params.items()):
            found.extend((name, _param(value)))
    read(outputs)
    return tuple(found)


def _number(value: Any) -> Hashable:
    """A key that distinguishes a number, or an array of numbers, from others of its type."""
    is_array = np.ndim(value) > 0 and isinstance(value.dtype, np.dtype)
    return np.asarray(value).tobytes() if is_array else str(value)


def _param(value: Any) -> Hashable:
    if isinstance(value, ClosedJaxpr):
        return signature(value)
    if isinstance(value, Jaxpr):
        return _signature(value)
    if isinstance(value, tuple | list):
        return tuple(_param(each) for each in value)
    try:
        hash(value)
    except TypeError:
        return id(value)
    return cast("Hashable", value)


def _is_to_flatten(equation: JaxprEqn) -> bool:
    name = equation.primitive.name
    spoken = name in _CALLS or name in _SPENT or name in _READ
    return spoken or bool(sub_jaxprs_of(equation)) or bool(_spare_places(equation))


def _spare_places(equation: JaxprEqn) -> dict[str, None]:
    """Sharding parameters to clear: those of no explicit axis, which derivatives only pass on."""
    if equation.primitive.name == "sharding_constraint":  # The user asks for it.
        return {}
    return {name: None for name in _PLACES if _is_spare(equation.params.get(name))}


def _is_spare(sharding: Any) -> bool:
    is_named = isinstance(sharding, jax.sharding.NamedSharding)
    return is_named and jax.sharding.AxisType.Explicit not in sharding.mesh.axis_types


def _inlined(equation: JaxprEqn, operands: Sequence[Array]) -> list[Array]:
    name = equation.primitive.name
    if name in _SPENT:
        return list(operands)
    if name in _READ:
        return _READ[name](equation, operands)
    if sub_jaxprs := sub_jaxprs_of(equation):
        return _with_flat_sub_jaxprs(equation, operands, sub_jaxprs)
    called = equation.params.get(_CALLS.get(name, ""))
    if called is None or _asks_for_placement(equation):
        return _inherited(equation, operands, {**equation.params, **_spare_places(equation)})
    if equation.params.get("differentiated"):
        apart = equation.params.get("prevent_cse", True)
        each = apart if isinstance(apart, tuple) else (apart,) * len(operands)
        pairs = zip(operands, each, strict=True)
        operands = [
            jax.lax.optimization_barrier(one) if is_apart else one for one, is_apart in pairs
        ]
    with as_written(equation, inherit=True):
        return evaluate(as_closed(called), operands, calls=_inlined)


_inherited = partial(bind, inherit=True)


def _bits(equation: JaxprEqn, operands: Sequence[Array]) -> list[Array]:
    with equation.ctx.manager:
        bits = counter_bits(equation, operands[0])
    if bits is None:
        return _inherited(equation, operands)
    return [varying_like(bits, aval_of(equation.outvars[0]))]


def _platform(equation: JaxprEqn, operands: Sequence[Array]) -> list[Array]:
    number = _same_everywhere(equation)
    return _inherited(equation, operands) if number is None else [number]


def _solved(equation: JaxprEqn, operands: Sequence[Array]) -> list[Array]:
    """The results of the solver; its other products serve derivatives, which are taken by now."""
    lengths, solver = equation.params["const_lengths"], equation.params["jaxprs"].solve
    before = lengths.matvec + lengths.vecmat
    held, right_sides = operands[before : before + lengths.solve], operands[sum(lengths) :]
    with as_written(equation, inherit=True):
        return evaluate(as_closed(solver), [*held, *right_sides], calls=_inlined)


def _planned(equation: JaxprEqn, operands: Sequence[Array]) -> list[Array]:
    """The results of a memsafe function inside another, planned for its own budget."""
    params = dict(equation.params)
    results: list[Array] = params.pop("engine").inlined(operands, **params)
    return results


_READ = {
    "random_bits": _bits,
    "platform_index": _platform,
    "custom_linear_solve": _solved,
    "memsafe": _planned,
}
"""Primitives that `_inlined` replaces, each by a function of its own."""


def _with_flat_sub_jaxprs(
    equation: JaxprEqn, operands: Sequence[Array], sub_jaxprs: dict[str, ClosedJaxpr]
) -> list[Array]:
    """A loop or branch with its programs flattened; if the branch taken is known, it runs alone."""
    if equation.primitive.name == "cond" and not isinstance(operands[0], jax.core.Tracer):
        return _evaluated_flat(sub_jaxprs[f"branches {int(operands[0])}"], *operands[1:])
    flat = {name: partial(_evaluated_flat, body) for name, body in sub_jaxprs.items()}
    return rebuilt(equation, operands, flat)


def _same_everywhere(equation: JaxprEqn) -> Any:
    """The index of the branch that every platform takes, or None if there is no such branch."""
    choices = equation.params["platforms"]
    taken = {
        next((at for at, names in enumerate(choices) if names is None or platform in names), None)
        for platform in _PLATFORMS
    }
    number = taken.pop()
    return None if taken or number is None else np.int32(number)


def _evaluated_flat(body: ClosedJaxpr, *arguments: Array) -> list[Array]:
    return evaluate(body, arguments, calls=_inlined)


def _asks_for_placement(equation: JaxprEqn) -> bool:
    """Whether a jit says where its arrays lie."""
    shardings = (
        *equation.params.get("in_shardings", ()),
        *equation.params.get("out_shardings", ()),
    )
    return any(isinstance(asked, jax.sharding.Sharding) for asked in shardings)


def traced_like(program: Callable[..., list[Array]], like: ClosedJaxpr) -> ClosedJaxpr:
    """`program` traced on the arguments of `like`, without dead equations."""
    arguments = [variable.aval for variable in like.jaxpr.invars]
    return no_dead_equations(jax.make_jaxpr(program)(*arguments))
