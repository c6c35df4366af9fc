"""Comparisons made of raw runs: what each kind compares, what Assay says, and what it cost.

An arm in one run is a comparison as it stands. Pairs of processes and sessions cost seconds each to
start, so comparisons draw them from all that were measured: ``independent`` says how many of the
comparisons could share none, and the bounds of their rates are for that number.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from assay.judge.changes import Change
from assay.judge.ratios import ratio_of_turns
from assay.judge.reruns import PAIR_LOOKS, Turns, more_pairs, ratio_of_processes
from assay.judge.stored_times import (
    FEWEST_ACCEPTED,
    SESSION_LOOKS,
    Session,
    more_sessions,
    ratio_to_stored,
    why_not_accepted,
)
from benchmarks.timing_judgement.program import SIZES
from benchmarks.timing_judgement.runs import (
    ADDED,
    AGAINST_RERUN,
    AGAINST_STORED,
    IN_ONE_RUN,
    Run,
)

DRAWS: Final = 200
AS_USED: Final = "against a stored number, one session each"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One verdict of Assay's, and the samples that every rule may see for it.

    ``change`` is None where there is none: Assay compares no single sessions, and judges against
    no baseline that it refuses.
    """

    row: str
    program: str
    added: int
    first: Sequence[float]
    second: Sequence[float]
    change: Change | None
    seconds: float
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """All comparisons of a row, a program and a slowdown."""

    row: str
    program: str
    added: int
    comparisons: Sequence[Comparison]
    independent: float


def cells(runs: Sequence[Run]) -> Iterator[Cell]:
    """Every row, program and slowdown that was measured often enough to compare."""
    makers = {
        IN_ONE_RUN: _in_one_run,
        AGAINST_RERUN: _against_rerun,
        AGAINST_STORED: _against_stored,
        AS_USED: _as_used,
    }
    for row, make in makers.items():
        kind = AGAINST_STORED if row == AS_USED else row
        for program in SIZES:
            own = {
                added: [
                    run
                    for run in sorted(runs, key=lambda run: run.at)
                    if (run.kind, run.program, run.added) == (kind, program, added)
                ]
                for added in ADDED
            }
            for added in ADDED:
                comparisons, independent = make(own[0], own[added])
                if comparisons:
                    yield Cell(
                        row=row,
                        program=program,
                        added=added,
                        comparisons=comparisons,
                        independent=independent,
                    )


_Made = tuple[list[Comparison], float]


def _in_one_run(_: Sequence[Run], changed: Sequence[Run]) -> _Made:
    made = [
        _comparison(
            IN_ONE_RUN,
            run,
            (run.first, run.second),
            ratio_of_turns(run.first, run.second).change,
            sum(run.first) + sum(run.second),
        )
        for run in changed
    ]
    return made, len(made)


def _against_rerun(_: Sequence[Run], changed: Sequence[Run]) -> _Made:
    made: list[Comparison] = []
    used = 0
    if len(changed) < PAIR_LOOKS[-1]:
        return [], 0
    for draw in range(DRAWS):
        # The same runs give the same table.
        order = random.Random(draw).sample(changed, len(changed))  # noqa: S311
        taken = PAIR_LOOKS[0]
        while more := more_pairs([_turns(run) for run in order[:taken]]):
            taken += more
        pairs = order[:taken]
        used += taken
        sides = (_pooled(run.first for run in pairs), _pooled(run.second for run in pairs))
        change = ratio_of_processes([_turns(run) for run in pairs]).change
        seconds = sum(map(sum, sides)) + sum(run.start for run in pairs)
        made.append(_comparison(AGAINST_RERUN, pairs[0], sides, change, seconds))
    return made, len(changed) * DRAWS / used


def _against_stored(same: Sequence[Run], changed: Sequence[Run]) -> _Made:
    """A baseline of sessions in a row, and later ones in a row, at random places in time."""
    made: list[Comparison] = []
    used = 0
    newest = SESSION_LOOKS[-1]
    for draw in range(DRAWS):
        chance = random.Random(draw)  # noqa: S311
        if len(same) < FEWEST_ACCEPTED + newest:
            return [], 0
        begin = chance.randrange(len(same) - FEWEST_ACCEPTED - newest + 1)
        baseline = same[begin : begin + FEWEST_ACCEPTED]
        later = [run for run in changed if run.at > baseline[-1].at]
        if len(later) < newest:
            continue
        begin = chance.randrange(len(later) - newest + 1)
        judged, taken = _stored(baseline, later[begin : begin + newest])
        made.append(judged)
        used += taken + FEWEST_ACCEPTED
    return made, (len(same) + len(changed)) / 2 * len(made) / used if used else 0


def _stored(baseline: Sequence[Run], later: Sequence[Run]) -> tuple[Comparison, int]:
    accepted = [_session(run) for run in baseline]
    refused = why_not_accepted(accepted)
    taken = SESSION_LOOKS[0]
    while more := more_sessions([_session(run) for run in later[:taken]], accepted):
        taken += more
    new = later[:taken]
    change = None if refused else ratio_to_stored([_session(run) for run in new], accepted).change
    sides = (_pooled(run.second for run in baseline), _pooled(run.second for run in new))
    judged = _comparison(
        AGAINST_STORED, new[0], sides, change, sum(map(_seconds, new)), refused=refused
    )
    return judged, taken


def _as_used(same: Sequence[Run], changed: Sequence[Run]) -> _Made:
    """One session stored, one new: what the other rules are used on, at a fraction of the cost."""
    made: list[Comparison] = []
    if len(same) < FEWEST_ACCEPTED:
        return made, 0
    for draw in range(DRAWS):
        chance = random.Random(draw)  # noqa: S311
        stored = chance.choice(same)
        later = [run for run in changed if run.at > stored.at]
        if later:
            new = chance.choice(later)
            sides = (stored.second, new.second)
            made.append(_comparison(AS_USED, new, sides, None, _seconds(new)))
    return made, min(len(made), (len(same) + len(changed)) / 4)


def _comparison(
    row: str,
    run: Run,
    sides: tuple[Sequence[float], Sequence[float]],
    change: Change | None,
    seconds: float,
    *,
    refused: str = "",
) -> Comparison:
    return Comparison(
        row=row,
        program=run.program,
        added=run.added,
        first=sides[0],
        second=sides[1],
        change=change,
        seconds=seconds,
        refused=refused,
    )


def _turns(run: Run) -> Turns:
    return Turns(first=run.first, second=run.second)


def _session(run: Run) -> Session:
    return Session(samples=run.second, calibration=run.calibration)


def _seconds(session: Run) -> float:
    return session.start + sum(session.second) + sum(map(sum, session.calibration.values()))


def _pooled(samples: Iterator[list[float]]) -> list[float]:
    return [seconds for each in samples for seconds in each]
