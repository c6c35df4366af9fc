"""History: the times of one arm that were accepted on one machine, the oldest first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from assay.model.timing import ArmTimes, Machine, Times
from assay.model.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSession:
    """What is kept of one fresh process: its samples in seconds, in order, and the machine's own.

    ``load`` and ``throttles`` are those of its ``Machine``.
    """

    samples: tuple[float, ...]
    calibration: Mapping[str, tuple[float, ...]]
    load: float | None = None
    throttles: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedTimes:
    """Sessions that were accepted together: by which run, when (ISO 8601, UTC), and why.

    ``anew`` says that they were accepted as a change, which somebody saw: what creeps is measured
    from here on.
    """

    run: str
    at: str
    why: str
    toolchain: dict[str, str]
    sessions: tuple[KeptSession, ...]
    anew: bool = False

    @property
    def floor(self) -> float:
        """The fastest sample of all, in seconds."""
        return min(min(session.samples) for session in self.sessions)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What was accepted of one arm on one machine; ``seen`` says if anything was, of any arm.

    ``unit`` and ``better`` are what the times were accepted as, in words.
    """

    machine: Machine
    seen: bool
    unit: Unit = Unit.SECONDS
    better: str = "less"
    accepted: tuple[AcceptedTimes, ...] = field(default_factory=tuple)


def kept_session(times: Times) -> KeptSession:
    """What is kept of a session; six digits are a thousandth of the least change that matters."""
    machine = times.machine
    return KeptSession(
        samples=_rounded(times.judged.samples),
        calibration={work: _rounded(taken) for work, taken in times.calibration.items()},
        load=machine.load if machine else None,
        throttles=machine.throttles if machine else None,
    )


def _rounded(seconds: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(f"{each:.6g}") for each in seconds)


def pooled(sessions: Sequence[Times]) -> Times:
    """Sessions of one arm as one: all samples in the order taken, all else as in the first."""
    first = sessions[0]
    samples = tuple(sample for session in sessions for sample in session.judged.samples)
    return replace(
        first,
        question="1 session" if len(sessions) == 1 else f"{len(sessions)} sessions",
        judged=replace(first.judged, samples=samples),
        ended=sessions[-1].ended,
        after=sessions[-1].after,
        seconds=sum(session.seconds for session in sessions),
    )


def gathered(all_times: Iterable[Times]) -> Iterator[Times]:
    """The same times, but the sessions of each arm as one."""
    sessions: dict[tuple[str, ...], list[Times]] = {}
    for times in all_times:
        if times.is_alone:
            place = (times.suite, times.workload, times.judged.arm, times.target)
            sessions.setdefault(place, []).append(times)
        else:
            yield times
    yield from map(pooled, sessions.values())


def beside(times: Times, arm: ArmTimes) -> str:
    """What an arm was timed beside: the other one's name, or how many sessions it had alone."""
    if times.is_alone:
        return times.question
    return (times.judged if arm is times.reference else times.reference).arm
