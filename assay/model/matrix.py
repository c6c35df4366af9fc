"""A matrix: the verdicts of suites on several releases, and what they say of the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass

from assay.model.verdict import ExitCode, Record, exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One verdict on one release of the component."""

    release: str
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerNote:
    """A known defect whose toolchain range disagrees with the matrix.

    ``holds`` are the releases on which the claims fail as the entry expects, ``passes`` those on
    which they pass, ``differs`` those on which they fail in another way. ``listed`` is the entry's
    range. ``ranges`` of ``package`` are those to write, an entry for each; none if its versions do
    not separate the releases. ``sentence`` says all that.
    """

    suite: str
    workloads: tuple[str, ...]
    variants: tuple[str, ...]
    claims: tuple[str, ...]
    targets: tuple[str, ...]
    upstream: str
    listed: Mapping[str, str]
    holds: tuple[str, ...]
    passes: tuple[str, ...]
    differs: tuple[str, ...]
    package: str
    ranges: tuple[str, ...]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The cells of all releases, oldest release first.

    ``not_shown`` counts the checks of variants on targets without a cell, by claim: those that need
    more than a compiled program, or another framework than jax.
    """

    component: str
    releases: tuple[str, ...]
    cells: tuple[Cell, ...]
    notes: tuple[LedgerNote, ...] = ()
    not_shown: Mapping[str, int]

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a run with these records."""
        return exit_code(cell.record for cell in self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixProgress:
    """What is being measured, after ``done`` of ``total`` programs; ``seconds_left`` if known."""

    doing: str
    done: int = 0
    total: int = 0
    seconds_left: float | None = None
