"""HLO files: the format is detected from the content, not from the file name."""

import gzip
import zlib
from collections import Counter
from dataclasses import dataclass
from enum import Enum

from assay.hlo.module import Module
from assay.hlo.schema import MalformedModule, split, wrap
from assay.targets import jax_internals
from assay.targets.hlo_text import device_counts, module_of_text

_GZIP = b"\x1f\x8b"
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
        "all-gather",
        "all-reduce",
        "all-to-all",
        "collective-broadcast",
        "collective-permute",
        "partition-id",
        "reduce-scatter",
        "replica-id",
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
class Source:
    """A module from before the compiler: StableHLO (text or bytecode), or an HloModuleProto.

    StableHLO itself says for how many devices it is; HLO does not, so ``replicas`` and
    ``partitions`` do.
    """

    module: bytes
    is_stablehlo: bool
    replicas: int = 1
    partitions: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HloFile:
    """The module of a file.

    ``hlo_proto`` is its serialized HloProto, b"" of StableHLO. ``scheduled`` tells that a compiler
    is done with it: it can be read as it stands. ``source`` is what a compiler would take in.
    """

    form: Form
    hlo_proto: bytes
    scheduled: bool
    source: Source

    @property
    def says_how_many_devices(self) -> bool:
        """Whether the file states the number of devices of its module. A proto does not."""
        return self.form is not Form.HLO_PROTO


def why_not_compiled_again(file: HloFile, platform: str) -> str:
    """What in a module no compiler takes in, and what to do; "" where a compiler may take it.

    Compilers take StableHLO, into which operations cannot be put that a compiler makes itself. A
    copy can be put into it for a CPU alone.
    """
    if file.form is Form.STABLEHLO:
        return ""
    found: Counter[str] = Counter()
    devices: Counter[str] = Counter()
    for computation in Module.from_proto(file.source.module).computations:
        for instruction in computation.instructions:
            opcode = instruction.opcode
            if opcode in _ACROSS_DEVICES and not file.says_how_many_devices:
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


def recognise(data: bytes, name: str) -> HloFile:
    """The module that ``data`` holds; ``name`` is what to call it.

    Raises:
        NoModule: it holds none, or only a part of one.
    """
    data = _unzipped(data, name)
    if not data.strip():
        raise NoModule(f"got {name}, which is empty, wanted {_WANTED}; write the dump again")
    if data.startswith(_BYTECODE):
        return _stablehlo(data, name)
    text = _text(data)
    if text is None:
        return _proto(data, name)
    return _stablehlo(data, name) if _looks_like_mlir(text) else _hlo_text(text, name)


def _unzipped(data: bytes, name: str) -> bytes:
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise NoModule(
            f"got {name}, a damaged or truncated gzip file ({error}), wanted a complete file; "
            "copy it again"
        ) from error


def _text(data: bytes) -> str | None:
    """``data`` decoded as text, or None if it is binary."""
    if b"\0" in data:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    control = sum(character < " " and character not in "\t\n\r\f" for character in text[:4096])
    return None if control else text


def _looks_like_mlir(text: str) -> bool:
    return text.lstrip().startswith(_MLIR_BEGINS) and "HloModule" not in text


def _stablehlo(data: bytes, name: str) -> HloFile:
    try:
        jax_internals.parse_stablehlo(data)
    except ValueError as error:
        raise NoModule(f"{name}: {error}") from error
    source = Source(module=data, is_stablehlo=True)
    return HloFile(form=Form.STABLEHLO, hlo_proto=b"", scheduled=False, source=source)


def _hlo_text(text: str, name: str) -> HloFile:
    try:
        module = module_of_text(text)
    except ValueError as error:
        raise NoModule(f"{name}: {error}\nwanted {_WANTED}") from error
    replicas, partitions = device_counts(text)
    return HloFile(
        form=Form.HLO_TEXT,
        hlo_proto=wrap(module),
        scheduled=_is_scheduled(module),
        source=Source(module=module, is_stablehlo=False, replicas=replicas, partitions=partitions),
    )


def _proto(data: bytes, name: str) -> HloFile:
    """An HloProto, an HloSnapshot around one, or a bare HloModuleProto."""
    for hlo_proto in (_wrapped(data), _wrapped(_first_field(data)), wrap(data)):
        module = _first_field(hlo_proto)
        if module and _is_module(module):
            source = Source(module=module, is_stablehlo=False)
            return HloFile(
                form=Form.HLO_PROTO,
                hlo_proto=hlo_proto,
                scheduled=_is_scheduled(module),
                source=source,
            )
    raise NoModule(
        f"got {name}, {len(data)} bytes that are not a complete module, wanted {_WANTED}; "
        "if it is truncated, copy it again; if it is another file of the dump, use the one that "
        "ends in after_optimizations.hlo.pb"
    )


def _wrapped(data: bytes) -> bytes:
    """The bytes themselves, if they are fields of an HloProto; else b""."""
    return data if _first_field(data) else b""


def _first_field(data: bytes) -> bytes:
    try:
        return split(data)[0]
    except MalformedModule:
        return b""


def _is_module(data: bytes) -> bool:
    try:
        return len(Module.from_proto(data).entry) > 0
    except (MalformedModule, KeyError, LookupError):
        return False


def _is_scheduled(module: bytes) -> bool:
    return bool(Module.from_proto(module).scheduled_ids)
