"""The one adapter to the private API of jax and jaxlib.

Every function finds out what this jaxlib can do by trying, never by its version, and raises
InternalsMoved if the internal name no longer exists.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, cast

from assay.model.blame import WrongValue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    from jax import Device
    from jax.stages import Compiled, Lowered

__all__ = [
    "Device",
    "InternalsMoved",
    "ModuleUnreadable",
    "compile_stablehlo",
    "device_list_type",
    "executable_protos",
    "hlo_module_from_text",
    "hlo_text",
    "host_memory_supported",
    "is_on_host",
    "loaded_devices",
    "loaded_protos",
    "lowered_devices",
    "mesh_makers",
    "mesh_setter",
    "parse_stablehlo",
    "place_on_host",
    "saved_residuals",
    "stablehlo_from_hlo",
]


class InternalsMoved(RuntimeError):
    """This jaxlib lacks a private function that Assay reads programs with."""

    def __init__(self, wanted: str) -> None:
        super().__init__(
            f"got a jaxlib without it; wanted {wanted}; "
            "do this: use a jaxlib that Assay is tested on, or fix assay/targets/jax_internals.py"
        )


class ModuleUnreadable(RuntimeError):
    """This jaxlib cannot parse the module that a newer plugin compiled."""


def hlo_module_from_text(text: str) -> bytes:
    """The serialized HloModuleProto of HLO `text`, by XLA's own parser.

    Raises ValueError where the text is not HLO.
    """
    parse = _parser()
    try:
        module = parse(text)
    except RuntimeError as error:
        raise ValueError(f"got no HLO; wanted an HloModule; do this: fix {error}") from error
    return bytes(module.as_serialized_hlo_module_proto())


def hlo_text(module: bytes) -> str:
    """The HLO text of a serialized HloModuleProto."""
    for place in ("jaxlib._hlo", "jaxlib._jax", "jaxlib.xla_extension"):
        try:
            modules: Any = getattr(importlib.import_module(place), "HloModule", None)
        except ImportError:
            continue
        if hasattr(modules, "from_serialized_hlo_module_proto"):
            return str(modules.from_serialized_hlo_module_proto(module).to_string())
    raise InternalsMoved("HloModule.from_serialized_hlo_module_proto")


def mesh_makers() -> tuple[ModuleType, ...]:
    """The modules of jax that make a mesh of all devices, which they ask their ``xb`` for."""
    names = ("jax._src.sharding_impls", "jax._src.mesh_utils")
    try:
        modules = tuple(map(importlib.import_module, names))
    except ImportError as error:
        raise InternalsMoved(str(error.name)) from None
    if not all(hasattr(getattr(module, "xb", None), "devices") for module in modules):
        raise InternalsMoved(f"xb.devices in {' and '.join(names)}")
    return modules


def mesh_setter() -> ModuleType:
    """The module of ``jax.set_mesh``, which asks its ``core`` whether something is being traced."""
    for name in ("jax._src.sharding_impls", "jax._src.mesh"):
        module = importlib.import_module(name)
        defined = getattr(module, "set_mesh", None)
        home = sys.modules.get(getattr(defined, "__module__", ""), module)
        for place in (home, module):
            if defined and hasattr(getattr(place, "core", None), "trace_state_clean"):
                return place
    raise InternalsMoved("core.trace_state_clean in the module of jax.set_mesh")


def executable_protos(compiled: Compiled) -> tuple[bytes, ...]:
    """The serialized HloModuleProto of each optimized module in `compiled`.

    Raises ModuleUnreadable where the plugin's module does not parse here.
    """
    return loaded_protos(compiled.runtime_executable())


def loaded_protos(executable: Any) -> tuple[bytes, ...]:
    """The same, of jaxlib's own executable.

    `hlo_modules` asks the plugin for its module and parses it: XLA's error from there, and no other
    exception, means that this jaxlib and this plugin have no HLO format in common.
    """
    import jax

    get_modules = getattr(executable, "hlo_modules", None)
    if get_modules is None:
        raise InternalsMoved("runtime_executable().hlo_modules()")
    try:
        modules = get_modules()
    except jax.errors.JaxRuntimeError as error:
        raise ModuleUnreadable(str(error)) from error
    return tuple(bytes(module.as_serialized_hlo_module_proto()) for module in modules)


def lowered_devices(lowered: Lowered) -> tuple[Device, ...]:
    """The devices that a lowered program will be compiled for."""
    devices = getattr(getattr(lowered, "_lowering", None), "_device_list", None)
    if devices is None:
        raise InternalsMoved("the devices of a jax.stages.Lowered")
    return tuple(devices)


def loaded_devices(executable: Any) -> tuple[Device, ...]:
    """The devices that an executable can run on here; none for a compile-only one."""
    devices = getattr(executable, "local_devices", tuple)
    return tuple(devices())


def host_memory_supported(device: Device) -> bool:
    """Whether a program lowered for `device` keeps its move to host memory.

    Deviceless topologies before jax 0.9 drop it unseen; so does the CPU. What memories a
    device lists is no guide: a GPU topology lists none and keeps the move.
    """
    import jax

    here, host = jax.sharding.SingleDeviceSharding(device), _host_memory()
    program = jax.jit(lambda x: jax.device_put(x, host), in_shardings=here)
    platform = "cuda" if device.platform == "gpu" else device.platform
    argument = jax.ShapeDtypeStruct((8, 128), "float32")
    lowered = program.trace(argument).lower(lowering_platforms=(platform,))
    return "annotate_device_placement" in lowered.as_text()


def _host_memory() -> Any:
    import jax

    if hasattr(jax, "memory"):
        return jax.memory.Space.Host
    placement = importlib.import_module("jax._src.sharding_impls")
    if not hasattr(placement, "TransferToMemoryKind"):
        raise InternalsMoved("jax.memory.Space or TransferToMemoryKind")
    return placement.TransferToMemoryKind("pinned_host")


def _parser() -> Callable[[str], Any]:
    for module in ("jaxlib._hlo", "jaxlib._jax", "jaxlib.xla_extension"):
        try:
            parse = getattr(importlib.import_module(module), "hlo_module_from_text", None)
        except ImportError:
            continue
        if parse is not None:
            return cast("Callable[[str], Any]", parse)
    raise InternalsMoved("hlo_module_from_text")


def _extension() -> Any:
    """Jaxlib's compiled part, whose functions and classes no type knows."""
    for module in ("jaxlib._jax", "jaxlib.xla_extension"):
        try:
            return importlib.import_module(module)
        except ImportError:
            continue
    raise InternalsMoved("jaxlib._jax")


