"""Measurements of a run: the first process that needs one takes it, once per program and target.

Times and growing loops need the machine exclusively and are stored in separate folders.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec
from filelock import FileLock

from assay.model.evidence import Evidence, Tensor
from assay.model.rerun import Rerun
from assay.model.timing import Times
from assay.store.files import decode_msgpack, read_file, read_json, readable, write_whole

_UNFINISHED = ".unfinished.json"
_T = TypeVar("_T")


class MeasurementCacheError(ValueError):
    """A file of measurements that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementCache(Generic[_T]):
    """The measurements of one kind in a run's folder.

    A key is a suite, a workload, variants, a target and, ``with_question``, what is asked of them.
    """

    folder: str
    kind: type[_T]
    with_question: bool = False

    def once(
        self, directory: Path, key: Sequence[str], take: Callable[[Callable[[_T], None]], _T]
    ) -> _T:
        """The measurement of the key, taken now if no process took it before.

        Other processes that ask for the same measurement wait for it. ``take`` gets a function
        that stores an unfinished measurement, which remains if the run is interrupted. Raises
        MeasurementCacheError if the file is damaged.
        """
        path = self.path(directory, key)
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
        """The measurement in a file. Raises MeasurementCacheError if it is damaged or missing."""
        wanted = "what a run wrote; delete it and run again"
        return read_json(path, self.kind, MeasurementCacheError, wanted)

    def load_all(self, directory: Path) -> tuple[tuple[_T, ...], tuple[MeasurementCacheError, ...]]:
        """All of a run's measurements by file name, also unfinished ones, and damaged files."""
        found: list[_T] = []
        damaged: list[MeasurementCacheError] = []
        for path in sorted((directory / self.folder).glob("*.json")):
            finished = path.with_name(path.name.removesuffix(_UNFINISHED) + ".json")
            if path.name.endswith(_UNFINISHED) and finished.exists():
                continue
            try:
                found.append(self.load(path))
            except MeasurementCacheError as error:
                damaged.append(error)
        return tuple(found), tuple(damaged)

    def path(self, directory: Path, key: Sequence[str]) -> Path:
        """The file of the key."""
        digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:16]
        name = readable(key[1:-1] if self.with_question else key[1:])
        return directory / self.folder / f"{name}-{digest}.json"


PROGRAMS: Final = MeasurementCache(folder="evidence", kind=Evidence)
GROWTH: Final = MeasurementCache(folder="growth", kind=Evidence)
TIMES: Final = MeasurementCache(folder="times", kind=Times, with_question=True)
RERUNS: Final = MeasurementCache(folder="reruns", kind=Rerun, with_question=True)

KEPT_HLO = "hlo"
"""The folder for what ``keep_to_compare`` copies."""
_HLO = ".hlo.pb.gz"
_VALUES = ".values.msgpack"

Key = tuple[str, str, str, str]
"""(suite, workload, variant, target)."""


def once(
    directory: Path,
    key: Key,
    observe: Callable[[], Evidence],
    cache: MeasurementCache[Evidence] = PROGRAMS,
) -> Evidence:
    """The evidence of a program, observed now if no process observed it before.

    Its HLO, the graphs of its steps and its values become separate files, whose names end in
    ``.hlo.pb.gz``, ``.graph0.hlo.pb`` and ``.values.msgpack``. Raises MeasurementCacheError if the
    file is damaged or of another program.
    """
    path = cache.path(directory, key)
    evidence = cache.once(directory, key, lambda _: _in_files(path, observe()))
    if evidence.key != key:
        raise MeasurementCacheError(
            f"got the evidence of {evidence.key} in {path}, wanted that of {key}"
        )
    if evidence.values is None:
        return evidence
    values = path.with_suffix(_VALUES)
    if not values.exists():  # The run ended, and goes on with --assay-resume.
        path.unlink(missing_ok=True)
        return once(directory, key, observe, cache)
    return replace(evidence, values=values_in(values))


