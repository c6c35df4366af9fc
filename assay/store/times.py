"""A run's times: taken once for each pair and question, and kept as far as they were taken."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from filelock import FileLock

from assay.model.timing import Keep, Times
from assay.store.files import write_whole

FOLDER = "times"
_UNFINISHED = ".unfinished.json"


class TimesError(ValueError):
    """A file of times that cannot be read."""


def once(directory: Path, key: Sequence[str], take: Callable[[Keep], Times]) -> Times:
    """The times of a pair, taken now if no process did before.

    What ``take`` keeps on the way is on disk at once, so that a run that is interrupted keeps what
    it measured.

    Raises:
        TimesError: the file is damaged.
    """
    path = _path(directory, key)
    if path.exists():
        return load(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(_UNFINISHED)
    with FileLock(path.with_suffix(".lock")):
        if path.exists():
            return load(path)
        times = take(lambda so_far: write_whole(unfinished, msgspec.json.encode(so_far)))
        write_whole(path, msgspec.json.encode(times))
        unfinished.unlink(missing_ok=True)
        return times


def load(path: Path) -> Times:
    """The times in a file that ``once`` wrote.

    Raises:
        TimesError: the file is damaged or gone.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Times)
    except (OSError, msgspec.MsgspecError) as error:
        raise TimesError(
            f"got a file of times that cannot be read ({path}: {error}), wanted what a run wrote; "
            "delete it and run again"
        ) from None


def load_all(directory: Path) -> tuple[tuple[Times, ...], tuple[TimesError, ...]]:
    """All times of a run's folder by file name, also unfinished ones, and what cannot be read."""
    found: list[Times] = []
    damaged: list[TimesError] = []
    for path in _files(directory / FOLDER):
        try:
            found.append(load(path))
        except TimesError as error:
            damaged.append(error)
    return tuple(found), tuple(damaged)


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.glob("*.json")):
        finished = path.with_name(path.name.removesuffix(_UNFINISHED) + ".json")
        if not path.name.endswith(_UNFINISHED) or not finished.exists():
            yield path


def _path(directory: Path, key: Sequence[str]) -> Path:
    digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:16]
    readable = "-".join(key[1:-1]).replace(":", "-").replace("/", "-")
    return directory / FOLDER / f"{readable}-{digest}.json"
