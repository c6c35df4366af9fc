"""How a run was asked for, and whether it came to its end."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The words of a command that reaches the run's items again, and whether all were reached."""

    command: tuple[str, ...] = ("pytest", "suites")
    finished: bool = True


USUAL: Final = Invocation()
"""What is taken for granted where nothing is known of a run but its records."""
