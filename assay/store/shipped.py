"""The suites and their baselines: those of the current folder, else those that come with Assay."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from assay.model.blame import WrongValue
from assay.model.suggestion import wanted_one_of
from assay.model.verdict import Coverage
from assay.store.baselines import load_coverage
from assay.store.files import SHIPPED

SUITES: Final = "suites"
BASELINES: Final = "baselines"
_PACKAGE: Final = Path(__file__).parents[1]
_CONFIGURATION: Final = _PACKAGE / "store" / "shipped.ini"
_SHIPPED: Final = (_PACKAGE / SHIPPED, _PACKAGE.parent)
"""In a wheel the suites are inside of the package, in a checkout next to it."""


def home(here: Path) -> Path | None:
    """The folder that holds ``suites`` and ``baselines``: ``here`` if it has suites, else Assay's.

    None if Assay was installed without them.
    """
    if (here / SUITES).is_dir():
        return here.resolve()
    found = (each for each in _SHIPPED if (each / SUITES / "__init__.py").is_file())
    return next((each.resolve() for each in found), None)


def pytest_options(suites: Iterable[Path]) -> list[str]:
    """What pytest needs to run these suites, if they are those of the wheel.

    It would otherwise take its configuration from a project around the environment, and write its
    cache into the environment.
    """
    inside, places = _SHIPPED[0].resolve(), [each.resolve() for each in suites]
    if not places or not all(each.is_relative_to(inside) for each in places):
        return []
    return ["-c", str(_CONFIGURATION), f"--rootdir={inside}", "-p", "no:cacheprovider"]


def suites_of_wheel(root: Path, places: Iterable[str]) -> list[str] | None:
    """The names of the suites of these paths; None if pytest's root is not that of the wheel."""
    inside = _SHIPPED[0].resolve()
    if root.resolve() != inside:
        return None
    folders = {inside / folder: name for name, folder in coverage(inside).folders.items()}
    paths = [Path(place).resolve() for place in places]
    found = (folders[each] for path in paths for each in (path, *path.parents) if each in folders)
    return list(dict.fromkeys(found))


def coverage(here: Path) -> Coverage:
    """The expected verdicts of the suites that ``home`` finds; empty if there are none."""
    found = home(here)
    return (found and load_coverage(found / BASELINES)) or Coverage()


def paths(names: Iterable[str], here: Path) -> list[Path]:
    """The folder or file of each suite: a path, or the name of a suite that ``home`` finds.

    Raises:
        WrongValue: there is no such path or suite.
    """
    found = home(here)
    folders = {name: found / folder for name, folder in coverage(here).folders.items() if found}
    known = {name: folder for name, folder in folders.items() if folder.is_dir()}
    return [_path(name, known) for name in names]


def _path(name: str, known: dict[str, Path]) -> Path:
    # A test of a file is FILE::NAME.
    if Path(name.partition("::")[0]).exists():
        return Path(name)
    if name in known:
        return known[name]
    near = wanted_one_of(Path(name).name, known) if known else "wanted a path"
    raise WrongValue(f"got no file, folder or suite {name}, {near}")