def device_list_type() -> Any:
    """Jaxlib's class of lists of devices."""
    return _extension().DeviceList


def saved_residuals(function: Callable[..., Any], *arguments: Any) -> list[tuple[Any, str]]:
    """(abstract value, origin) of each value that autodiff of `function` would save.

    The public `jax.ad_checkpoint.print_saved_residuals` prints the same list.
    """
    try:
        from jax._src.ad_checkpoint import saved_residuals as saved
    except ImportError:
        raise InternalsMoved("jax._src.ad_checkpoint.saved_residuals") from None
    return [(aval, str(origin)) for aval, origin in saved(function, *arguments)]


def is_on_host(aval: Any) -> bool:
    """Whether an abstract value is placed in host memory."""
    space = getattr(aval, "memory_space", None)
    return getattr(space, "name", "") == "Host"


def stablehlo_from_hlo(proto: bytes) -> bytes:
    """The StableHLO, as bytecode, of a serialized HloModuleProto.

    Raises ValueError for a module that has none, such as one with fusions.
    """
    translate = getattr(getattr(_extension(), "mlir", None), "hlo_to_stablehlo", None)
    if translate is None:
        raise InternalsMoved("jaxlib._jax.mlir.hlo_to_stablehlo")
    try:
        return bytes(translate(proto))
    except (RuntimeError, ValueError) as error:
        raise WrongValue(
            f"got a module that XLA cannot take in again; wanted one from before optimization; "
            f"do this: pass the dump of before_optimizations, or fix {error}"
        ) from error


