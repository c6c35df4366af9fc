"""The odd machine of a fleet: whose verdicts, numbers or times are not those of the others.

Each machine runs the same programs. Its time on a program is compared with the fleet's, the median
of the machines' medians. The mean over its programs and its interval are those of
``assay.stats.processes``: programs take the place of pairs of processes. The interval is judged as
that of any ratio, at errors that all machines share.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Final

import numpy as np
from scipy.special import ndtri

from assay.model.fleet import Deviation, Machine, MachineRun
from assay.model.timing import Ratio, Sensitivity
from assay.model.units import Unit
from assay.model.verdict import Outcome, Record
from assay.stats.processes import random_effects
from assay.stats.ratios import judged, logarithms, signed_rank_interval

SENSITIVITY: Final = Sensitivity(least=0.05, seen=0.15)
"""A machine is odd if it is certainly more than 5 % slower or faster; see docs/fleet.md."""
_FEWEST_SAMPLES: Final = 6
_ONE_SIGMA: Final = 0.3173
_MEASURED: Final = (Unit.BYTES, Unit.COUNT)
"""Units of numbers that are equal on equal machines."""

Program = tuple[str, ...]


def compared(runs: Sequence[MachineRun]) -> tuple[Machine, ...]:
    """Compare each machine with the fleet."""
    ratios = ratios_of({run.name: dict(_samples(run)) for run in runs})
    usual = _usual(runs)
    return tuple(
        Machine(run=run, ratio=ratios.get(run.name), deviations=tuple(_deviations(run, usual)))
        for run in runs
    )


def ratios_of(
    samples: Mapping[str, Mapping[Program, Sequence[float]]],
    sensitivity: Sensitivity = SENSITIVITY,
) -> dict[str, Ratio]:
    """Each machine's times over the fleet's, from seconds by machine and program.

    A program counts if at least two machines ran it. A machine without such a program has no ratio.

    Raises:
        ValueError: fewer than six samples of a program, or times that are not positive.
    """
    centers: dict[Program, dict[str, float]] = {}
    errors: dict[tuple[str, Program], float] = {}
    for name, programs in samples.items():
        for program, seconds in programs.items():
            logs = logarithms(seconds, "samples", at_least=_FEWEST_SAMPLES)
            center, (low, high) = signed_rank_interval(logs, _ONE_SIGMA)
            centers.setdefault(program, {})[name] = center
            errors[name, program] = (high - low) / 2
    share = sensitivity.errors / max(len(samples), 1)
    found: dict[str, Ratio] = {}
    for name in samples:
        own = [program for program, each in centers.items() if name in each and len(each) > 1]
        if own:
            fleet = [centers[program][name] - median(centers[program].values()) for program in own]
            view = _mean(fleet, [errors[name, program] for program in own], share)
            found[name] = judged(view, len(own), sensitivity)
    return found


def _mean(
    centers: Sequence[float], errors: Sequence[float], share: float
) -> tuple[float, tuple[float, float]]:
    """The mean over programs and its interval; a single program's interval is its own noise."""
    if len(centers) == 1:
        center, half = centers[0], -float(ndtri(share / 2)) * errors[0]
    else:
        center, half = random_effects(np.array(centers), np.array(errors), share)
    return center, (center - half, center + half)


def _samples(run: MachineRun) -> Iterator[tuple[Program, Sequence[float]]]:
    for times in run.times:
        for variant in (times.reference, times.judged):
            if len(variant.samples) >= _FEWEST_SAMPLES and all(map(_is_time, variant.samples)):
                key = (times.suite, times.workload, variant.variant, times.target, times.question)
                yield key, variant.samples


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds > 0


def _fact(record: Record) -> tuple[Outcome, float | None]:
    """What equal machines must agree on."""
    return record.verdict, record.measured if record.unit in _MEASURED else None


def _usual(runs: Sequence[MachineRun]) -> dict[Program, Record | None]:
    """For each verdict that machines disagree on, that of most of them, or None."""
    found: dict[Program, list[Record]] = {}
    for run in runs:
        for record in run.records:
            # Noise makes a verdict inconclusive, and times differ on any two machines.
            if record.verdict is not Outcome.INCONCLUSIVE:
                found.setdefault(record.key, []).append(record)
    usual: dict[Program, Record | None] = {}
    for key, records in found.items():
        counts = Counter(map(_fact, records))
        fact, most = counts.most_common(1)[0]
        if len(counts) > 1:
            has_majority = 2 * most > len(records)
            example = next(record for record in records if _fact(record) == fact)
            usual[key] = replace(example, node="") if has_majority else None
    return usual


def _deviations(run: MachineRun, usual: Mapping[Program, Record | None]) -> Iterator[Deviation]:
    for record in run.records:
        if record.key in usual and record.verdict is not Outcome.INCONCLUSIVE:
            most = usual[record.key]
            if most is None or _fact(most) != _fact(record):
                yield Deviation(record=record, usual=most)
