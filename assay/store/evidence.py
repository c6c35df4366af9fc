"""A run's evidence: computed once for each (workload, arm, target), whichever process is first.

What is seen of growing loops, which are timed apart from all else, lies in a folder of its own.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
from filelock import FileLock

from assay.model.evidence import Evidence
from assay.store.files import readable, write_whole

FOLDER, GROWTH = "evidence", "growth"


def once(
    directory: Path,
    key: tuple[str, str, str, str],
    observe: Callable[[], Evidence],
    folder: str = FOLDER,
) -> Evidence:
    """The evidence of (suite, workload, arm, target), observed now if no process did before.

    Other processes that ask for the same evidence meanwhile wait for it.
    """
    path = _path(directory / folder, key)
    if path.exists():
        return load(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if path.exists():
            return load(path)
        evidence = _without_modules(path, observe())
        write_whole(path, msgspec.json.encode(evidence))
        return evidence


def _without_modules(path: Path, evidence: Evidence) -> Evidence:
    """The evidence, after the graphs of its steps were written beside it: ``….graph0.hlo.pb``."""
    if evidence.steps is None:
        return evidence
    for number, module in enumerate(evidence.steps.modules):
        write_whole(path.with_suffix(f".graph{number}.hlo.pb"), module)
    return replace(evidence, steps=replace(evidence.steps, modules=()))


def load(path: Path) -> Evidence:
    """The evidence in a file that ``once`` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Evidence)


def find(directory: Path, key: tuple[str, str, str, str]) -> Evidence | None:
    """The evidence of (suite, workload, arm, target), if it was observed in this run."""
    path = _path(directory / FOLDER, key)
    return load(path) if path.exists() else None


def load_all(directory: Path, folder: str = FOLDER) -> tuple[Evidence, ...]:
    """All evidence of a run's folder, by file name."""
    return tuple(load(path) for path in sorted((directory / folder).glob("*.json")))


def _path(folder: Path, key: tuple[str, str, str, str]) -> Path:
    digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:16]
    return folder / f"{readable(key[1:])}-{digest}.json"
