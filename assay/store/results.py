"""A run's folder under ``results/``, and the link to the newest one."""

from pathlib import Path

import msgspec

from assay.model.invocation import USUAL, Invocation
from assay.store.files import write_whole

LATEST = "latest"
INVOCATION = "invocation.json"


def write(directory: Path, name: str, data: bytes) -> Path:
    """Write one of the files that a run leaves beside its records."""
    path = directory / name
    write_whole(path, data)
    return path


def write_invocation(directory: Path, invocation: Invocation) -> Path:
    """Write how the run was asked for, and whether it came to its end."""
    return write(directory, INVOCATION, msgspec.json.encode(invocation))


def invocation_of(directory: Path) -> Invocation:
    """What ``write_invocation`` wrote; the usual where that cannot be read."""
    try:
        return msgspec.json.decode((directory / INVOCATION).read_bytes(), type=Invocation)
    except (OSError, msgspec.MsgspecError):
        return USUAL


def point_latest(directory: Path) -> None:
    """Make ``latest`` beside the run's folder point to it."""
    link = directory.parent / LATEST
    fresh = directory.parent / f".{LATEST}-{directory.name}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(directory.name)
    fresh.replace(link)
