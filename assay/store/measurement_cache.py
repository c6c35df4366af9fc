"""Measurements of a run, each taken once: one JSON file for each key, kept also if unfinished."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec
from filelock import FileLock

from assay.model.rerun import Rerun
from assay.model.timing import Times
from assay.store.files import readable, write_whole

_UNFINISHED = ".unfinished.json"
_T = TypeVar("_T")


class MeasurementCacheError(ValueError):
    """A file of measurements that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementCache(Generic[_T]):
    """The measurements of one kind in a run's folder."""

    folder: str
    kind: type[_T]

    def once(
        self, directory: Path, key: Sequence[str], take: Callable[[Callable[[_T], None]], _T]
    ) -> _T:
        """What is measured under the key, now if no process did before.

        What ``take`` keeps on the way is on disk at once, so that a run that is interrupted keeps
        what it measured.

        Raises:
            MeasurementCacheError: the file is damaged.
        """
        path = self._path(directory, key)
        if path.exists():
            return self.load(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(_UNFINISHED)
        with FileLock(path.with_suffix(".lock")):
            if path.exists():
                return self.load(path)
            taken = take(lambda so_far: write_whole(unfinished, msgspec.json.encode(so_far)))
            write_whole(path, msgspec.json.encode(taken))
            unfinished.unlink(missing_ok=True)
            return taken

    def load(self, path: Path) -> _T:
        """What is in a file that ``once`` wrote.

        Raises:
            MeasurementCacheError: the file is damaged or gone.
        """
        try:
            return msgspec.json.decode(path.read_bytes(), type=self.kind)
        except (OSError, msgspec.MsgspecError) as error:
            raise MeasurementCacheError(
                f"got a file of {self.folder} that cannot be read ({path}: {error}), wanted what a "
                "run wrote; delete it and run again"
            ) from None

    def load_all(self, directory: Path) -> tuple[tuple[_T, ...], tuple[MeasurementCacheError, ...]]:
        """All of a run's folder by file name, also unfinished ones, and what cannot be read."""
        found: list[_T] = []
        damaged: list[MeasurementCacheError] = []
        for path in _files(directory / self.folder):
            try:
                found.append(self.load(path))
            except MeasurementCacheError as error:
                damaged.append(error)
        return tuple(found), tuple(damaged)

    def _path(self, directory: Path, key: Sequence[str]) -> Path:
        digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:16]
        return directory / self.folder / f"{readable(key[1:-1])}-{digest}.json"


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.glob("*.json")):
        finished = path.with_name(path.name.removesuffix(_UNFINISHED) + ".json")
        if not path.name.endswith(_UNFINISHED) or not finished.exists():
            yield path


RERUNS: Final = MeasurementCache(folder="reruns", kind=Rerun)


TIMES: Final = MeasurementCache(folder="times", kind=Times)
