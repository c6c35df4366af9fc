"""Times of a run as text: a line for each timed variant, and for each comparison of toolchains."""

from collections.abc import Iterable, Iterator

from assay.model.rerun import Enough, Rerun
from assay.model.timing import Ending, Times, VariantTimes, beside, format_seconds
from assay.report.labels import DASH

RERUNS_HEAD = "Against another toolchain"


def rerun_lines(reruns: Iterable[Rerun]) -> Iterator[str]:
    """What was measured of each, negative controls last, and why one ended early."""
    for rerun in sorted(reruns, key=lambda each: each.negative_control):
        if rerun.pairs:
            yield f"{rerun.suite}: {rerun.workload}/{rerun.variant}@{rerun.target}: {_told(rerun)}"


def _told(rerun: Rerun) -> str:
    unfinished = f"; {rerun.ended.phrase}" if rerun.ended is not Enough.DECIDED else ""
    if rerun.ratio is None:
        return f"{len(rerun.pairs)} pair of processes, too few to be judged{unfinished}"
    return f"{rerun.told}: {rerun.ratio.change.phrase}{unfinished}"


HEAD = ("program", "beside", "steady run", "first run", "compiled in", "device", "samples")


def rows(all_times: Iterable[Times]) -> Iterator[tuple[str, ...]]:
    """The cells of a table under ``HEAD``; the medians are those of the samples taken in turns."""
    for times in all_times:
        for variant in (times.reference, times.judged):
            if variant.samples:
                yield _row(times, variant)


def _row(times: Times, variant: VariantTimes) -> tuple[str, ...]:
    unfinished = times.ended is Ending.UNFINISHED
    return (
        f"{times.workload}/{variant.variant}@{times.target}",
        beside(times, variant),
        _seconds(variant.steady),
        _seconds(variant.first),
        _seconds(variant.compile),
        _seconds(variant.on_device.busy if variant.on_device else None),
        f"{len(variant.samples)}{', unfinished' if unfinished else ''}",
    )


def _seconds(seconds: float | None) -> str:
    return DASH if seconds is None else format_seconds(seconds)
