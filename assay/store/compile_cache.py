"""Compiled programs of earlier runs, in the user's cache folder."""

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from assay.model.evidence import Memory
from assay.model.summary import ModuleSummary
from assay.store.files import decode_msgpack, digest_of, read_file, write_whole

_PACKAGE = Path(__file__).parents[1]
MOST_PROGRAM_BYTES = 1 << 30
_DIGEST_BYTES = hashlib.sha256().digest_size
# To look at 20,000 files takes 0.3 s, as long as to compile a small program. So one save of 16
# shrinks the folder (keys are hexadecimal digests), as does a program of 2 MiB. 128 MiB are then
# free.
_SHRINKING_KEYS = "0"
_LARGE_SHARE = 1 / 512
_KEPT_SHARE = 7 / 8
# Settings of the compilers, and of the frameworks that call them.
_FLAGS = ("XLA_", "LIBTPU_", "TPU_", "JAX_", "CUDA_")
_SWITCHES = ("ASSAY_NO_CACHE", "CI")


class CompiledProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled program: its memory, what was read of its module, and the gzipped HloProto."""

    memory: Memory
    module: ModuleSummary
    hlo_gz: bytes


@dataclass(frozen=True, slots=True)
class CompileCache:
    """Compiled programs in a folder of at most ``most_bytes``. Removes the least recently used."""

    folder: Path
    most_bytes: int = MOST_PROGRAM_BYTES

    def load(self, key: str) -> CompiledProgram | None:
        """The program stored under the key.

        None if there is none, its file is damaged or cannot be touched, or an Assay with another
        format wrote it.
        """
        path = self.folder / key
        try:
            data = read_file(path)
            os.utime(path)
        except OSError:
            return None
        payload = data[_DIGEST_BYTES:]
        if _with_digest(payload) != data:
            return None
        try:
            return decode_msgpack(payload, CompiledProgram)
        except msgspec.MsgspecError:
            return None

    def save(self, key: str, program: CompiledProgram) -> None:
        """Store the program, if the folder is writable."""
        with suppress(OSError):
            data = _with_digest(msgspec.msgpack.encode(program))
            write_whole(self.folder / key, data)
            if key.startswith(_SHRINKING_KEYS) or len(data) > self.most_bytes * _LARGE_SHARE:
                self._shrink()

    def _shrink(self) -> None:
        """Remove the least recently used programs, so that those until the next time fit."""
        with os.scandir(self.folder) as entries:
            known = [(entry.stat(), entry.path) for entry in entries]
        surplus = sum(stat.st_size for stat, _ in known) - self.most_bytes * _KEPT_SHARE
        for stat, path in sorted(known, key=lambda each: each[0].st_mtime):
            if surplus <= 0:
                return
            Path(path).unlink(missing_ok=True)
            surplus -= stat.st_size


def _with_digest(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest() + payload


def usual_folder(environment: Mapping[str, str]) -> Path | None:
    """The user's cache folder; None in CI or with ``ASSAY_NO_CACHE``."""
    if any(environment.get(name, "") not in {"", "0", "false"} for name in _SWITCHES):
        return None
    home = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "assay" / "compiled"


def key_of(program: str, target: str, toolchain: Mapping[str, str]) -> str:
    """The name of a program's file: a digest of all that determines its measurements.

    ``program`` is the lowered module with its devices and options. The digest includes the compiler
    settings in the environment, the number of processors and Assay's own source.
    """
    parts = [
        program,
        target,
        *(f"{name}={version}" for name, version in sorted(toolchain.items())),
        *(f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.startswith(_FLAGS)),
        str(os.cpu_count()),
        _own_digest(),
    ]
    encoded = [part.encode(errors="surrogateescape") for part in parts]
    return hashlib.sha256(msgspec.msgpack.encode(encoded)).hexdigest()


@cache
def _own_digest() -> str:
    """Of Assay's source and data: a change to them invalidates the cache."""
    return digest_of(_PACKAGE)
