"""A project in an empty folder, run by pytest in a process of its own (``tests.warm``).

Files in; exit code, words, records and changed files out. The plugin is found as everywhere: by
its entry point. ``pytester`` would do for one test; a run that several claims read is kept longer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import assay
from assay.model.verdict import Record
from assay.store import records
from tests import warm

PREAMBLE = """
import os, sys, threading, time
from pathlib import Path
import jax, jax.numpy as jnp
from assay import Variant, Check, FailureKind, Finding, KnownDefect, Level, Outcome, Program, Role
from assay import Scope, Unit, Workload, claims

X = jax.ShapeDtypeStruct((8,), jnp.float32)

def double(devices):
    return Program(function=lambda x: x * 2, arguments=(X,))

def mismatched(devices):
    return Program(function=lambda x: x + jnp.zeros(9), arguments=(X,))

def variant(name, program, role=Role.CONTROL, **rest):
    return Variant(name=name, role=role, program=program, **rest)

def workload(*variants, name="small", suite="mine", **rest):
    return Workload(suite=suite, name=name, variants=variants, **rest)
"""
"""The head of a test file: two programs of two operations, and short spellings."""

# A shell starts its background jobs deaf to Ctrl-C, and children inherit that.
_PYTEST_THAT_HEARS = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("pytest", run_name="__main__", alter_sys=True)
"""
_ON_A_TERMINAL = """
import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn([sys.executable, "-P", *sys.argv[1:]])))
"""
_SECONDS = 120
_NOT_OURS = (".pytest_cache", "__pycache__", ".cache")
# Inside tox, pytest keeps one cache of last failures for all projects: that of the environment.
_OUTER = ("PYTEST_", "ASSAY_", "JAX_", "XLA_", "PYTHONPATH", "COV_", "TOX_", "XDG_", "CI")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How one run ended; ``records`` are those of the newest run, if this one wrote any."""

    exit_code: int
    output: str
    records: tuple[Record, ...]
    changed: frozenset[str]

    def record(self, variant: str, claim: str = "compiles") -> Record:
        """The one record of the variant and claim."""
        (found,) = [one for one in self.records if (one.variant, one.claim) == (variant, claim)]
        return found

    @property
    def outcomes(self) -> dict[str, int]:
        """What pytest counted: passed, failed, skipped …."""
        counted = pytest.RunResult.parse_summary_nouns(self.output.splitlines())
        return {noun: number for noun, number in counted.items() if noun != "warnings"}


class Project:
    """A folder with a strict pytest.ini and the files given; ``variables`` are the environment's.

    A run that is warm reads those of Python itself (``PYTHON…``) too late.
    """

    def __init__(self, root: Path, files: Mapping[str, str], **variables: str) -> None:
        self.root, self._variables = root, variables
        self.write({"pytest.ini": "[pytest]\nfilterwarnings = error\n", **files})

    def write(self, files: Mapping[str, str]) -> None:
        """Add or replace files."""
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def pytest(
        self,
        *arguments: str,
        target: str = "cpu:8",
        path: Path | None = None,
        seconds: float = _SECONDS,
    ) -> Ended:
        """Run pytest here; ``path`` is put before all installed packages, and nothing is warm.

        Without a ``target`` no option of Assay's is given.
        """
        targets = ["--assay-target", target] if target else []
        return self._ended(["-m", "pytest", *targets, *arguments], path, seconds)

    def on_a_terminal(self, *arguments: str) -> Ended:
        """Run pytest here, with a terminal of 100 columns to write to."""
        command = ("-m", "pytest", "--assay-target", "cpu:8", "--color=no", *arguments)
        return self._ended(["-c", _ON_A_TERMINAL, *command], None)

    def assay(self, *arguments: str, path: Path | None = None) -> Ended:
        """Run the command ``assay`` here; with a ``path`` as ``pytest`` does, and for longer."""
        seconds = 5 * _SECONDS if path else _SECONDS
        return self._ended(["-m", "assay.cli", *arguments], path, seconds)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Begin to run pytest here."""
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _PYTEST_THAT_HEARS, "--assay-target", "cpu:8", *arguments],
            cwd=self.root,
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def newest(self) -> Path:
        """The newest run's folder, whether or not the run reached its end."""
        return max((self.root / "results").glob("2*"), key=lambda path: path.stat().st_mtime_ns)

    def _ended(self, command: list[str], path: Path | None, seconds: float = _SECONDS) -> Ended:
        before, runs = self._files(), self._runs()
        code, output = warm.run(
            ["-P", *command],
            cwd=self.root,
            env=self.environment(path),
            seconds=seconds,
            python=sys.executable if path else "",
        )
        after = self._files()
        return Ended(
            exit_code=code,
            output=output,
            records=self._records() if self._runs() > runs else (),
            changed=frozenset(dict(before.items() ^ after.items())),
        )

    def environment(self, path: Path | None = None) -> dict[str, str]:
        """The variables of a process here."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(_OUTER)}
        # The inner run must import what is tested here, not an assay that is installed elsewhere.
        tested = Path(assay.__file__).parents[1]
        found = {"PYTHONPATH": os.pathsep.join(map(str, filter(None, (path, tested))))}
        usual = {"HOME": str(self.root), "COLUMNS": "100", "TPU_SKIP_MDS_QUERY": "1"}
        return kept | found | usual | self._variables

    def _files(self) -> dict[str, bytes]:
        return {
            path.relative_to(self.root).as_posix(): _content(path)
            for path in self.root.rglob("*")
            if (path.is_symlink() or path.is_file()) and not set(path.parts) & set(_NOT_OURS)
        }

    def _records(self) -> tuple[Record, ...]:
        newest = self.newest()
        return records.load(newest) if (newest / records.FILE_NAME).exists() else ()

    def _runs(self) -> set[Path]:
        return set((self.root / "results").glob("2*"))


def _content(path: Path) -> bytes:
    return str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
