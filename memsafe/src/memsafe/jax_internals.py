"""The one adapter to jax's private functions.

Each is found by trying, never by a version, and `InternalsMoved` names the one that is gone.
"""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jax.extend.core import ClosedJaxpr

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jax import Array
    from jax.core import ShapedArray
    from jax.extend.core import Jaxpr, JaxprEqn

__all__ = [
    "InternalsMoved",
    "as_written",
    "aval_of",
    "bind",
    "counter_bits",
    "no_dead_equations",
    "scan_operands",
    "source_line",
    "under_named_axes",
    "varying",
    "varying_like",
    "without_constants",
]

_OWN = f"{Path(__file__).parent}/"


class InternalsMoved(RuntimeError):
    """This jax lacks a private function that memsafe rewrites programs with."""

    def __init__(self, wanted: str) -> None:
        super().__init__(
            f"got a jax without it; wanted {wanted}; "
            "do this: use a jax that memsafe is tested on, or fix memsafe/jax_internals.py"
        )


def _private(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise InternalsMoved(f"{module}.{name}") from None


def bind(
    equation: JaxprEqn,
    operands: Sequence[Array],
    params: dict[str, Any] | None = None,
    *,
    inherit: bool = False,
) -> list[Array]:
    """The results of `equation` on `operands`, traced as written on the user's own line.

    `params`, where given, stand for the equation's own. Where `inherit`, an equation that jax
    wrote itself takes the line of the call that it is in.
    """
    given = equation.params if params is None else params
    functions, keywords = (), dict(given)
    if hasattr(equation.primitive, "get_bind_params"):
        bound = equation.primitive.get_bind_params(dict(given))
        functions, keywords = bound if isinstance(bound, tuple) else ((), bound)
    with as_written(equation, inherit=inherit), equation.ctx.manager:
        results = equation.primitive.bind(*functions, *operands, **keywords)
    return list(results) if equation.primitive.multiple_results else [results]


def as_written(
    equation: JaxprEqn, *, inherit: bool = False
) -> contextlib.AbstractContextManager[Any]:
    """Within it, what is traced counts as written on the user's line of `equation`."""
    user_context = _private("jax._src.source_info_util", "user_context")
    current = _private("jax._src.source_info_util", "current")()
    source = equation.source_info
    traceback = source.traceback
    if inherit and not source_line(equation):
        traceback = current.traceback
    context: contextlib.AbstractContextManager[Any] = user_context(
        traceback, name_stack=current.name_stack + source.name_stack
    )
    return context


def source_line(equation: JaxprEqn) -> str:
    """`file:line` of the user's code that made `equation`; empty if jax or memsafe made it."""
    summarize = _private("jax._src.source_info_util", "user_frame")
    frame = summarize(equation.source_info.traceback)
    if frame is None or frame.file_name.startswith(_OWN):
        return ""
    return f"{frame.file_name}:{frame.start_line}"


def no_dead_equations(closed: ClosedJaxpr) -> ClosedJaxpr:
    """`closed` without the equations that no output needs; it takes the same inputs."""
    eliminate = _private("jax.interpreters.partial_eval", "dce_jaxpr")
    jaxpr: Jaxpr = closed.jaxpr
    live, _ = eliminate(jaxpr, [True] * len(jaxpr.outvars), instantiate=True)
    return ClosedJaxpr(live, closed.consts)


def scan_operands(equation: JaxprEqn) -> tuple[int, int]:
    """How many of a scan's first operands are constants, and how many carried ones follow."""
    params = equation.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    if "ft_in" not in params:
        raise InternalsMoved("scan's num_consts and num_carry, or ft_in")
    constants, carried, _ = params["ft_in"].unpack()
    return len(constants), len(carried)


def aval_of(atom: Any) -> ShapedArray:
    """The shape and type of an operand or a result."""
    return cast("ShapedArray", atom.aval)


def without_constants(closed: ClosedJaxpr) -> ClosedJaxpr:
    """`closed` with its constants as arguments, before its own."""
    convert = _private("jax._src.interpreters.partial_eval", "convert_constvars_jaxpr")
    return ClosedJaxpr(convert(closed.jaxpr), ())


def counter_bits(equation: JaxprEqn, key: Array) -> Array | None:
    """The bits of a `random_bits` equation for each key, by counters, that a loop can slice.

    None where its key is of another kind than threefry's, or counters are not partitionable.
    """
    import jax
    from jax.extend.random import threefry_prng_impl

    settings: Any = jax.config
    implementation = getattr(key.dtype, "_impl", None)
    if implementation != threefry_prng_impl or not settings.jax_threefry_partitionable:
        return None

    def bits(data: Array) -> Array:
        width, shape = equation.params["bit_width"], equation.params["shape"]
        found: Array = threefry_prng_impl.random_bits(data, width, shape)
        return found

    for _ in range(key.ndim):
        bits = jax.vmap(bits)
    return bits(jax.random.key_data(key))


def under_named_axes() -> bool:
    """Whether the trace in progress has named axes, as inside `shard_map`."""
    from jax.extend import core

    names = getattr(core, "unsafe_get_axis_names_DO_NOT_USE", None)
    if names is None:
        raise InternalsMoved("jax.extend.core.unsafe_get_axis_names_DO_NOT_USE")
    return bool(names())


def varying_like(value: Array, other: Any) -> Array:
    """`value`, varying over all the mapped axes of `shard_map` that `other` varies over."""
    return varying(value, _varying(other))


def varying(value: Array, axes: Iterable[str]) -> Array:
    """`value`, varying over those mapped axes of `shard_map` as well."""
    import jax

    missing = set(axes) - _varying(value)
    if not missing:
        return value
    found: Array = jax.lax.pcast(value, tuple(sorted(missing)), to="varying")
    return found


def _varying(value: Any) -> frozenset[str]:
    import jax

    aval = jax.typeof(value) if hasattr(value, "aval") else value
    axes = getattr(aval, "manual_axis_type", None)
    return frozenset(() if axes is None else axes.varying)
