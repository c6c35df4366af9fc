"""A run's folder under ``results/``, and the link to the newest one."""

from pathlib import Path

from assay.store.files import write_whole

LATEST = "latest"


def write(directory: Path, name: str, data: bytes) -> Path:
    """Write one of the files that a run leaves beside its records."""
    path = directory / name
    write_whole(path, data)
    return path


def point_latest(directory: Path) -> None:
    """Make ``latest`` beside the run's folder point to it."""
    link = directory.parent / LATEST
    fresh = directory.parent / f".{LATEST}-{directory.name}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(directory.name, target_is_directory=True)
    fresh.replace(link)
