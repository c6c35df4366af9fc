"""A distribution of this repository as pip installs it, in a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
from importlib.metadata import Distribution, distributions
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]


def install(project: Path, folder: Path) -> Distribution:
    """Build the project's wheel, install it without its requirements, and read what it declares."""
    pip = shutil.which("pip")
    assert pip, "this test installs a package: it needs pip"
    command = [pip, "install", "-q", "--no-deps", "--no-compile", "--target", str(folder)]
    subprocess.run([*command, str(project)], check=True, capture_output=True)
    (distribution,) = distributions(path=[str(folder)])
    return distribution


def files(distribution: Distribution) -> set[str]:
    """Paths of what the wheel itself holds, without what pip writes beside it."""
    written_by_pip = {"INSTALLER", "REQUESTED", "direct_url.json"}
    return {str(path) for path in distribution.files or () if path.name not in written_by_pip}
