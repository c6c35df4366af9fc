"""HLO as a framework: modules from files, recognised by their content, compiled for a target."""

import gzip
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from io import BytesIO
from typing import Any

from assay.frameworks.framework import Compiled, Framework, check_placement
from assay.hlo.module import Module
from assay.hlo.schema import MalformedModule, split, wrap
from assay.hlo.structure import InconsistentModule
from assay.model.blame import WrongValue
from assay.model.module import Shape
from assay.model.units import format_bytes
from assay.model.workload import Program
from assay.targets import jax_internals
from assay.targets.jax_internals import compile_with_dump, device_counts, module_of_text

_GZIP = b"\x1f\x8b"
MOST_BYTES = 2 << 30
"""Protobuf reads no larger message."""
_CONTROL = frozenset(range(32)) - frozenset(b"\t\n\r\f")
_BYTECODE = b"ML\xefR"
_MLIR_BEGINS = ("module", "builtin.module", "#", "!", "//")
_WANTED = (
    "HLO text, a serialized HloProto or HloModuleProto (.hlo.pb), StableHLO text or bytecode, "
    "or one of these under gzip"
)
_MADE_BY_COMPILERS = frozenset({"add-dependency", "async-update", "bitcast", "domain", "fusion"})
_PHASES = ("-start", "-done")
_LIBRARY_CALLS = ("__cublas$", "__cudnn$", "__onednn$", "AllocateBuffer")
_ACROSS_DEVICES = frozenset(
    {
        *("all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute"),
        *("partition-id", "reduce-scatter", "replica-id"),
    }
)


class NoModule(ValueError):
    """The file holds no module. The message names its format, the accepted ones and the remedy."""


class Form(Enum):
    """How a file holds its module."""

    HLO_TEXT = "HLO text"
    HLO_PROTO = "an HLO proto"
    STABLEHLO = "StableHLO"


@dataclass(frozen=True, slots=True, kw_only=True)
class HloFile:
    """The module of a file: StableHLO (text or bytecode), or a serialized HloModuleProto.

    StableHLO itself says for how many devices it is. For HLO text, ``replicas`` and ``partitions``
    say so; a proto does not record it. A ``buffer_assignment`` is b"" if the file has none. A
    ``scheduled`` module has been compiled, and can be read without compiling it.
    """

    form: Form
    module: bytes
    buffer_assignment: bytes = b""
    replicas: int = 1
    partitions: int = 1
    scheduled: bool = False


def why_not_compiled_again(file: HloFile, platform: str) -> str:
    """What in a module no compiler accepts, and what to do; "" where a compiler may accept it.

    Modules are compiled as StableHLO, which cannot express operations that only compilers create.
    A copy is accepted for a CPU only.
    """
    if file.form is Form.STABLEHLO:
        return ""
    found: Counter[str] = Counter()
    devices: Counter[str] = Counter()
    for computation in Module.from_proto(file.module).computations:
        for instruction in computation.instructions:
            opcode = instruction.opcode
            if opcode in _ACROSS_DEVICES and file.form is Form.HLO_PROTO:
                devices[opcode] += 1
            elif opcode == "custom-call":
                target = instruction.custom_call_target
                found[target] += target.startswith(_LIBRARY_CALLS)
            else:
                is_own = opcode in _MADE_BY_COMPILERS or opcode.endswith(_PHASES)
                found[opcode] += is_own or (opcode == "copy" and platform != "cpu")
    if found := +found:
        return (
            f"operations that a compiler creates and does not accept ({_listed(found)}), wanted a "
            "module from before its passes: use the file of the dump that ends in "
            "before_optimizations.hlo.pb, or StableHLO; to inspect this file, omit --compile"
        )
    if devices:
        return (
            f"operations across devices ({_listed(devices)}) in a proto, which does not record "
            "the number of devices, wanted HLO text, whose first line does; dump it with "
            "--xla_dump_hlo_as_text"
        )
    return ""


def _listed(found: Counter[str]) -> str:
    return ", ".join(f"{count} × {opcode}" for opcode, count in found.most_common())


def recognise(data: bytes, name: str, most_bytes: int = MOST_BYTES) -> HloFile:
    """The module that ``data`` holds; errors call the file ``name``.

    A gzip file may hold at most ``most_bytes``; the size of other ``data`` is not checked. XLA's
    parsers of text and bytecode end the process on some input: see `assay.isolate`.

    Raises:
        NoModule: it holds none, or only a part of one.
    """
    if data.startswith(_GZIP):
        try:
            data = _decompressed(data, most_bytes)
        except (OSError, EOFError, zlib.error) as error:
            raise NoModule(
                f"got {name}, a damaged or truncated gzip file ({error}), wanted a complete file; "
                "copy it again"
            ) from error
    if not data.strip():
        raise NoModule(f"got {name}, which is empty, wanted {_WANTED}; write the dump again")
    text = _text(data)
    is_mlir = text.lstrip().startswith(_MLIR_BEGINS) and "HloModule" not in text
    if is_mlir or data.startswith(_BYTECODE):
        try:
            jax_internals.parse_stablehlo(data)
        except ValueError as error:
            raise NoModule(f"{name}: {error}") from error
        return HloFile(form=Form.STABLEHLO, module=data)
    if not text:
        return _proto(data, name)
    try:
        module = module_of_text(text)
    except ValueError as error:
        raise NoModule(f"{name}: {error}\nwanted {_WANTED}") from error
    replicas, partitions = device_counts(text)
    return HloFile(
        form=Form.HLO_TEXT,
        module=module,
        replicas=replicas,
        partitions=partitions,
        scheduled=bool(Module.from_proto(module).scheduled_ids),
    )


