"""Times against a stored number: the weakest comparison, with what keeps it honest.

A session is a fresh process that takes samples, and calibration samples (a matmul, a copy, a
dispatch, of fixed size) before, between or after them. Sessions differ by more than samples do, so
sessions are what is compared, by their floors. Calibration tells a slow machine from a slow
program; it divides only where that narrows the accepted sessions' own spread: on a machine that is
busy rather than slow, it adds its own noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from assay.judge.changes import (
    DEFAULT,
    Better,
    Change,
    Floats,
    Ratio,
    Sensitivity,
    judged,
    logarithms,
)
from assay.judge.floors import floor_interval

FEWEST_ACCEPTED: Final = 8
"""So many sessions make a baseline."""

SESSION_LOOKS: Final = (4, 6, 8)
"""After so many new sessions they are judged, and no more are started if they decide."""

FEWEST_SAMPLES: Final = 10
"""With fewer samples there is no floor of a session."""

_NARROWS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What one process measured, in seconds, each in the order taken."""

    samples: Sequence[float]
    calibration: Mapping[str, Sequence[float]]


def ratio_to_stored(
    new: Sequence[Session],
    accepted: Sequence[Session],
    sensitivity: Sensitivity = DEFAULT,
    *,
    better: Better = Better.LESS,
) -> Ratio:
    """The new sessions' floor over the accepted ones', judged by how sessions of each differ.

    A machine on which all calibration became slower or faster than when the baseline was accepted
    is too noisy to say, unless dividing by calibration is what the baseline's own spread asks for.

    Raises:
        ValueError: fewer than two sessions on either side, or samples that are not positive.
    """
    kind = dividing_calibration(accepted)
    ours, theirs = levels(accepted, kind), levels(new, kind)
    errors = sensitivity.errors / (len(SESSION_LOOKS) + 1)
    bounds = floor_interval(ours, theirs, errors)
    center = float(theirs.min() - ours.min())
    found = judged(center, bounds, len(theirs), sensitivity, better=better)
    moved = "" if kind else machine_moved(new, accepted, sensitivity)
    return replace(found, change=Change.TOO_NOISY, reason=moved) if moved else found


def more_sessions(
    new: Sequence[Session], accepted: Sequence[Session], sensitivity: Sensitivity = DEFAULT
) -> int:
    """How many more sessions to start before looking again; 0 if these are enough."""
    if len(new) in SESSION_LOOKS:
        seen = ratio_to_stored(new, accepted, sensitivity)
        if seen.change is not Change.TOO_NOISY:
            return 0
    return next((look - len(new) for look in SESSION_LOOKS if look > len(new)), 0)


def why_not_accepted(sessions: Sequence[Session], sensitivity: Sensitivity = DEFAULT) -> str:
    """Why these sessions make no baseline: the first reason found, empty if they make one."""
    if len(sessions) < FEWEST_ACCEPTED:
        return f"got {len(sessions)} sessions, wanted at least {FEWEST_ACCEPTED}; take more"
    if not _kinds(sessions):
        return "got no calibration in every session, wanted some to know a slow machine by; take it"
    middle = len(sessions) // 2
    moved = machine_moved(sessions[middle:], sessions[:middle], sensitivity)
    if moved:
        return f"from the first half of the sessions to the second, {moved}; let the machine cool"
    floors = levels(sessions, dividing_calibration(sessions))
    _, high = floor_interval(floors, floors, sensitivity.errors)
    if high >= np.log1p(sensitivity.seen):
        width = np.expm1(high)
        return (
            f"got sessions whose floors differ by {width:.1%} from one another, wanted less than "
            f"the {sensitivity.seen:.1%} that they are to show; quieten the machine"
        )
    return ""


def machine_moved(
    new: Sequence[Session], accepted: Sequence[Session], sensitivity: Sensitivity = DEFAULT
) -> str:
    """Says so if every kind of calibration became slower, or every kind faster, by what is seen.

    One kind alone is a neighbour's doing: it kept one core, or the memory, busy.
    """
    shifts = [
        floor_interval(_calibration(accepted, kind), _calibration(new, kind), sensitivity.errors)
        for kind in _kinds([*accepted, *new])
    ]
    slower = min((low for low, _ in shifts), default=0.0)
    faster = min((-high for _, high in shifts), default=0.0)
    for least, word in ((slower, "slower"), (faster, "faster")):
        if least > np.log1p(sensitivity.seen):
            return f"the machine is at least {np.expm1(least):.1%} {word} by all calibration"
    return ""


def dividing_calibration(accepted: Sequence[Session]) -> str:
    """The kind of calibration that halves the spread of the accepted sessions, or more; else ""."""
    spreads = {kind: float(np.std(levels(accepted, kind))) for kind in ["", *_kinds(accepted)]}
    best = min(spreads, key=lambda kind: spreads[kind])
    return best if spreads[best] < _NARROWS * spreads[""] else ""


def _kinds(sessions: Sequence[Session]) -> list[str]:
    """The kinds of calibration that every session has."""
    return sorted(set.intersection(*(set(session.calibration) for session in sessions)))


def levels(sessions: Sequence[Session], kind: str) -> Floats:
    """The floor of each session, over its calibration's if a kind is named, as logarithms."""
    if len(sessions) < 2:  # noqa: PLR2004  (a spread takes two)
        raise ValueError(f"got {len(sessions)} sessions, wanted at least 2; take more")
    floors = np.array(
        [
            logarithms(session.samples, "samples of a session", at_least=FEWEST_SAMPLES).min()
            for session in sessions
        ]
    )
    found: Floats = floors - _calibration(sessions, kind) if kind else floors
    return found


def _calibration(sessions: Sequence[Session], kind: str) -> Floats:
    """The floor of each session's calibration of a kind, as logarithms."""
    what = f"samples of the calibration {kind}"
    return np.array([logarithms(each.calibration[kind], what).min() for each in sessions])
