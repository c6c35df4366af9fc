"""What today's compilers do not keep, and where that is reported.

Each entry was seen broken with jaxlib 0.10.2 and 0.12.0.1 (libtpu 0.0.52 for TPUs), or with that
one of them which its toolchain leaves. The README of this suite tells each story.
"""

from functools import partial

from assay import KnownDefect

# Each with its exponent: what is copied whole grows with the stack, and so does its time.
_COPIES, _MEMORY, _TIME = "copied-bytes-per-iteration*", "temp-bytes-at-most", "time-[ge]*"
_RATIO = "time-ratio"
_EVERYWHERE, _CPU, _GPU, _TPU = ("*",), ("cpu*",), ("gpu*",), ("tpu*",)
_OLDER = {"jaxlib": "<0.12"}

_reported = partial(
    KnownDefect, upstream="https://github.com/google/paxml/issues/17", last_seen="2026-11-21"
)
_related = partial(KnownDefect, upstream="https://github.com/openxla/xla", last_seen="2026-11-21")

KNOWN_DEFECTS = (
    _reported(
        arms=("reshape-read",),
        claims=(_COPIES, _MEMORY, _TIME),
        targets=_CPU,
        reason="a row read back from the reshaped stack makes the reshape a stack of its own: "
        "five copies in each iteration",
    ),
    _reported(
        arms=("reshape", "at-add-reshape", "two-stacks"),
        claims=(_COPIES, _MEMORY, _TIME),
        targets=_CPU,
        toolchain=_OLDER,
        reason="the reshape is taken for a new stack, and is copied there and back",
    ),
    _reported(
        arms=("reshape", "reshape-read", "at-add-reshape", "two-stacks", "two-updates"),
        claims=(_COPIES, _MEMORY),
        targets=_TPU,
        reason="the view has other tiles than the stack: each iteration lays the whole stack out "
        "anew, there and back",
    ),
    _reported(
        arms=("two-updates",),
        claims=(_COPIES, _MEMORY, _TIME),
        targets=_CPU,
        reason="of two updates through two views only one shares the stack's bytes",
    ),
    _reported(
        arms=("barrier",),
        claims=(_COPIES, _MEMORY, _TIME, _RATIO),
        targets=_CPU,
        reason="a barrier round the view keeps the stack before and after it apart",
    ),
    _related(
        arms=("transposed", "vmapped"),
        claims=(_COPIES, _MEMORY, _TIME, _RATIO),
        targets=_CPU,
        reason="the stack is really transposed there and back; GPU and TPU choose a layout in "
        "which it is a view",
    ),
    _related(
        arms=("bitcast-converted",),
        claims=(_COPIES, _MEMORY),
        targets=_TPU,
        reason="the stack becomes integers and numbers again, whole, in each iteration",
    ),
    _related(
        arms=("bitcast-converted",),
        claims=(_TIME,),
        targets=_CPU,
        toolchain={"jaxlib": ">=0.12"},
        reason="the update behind the bitcast shares the stack's bytes, but writes all of them; "
        "only the time shows it",
    ),
    _related(
        arms=("read-old", "read-old-dot"),
        claims=(_COPIES, _MEMORY, _TIME),
        targets=_CPU,
        reason="the read of the old stack is scheduled after the write, so the old one is copied "
        "first; read the new stack where it is another row",
    ),
    _related(
        arms=("read-old-barrier",),
        claims=(_COPIES, _MEMORY, _TIME),
        targets=_CPU,
        toolchain=_OLDER,
        reason="the barrier that orders the read before the write makes copies of its own",
    ),
    _related(
        arms=("read-old-dot-barrier",),
        claims=(_COPIES,),
        targets=_CPU,
        toolchain=_OLDER,
        reason="the barrier that orders the read before the write makes copies of its own",
    ),
    _related(
        arms=("swap",),
        claims=(_COPIES, _MEMORY, _TIME),
        targets=_EVERYWHERE,
        reason="stacks that change places are copied past each other; unroll the loop by two",
    ),
    _related(
        arms=("duplicate", "keep-old"),
        claims=(_COPIES, _TIME),
        targets=_EVERYWHERE,
        reason="two carries cannot share one buffer: each iteration copies the stack; make the "
        "second after the loop",
    ),
    _related(
        arms=("conditional",),
        claims=(_COPIES, _MEMORY),
        targets=_GPU,
        toolchain=_OLDER,
        reason="the branches do not share the stack's buffer; choose between rows instead",
    ),
    _related(
        arms=("pipeline", "pipeline-4"),
        claims=(_COPIES,),
        targets=_CPU,
        reason="the gradient of a carried stack is read and cleared row by row, and the read is "
        "scheduled after the write; let the scan stack its results",
    ),
    _related(
        arms=("pipeline-4", "pipeline-4-ys"),
        claims=(_MEMORY,),
        targets=_GPU,
        toolchain=_OLDER,
        reason="between the loops the saved stack is copied once into another layout",
    ),
)
