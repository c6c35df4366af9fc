"""The folder of baselines: stored numbers, and the verdicts that a run must judge.

Files are sorted and carry no time stamps: writing the same values twice gives the same bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated

import msgspec

from assay.judge.baseline import age
from assay.model.verdict import BaselineNumber, Count, Coverage, Slot
from assay.model.workload import Level
from assay.store.files import read_json, write_json

SCHEMA = 1
Key = tuple[str, str, str]
"""(workload, variant, claim)."""
COVERAGE = "coverage.json"
_SLASHES = 2
_WANTED = "what --assay-update-baselines writes; restore it from version control"


class BaselineError(ValueError):
    """A file of the folder that cannot be read."""


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    toolchain: dict[str, str]
    value: int | float
    machine: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``<target>/<suite>.json``; the keys of ``baselines`` are ``workload/variant/claim``."""

    schema: int
    suite: str
    target: str
    baselines: dict[str, list[_Entry]]


@dataclass(frozen=True, slots=True)
class Baseline:
    """All baselines of one suite on one target."""

    suite: str
    target: str
    baselines: Mapping[Key, tuple[BaselineNumber, ...]] = field(default_factory=dict)

    def numbers(self, key: Key) -> tuple[BaselineNumber, ...]:
        """The numbers stored under the key, one per toolchain and machine."""
        return self.baselines.get(key, ())

    def of_variant(self, workload: str, variant: str) -> tuple[BaselineNumber, ...]:
        """All numbers stored for a variant, of every claim."""
        mine = (found for key, found in self.baselines.items() if key[:2] == (workload, variant))
        return tuple(chain.from_iterable(mine))

    def without(self, key: Key) -> "Baseline":
        """The same without a key."""
        rest = {each: found for each, found in self.baselines.items() if each != key}
        return Baseline(self.suite, self.target, rest)

    def storing(self, key: Key, number: BaselineNumber) -> "Baseline":
        """The same with one more number, which replaces that of its toolchain and machine."""
        place = (number.toolchain, number.machine)
        others = (each for each in self.numbers(key) if (each.toolchain, each.machine) != place)
        return Baseline(self.suite, self.target, {**self.baselines, key: (*others, number)})


def path_of(root: Path, suite: str, target: str) -> Path:
    """The file of a suite's numbers on a target (``:`` is written ``-``)."""
    return root / target.replace(":", "-") / f"{suite}.json"


def load(root: Path, suite: str, target: str) -> Baseline:
    """The baselines; a missing file holds none. Raises BaselineError if it is damaged."""
    path = path_of(root, suite, target)
    return _read(root, path) if path.exists() else Baseline(suite, target)


def load_all(root: Path) -> tuple[tuple[Path, Baseline], ...]:
    """Every file of numbers and its baselines. Raises BaselineError if one is damaged."""
    return tuple((path, _read(root, path)) for path in sorted(root.glob("*/*.json")))


def _read(root: Path, path: Path) -> Baseline:
    file = read_json(path, _File, BaselineError, _WANTED)
    _check_schema(path, file.schema)
    own = path_of(root, file.suite, file.target)
    if own != path:
        raise BaselineError(
            f"{path}: got numbers of {file.suite} on {file.target}, wanted those in {own}; "
            "move the file to its own place"
        )
    baselines: dict[Key, tuple[BaselineNumber, ...]] = {}
    for text, entries in file.baselines.items():
        if text.count("/") != _SLASHES:
            raise BaselineError(
                f"{path}: got entry {text!r}, wanted workload/variant/claim; restore the file"
            )
        workload, variant, claim = text.split("/")
        baselines[workload, variant, claim] = tuple(
            BaselineNumber(**msgspec.structs.asdict(entry)) for entry in entries
        )
    return Baseline(file.suite, file.target, baselines)


def _check_schema(path: Path, schema: int) -> None:
    if schema != SCHEMA:
        raise BaselineError(
            f"{path}: got schema {schema}, wanted {SCHEMA}; use the Assay that wrote it"
        )


def save(root: Path, baseline: Baseline) -> Path:
    """Write the file, or remove it where there are no numbers; returns its path."""
    path = path_of(root, baseline.suite, baseline.target)
    if not baseline.baselines:
        path.unlink(missing_ok=True)
        return path
    entries = {
        "/".join(key): [
            _Entry(dict(sorted(each.toolchain.items())), each.value, each.machine)
            for each in sorted(numbers, key=lambda each: (each.machine, age(each.toolchain)))
        ]
        for key, numbers in sorted(baseline.baselines.items())
    }
    return write_json(path, _File(SCHEMA, baseline.suite, baseline.target, entries))


_Number = Annotated[int, msgspec.Meta(ge=0)]


class _Count(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    verdicts: _Number
    judged: _Number


class _Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``levels``: level, framework, target, claim → verdicts; a plain number if all judge."""

    folder: str
    levels: dict[str, dict[str, dict[str, dict[str, _Number | _Count]]]]

    def __post_init__(self) -> None:  # msgspec reports its ValueError as its own
        for level in self.levels:
            Level.parse(level)


class _Coverage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    suites: dict[str, _Suite]


def load_coverage(root: Path) -> Coverage | None:
    """The verdicts that a run of whole suites must judge; None without a file.

    Raises BaselineError if the file is damaged.
    """
    path = root / COVERAGE
    if not path.exists():
        return None
    file = read_json(path, _Coverage, BaselineError, _WANTED)
    _check_schema(path, file.schema)
    counts: dict[Level, dict[Slot, Count]] = {}
    for name, suite in file.suites.items():
        for level, frameworks in suite.levels.items():
            counts.setdefault(Level.parse(level), {}).update(
                (Slot(framework, name, target, claim), _count(number))
                for framework, targets in frameworks.items()
                for target, claims in targets.items()
                for claim, number in claims.items()
            )
    return Coverage(counts=counts, folders={n: suite.folder for n, suite in file.suites.items()})


def save_coverage(root: Path, coverage: Coverage) -> Path:
    """Write the file of expected verdicts; returns its path."""
    suites = {name: _Suite(folder, levels={}) for name, folder in sorted(coverage.folders.items())}
    for level in sorted(coverage.counts):
        for slot, count in sorted(coverage.counts[level].items()):
            frameworks = suites[slot.suite].levels.setdefault(level.name.lower(), {})
            claims = frameworks.setdefault(slot.framework, {}).setdefault(slot.target, {})
            all_judge = count.judged == count.verdicts
            claims[slot.claim] = count.verdicts if all_judge else _Count(*count)
    return write_json(root / COVERAGE, _Coverage(SCHEMA, suites))


def _count(number: int | _Count) -> Count:
    if isinstance(number, int):
        return Count(number, number)
    return Count(number.verdicts, number.judged)
