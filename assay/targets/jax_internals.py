"""The one adapter to jaxlib and to the private API of jax, of jax 0.10.2 and newer.

Every private name is looked up where it is used: InternalsMoved says which one a release lacks.
"""

from __future__ import annotations

import importlib
import os
import re
import tempfile
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from assay.model.blame import WrongValue
from assay.model.process import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jax import Device
    from jax.stages import Lowered


_T = TypeVar("_T")
_DETECTION_SECONDS = 300


class InternalsMoved(RuntimeError):
    """This jax or jaxlib lacks a private name that Assay needs."""

    def __init__(self, wanted: str) -> None:
        super().__init__(
            f"got a jaxlib without it; wanted {wanted}; "
            "do this: use a jaxlib that Assay is tested on, or fix assay/targets/jax_internals.py"
        )


class ModuleUnreadable(RuntimeError):
    """This jaxlib cannot parse the module that a newer plugin compiled."""


def private(place: str) -> Any:
    """The module, or what it has by the dotted name after a colon: ``jaxlib._jax:mlir.Context``.

    Raises InternalsMoved where this jax or jaxlib has none.
    """
    module, _, name = place.partition(":")
    try:
        found = importlib.import_module(module)
        return attrgetter(name)(found) if name else found
    except (ImportError, AttributeError):
        raise InternalsMoved(place) from None


# From 0.12 on, XLA prints ``%name#1`` where it printed the name of a get-tuple-element before.
_QUOTED_OR_ELEMENT = re.compile(r'"(?:[^"\\]|\\.)*"|(%[\w.\-]+)((?:#\d+)+)')
_HEADER_COUNT = re.compile(r"\b(num_partitions|replica_count)=(\d+)")


def module_of_text(text: str) -> bytes:
    """The serialized HloModuleProto of HLO text, also of text that is too new for this parser.

    Raises:
        ValueError: the text is not HLO; names the line.
    """
    try:
        return _parsed(text)
    except ValueError:
        spelled_out = spell_out_elements(text)
        if spelled_out == text:
            raise
    try:
        return _parsed(spelled_out)
    except ValueError as error:
        raise ValueError(
            f"{error} (this jaxlib cannot read `%name#1`, and replacing it did not help; "
            "use the jaxlib that printed the text, or dump the module as a proto)"
        ) from error


def _parsed(text: str) -> bytes:
    parse = private("jaxlib._hlo:hlo_module_from_text")
    try:
        return bytes(parse(text).as_serialized_hlo_module_proto())
    except RuntimeError as error:
        raise ValueError(f"got no HLO; wanted an HloModule; do this: fix {error}") from error


def device_counts(text: str) -> tuple[int, int]:
    """(replicas, partitions) that the first line of HLO text names; the parser drops them."""
    named = dict(_HEADER_COUNT.findall(text.lstrip().partition("\n")[0]))
    return int(named.get("replica_count", 1)), int(named.get("num_partitions", 1))


