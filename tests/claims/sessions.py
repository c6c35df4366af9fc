"""Synthetic sessions of one arm, and histories of accepted ones, on a machine of a known name."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from assay.model.claim import Case
from assay.model.evidence import Toolchain
from assay.model.history import AcceptedTimes, History, kept_session
from assay.model.timing import ArmTimes, Calibration, Ending, Machine, Times
from tests.judge.noisy import level

from .cases import ARM, VERSIONS, WORKLOAD, case

MACHINE = Machine(cpu="Fast CPU @ 3 GHz", cores=8, device="cpu", governor="performance", load=0.5)
KINDS = {"matmul": 1e-3, "copy": 5e-4, "dispatch": 3e-5}


def session(seconds: float, seed: int, *, speed: float = 1.0, **machine: Any) -> Times:
    """One process: a run takes ``seconds`` times the machine's ``speed``, of which more is slower.

    Processes differ by 0.4 %, most samples are disturbed.
    """
    own = float(np.exp(np.random.default_rng(seed).normal(0, 0.004)))
    works = {
        kind: tuple(level(at * speed, 31 * seed + place, count=20).tolist())
        for place, (kind, at) in enumerate(KINDS.items())
    }
    samples = level(seconds * speed * own, 97 * seed, count=48)
    return Times(
        suite=WORKLOAD.suite,
        workload=WORKLOAD.name,
        target="cpu",
        question="session",
        toolchain=Toolchain(versions=VERSIONS),
        reference=ArmTimes(arm=""),
        judged=ArmTimes(arm=ARM.name, first=2 * seconds, samples=tuple(samples.tolist())),
        ended=Ending.ENOUGH,
        machine=replace(MACHINE, **machine),
        before=Calibration(**works),
        after=Calibration(**works),
    )


def taken(seconds: float, seed: int, count: int = 8, **rest: Any) -> tuple[Times, ...]:
    """Sessions of one run."""
    return tuple(session(seconds, 1000 * seed + number, **rest) for number in range(count))


def point(seconds: float, seed: int, *, day: int = 1, speed: float = 1.0, **rest: Any) -> Any:
    """Sessions that were accepted together."""
    known: dict[str, Any] = {
        "run": f"run-{day}",
        "at": f"2026-11-{day:02}T12:00:00+00:00",
        "why": f"day {day}",
        "toolchain": dict(VERSIONS),
        "sessions": tuple(map(kept_session, taken(seconds, seed, speed=speed))),
    }
    return AcceptedTimes(**known | rest)


def stored(new: Sequence[Times], *points: AcceptedTimes, seen: bool = True, **rest: Any) -> Case:
    """The good arm's case with sessions of its own, and what was accepted on the machine."""
    history = History(machine=MACHINE, seen=seen, accepted=points)
    return replace(case(), sessions=tuple(new), history=replace(history, **rest))
