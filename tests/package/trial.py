"""Tries built packages as a user would: a new environment, an empty folder, no checkout.

``python tests/package/trial.py DIST SBOM`` takes DIST/assay-xla and DIST/memsafe, and writes the
software bill of materials of the environment to SBOM. Standard library only, but for cyclonedx.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TARGET = "gpu-h100:8"
ATTESTED = ("bomFormat", "specVersion", "serialNumber")
"""The fields without which actions/attest does not take a bill of materials for CycloneDX."""


def run(*command: str | Path, folder: Path) -> str:
    """Run a command in the folder, show it and its output, and end where it fails."""
    print("$", *command, flush=True)
    kept = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("PYTHON", "PYTEST_", "TOX_", "VIRTUAL_ENV", "ASSAY_"))
    }
    ended = subprocess.run(
        [*map(str, command)], cwd=folder, env=kept, stdout=subprocess.PIPE, text=True, check=False
    )
    print(ended.stdout, flush=True)
    if ended.returncode:
        sys.exit(f"trial: {command[0]} ended with {ended.returncode}, wanted 0")
    return ended.stdout


def wheel(dist: Path, name: str) -> Path:
    """The one wheel of a package."""
    (found,) = (dist / name).glob("*.whl")
    return found.resolve()


def files(folder: Path) -> set[Path]:
    """The files of an environment, without what Python compiles."""
    return {path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def main() -> None:
    """Install both wheels with all compilers, and qualify a target without a checkout."""
    dist, sbom = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="assay-trial-") as name:
        folder = Path(name)
        empty, environment = folder / "empty", folder / "venv"
        empty.mkdir()
        python = environment / "bin" / "python"
        run(sys.executable, "-m", "venv", environment, folder=folder)
        uv = shutil.which("uv")
        installer = [uv, "pip", "install", "-q", "-p", python] if uv else [python, "-m", "pip"]
        installer += [] if uv else ["install", "-q"]
        ours = f"{wheel(dist, 'assay-xla')}[suites,compilers]"
        run(*installer, wheel(dist, "memsafe"), ours, folder=folder)
        installed = files(environment)
        assay = environment / "bin" / "assay"
        run(assay, "doctor", "--target", TARGET, folder=empty)
        run(assay, "qualify", "--target", TARGET, folder=empty)
        run(assay, "run", "dus_remat", "--", "--assay-target", "cpu:8", "-k", "plain", folder=empty)
        if written := files(environment) - installed:
            sys.exit(f"trial: {sorted(map(str, written))} were written into the environment")
        made = json.loads((empty / "results/latest/invocation.json").read_text())
        print("invocation:", made)
        sbom.parent.mkdir(parents=True, exist_ok=True)
        bill = ["--output-format", "JSON", "--output-file", sbom.resolve()]
        run(sys.executable, "-m", "cyclonedx_py", "environment", *bill, python, folder=folder)
        held = json.loads(sbom.read_text())
        if lacking := [each for each in ATTESTED if not held.get(each)]:
            sys.exit(f"trial: {sbom} lacks {', '.join(lacking)}; actions/attest refuses it")


if __name__ == "__main__":
    main()
