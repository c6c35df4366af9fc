"""The one adapter to jax's private functions.

Functions are looked up by name, never by version. `InternalsMoved` names a missing function.
"""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jax.extend.core import ClosedJaxpr

from memsafe.mapped_axes import varying

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from jax import Array, Device
    from jax.core import ShapedArray
    from jax.extend.core import Jaxpr, JaxprEqn
    from jax.stages import Compiled

__all__ = [
    "InternalsMoved",
    "as_written",
    "aval_of",
    "batched",
    "bind",
    "checks_errors",
    "checks_varying_axes",
    "counter_bits",
    "devices_lowered_for",
    "dispatched",
    "effects_of",
    "fast_path",
    "has_effects",
    "has_ordered_effects",
    "inside_of",
    "manual_axes_of",
    "names_only",
    "needs_devices",
    "no_dead_equations",
    "outside_of_traces",
    "scan_operands",
    "source_line",
    "switched",
    "trace_settings",
    "under_a_jit",
    "under_named_axes",
    "with_memory_spaces",
    "without_constants",
    "without_unused",
]

_OWN = f"{Path(__file__).parent}/"

_SIGNATURES = 4096
"""Number of argument kinds per function that jax dispatches without Python, as in `jax.jit`."""


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
    """The results of `equation` on `operands`, traced with its line of the user's code.

    `params`, if given, replace the equation's own. With `inherit`, an equation that jax or memsafe
    made takes the line of the call around it.
    """
    given = equation.params if params is None else params
    if equation.primitive.name == "pvary":  # It may vary already, from a slice or a barrier.
        return [varying(operands[0], given["axes"])]
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
    """Context that gives traced equations the line and the name stack of `equation`."""
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
    """`file:line` of the user's code that made `equation`; empty if jax or memsafe made it.

    The file is relative to the working folder if it lies there.
    """
    summarize = _private("jax._src.source_info_util", "user_frame")
    frame = summarize(equation.source_info.traceback)
    if frame is None or frame.file_name.startswith(_OWN):
        return ""
    return f"{frame.file_name.removeprefix(f'{Path.cwd()}/')}:{frame.start_line}"


def no_dead_equations(closed: ClosedJaxpr) -> ClosedJaxpr:
    """`closed` without the equations that no output needs; it takes the same inputs."""
    eliminate = _private("jax.interpreters.partial_eval", "dce_jaxpr")
    jaxpr: Jaxpr = closed.jaxpr
    live, _ = eliminate(jaxpr, [True] * len(jaxpr.outvars), instantiate=True)
    return ClosedJaxpr(live, closed.consts)


def without_unused(closed: ClosedJaxpr, used: Sequence[bool]) -> tuple[ClosedJaxpr, list[bool]]:
    """`closed` with only the `used` results, and for each argument whether it is kept."""
    eliminate = _private("jax.interpreters.partial_eval", "dce_jaxpr")
    live, read = eliminate(closed.jaxpr, list(used))
    return ClosedJaxpr(live, closed.consts), list(read)


def batched(
    closed: ClosedJaxpr, axis: Any, dims: Sequence[int | None]
) -> tuple[ClosedJaxpr, list[bool]]:
    """`closed` over a batch of arguments, and for each result whether it is batched.

    `axis` is what jax passes to a batching rule, `dims` each argument's batch dimension or None.
    The batch dimension of results is 0.
    """
    batch = _private("jax._src.interpreters.batching", "batch_jaxpr_axes")
    zero = _private("jax._src.interpreters.batching", "zero_if_mapped")
    found, is_batched = batch(closed, axis, dims, [zero] * len(closed.jaxpr.outvars))
    return found, list(is_batched)


def effects_of(closed: ClosedJaxpr) -> frozenset[Any]:
    """Effects of `closed`, except on its own `jax.Ref`s; arguments are named by their position."""
    own = _private("jax._src.core", "InternalMutableArrayEffect")
    found = _private("jax._src.core", "positional_effects")(closed)
    return frozenset(each for each in found if not isinstance(each, own))


def has_ordered_effects(equation: JaxprEqn) -> bool:
    """Whether `equation` has effects that must keep their order.

    Reads and writes of a `jax.Ref` are such effects.
    """
    ordered = _private("jax._src.effects", "ordered_effects")
    of_input = _private("jax._src.effects", "JaxprInputEffect")
    return any(ordered.contains(each) or isinstance(each, of_input) for each in equation.effects)