def _decompressed(data: bytes, most_bytes: int) -> bytes:
    with gzip.open(BytesIO(data)) as file:
        found = file.read(most_bytes + 1)
    if len(found) > most_bytes:
        raise OSError(f"more than {format_bytes(most_bytes)} after decompression")
    return found


def _text(data: bytes) -> str:
    """``data`` decoded as text; empty if it is binary."""
    try:
        return "" if _CONTROL & set(data[:4096]) else data.decode()
    except UnicodeDecodeError:
        return ""


def _proto(data: bytes, name: str) -> HloFile:
    """An HloProto, an HloSnapshot around one, or a bare HloModuleProto."""
    for hlo_proto in (data, _split(data)[0], wrap(data)):
        module, buffer_assignment = _split(hlo_proto)
        try:
            read = Module.from_proto(module)
        except InconsistentModule as error:
            raise NoModule(f"{name}: {error}") from error
        except MalformedModule:
            continue
        return HloFile(
            form=Form.HLO_PROTO,
            module=module,
            buffer_assignment=buffer_assignment,
            scheduled=bool(read.scheduled_ids),
        )
    raise NoModule(
        f"got {name}, {len(data)} bytes that are not a complete module, wanted {_WANTED}; "
        "if it is truncated, copy it again; if it is another file of the dump, use the one that "
        "ends in after_optimizations.hlo.pb"
    )


def _split(data: bytes) -> tuple[bytes, bytes]:
    """The first two fields, which are the module and the buffer assignment of an HloProto."""
    try:
        return split(data)
    except MalformedModule:
        return b"", b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A module in MLIR's own representation, and the devices that it is compiled for."""

    module: Any  # ``jaxlib.mlir.ir.Module`` has no type that a checker could know.
    replicas: int
    devices: tuple[Any, ...]


class HloFramework(Framework):
    """The stages of a module: it is lowered already, and nothing runs it."""

    name = "hlo"

    def trace(self, program: Program) -> Parsed:
        """What ``program.function`` parses, see ``program_of``."""
        assert program.function is not None
        parsed: Parsed = program.function(*program.arguments)
        return parsed

    def lower(self, traced: Parsed) -> Parsed:
        """A module is lowered already."""
        return traced

    def compile(self, lowered: Parsed) -> Compiled:
        """Compile for the devices that the module was parsed for."""
        return compile_parsed(lowered, self.devices)


def program_of(file: HloFile, devices: Sequence[Any]) -> Program:
    """The program of a module: its function parses, and nothing can run it."""
    return Program(function=parse, arguments=(file, devices))


def parse(file: HloFile, devices: Sequence[Any]) -> Parsed:
    """The module, ready to be compiled.

    Raises:
        WrongValue: no compiler accepts it, or it is for more devices than there are.
    """
    if file.form is Form.STABLEHLO:
        module = jax_internals.parse_stablehlo(file.module)
    else:
        module = jax_internals.parse_stablehlo(jax_internals.stablehlo_from_hlo(file.module))
        if devices[0].platform != "cpu":
            _keep_on_host(module, file.module)
    replicas = _count(module, "mhlo.num_replicas") or file.replicas
    wanted = replicas * (_count(module, "mhlo.num_partitions") or file.partitions)
    if wanted > len(devices):
        raise WrongValue(
            f"got a module for {wanted} devices and a target of {len(devices)}; wanted a target "
            "with as many; do this: name a larger topology, such as gpu-h100:8 or tpu-v5e:2x4"
        )
    return Parsed(module=module, replicas=replicas, devices=tuple(devices[:wanted]))


def _count(module: Any, attribute: str) -> int:
    attributes = module.operation.attributes
    return int(attributes[attribute].value) if attribute in attributes else 0


def _keep_on_host(module: Any, hlo: bytes) -> None:
    """Place the entry's arguments and results as the HLO did: the conversion drops ``S(5)``.

    A dump from before the passes has it in the entry's layout only.
    """
    found = Module.from_proto(hlo)
    given, made = found.interface
    parameters = sorted(
        found.entry.of(frozenset({"parameter"})), key=lambda parameter: parameter.parameter_number
    )
    arguments = [
        is_on_host
        for parameter, shape in zip(parameters, given, strict=True)
        for is_on_host in _on_host(parameter.shape, shape)
    ]
    results = _on_host(found.entry.root.shape, made)
    if any(arguments) or any(results):
        jax_internals.place_on_host(module, arguments, results)


def _on_host(shape: Shape, placed: Shape) -> list[bool]:
    """For each array of the shape, whether it is on the host by its own layout or the entry's."""
    pairs = zip(shape.leaves(), placed.leaves(), strict=True)
    return [leaf.on_host or other.on_host for leaf, other in pairs]


def compile_parsed(parsed: Parsed, target: Sequence[Any]) -> Compiled:
    """The executable for the target's devices. Raises what the compiler raises."""
    devices = parsed.devices
    executable, dumped = compile_with_dump(
        lambda options: jax_internals.compile_stablehlo(
            parsed.module, devices, options, parsed.replicas
        )
    )
    check_placement({*devices, *jax_internals.loaded_devices(executable)}, target)
    return Compiled(executable, dumped)
