"""Writing files so that a reader sees the old one or the new one, never half of one."""

import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

_MOST = 120


def write_whole(path: Path, data: bytes) -> None:
    """Replace the file's content in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def readable(names: Iterable[str]) -> str:
    """Names as one part of a file's name; a digest beside it must tell them apart."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", "-".join(names)).lstrip(".-")[:_MOST]
