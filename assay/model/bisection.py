"""Bisection: which release of a component changed a number of one program."""

from collections.abc import Mapping
from dataclasses import dataclass

from assay.model.units import Unit
from assay.model.verdict import ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One release's number, or why it has none."""

    version: str
    number: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A change between two releases.

    ``skipped`` are the releases between them that have no number. ``unmeasured`` counts those
    between them that were not measured.
    """

    before: Point
    after: Point
    skipped: tuple[Point, ...] = ()
    unmeasured: int = 0

    @property
    def size(self) -> float:
        """The absolute difference of the two numbers."""
        return abs((self.after.number or 0.0) - (self.before.number or 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What an unfinished search knows: the step lies after ``after``, and not after ``until``.

    ``until`` is empty if nothing changed up to ``after``. ``after`` is empty if nothing changed
    from ``until`` on. About ``left`` measurements are left, more if releases have no number.
    """

    after: str
    until: str
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The packages of a jax release that made a step; several if they cannot be separated.

    Each of ``trials`` is the new release with older packages: ``0.12.0 with jaxlib 0.11.2``.
    """

    packages: tuple[str, ...]
    trials: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """A search over ``versions``, the releases from the older to the newer of ``good`` and ``bad``.

    ``points`` are those that were measured, oldest first; ``steps`` have the largest first.
    ``reason`` says why there is no answer: one end has no number. ``attribution`` is that of the
    largest step.
    """

    subject: str
    target: str
    component: str
    metric: str
    unit: Unit
    good: str
    bad: str
    versions: tuple[str, ...]
    points: tuple[Point, ...] = ()
    steps: tuple[Step, ...] = ()
    reason: str = ""
    attribution: Attribution | None = None

    @property
    def skipped(self) -> tuple[Point, ...]:
        """The releases that gave no number."""
        return tuple(point for point in self.points if point.number is None)

    @property
    def exit_code(self) -> ExitCode:
        """1 if a step was found, 0 if there is none, 2 if an end has no number."""
        if self.reason:
            return ExitCode.MISUSE
        return ExitCode.FAILED if self.steps else ExitCode.PASSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """A program that shows the step without Assay, and what it printed by release.

    A variant of a suite has no such program. ``systems`` describe both environments, by release.
    """

    program: str
    outputs: Mapping[str, str]
    systems: Mapping[str, str]
