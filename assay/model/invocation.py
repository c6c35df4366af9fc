"""How a run was asked for, and whether it came to its end."""

from dataclasses import dataclass
from typing import Final

from assay.model.verdict import ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The words of a command that reaches the run's items again, and what cut the run short.

    ``cut_short`` is ``MISUSE``, pytest's own code for Ctrl-C, or ``CRASHED``; None if nothing did.
    """

    command: tuple[str, ...] = ("pytest", "suites")
    cut_short: ExitCode | None = None


USUAL: Final = Invocation()
"""What is taken for granted where nothing is known of a run but its records."""
