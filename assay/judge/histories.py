"""A run's sessions against a history of accepted ones: the nearest, and what crept since."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

import numpy as np
from scipy.special import ndtri

from assay.judge.changes import DEFAULT, Change, Ratio, Sensitivity
from assay.judge.creep import Accepted, Creep, creep
from assay.judge.floors import floor_interval
from assay.judge.stored_times import (
    SESSION_LOOKS,
    Session,
    dividing_calibration,
    levels,
    machine_moved,
    ratio_to_stored,
    why_not_accepted,
)
from assay.model.history import AcceptedTimes, KeptSession, kept_session
from assay.model.timing import Times

MOST_LOAD: Final = 3.0
"""At 1.7 to 2.9 a core stored times could be told apart, at 3.4 to 5.5 half were too noisy.

By docs/timing.md, medium program.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How new sessions stand: their ratio to the nearest accepted ones, and what crept.

    ``crept`` is None where there is nothing older to compare with, or the machine itself changed;
    ``oldest`` is the point that it was measured from.
    """

    ratio: Ratio
    crept: Creep | None = None
    oldest: AcceptedTimes | None = None


def standing(
    new: Sequence[Session],
    nearest: AcceptedTimes,
    history: Sequence[AcceptedTimes],
    sensitivity: Sensitivity = DEFAULT,
) -> Standing:
    """The new sessions against the nearest point, and the whole history with them at its end.

    Creep takes the share of the errors that the looks at the sessions leave.
    """
    ratio = ratio_to_stored(new, sessions_of(nearest), sensitivity)
    kind = dividing_calibration(sessions_of(nearest))
    points = since_last_change(history)
    if not kind:
        points = _on_a_machine_as_fast(new, points, sensitivity)
    if len(points) < 2 or ratio.reason:  # noqa: PLR2004  (the nearest alone is no history)
        return Standing(ratio=ratio)
    numbers = [known(each, kind) for each in (*map(sessions_of, points), new)]
    share = replace(sensitivity, errors=sensitivity.errors / (len(SESSION_LOOKS) + 1))
    return Standing(ratio=ratio, crept=creep(numbers, share), oldest=points[0])


def has_crept(found: Standing) -> bool:
    """Whether many small steps made it slower, though the last is not known to."""
    is_slower = found.crept is not None and found.crept.change is Change.SLOWER
    return is_slower and found.ratio.change in (Change.SAME, Change.TOO_NOISY)


def since_last_change(history: Sequence[AcceptedTimes]) -> Sequence[AcceptedTimes]:
    """The points from the last one on that was accepted as a change: up to there, all was seen."""
    starts = [place for place, point in enumerate(history) if point.anew]
    return history[starts[-1] :] if starts else history


def _on_a_machine_as_fast(
    new: Sequence[Session], history: Iterable[AcceptedTimes], sensitivity: Sensitivity
) -> list[AcceptedTimes]:
    """The points that were taken while the machine was as fast as it is now."""
    return [point for point in history if not machine_moved(new, sessions_of(point), sensitivity)]


def known(sessions: Sequence[Session], kind: str = "", errors: float = 0.05) -> Accepted:
    """The floor of the sessions, over their calibration's if a kind is named, and how well known.

    The error is what makes the interval of two such floors the one that resampling gives.
    """
    floors = levels(sessions, kind)
    _, high = floor_interval(floors, floors, errors)
    quantile = -float(ndtri(errors / 2))
    return Accepted(value=float(np.exp(floors.min())), error=high / quantile / math.sqrt(2))


def why_refused(
    taken: Sequence[Times], sensitivity: Sensitivity = DEFAULT, most_load: float = MOST_LOAD
) -> str:
    """Why these sessions may not be accepted: the first reason found, empty if they may."""
    machines = [times.machine for times in taken if times.machine]
    throttles = sum(machine.throttles or 0 for machine in machines)
    if throttles:
        return (
            f"the processor slowed down for heat {throttles} times while they were taken; "
            "let the machine cool"
        )
    busy = too_busy(taken, most_load)
    return busy or why_not_accepted(judged_sessions(taken), sensitivity)


def too_busy(taken: Sequence[Times], most_load: float = MOST_LOAD) -> str:
    """Says so if the sessions' median load average was more than ``most_load`` for each core.

    Where all of them were disturbed alike, their floors agree and are wrong: only the load tells.
    """
    machines = [times.machine for times in taken if times.machine]
    loads = [machine.load for machine in machines if machine.load is not None]
    cores = max((machine.cores for machine in machines), default=1)
    if not loads or median(loads) <= most_load * cores:
        return ""
    return (
        f"got a load average of {median(loads):.1f} on {cores} cores, wanted at most "
        f"{most_load * cores:g}: let nothing else run"
    )


def sessions_of(point: AcceptedTimes) -> list[Session]:
    """What the judge takes of a point."""
    return [_session(session) for session in point.sessions]


def judged_sessions(taken: Iterable[Times]) -> list[Session]:
    """What the judge takes of a run's sessions: no more than would be kept of them."""
    return [_session(kept_session(times)) for times in taken]


def _session(kept: KeptSession) -> Session:
    return Session(samples=kept.samples, calibration=kept.calibration)
