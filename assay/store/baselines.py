"""``baselines/<target>/<suite>.json``: stored numbers, and on which toolchain.

The file is sorted and carries no time stamps: writing the same numbers twice gives the same bytes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from assay.judge.baseline import age
from assay.model.verdict import BaselineNumber
from assay.store.files import write_whole

SCHEMA = 1
Key = tuple[str, str, str]
"""(workload, variant, claim)."""


class BaselineError(ValueError):
    """A baseline file that cannot be read."""


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    toolchain: dict[str, str]
    value: int | float
    machine: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
        """The numbers stored under the key, one per toolchain."""
        return self.baselines.get(key, ())

    def of_variant(self, workload: str, variant: str) -> tuple[BaselineNumber, ...]:
        """All numbers stored for a variant, of every claim."""
        mine = (
            numbers for key, numbers in self.baselines.items() if key[:2] == (workload, variant)
        )
        return tuple(number for numbers in mine for number in numbers)

    def without(self, keys: Iterable[Key]) -> "Baseline":
        """The same without some keys."""
        gone = set(keys)
        kept = {key: numbers for key, numbers in self.baselines.items() if key not in gone}
        return Baseline(self.suite, self.target, kept)

    def storing(self, key: Key, number: BaselineNumber) -> "Baseline":
        """The same with one more number, which replaces that of its toolchain and machine."""
        place = (dict(number.toolchain), number.machine)
        others = [
            known for known in self.numbers(key) if (dict(known.toolchain), known.machine) != place
        ]
        return Baseline(self.suite, self.target, {**self.baselines, key: (*others, number)})


def path_of(root: Path, suite: str, target: str) -> Path:
    """Where the numbers of a suite on a target are kept (``:`` is written ``-``)."""
    return root / target.replace(":", "-") / f"{suite}.json"


def load(root: Path, suite: str, target: str) -> Baseline:
    """The baselines. A missing file holds none.

    Raises:
        BaselineError: the file is damaged, empty, or speaks of another suite or target.
    """
    path = path_of(root, suite, target)
    if not path.exists():
        return Baseline(suite, target)
    file = _decode(path)
    if (file.schema, file.suite, file.target) != (SCHEMA, suite, target):
        raise BaselineError(
            f"{path}: got schema {file.schema} for {file.suite} on {file.target}, wanted schema "
            f"{SCHEMA} for {suite} on {target}; move the file to its own place"
        )
    baselines = {entry_key(path, key): _numbers(value) for key, value in file.baselines.items()}
    return Baseline(suite, target, baselines)


def load_all(root: Path) -> Iterator[tuple[Path, Baseline]]:
    """Every baseline file, read.

    Raises:
        BaselineError: one of them is damaged, or lies where others belong.
    """
    for path in sorted(root.glob("*/*.json")):
        file = _decode(path)
        own = path_of(root, file.suite, file.target)
        if own != path:
            raise BaselineError(
                f"{path}: got numbers of {file.suite} on {file.target}, wanted those in {own}; "
                "move the file to its own place"
            )
        yield path, load(root, file.suite, file.target)


def check_all(root: Path) -> None:
    """Read every baseline file; raises as ``load_all`` does."""
    for _ in load_all(root):
        pass


def save(root: Path, baseline: Baseline) -> Path:
    """Write the file, or remove it where there are none; returns its path.

    Raises:
        BaselineError: a name holds the ``/`` that stands between the names of an entry.
    """
    path = path_of(root, baseline.suite, baseline.target)
    if not baseline.baselines:
        path.unlink(missing_ok=True)
        return path
    baselines = {
        entry_name(path, key): [
            _Entry(
                toolchain=dict(sorted(number.toolchain.items())),
                value=number.value,
                machine=number.machine,
            )
            for number in sorted(numbers, key=lambda each: (each.machine, age(each.toolchain)))
        ]
        for key, numbers in sorted(baseline.baselines.items())
    }
    file = _File(schema=SCHEMA, suite=baseline.suite, target=baseline.target, baselines=baselines)
    write_whole(path, msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n")
    return path


def _decode(path: Path) -> _File:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, msgspec.MsgspecError) as error:
        raise BaselineError(
            f"{path}: got a file that is no baseline ({error}), "
            "wanted what --assay-update-baselines writes; restore it from version control"
        ) from None


def entry_name(path: Path, key: Key) -> str:
    """The key as it stands in a file.

    Raises:
        BaselineError: a name holds a ``/``.
    """
    if any("/" in part for part in key):
        raise BaselineError(
            f"{path}: got entry {key}, wanted names without '/'; "
            "rename the workload, the variant or the claim"
        )
    return "/".join(key)


def entry_key(path: Path, text: str) -> Key:
    """The key that stands in a file.

    Raises:
        BaselineError: it is none.
    """
    try:
        workload, variant, claim = text.split("/")
    except ValueError:
        raise BaselineError(
            f"{path}: got entry {text!r}, wanted workload/variant/claim; restore the file"
        ) from None
    return workload, variant, claim


def _numbers(entries: list[_Entry]) -> tuple[BaselineNumber, ...]:
    return tuple(
        BaselineNumber(value=entry.value, toolchain=entry.toolchain, machine=entry.machine)
        for entry in entries
    )
