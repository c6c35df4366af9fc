"""What today's compilers do not keep, how it fails, and where that is reported.

Each entry was seen to fail with jaxlib 0.10.2 and 0.12.0.1 (libtpu 0.0.52 for TPUs), or with that
one of them which its toolchain leaves. `assay matrix` gave the ranges before 0.10.2, from releases
since 0.8.0 (`bitcast-converted` on GPUs: since 0.7.1). The README of this suite tells each story.
"""

from functools import partial

from assay import (
    Case,
    Expected,
    KnownDefect,
    Measures,
    RemedyEffect,
    Upstream,
    UpstreamIssue,
    UpstreamState,
)
from suites.dus_remat.formulas import StackWorkload

_EVERYWHERE, _CPU, _GPU, _TPU = ("*",), ("cpu*",), ("gpu*",), ("tpu*",)
_OLDER, _NEWER = {"jaxlib": "<0.12"}, {"jaxlib": ">=0.12"}
_OLDEST, _BETWEEN = {"jaxlib": "<0.10.2"}, {"jaxlib": ">=0.10.2,<0.12"}
"""The CPU compiler of jaxlib 0.10.2 copies a reshaped stack once more than its predecessors."""
_BESIDES = 0.3
"""Of a stack: rows in flight, and the padding of a TPU's tiles (seen: up to 0.27)."""

_Ways = Expected | tuple[Expected, ...]

_REPORT = Upstream(
    link="https://github.com/google/paxml/issues/17",
    state=UpstreamState.OPEN,
    opened="2023-04-05",
    seen="2026-11-25",
)
_UNREPORTED = Upstream(link="https://github.com/openxla/xla", state=UpstreamState.UNREPORTED)
_REMEDIES = {
    "reshape": "reshape-outside",
    "reshape-read": "reshape-read-outside",
    "barrier": "reshape-outside",
    "transposed": "transposed-outside",
    "bitcast-converted": "bitcast-converted-outside",
    "at-add-reshape": "at-add-outside",
    "two-stacks": "two-stacks-outside",
    "two-updates": "two-updates-one-view",
    "vmapped": "vmapped-scatter",
    "conditional": "select-row",
    "read-old": "read-old-barrier",
    "read-old-dot": "read-old-dot-barrier",
    "swap": "swap-unrolled",
    "duplicate": "duplicate-after",
    "keep-old": "keep-old-once",
    "pipeline": "pipeline-ys",
    "pipeline-4": "pipeline-4-ys",
}
_entry = partial(KnownDefect, remedies=_REMEDIES, last_seen="2026-11-23")
_reported = partial(_entry, upstream=_REPORT)
_related = partial(_entry, upstream=_UNREPORTED)


def _bytes_of(stacks: float, case: Case) -> int:
    assert isinstance(case.workload, StackWorkload)
    sizes = case.workload.stack
    return round(stacks * sizes.length * sizes.row_bytes)


def _stacks(count: float) -> Measures:
    """So many whole stacks, and less than a third of one besides."""
    return Measures(least=partial(_bytes_of, count), most=partial(_bytes_of, count + _BESIDES))


def _copies(count: float) -> dict[str, _Ways]:
    """An iteration writes so many stacks whole, which grows with the stack's length."""
    return {
        "copied-bytes-per-iteration": _stacks(count),
        # 1 for what is copied alone; less by the row that each iteration writes besides.
        "copied-bytes-per-iteration-exponent": Measures(least=0.8, most=1.1),
    }


def _holds(count: float) -> dict[str, _Ways]:
    """Temporaries hold so many stacks."""
    return {"temp-bytes-at-most": _stacks(count)}


_TIME: dict[str, _Ways] = {
    # In proportion to the length is 1, and up to 4 where the longer stack leaves a cache.
    "time-growth": Measures(most=6.0),
    # In proportion is 1, and seen up to 1.5 where the stack leaves a cache on the way.
    "time-exponent": Measures(least=0.5, most=1.75),
}
_RATIO: dict[str, _Ways] = {
    # Three stacks of 15 rows, each read and written, for one row.
    "time-ratio": Measures(most=2.0 * 3 * 15)
}

UPSTREAM_ISSUE = UpstreamIssue(
    problem="A stack updated through a reshape is copied in each loop iteration",
    upstream=_REPORT,
    variants=("reshape",),
    claims=("copied-bytes-per-iteration",),
    remedy="Reshape it once outside the loop",
    effects=tuple(
        RemedyEffect(
            quantity="copied per iteration",
            workload=workload,
            claim="copied-bytes-per-iteration",
            without="reshape",
            remedied="reshape-outside",
            targets=("tpu-v5e*", "tpu*", "cpu*"),
        )
        for workload in ("stack", "stack-executed")
    ),
)

