"""The packages of an environment; its own interpreter runs this file, so standard library only.

Prints one JSON object: ``versions`` by package, and ``damaged``, the first installed file that is
missing or has another size.
"""

import csv
import json
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path


def first_damaged(found: Distribution) -> str:
    """The first missing or changed file, or the empty string."""
    for name, _, size in csv.reader((found.read_text("RECORD") or "").splitlines()):
        path = Path(str(found.locate_file(name)))
        # Compiled files have no recorded size, and Python makes them again.
        if path.suffix != ".pyc" and (
            not path.is_file() or (size and path.stat().st_size != int(size))
        ):
            return str(path)
    return ""


def audit() -> dict[str, object]:
    """The versions of all packages, and the first damaged file."""
    found = list(distributions())
    versions = {each.metadata["Name"]: each.version for each in found}
    damaged = next(filter(None, map(first_damaged, found)), "")
    return {"versions": dict(sorted(versions.items())), "damaged": damaged}


if __name__ == "__main__":
    json.dump(audit(), sys.stdout)
