"""What a fault is: where Assay is broken, how, and what the run must then say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.changes import Change

SUITE = ("-m", "pytest", "mysuites", "--assay-target", "cpu")
QUALIFY = (
    *("-m", "assay.cli", "qualify", "--suites", "mysuites", "--target", "cpu"),
    *("--rules", "rules.toml", "--allow-looser-rules"),
)
INSPECT = ("-m", "assay.cli", "inspect", "program.py:step", "--target", "cpu")
TIMES = ("-m", "pytest", "times", "--assay-target", "cpu", "--assay-timing-seconds=5")
PASSED, FAILED, MISUSE, CRASHED = 0, 1, 2, 3


def nothing(_: Path) -> None:
    """Leave the project as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One part that fails, ``place``, named as ``module:attribute``, and how: ``change``.

    ``hides`` are packages that cannot be imported, as if they were not installed, and ``prepare``
    breaks the project's files. ``command`` is what is run then, and ``more`` what is added to it.
    ``says`` are fragments of the summary, of which the first names the part. A fault
    ``after_a_good_run`` lets that run say that nothing regressed, but not what follows it. One that
    ends with 0 is healed. ``how`` describes a fault that ``prepare`` or the command injects, and
    ``mounts`` says that the command mounts a disk.
    """

    name: str
    says: tuple[str, ...]
    ends: int
    after_a_good_run: bool = False
    mounts: bool = False
    how: str = ""
    place: str = ""
    change: Change | None = None
    hides: tuple[str, ...] = ()
    prepare: Callable[[Path], None] = nothing
    command: tuple[str, ...] = SUITE
    more: tuple[str, ...] = ()

    @property
    def is_injected(self) -> bool:
        """Whether something is replaced in the processes, and they must reach it."""
        return bool(self.place or self.hides)

    @property
    def is_healed(self) -> bool:
        """Whether the run must be as good as without the fault."""
        return self.ends == PASSED

    def __str__(self) -> str:
        return self.name
