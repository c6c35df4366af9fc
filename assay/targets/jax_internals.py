"""The one adapter to the private API of jax and jaxlib.

Every function finds out what this jaxlib can do by trying, never by its version, and raises
InternalsMoved where the thing it needs is gone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Device
    from jax.stages import Compiled

__all__ = [
    "Device",
    "InternalsMoved",
    "executable_protos",
    "hlo_module_from_text",
    "host_memory_supported",
    "is_on_host",
    "saved_residuals",
]


class InternalsMoved(RuntimeError):
    """This jaxlib lacks a private function that Assay reads programs with."""

    def __init__(self, wanted: str) -> None:
        super().__init__(
            f"got a jaxlib without it; wanted {wanted}; "
            "do this: use a jaxlib that Assay is tested on, or mend assay/targets/jax_internals.py"
        )


def hlo_module_from_text(text: str) -> bytes:
    """The serialized HloModuleProto of HLO `text`, by XLA's own parser.

    Raises ValueError where the text is not HLO.
    """
    parse = _parser()
    try:
        module = parse(text)
    except RuntimeError as error:
        raise ValueError(f"got no HLO; wanted an HloModule; do this: mend {error}") from error
    return bytes(module.as_serialized_hlo_module_proto())


def executable_protos(compiled: Compiled) -> tuple[bytes, ...]:
    """The serialized HloModuleProto of each optimized module in `compiled`."""
    modules = getattr(compiled.runtime_executable(), "hlo_modules", None)
    if modules is None:
        raise InternalsMoved("runtime_executable().hlo_modules()")
    return tuple(bytes(module.as_serialized_hlo_module_proto()) for module in modules())


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