def parse_stablehlo(source: bytes) -> Any:
    """The `jaxlib.mlir.ir.Module` of StableHLO text or bytecode, portable artifacts too.

    Raises ValueError where the source is no StableHLO.
    """
    try:
        ir = importlib.import_module("jaxlib.mlir.ir")
        dialect = importlib.import_module("jaxlib.mlir.dialects.stablehlo")
        make_context = importlib.import_module("jax._src.interpreters.mlir").make_ir_context
    except (ImportError, AttributeError):
        raise InternalsMoved("jaxlib.mlir and make_ir_context") from None
    with make_context() as context:
        try:
            # Parsed first in any case: this one tells in its error what is wrong.
            module = ir.Module.parse(source)
            is_portable = source.startswith(b"ML\xefR") and b"vhlo" in source
            if not is_portable:
                return module
            return dialect.deserialize_portable_artifact(context, source)
        except (ir.MLIRError, ValueError) as error:
            words = " ".join(str(error).split())
            raise WrongValue(f"got no StableHLO; wanted a module; do this: fix {words}") from error


def place_on_host(module: Any, arguments: Sequence[bool], results: Sequence[bool]) -> None:
    """Mark those arguments and results of the main function of an `ir.Module` that lie on the host.

    Raises WrongValue where the function has others than these.
    """
    ir = importlib.import_module("jaxlib.mlir.ir")
    main = next(each for each in module.body.operations if "main" in str(each.name))
    counts = len(main.type.inputs), len(main.type.results)
    if counts != (len(arguments), len(results)):
        raise WrongValue(
            f"got an entry of {len(arguments)} arguments and {len(results)} results, {counts[0]} "
            f"and {counts[1]} after the conversion to StableHLO; wanted as many, to place them in "
            "host memory; do this: give the entry arrays in place of tuples"
        )
    host = ir.StringAttr.get("pinned_host", module.context)
    for name, places in (("arg_attrs", arguments), ("res_attrs", results)):
        old = main.attributes[name] if name in main.attributes else [{}] * len(places)
        marked = [
            ir.DictAttr.get(
                {each.name: each.attr for each in given}
                | ({"mhlo.memory_kind": host} if on_host else {}),
                module.context,
            )
            for given, on_host in zip(old, places, strict=True)
        ]
        main.attributes[name] = ir.ArrayAttr.get(marked, module.context)


def compile_stablehlo(
    module: Any, devices: Sequence[Device], options: Mapping[str, str | bool], replicas: int = 1
) -> Any:
    """The executable of an `ir.Module` for exactly these devices, by their own client.

    A compile-only client gives an executable that cannot run. It has the methods
    `get_compiled_memory_stats` and `hlo_modules`.
    """
    import numpy as np

    try:
        compiler = importlib.import_module("jax._src.compiler")
        device_list = _extension().DeviceList(tuple(devices))
        compile_only = _extension().CompileOnlyPyClient
    except (ImportError, AttributeError):
        raise InternalsMoved("jaxlib._jax.DeviceList and CompileOnlyPyClient") from None
    partitions = len(devices) // replicas
    compile_options = compiler.get_compile_options(
        num_replicas=replicas,
        num_partitions=partitions,
        device_assignment=np.array([device.id for device in devices]).reshape(replicas, partitions),
        env_options_overrides=dict(options),
    )
    build_options = compile_options.executable_build_options
    build_options.use_shardy_partitioner = "sdy." in str(module)
    own = devices[0].client
    compile_for = own.compile if isinstance(own, compile_only) else own.compile_and_load
    return compile_for(module, executable_devices=device_list, compile_options=compile_options)