def names_only(effects: Iterable[Any]) -> frozenset[Any]:
    """The members of `effects` that only say that an equation names a mapped axis."""
    kind = _private("jax._src.core", "NamedAxisEffect")
    return frozenset(effect for effect in effects if isinstance(effect, kind))


def has_effects(equation: JaxprEqn) -> bool:
    """Whether `equation` has side effects; a sum over devices has none."""
    return bool(equation.effects - names_only(equation.effects))


def scan_operands(equation: JaxprEqn) -> tuple[int, int]:
    """How many of a scan's first operands are constants, and how many carried ones follow."""
    params = equation.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    if "ft_in" not in params:
        raise InternalsMoved("scan's num_consts and num_carry, or ft_in")
    constants, carried, _ = params["ft_in"].unpack()
    return len(constants), len(carried)


def switched(
    equation: JaxprEqn,
    index: Array,
    branches: Sequence[Callable[..., list[Array]]],
    operands: Sequence[Array],
) -> list[Array]:
    """The results of a `cond` with `branches` in place of its own.

    If the platform selects the branch, the branches of other platforms are not lowered.
    """
    from jax import lax

    platforms = equation.params.get("branches_platforms")
    if platforms is None:
        return list(lax.switch(index, branches, *operands))
    switch = _private("jax._src.lax.control_flow.conditionals", "_switch_internal")
    return list(switch(index, branches, operands, branches_platforms=platforms))


def aval_of(atom: Any) -> ShapedArray:
    """The shape and type of an operand or a result."""
    return cast("ShapedArray", atom.aval)


def without_constants(closed: ClosedJaxpr) -> ClosedJaxpr:
    """`closed` with its constants as arguments, before its own."""
    convert = _private("jax._src.interpreters.partial_eval", "convert_constvars_jaxpr")
    return ClosedJaxpr(convert(closed.jaxpr), ())


def counter_bits(equation: JaxprEqn, key: Array) -> Array | None:
    """The bits of a `random_bits` equation, computed from counters, so that a loop can slice them.

    None if the keys are neither threefry keys nor a single `rbg` key, or if threefry's counters are
    not partitionable.
    """
    import jax
    from jax.extend.random import rbg_prng_impl, threefry_prng_impl, unsafe_rbg_prng_impl

    implementation = getattr(key.dtype, "_impl", None)
    if implementation in (rbg_prng_impl, unsafe_rbg_prng_impl) and key.ndim == 0:
        width, shape = equation.params["bit_width"], equation.params["shape"]
        return cast("Array", implementation.random_bits(jax.random.key_data(key), width, shape))
    if implementation != threefry_prng_impl or not equation.ctx.threefry_partitionable:
        return None

    def bits(data: Array) -> Array:
        width, shape = equation.params["bit_width"], equation.params["shape"]
        return cast("Array", threefry_prng_impl.random_bits(data, width, shape))

    for _ in range(key.ndim):
        bits = jax.vmap(bits)
    return bits(jax.random.key_data(key))


def trace_settings() -> Hashable:
    """The settings of jax that change how it traces, such as `jax_default_matmul_precision`."""
    return cast("Hashable", _private("jax._src.config", "trace_context")())


def under_named_axes() -> bool:
    """Whether the trace in progress has named axes, as inside `shard_map`."""
    return bool(_private("jax.extend.core", "unsafe_get_axis_names_DO_NOT_USE")())


def under_a_jit() -> bool:
    """Whether jax is tracing a program, which then records calls on concrete arrays as well."""
    return bool(_private("jax.extend.core", "unsafe_am_i_under_a_jit_DO_NOT_USE")())


def devices_lowered_for(context: Any) -> tuple[Any, Sequence[Device]]:
    """The mesh and the devices in the `context` of a lowering rule.

    There is a mesh only inside `shard_map`, else it is None. If the mesh is abstract or no devices
    are known, the devices are empty.
    """
    from jax.sharding import Mesh

    axes = context.module_context.axis_context
    mesh: Any = getattr(axes, "mesh", None)
    if mesh is None:
        return None, getattr(axes, "device_assignment", None) or ()
    return mesh, tuple(mesh.devices.flat) if isinstance(mesh, Mesh) else ()


def with_memory_spaces(context: Any) -> Any:
    """A lowering rule's `context` in which transfers to another memory are lowered.

    jax drops transfers from a program whose trace uses only one memory. A trace does not show the
    program that memsafe's primitive is lowered to.
    """
    module = context.module_context
    if not hasattr(module, "all_default_mem_kind"):
        raise InternalsMoved("ModuleContext.all_default_mem_kind")
    return context.replace(module_context=module.replace(all_default_mem_kind=False))


