"""What the choices rest on: whether the work added is what it says, and what calibration is worth.

Both are printed beside the table, from the same raw runs.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from assay.judge.changes import Change, Floats
from assay.judge.ratios import ratio_of_turns
from benchmarks.timing_judgement.program import CALIBRATION, SIZES
from benchmarks.timing_judgement.runs import ADDED, AGAINST_STORED, IN_ONE_RUN, Run

_LOADS: Final = (0, 4, 6, 8, 12, math.inf)


def measured_work(runs: Sequence[Run]) -> Iterator[str]:
    """For each program, the median ratio that turns of the loop added really made."""
    for program in SIZES:
        parts = []
        for added in ADDED:
            ratios = [
                ratio_of_turns(run.first, run.second).ratio
                for run in _of(runs, IN_ONE_RUN, program, added)
            ]
            if ratios:
                parts.append(f"{added} % more turns took {np.median(ratios):.4f} times as long")
        if parts:
            yield f"{program}: {', '.join(parts)}"


def spreads(runs: Sequence[Run]) -> Iterator[str]:
    """For each program, how sessions of one and the same work differ, bare and divided.

    The spread is the median distance from the median, times 1.48: a standard deviation, were the
    noise normal; the tenth of sessions that lies furthest off is told beside it.
    """
    for program in SIZES:
        sessions = _of(runs, AGAINST_STORED, program, 0)
        if len(sessions) < 2:  # noqa: PLR2004 - a spread takes two
            continue
        floors = _logs([min(run.second) for run in sessions])
        medians = _logs([float(np.median(run.second)) for run in sessions])
        parts = [f"floors {_spread(floors)}", f"medians {_spread(medians)}"]
        for kind in CALIBRATION:
            by = _logs([min(run.calibration[kind]) for run in sessions])
            parts.append(f"floors over {kind} {_spread(floors - by)}")
        yield f"{program}, {len(sessions)} sessions: {', '.join(parts)}"


def noise_by_load(runs: Sequence[Run]) -> Iterator[str]:
    """For each program and load, how many comparisons in one run were too noisy to say."""
    for program in SIZES:
        parts = []
        for low, high in itertools.pairwise(_LOADS):
            changes = [
                ratio_of_turns(run.first, run.second).change
                for run in runs
                if (run.kind, run.program) == (IN_ONE_RUN, program) and low <= run.load < high
            ]
            if changes:
                noisy = changes.count(Change.TOO_NOISY)
                parts.append(f"{noisy}/{len(changes)} at a load average of {low:g} to {high:g}")
        if parts:
            yield f"{program}, too noisy in one run: {', '.join(parts)}"


def _of(runs: Sequence[Run], kind: str, program: str, added: int) -> list[Run]:
    return [run for run in runs if (run.kind, run.program, run.added) == (kind, program, added)]


def _logs(values: Sequence[float]) -> Floats:
    logs: Floats = np.log(np.array(values))
    return logs


def _spread(logs: Floats) -> str:
    off = np.abs(logs - np.median(logs))
    return f"{1.48 * np.median(off):.1%} (a tenth beyond {np.quantile(off, 0.9):.1%})"
