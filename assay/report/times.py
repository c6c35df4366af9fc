"""Times of a run in words: one line for each arm of each pair that was timed."""

from collections.abc import Iterable, Iterator

from assay.model.timing import ArmTimes, Ending, Times, beside, format_seconds
from assay.report.words import DASH

HEAD = ("program", "beside", "steady run", "first run", "compiled in", "device", "samples")


def rows(all_times: Iterable[Times]) -> Iterator[tuple[str, ...]]:
    """The cells of a table under ``HEAD``; the medians are those of the samples taken in turns."""
    for times in all_times:
        for arm in (times.reference, times.judged):
            if arm.samples:
                yield _row(times, arm)


def _row(times: Times, arm: ArmTimes) -> tuple[str, ...]:
    unfinished = times.ended is Ending.UNFINISHED
    return (
        f"{times.workload}/{arm.arm}@{times.target}",
        beside(times, arm),
        _seconds(arm.steady),
        _seconds(arm.first),
        _seconds(arm.compile),
        _seconds(arm.on_device.busy if arm.on_device else None),
        f"{len(arm.samples)}{', unfinished' if unfinished else ''}",
    )


def _seconds(seconds: float | None) -> str:
    return DASH if seconds is None else format_seconds(seconds)
