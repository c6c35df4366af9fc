"""``baselines/coverage.json``: the verdicts that a run of the whole suites must judge, by level."""

from pathlib import Path

import msgspec

from assay.model.invocation import Count, Coverage, Slot
from assay.model.workload import Level
from assay.store.baselines import BaselineError
from assay.store.files import write_whole

SCHEMA = 1
FILE_NAME = "coverage.json"


class _Count(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    verdicts: int
    judged: int


class _Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    folder: str
    levels: dict[str, dict[str, dict[str, dict[str, int | _Count]]]]  # a number: all judge


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    suites: dict[str, _Suite]


def load(root: Path) -> Coverage | None:
    """What is expected, None where there is no file.

    Raises:
        BaselineError: the file is damaged.
    """
    path = root / FILE_NAME
    if not path.exists():
        return None
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
        levels = {level for suite in file.suites.values() for level in suite.levels}
        counts = {
            Level.parse(level): {
                Slot(framework, name, target, claim): _count(number)
                for name, suite in file.suites.items()
                for framework, targets in suite.levels.get(level, {}).items()
                for target, claims in targets.items()
                for claim, number in claims.items()
            }
            for level in levels
        }
    except (OSError, ValueError) as error:
        raise BaselineError(
            f"{path}: got a file that is no coverage ({error}), wanted what "
            "--assay-update-baselines writes; restore it from version control"
        ) from None
    if file.schema != SCHEMA:
        raise BaselineError(
            f"{path}: got schema {file.schema}, wanted {SCHEMA}; use the Assay that wrote it"
        )
    return Coverage(counts=counts, folders={n: suite.folder for n, suite in file.suites.items()})


def save(root: Path, coverage: Coverage) -> Path:
    """Write the file, sorted and without time stamps; returns its path."""
    suites: dict[str, _Suite] = {
        name: _Suite(folder=folder, levels={}) for name, folder in sorted(coverage.folders.items())
    }
    for level in sorted(coverage.counts):
        for slot, count in sorted(coverage.counts[level].items()):
            frameworks = suites[slot.suite].levels.setdefault(level.name.lower(), {})
            claims = frameworks.setdefault(slot.framework, {}).setdefault(slot.target, {})
            claims[slot.claim] = _number(count)
    path = root / FILE_NAME
    data = msgspec.json.encode(_File(schema=SCHEMA, suites=suites))
    write_whole(path, msgspec.json.format(data, indent=1) + b"\n")
    return path


def _count(number: int | _Count) -> Count:
    if isinstance(number, int):
        return Count(number, number)
    return Count(number.verdicts, number.judged)


def _number(count: Count) -> int | _Count:
    return count.judged if count.judged == count.verdicts else _Count(*count)