def manual_axes_of(context: Any) -> frozenset[str]:
    """The manual axes (of `shard_map`) in the `context` of a lowering rule."""
    return frozenset(getattr(context.module_context.axis_context, "manual_axes", ()))


def checks_varying_axes() -> bool:
    """Whether types have the mapped axes they vary over, as under `shard_map(check_vma=True)`."""
    return bool(_private("jax._src.config", "_check_vma").value)


@contextlib.contextmanager
def outside_of_traces() -> Iterator[None]:
    """Context in which programs are traced and compiled as if no trace were in progress."""
    import jax

    core = _private("jax._src.core", "trace_ctx")
    trace, axes = core.trace, core.axis_env
    core.set_trace(_private("jax._src.core", "eval_trace"))
    core.set_axis_env(_private("jax._src.core", "top_axis_env"))
    try:
        with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
            yield
    finally:
        core.set_trace(trace)
        core.set_axis_env(axes)


@contextlib.contextmanager
def inside_of(equation: JaxprEqn) -> Iterator[None]:
    """Context in which programs are traced as inside `equation`, if it is a `shard_map`."""
    if equation.primitive.name != "shard_map":
        yield
        return
    import jax

    params = equation.params
    mesh, mapped = params["mesh"], frozenset(params["newly_manual_axes"])
    manual = _private("jax._src.shard_map", "_as_manual_mesh")(mesh, mapped)
    sizes = [(name, mesh.shape[name]) for name in mesh.axis_names if name in mapped]
    with (
        _private("jax._src.core", "extend_axis_env_nd")(sizes),
        jax.sharding.use_abstract_mesh(manual),
        _private("jax._src.config", "_check_vma")(params["check_vma"]),
    ):
        yield


def needs_devices(primitive: Any) -> None:
    """Make jax pass the devices to the lowering rule of `primitive`."""
    _private("jax._src.dispatch", "prim_requires_devices_during_lowering").add(primitive)


def checks_errors(primitive: Any, rule: Callable[..., Any]) -> None:
    """Make `jax.experimental.checkify` compute `primitive` by `rule(run, error, operands, …)`.

    `run(program, error, *operands)` runs a program with its checks.
    """
    kind = _private("jax._src.checkify", "Error")
    run = _private("jax._src.checkify", "checkify_jaxpr")

    def told(*given: Any, **params: Any) -> Any:
        at = next(at for at, each in enumerate(given) if isinstance(each, kind))
        context, (error, enabled, *operands) = given[:at], given[at:]  # jax 0.10 has no context.
        return rule(lambda f, *rest: run(*context, f, enabled, *rest), error, operands, **params)

    _private("jax._src.checkify", "error_checks")[primitive] = told


def dispatched(
    inside: Callable[..., Any], missed: Callable[..., tuple[Any, Any]], **options: Any
) -> Callable[..., Any]:
    """A function that jax dispatches like `jax.jit(inside, **options)`.

    jax calls `missed` for arguments of a kind that its cache lacks. `missed` returns the results,
    and the data of `fast_path` or None.
    """
    import jax

    known: Any = jax.jit(inside, **options)
    about = known._jit_info  # noqa: SLF001 — it is jax's.
    library = _private("jax._src.lib", "_jax")
    pxla = _private("jax._src.interpreters", "pxla")
    found = library.pjit(
        inside.__name__,
        inside,
        lambda *args, **kwargs: (*missed(*args, **kwargs), False),
        about.static_argnums,
        about.static_argnames,
        pxla.JitGlobalCppCacheKeys(),
        _private("jax._src.tree_util", "dispatch_registry"),
        pxla.cc_shard_arg,
        _private("jax._src.pjit", "make_jit_cpp_cache")(_SIGNATURES),
    )
    result: Callable[..., Any] = found
    return result


def fast_path(
    compiled: Compiled, tree: Any, arguments: Sequence[Any], results: Sequence[Array], fixed: Any
) -> Any:
    """Data with which jax repeats such a call: `compiled` runs on `fixed` and the arguments."""
    describe = _private("jax._src.pjit", "_get_fastpath_data")
    executable = cast("Any", compiled)._executable  # noqa: SLF001
    return describe(executable, tree, arguments, results, frozenset(), (), None, list(fixed))
