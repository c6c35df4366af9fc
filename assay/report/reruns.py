"""Reruns in words: one line for each program that was timed on two toolchains."""

from collections.abc import Iterable, Iterator

from assay.model.rerun import Enough, Rerun

HEAD = "Against another toolchain"


def lines(reruns: Iterable[Rerun]) -> Iterator[str]:
    """What was measured of each, negative controls last, and why one ended early."""
    for rerun in sorted(reruns, key=lambda each: each.negative_control):
        if rerun.pairs:
            yield f"{rerun.suite}: {rerun.workload}/{rerun.variant}@{rerun.target}: {_told(rerun)}"


def _told(rerun: Rerun) -> str:
    unfinished = f"; {rerun.ended.value}" if rerun.ended is not Enough.DECIDED else ""
    if rerun.ratio is None:
        return f"{len(rerun.pairs)} pair of processes, too few to be judged{unfinished}"
    return f"{rerun.told}: {rerun.ratio.change.value}{unfinished}"