def values_in(path: Path) -> tuple[Tensor, ...]:
    """The values in a file of a run. Raises MeasurementCacheError if it is damaged or missing."""
    found: tuple[Tensor, ...]
    try:
        found = decode_msgpack(read_file(path), tuple[Tensor, ...])
    except (OSError, msgspec.MsgspecError) as error:
        raise MeasurementCacheError(
            f"got {path} ({error}), wanted the values that a run wrote; delete it and run again"
        ) from None
    return found


def _in_files(path: Path, evidence: Evidence) -> Evidence:
    """The evidence without what becomes files of its own."""
    if evidence.values is not None:
        write_whole(path.with_suffix(_VALUES), msgspec.msgpack.encode(evidence.values))
        evidence = replace(evidence, values=())  # They are in the file.
    if evidence.hlo_gz:
        write_whole(path.with_suffix(_HLO), evidence.hlo_gz)
        evidence = replace(evidence, hlo_gz=b"")
    if evidence.steps is None:
        return evidence
    for number, module in enumerate(evidence.steps.modules):
        write_whole(path.with_suffix(f".graph{number}.hlo.pb"), module)
    return replace(evidence, steps=replace(evidence.steps, modules=()))


def load_programs(
    directory: Path,
) -> tuple[tuple[Evidence, ...], tuple[MeasurementCacheError, ...]]:
    """All evidence of a run, growing loops last, and damaged files."""
    (programs, damaged), (growth, unread) = (
        cache.load_all(directory) for cache in (PROGRAMS, GROWTH)
    )
    return (*programs, *growth), (*damaged, *unread)


def find(directory: Path, key: Key) -> Evidence | None:
    """The evidence of a program, if it was observed in this run."""
    path = PROGRAMS.path(directory, key)
    return PROGRAMS.load(path) if path.exists() else None


def hlo_of(directory: Path, key: Key) -> bytes:
    """The gzipped HLO of a program that was observed in this run, empty if there is none."""
    path = PROGRAMS.path(directory, key).with_suffix(_HLO)
    return read_file(path) if path.exists() else b""


def keep_to_compare(directory: Path, keys: Sequence[Key], before: bytes = b"") -> str:
    """Copy the HLO of a program, and of its references, to a folder that ``drop_large`` leaves.

    ``before`` is the HLO of the program that had the stored number, if it is known. Returns advice
    on how to compare them, empty if the program has no HLO.
    """
    mine, *others = [_copied_hlo(directory, key) for key in keys]
    if mine is None:
        return ""
    if before:
        others.insert(0, mine.with_name(f"baseline-{mine.name}"))
        write_whole(mine.with_name(f"baseline-{mine.name}"), before)
    found = [str(path) for path in others if path is not None]
    if found:
        return f"compare the two programs: assay inspect {mine} --diff {found[0]}"
    return f"look at the program: assay inspect {mine}"


def _copied_hlo(directory: Path, key: Key) -> Path | None:
    copy = directory / KEPT_HLO / PROGRAMS.path(directory, key).with_suffix(_HLO).name
    if hlo_gz := hlo_of(directory, key):
        write_whole(copy, hlo_gz)
    return copy if copy.exists() else None


def drop_damaged(directory: Path) -> None:
    """Delete the measurements that cannot be read, so that they are taken again."""
    for cache in (PROGRAMS, GROWTH, TIMES, RERUNS):
        for path in (directory / cache.folder).glob("*.json"):
            try:
                cache.load(path)
            except MeasurementCacheError:
                path.unlink()


def drop_large(directory: Path) -> None:
    """Delete the values and the HLO; copies that ``keep_to_compare`` made stay."""
    for suffix in (_HLO, _VALUES):
        for path in (directory / PROGRAMS.folder).glob(f"*{suffix}"):
            path.unlink()


def load_all(directory: Path, cache: MeasurementCache[Evidence] = PROGRAMS) -> tuple[Evidence, ...]:
    """All evidence of a run. Raises MeasurementCacheError if a file is damaged."""
    found, damaged = cache.load_all(directory)
    if damaged:
        raise damaged[0]
    return found
