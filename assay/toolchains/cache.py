"""The user's cache folder: its environments, probe results and programs, and their limits."""

import contextlib
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

MOST_BYTES: Final = MappingProxyType(
    {"toolchains": 40 << 30, "probes": 2 << 30, "compiled": 1 << 30, "baselines": 1 << 30}
)
"""The limit of each folder: about 60 environments (0.5 to 1.2 GB each) and 10,000 results.

Programs are kept within theirs by ``assay.store.compile_cache``.
"""
_IN_USE_SECONDS: Final = 3600.0  # longer than a measurement takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One environment, probe result or program."""

    folder: Path
    nbytes: int
    last_used: float


def root() -> Path:
    """``$XDG_CACHE_HOME/assay``, or in ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".cache"
    return base / "assay"


def entries(kind: str) -> tuple[Entry, ...]:
    """The entries of one kind, the least recently used first."""
    found = []
    for folder in root().joinpath(kind).glob("[!.]*"):
        with contextlib.suppress(FileNotFoundError):  # Another process may remove it meanwhile.
            places = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
            if folder.is_file():  # A program.
                places = [folder]
            nbytes = sum(os.lstat(each).st_size for each in places)
            found.append(Entry(folder=folder, nbytes=nbytes, last_used=folder.stat().st_mtime))
    return tuple(sorted(found, key=lambda entry: entry.last_used))


def shrink(kind: str, most_bytes: int | None = None) -> tuple[Entry, ...]:
    """Remove the least recently used entries above the limit. Returns what was removed.

    Entries of the last hour stay, because a measurement may use them, unless the limit is 0.
    """
    known = entries(kind)
    surplus = sum(entry.nbytes for entry in known) - (
        MOST_BYTES[kind] if most_bytes is None else most_bytes
    )
    removed = []
    for entry in known:
        if surplus <= 0 or (most_bytes != 0 and time.time() - entry.last_used < _IN_USE_SECONDS):
            break
        if entry.folder.is_file():
            entry.folder.unlink(missing_ok=True)
        shutil.rmtree(entry.folder, ignore_errors=True)
        surplus -= entry.nbytes
        removed.append(entry)
    return tuple(removed)
