"""Where Assay was installed from, and the command that installs it again with an extra."""

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

DISTRIBUTION: Final = "assay-xla"
HERE: Final = Path(__file__).parents[2]
"""The folder that holds the package ``assay``."""


def install_command(extra: str = "", *, options: str = "") -> str:
    """The command that installs Assay with an extra: again from its checkout, or from an index."""
    brackets = f"[{extra}]" if extra else ""
    install = " ".join(filter(None, ("pip install", options)))
    folder, editable = _checkout()
    if not (folder / "memsafe" / "pyproject.toml").is_file():
        return f"{install} {shlex.quote(DISTRIBUTION + brackets)}"
    option = "-e " if editable else ""
    memsafe = f"{option}{shlex.quote(str(folder / 'memsafe'))} " if extra == "suites" else ""
    return f"{install} {memsafe}{option}{shlex.quote(str(folder) + brackets)}"


def _checkout() -> tuple[Path, bool]:
    """The folder that Assay was installed from, and whether it is used in place (PEP 610)."""
    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json") or "{}"
    except PackageNotFoundError:
        return HERE, True
    origin = json.loads(text)
    if "dir_info" not in origin:
        return HERE, True
    folder = Path(unquote(urlsplit(origin["url"]).path))
    return folder, bool(origin["dir_info"].get("editable"))
