"""A rerun in words: the two toolchains, their times, and what the judge says."""

from collections.abc import Iterator
from statistics import median

from assay.model.evidence import Toolchain
from assay.model.rerun import Pair, Rerun, Side
from assay.reruns.pairs import is_judged


def page(rerun: Rerun) -> str:
    """A few lines for a person; the samples themselves are in the value."""
    return "\n".join(_lines(rerun))


def _lines(rerun: Rerun) -> Iterator[str]:
    yield f"{rerun.suite}: {rerun.workload}/{rerun.variant}@{rerun.target}"
    yield _side(rerun, Side.OLD, rerun.old, rerun.old_python)
    yield _side(rerun, Side.NEW, rerun.new, rerun.new_python)
    for number, pair in enumerate(rerun.pairs, 1):
        yield f"pair {number}: {_pair(pair)}"
    if rerun.ratio is not None:
        yield f"new over old: {rerun.ratio}"
    where = f"on {rerun.side.value}: " if rerun.side else ""
    if rerun.failure is not None:
        yield f"{where}{rerun.failure.kind.value}: {rerun.failure.message}"
    if rerun.unavailable is not None:
        yield f"unsupported: {where}{rerun.unavailable.reason}"
        if rerun.unavailable.remedy:
            yield f"  {rerun.unavailable.remedy}"
    yield f"ended: {rerun.ended.value}, after {rerun.seconds:.1f} s"


def _pair(pair: Pair) -> str:
    turns = len(pair.old.samples)
    if not is_judged(pair):
        return f"{turns} turns, too few to be judged"
    ratio = median(pair.new.samples) / median(pair.old.samples)
    return f"{ratio:.4f} by medians, {turns} turns"


def _side(rerun: Rerun, side: Side, toolchain: Toolchain | None, python: str) -> str:
    if toolchain is None:
        return f"{side.value}: not reached"
    samples = rerun.samples(side)
    told = f"{side.value}: {toolchain}, Python {python}"
    if not samples:
        return told
    steady = median(samples)
    compiled = rerun.compile_seconds(side)
    seconds = "" if compiled is None else f", compiled in {compiled:.3g} s"
    return f"{told}: {1000 * steady:.4g} ms a run{seconds}"