KNOWN_DEFECTS = (
    *(
        _reported(
            variants=("reshape-read",),
            expects=_copies(copies) | _holds(copies - 2) | _TIME,
            targets=_CPU,
            toolchain=toolchain,
            reason="reading a row back from the reshaped stack makes the reshape a second array: "
            f"each iteration copies the stack {copies} times",
        )
        for toolchain, copies in ((_OLDEST, 4), ({"jaxlib": ">=0.10.2"}, 5))
    ),
    *(
        _reported(
            variants=("reshape", "at-add-reshape", "two-stacks"),
            expects=_copies(copies) | _holds(copies - 1) | _TIME,
            targets=_CPU,
            toolchain=toolchain,
            reason="the compiler treats the reshape as a new array and copies the stack to it and "
            "back",
        )
        for toolchain, copies in ((_OLDEST, 2), (_BETWEEN, 3))
    ),
    _reported(
        variants=("reshape", "reshape-read", "at-add-reshape", "two-stacks"),
        expects=_copies(4) | _holds(2),
        targets=_TPU,
        reason="the reshape has other tiles than the stack: each iteration changes the layout of "
        "the whole stack twice",
    ),
    _reported(
        variants=("two-updates",),
        expects=_copies(2) | _holds(1),
        targets=_TPU,
        reason="the second reshape has other tiles than the stack: the layout of the whole stack "
        "changes",
    ),
    *(
        _reported(
            variants=("two-updates",),
            expects=_copies(copies) | _holds(1) | _TIME,
            targets=_CPU,
            toolchain=toolchain,
            reason="two updates go through two reshapes, and only one of them is in place",
        )
        for toolchain, copies in ((_OLDEST, 2), (_BETWEEN, 4), (_NEWER, 2))
    ),
    *(
        _reported(
            variants=("barrier",),
            expects=_copies(copies) | _holds(held) | _TIME | _RATIO,
            targets=_CPU,
            toolchain=toolchain,
            reason="an optimization barrier around the reshape forces separate buffers before and "
            "after it",
        )
        for toolchain, copies, held in ((_OLDEST, 2, 1), (_BETWEEN, 3, 2), (_NEWER, 2, 1))
    ),
    _related(
        variants=("transposed", "vmapped"),
        expects=_copies(2) | _holds(1) | _TIME | _RATIO,
        targets=_CPU,
        reason="the CPU compiler transposes the stack twice; the GPU (since jaxlib 0.9.2) and TPU "
        "compilers choose a layout in which the transpose is free",
    ),
    _related(
        variants=("vmapped",),
        expects=_copies(2) | _holds(1),
        targets=_GPU,
        toolchain={"jaxlib": "<0.9.2"},
        reason="the GPU compiler transposes the stack twice",
    ),
    _related(
        variants=("bitcast-converted",),
        expects=_copies(2) | _holds(1),
        targets=_TPU,
        reason="each iteration converts the whole stack to integers and back",
    ),
    _related(
        variants=("bitcast-converted",),
        expects=_copies(1),
        targets=_GPU,
        toolchain={"jaxlib": "<0.7.2"},
        reason="the kernel of the GPU compiler stores the whole stack in place, as it updates a "
        "part only at the root of a fusion",
    ),
    _related(
        variants=("bitcast-converted",),
        expects=_TIME,
        targets=_CPU,
        toolchain=_NEWER,
        reason="the update after the bitcast is in place, but writes the whole stack; only the "
        "time shows it",
    ),
    _related(
        variants=("read-old", "read-old-dot"),
        expects=_copies(2) | _holds(1) | _TIME,
        targets=_CPU,
        reason="the compiler schedules the read of the old stack after the write and copies the "
        "old stack first; if the read is of another row, read the new stack",
    ),
    _related(
        variants=("read-old-barrier",),
        expects=_copies(2) | _holds(1) | _TIME,
        targets=_CPU,
        toolchain=_OLDER,
        reason="the optimization barrier that orders the read before the write adds copies",
    ),
    _related(
        variants=("read-old-dot-barrier",),
        expects=_copies(2),
        targets=_CPU,
        toolchain=_OLDER,
        reason="the optimization barrier that orders the read before the write adds copies",
    ),
    *(
        _related(
            variants=("swap",),
            expects=_copies(copies) | _holds(held) | _TIME,
            targets=targets,
            reason="the loop swaps two stacks and copies both; unroll the loop by two",
        )
        for targets, copies, held in ((_CPU, 4, 2), ((*_GPU, *_TPU), 3, 1))
    ),
    _related(
        variants=("duplicate",),
        expects=_copies(1) | _TIME,
        targets=_EVERYWHERE,
        reason="two carries cannot share one buffer: each iteration copies the stack; compute the "
        "second one after the loop",
    ),
    *(
        _related(
            variants=("keep-old",),
            expects=_copies(copies) | _TIME,
            targets=targets,
            reason="two carries cannot share one buffer: each iteration copies the stack; compute "
            "the second one after the loop",
        )
        for targets, copies in (((*_CPU, *_GPU), 2), (_TPU, 1))
    ),
    _related(
        variants=("conditional",),
        expects=_copies(3) | _holds(1),
        targets=_GPU,
        toolchain={"jaxlib": ">=0.9,<0.11.1"},
        reason="the branches of the conditional do not share the stack's buffer; select between "
        "rows instead",
    ),
    _related(
        variants=("pipeline", "pipeline-4"),
        expects=_copies(2),
        targets=_CPU,
        reason="the gradient reads and clears a carried stack row by row, and the compiler "
        "schedules the read after the write; return the rows as scan outputs",
    ),
    _related(
        variants=("pipeline", "pipeline-ys"),
        expects=_holds(5),
        targets=_CPU,
        toolchain=_OLDEST,
        remedies={},
        reason="the gradient holds one stack more than since jaxlib 0.10.2",
    ),
    *(
        _related(
            variants=(variant,),
            expects=_holds(stacks),
            targets=_GPU,
            toolchain={"jaxlib": "<0.11.2"},
            reason="the saved stack is copied once into another layout between the two loops",
        )
        for variant, stacks in (("pipeline-4", 16.3), ("pipeline-4-ys", 16.7))
    ),
)
