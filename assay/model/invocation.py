"""What is known of a run besides its records, and the exit code that follows from it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from assay.model.verdict import ExitCode, Record, exit_code
from assay.model.workload import UpstreamIssue


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Expected verdicts that a run did not reach on a target, in words, and what to do."""

    target: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a run knows at its end, besides its records.

    ``cut_short`` is ``MISUSE``, pytest's own code for Ctrl-C, or ``CRASHED``; None if nothing did.
    ``failed_elsewhere`` says that pytest failed; ``lost`` are the ids of selected items that never
    reached a verdict; ``unwritten`` is why a file could not be written, and ``fault`` what else
    Assay failed with at the end. ``coverage`` is one line on the verdicts that were expected,
    ``missing`` what is to be said of those that are not there.
    """

    cut_short: ExitCode | None = None
    failed_elsewhere: bool = False
    lost: tuple[str, ...] = ()
    unwritten: str = ""
    fault: str = ""
    coverage: str = ""
    missing: tuple[Missing, ...] = ()

    @property
    def is_faulty(self) -> bool:
        """Whether what the run leaves behind is incomplete."""
        return bool(self.unwritten or self.fault)

    def code(self, records: Iterable[Record]) -> ExitCode:
        """The exit code of a run with these records: the one rule for all commands and reports."""
        if self.cut_short is not None:
            return self.cut_short
        if self.is_faulty:
            return ExitCode.CRASHED
        code = exit_code(records)
        incomplete = self.failed_elsewhere or self.lost or self.missing
        return ExitCode.FAILED if code is ExitCode.PASSED and incomplete else code


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The words of a command that reaches the run's items again, and how the run ended.

    ``upstream_issues`` are those that its suites reproduce, by suite.
    """

    command: tuple[str, ...] = ("pytest", "suites")
    ending: Ending = field(default_factory=Ending)
    upstream_issues: dict[str, tuple[UpstreamIssue, ...]] = field(default_factory=dict)


USUAL: Final = Invocation()
"""What is taken for granted where nothing is known of a run but its records."""


def lost_on(ending: Ending, target: str) -> Sequence[str]:
    """``workload/variant`` of the items of a target that never reached a verdict."""
    programs = (item.rpartition("[")[2].partition("]")[0] for item in ending.lost)
    named = (program.removesuffix("/must-fail").rpartition("@") for program in programs)
    return tuple(dict.fromkeys(program for program, _, where in named if where == target))
