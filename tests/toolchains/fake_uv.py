"""A uv that needs no index: it makes environments of packages with nothing in them.

Its behaviour is its variables: ``FAKE_UV_LOG`` names a file to which it writes a line a call,
``FAKE_UV_VERSION`` is what it installs instead of the version asked for, ``FAKE_UV_REFUSES`` a
requirement that it cannot fetch, ``FAKE_UV_SLEEP`` names a file that it makes when it falls asleep
in the middle of an installation.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

_SOURCE = """#!{python}
import os, sys, time
from pathlib import Path

SYSTEM = "include-system-site-packages = false\\n"
words = [word for word in sys.argv[1:] if not word.startswith("--")]
with Path(os.environ["FAKE_UV_LOG"]).open("a") as log:
    log.write(" ".join(words) + "\\n")
if words[0] == "venv":
    folder = Path(words[-1])
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin" / "python").symlink_to("{python}")
    (folder / "pyvenv.cfg").write_text("home = {home}\\nversion_info = {version}\\n" + SYSTEM)
    sys.exit()
_, _, interpreter, *requirements = words
version_info = "python{short}"
packages = Path(interpreter).parents[1] / "lib" / version_info / "site-packages"
packages.mkdir(parents=True)
for number, requirement in enumerate(requirements):
    if requirement == os.environ.get("FAKE_UV_REFUSES"):
        sys.exit("failed to fetch " + requirement)
    if number and (asleep := os.environ.get("FAKE_UV_SLEEP")):
        Path(asleep).touch()
        time.sleep(600)
    name, equal, version = requirement.partition("==")
    if not equal:
        continue
    version = os.environ.get("FAKE_UV_VERSION") or version
    folder = packages / (name + "-" + version + ".dist-info")
    folder.mkdir()
    metadata = "Metadata-Version: 2.1\\nName: " + name + "\\nVersion: " + version + "\\n"
    (folder / "METADATA").write_text(metadata)
    (packages / (name + ".py")).write_text("# a module\\n")
    (folder / "RECORD").write_text(
        name + ".py,sha256=x,11\\n" + folder.name + "/METADATA,sha256=x," + str(len(metadata))
        + "\\n" + folder.name + "/RECORD,,\\n"
    )
"""


class FakeUv:
    """The only uv on the search path, and the log of what it was told to do."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._log = folder / "uv.log"
        self.cache = folder / "cache"
        base = Path(sys.executable).resolve()
        version = ".".join(map(str, sys.version_info[:3]))
        short = ".".join(map(str, sys.version_info[:2]))
        command = folder / "bin" / "uv"
        command.parent.mkdir()
        command.write_text(
            _SOURCE.format(python=base, home=base.parent, version=version, short=short)
        )
        command.chmod(0o755)
        monkeypatch.setenv("PATH", str(command.parent))
        monkeypatch.setenv("XDG_CACHE_HOME", str(self.cache))
        monkeypatch.setenv("FAKE_UV_LOG", str(self._log))

    @property
    def calls(self) -> list[str]:
        """What it was told to do: ``venv`` or ``pip``, a word a call."""
        if not self._log.exists():
            return []
        return [line.split()[0] for line in self._log.read_text().splitlines()]

    @property
    def environments(self) -> list[Path]:
        """What stands in the cache and is not hidden."""
        folder = self.cache / "assay" / "toolchains"
        return [path for path in folder.glob("*") if not path.name.startswith(".")]

    @property
    def hidden(self) -> list[Path]:
        """Folders in the cache that are none of its environments."""
        folder = self.cache / "assay" / "toolchains"
        return [path for path in folder.glob(".*") if path.is_dir()]