def spell_out_elements(text: str) -> str:
    """The text with a get-tuple-element on a separate line for each ``%name#1``."""
    lines: list[str] = []
    known: set[str] = set()

    def name_of(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:  # a quoted string
            return match[0]
        for index in match[2].split("#")[1:]:
            whole, name = name, f"{name}--{index}"
            if name not in known:
                known.add(name)
                lines.append(f"  {name} = get-tuple-element({whole}), index={index}")
        return name

    for line in text.split("\n"):
        if line.rstrip().endswith("{"):  # a computation begins, with names of its own
            known.clear()
        changed = _QUOTED_OR_ELEMENT.sub(name_of, line)
        lines.append(changed)
    return "\n".join(lines)


def hlo_text(module: bytes) -> str:
    """The HLO text of a serialized HloModuleProto."""
    read = private("jaxlib._hlo:HloModule.from_serialized_hlo_module_proto")
    return str(read(module).to_string())


def loaded_protos(executable: Any) -> tuple[bytes, ...]:
    """The serialized HloModuleProto of each module in an executable, jaxlib's own.

    Raises ModuleUnreadable where this jaxlib cannot parse the plugin's module: `hlo_modules`, which
    asks for the module and parses it, then raises XLA's error and no other exception.
    """
    import jax

    try:
        modules = executable.hlo_modules()
    except jax.errors.JaxRuntimeError as error:
        raise ModuleUnreadable(str(error)) from error
    except AttributeError:
        raise InternalsMoved("runtime_executable().hlo_modules()") from None
    return tuple(bytes(module.as_serialized_hlo_module_proto()) for module in modules)


def lowered_devices(lowered: Lowered) -> tuple[Device, ...]:
    """The devices that a lowered program will be compiled for."""
    try:
        return tuple(attrgetter("_lowering._device_list")(lowered))
    except (AttributeError, TypeError):
        raise InternalsMoved("the devices of a jax.stages.Lowered") from None


def detected_process() -> Process | None:
    """This process, as ``jax.distributed.initialize()`` detects it; None where it detects none."""
    detect = private("jax._src.clusters:ClusterEnv.auto_detect_unset_distributed_params")
    given = os.environ.get("JAX_COORDINATOR_ADDRESS"), None, None
    ids = [int(each) for each in os.environ.get("JAX_LOCAL_DEVICE_IDS", "").split(",") if each]
    address, count, index, local = detect(*given, ids or None, None, _DETECTION_SECONDS)
    if None in (address, count, index):
        return None
    process = Process.parse(f"{address},{count},{index}")
    return replace(process, local_devices=tuple(local or ()))


def loaded_devices(executable: Any) -> tuple[Device, ...]:
    """The devices that an executable can run on here; none for a compile-only one."""
    return tuple(getattr(executable, "local_devices", tuple)())


def saved_residuals(function: Callable[..., Any], *arguments: Any) -> list[tuple[Any, str]]:
    """(abstract value, origin) of each value that autodiff of `function` would save.

    The public `jax.ad_checkpoint.print_saved_residuals` prints the same list.
    """
    saved = private("jax._src.ad_checkpoint:saved_residuals")
    return [(aval, str(origin)) for aval, origin in saved(function, *arguments)]


def is_on_host(aval: Any) -> bool:
    """Whether an abstract value is placed in host memory."""
    space = getattr(aval, "memory_space", None)
    return getattr(space, "name", "") == "Host"


def stablehlo_from_hlo(proto: bytes) -> bytes:
    """The StableHLO, as bytecode, of a serialized HloModuleProto.

    Raises ValueError for a module that has none, such as one with fusions.
    """
    translate = private("jaxlib._jax:mlir.hlo_to_stablehlo")
    try:
        return bytes(translate(proto))
    except (RuntimeError, ValueError) as error:
        raise WrongValue(
            "got a module that XLA cannot convert to StableHLO; wanted one from before "
            f"optimization; do this: pass the dump of before_optimizations, or fix {error}"
        ) from error


def parse_stablehlo(source: bytes) -> Any:
    """The `jaxlib.mlir.ir.Module` of StableHLO text or bytecode, portable artifacts too.

    Raises ValueError where the source is no StableHLO.
    """
    ir = private("jaxlib.mlir.ir")
    deserialize = private("jaxlib.mlir.dialects.stablehlo:deserialize_portable_artifact")
    with private("jax._src.interpreters.mlir:make_ir_context")() as context:
        try:
            # A portable artifact is parsed as well, because only this error names the fault.
            module = ir.Module.parse(source)
            is_portable = source.startswith(b"ML\xefR") and b"vhlo" in source
            return deserialize(context, source) if is_portable else module
        except (ir.MLIRError, ValueError) as error:
            words = " ".join(str(error).split())
            raise WrongValue(f"got no StableHLO; wanted a module; do this: fix {words}") from error


def place_on_host(module: Any, arguments: Sequence[bool], results: Sequence[bool]) -> None:
    """Mark the arguments and results of an `ir.Module`'s main function that are in host memory.

    Raises WrongValue where the function has others than these.
    """
    ir = private("jaxlib.mlir.ir")
    main = next(each for each in module.body.operations if "main" in str(each.name))
    counts = len(main.type.inputs), len(main.type.results)
    if counts != (len(arguments), len(results)):
        raise WrongValue(
            f"got an entry of {len(arguments)} arguments and {len(results)} results, {counts[0]} "
            f"and {counts[1]} after the conversion to StableHLO; wanted as many, to place them in "
            "host memory; do this: give the entry arrays in place of tuples"
        )
    host = {"mhlo.memory_kind": ir.StringAttr.get("pinned_host", module.context)}
    for name, places in (("arg_attrs", arguments), ("res_attrs", results)):
        old = main.attributes[name] if name in main.attributes else [{}] * len(places)
        marked = [
            ir.DictAttr.get(
                {each.name: each.attr for each in given} | (host if on_host else {}),
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

    device_list = private("jaxlib._jax:DeviceList")(tuple(devices))
    partitions = len(devices) // replicas
    compile_options = private("jax._src.compiler:get_compile_options")(
        num_replicas=replicas,
        num_partitions=partitions,
        device_assignment=np.array([device.id for device in devices]).reshape(replicas, partitions),
        env_options_overrides=dict(options),
    )
    build_options = compile_options.executable_build_options
    build_options.use_shardy_partitioner = "sdy." in str(module)
    client: Any = devices[0].client
    is_compile_only = isinstance(client, private("jaxlib._jax:CompileOnlyPyClient"))
    compile_for = client.compile if is_compile_only else client.compile_and_load
    return compile_for(module, executable_devices=device_list, compile_options=compile_options)


def compile_with_dump(
    compiled_with: Callable[[dict[str, str | bool]], _T],
) -> tuple[_T, bytes | None]:
    """What a compilation gives, and the serialized HloProto that it dumps.

    ``compiled_with`` gets the compile options that make XLA dump, or none where the compiler does
    not know them; it then dumps nothing. The options do not change the compiled program.
    """
    with tempfile.TemporaryDirectory(prefix="assay-dump-") as folder:
        # These win over an ``xla_dump_to`` in ``XLA_FLAGS``.
        options: dict[str, str | bool] = {
            "xla_dump_to": folder,
            "xla_dump_hlo_as_proto": True,
            "xla_dump_hlo_as_text": False,
        }
        try:
            compiled = compiled_with(options)
        except Exception as error:  # a plugin may raise any exception for unknown options
            if not any(words in str(error) for words in ("No such compile option", "xla_dump")):
                raise
            return compiled_with({}), None
        dumped = [path.read_bytes() for path in Path(folder).glob("*after_optimizations.hlo.pb")]
    # A compiler may compile smaller modules on its way, to measure kernels for example.
    return compiled, max(dumped, key=len, default=None)
