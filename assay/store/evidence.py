"""Measurements of a run: the first process that needs one takes it, once per program and target.

Times and growing loops need the machine exclusively and are stored in separate folders.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec
from filelock import FileLock

from assay.model.evidence import Evidence
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
        """The measurement of the key. It is made now if no process made it before.

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


FOLDER, GROWTH = "evidence", "growth"
KEPT_HLO = "hlo"
"""The folder of the programs that failed a claim on bytes, and of those they are compared with."""
_HLO = ".hlo.pb.gz"

Key = tuple[str, str, str, str]


def once(
    directory: Path,
    key: Key,
    observe: Callable[[], Evidence],
    folder: str = FOLDER,
) -> Evidence:
    """The evidence of (suite, workload, variant, target), observed now if no process did before.

    Other processes that ask for the same evidence meanwhile wait for it.

    Raises:
        MeasurementCacheError: the file is damaged, or holds the evidence of another program.
    """
    path = _path(directory / folder, key)
    if path.exists():
        return _of(key, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if path.exists():
            return _of(key, path)
        evidence = _without_modules(path, observe())
        write_whole(path, msgspec.json.encode(evidence))
        return evidence


def _of(key: tuple[str, str, str, str], path: Path) -> Evidence:
    evidence = load(path)
    if evidence.key != key:
        raise MeasurementCacheError(
            f"got the evidence of {evidence.key} in {path}, wanted that of {key}"
        )
    return evidence


def _without_modules(path: Path, evidence: Evidence) -> Evidence:
    """The evidence, after writing its HLO and the graphs of its steps to the same folder.

    The names end in ``.hlo.pb.gz`` and ``.graph0.hlo.pb``.
    """
    if evidence.hlo_gz:
        write_whole(path.with_suffix(_HLO), evidence.hlo_gz)
        evidence = replace(evidence, hlo_gz=b"")
    if evidence.steps is None:
        return evidence
    for number, module in enumerate(evidence.steps.modules):
        write_whole(path.with_suffix(f".graph{number}.hlo.pb"), module)
    return replace(evidence, steps=replace(evidence.steps, modules=()))


def load(path: Path) -> Evidence:
    """The evidence in a file that ``once`` wrote.

    Raises:
        MeasurementCacheError: the file is damaged.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Evidence)
    except msgspec.MsgspecError as error:
        raise MeasurementCacheError(
            f"got a file of evidence that cannot be read ({path}: {error}), wanted what a run "
            "wrote; delete it and run again"
        ) from None


def find(directory: Path, key: Key) -> Evidence | None:
    """The evidence of (suite, workload, variant, target), if it was observed in this run."""
    path = _path(directory / FOLDER, key)
    return load(path) if path.exists() else None


def keep_to_compare(directory: Path, keys: Sequence[Key]) -> str:
    """Keep the HLO of a program, and of those it is compared with, where the run's end leaves it.

    Returns what to do with it, empty if the program has none.
    """
    kept = [_kept(directory, key) for key in keys]
    if kept[0] is None:
        return ""
    others = [str(path) for path in kept[1:] if path is not None]
    command = f"assay inspect {kept[0]} --diff {others[0] if others else 'OTHER'}"
    if others:
        return f"compare the two programs: {command}"
    return f"baselines store no HLO; compare with that of an earlier run or toolchain: {command}"


def _kept(directory: Path, key: Key) -> Path | None:
    path = _path(directory / FOLDER, key).with_suffix(_HLO)
    kept = directory / KEPT_HLO / path.name
    if path.exists():
        write_whole(kept, path.read_bytes())
    return kept if kept.exists() else None


def drop_hlo(directory: Path) -> None:
    """Delete the HLO of all programs that no failed claim kept."""
    for path in (directory / FOLDER).glob(f"*{_HLO}"):
        path.unlink()


def load_all(directory: Path, folder: str = FOLDER) -> tuple[Evidence, ...]:
    """All evidence of a run's folder, by file name."""
    return tuple(load(path) for path in sorted((directory / folder).glob("*.json")))


def _path(folder: Path, key: Key) -> Path:
    digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:16]
    return folder / f"{readable(key[1:])}-{digest}.json"
