"""What the shell offers for an argument: targets, suites, claims, metrics, components, levels."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from assay.model.target import TargetError
from assay.model.verdict import MUST_FAIL
from assay.model.workload import Level
from assay.store import shipped
from assay.store.baselines import BaselineError
from assay.targets import known


def targets(incomplete: str) -> list[str]:
    """Every target, also after a comma."""
    done, comma, _ = incomplete.rpartition(",")
    try:
        return _starting(incomplete, (f"{done}{comma}{name}" for name in known()))
    except TargetError:  # Another package's target is broken; `assay targets` says so.
        return []


def suites(incomplete: str) -> list[str]:
    """The names of suites, and paths."""
    try:
        names = sorted(shipped.coverage(Path.cwd()).folders)
    except BaselineError:
        names = []
    return _starting(incomplete, [*names, *_paths(incomplete)])


def claims(incomplete: str) -> list[str]:
    """The claims of the suites, also after a comma."""
    done, comma, _ = incomplete.rpartition(",")
    try:
        slots = [slot for each in shipped.coverage(Path.cwd()).counts.values() for slot in each]
    except BaselineError:
        slots = []
    names = sorted({slot.claim.removesuffix(MUST_FAIL) for slot in slots})
    return _starting(incomplete, (f"{done}{comma}{name}" for name in names))


def metrics(incomplete: str) -> list[str]:
    """The metrics of ``assay bisect``."""
    from assay.toolchains.metrics import METRICS

    return _starting(incomplete, METRICS)


def components(incomplete: str) -> list[str]:
    """What a bisection or a matrix varies."""
    from assay.toolchains.releases import COMPONENTS

    return _starting(incomplete, COMPONENTS)


def levels(incomplete: str) -> list[str]:
    """The levels of a run."""
    return _starting(incomplete, (level.name.lower() for level in Level))


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _paths(incomplete: str) -> Iterator[str]:
    folder, slash, start = incomplete.rpartition("/")
    place = Path(folder + slash or ".")
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        if path.name.startswith(start) and not path.name.startswith("."):
            yield f"{folder}{slash}{path.name}{'/' if path.is_dir() else ''}"
