"""The loops at three sizes, and where each variant is tried."""

from dataclasses import replace
from functools import partial

from assay import Level, Scope, Workload
from suites.dus_remat.formulas import StackWorkload
from suites.dus_remat.known_defects import KNOWN_DEFECTS, UPSTREAM_ISSUE
from suites.dus_remat.negative_controls import negative_control_variants
from suites.dus_remat.stacks import StackSizes
from suites.dus_remat.variants import (
    AS_FAST_AS_THEIR_REFERENCE,
    GROWING,
    TIMED_ALONE,
    growing_variants,
    loop_variants,
    remat_variants,
)

UPSTREAM = StackSizes(length=15, iterations=15, row=(2, 2048, 48, 128))
"""The report's own, a stack of 1440 MiB: no on-chip memory holds it (a TPU has 16 to 128 MiB)."""

MIDDLE = StackSizes(length=15, iterations=15, row=(2, 512, 48, 128), executed=True)
"""A stack of 360 MiB, which no cache of a CPU holds; runs in seconds."""

SMALL = StackSizes(length=15, iterations=15, row=(2, 8, 16, 128), executed=True, timed_at=(16, 128))
"""A stack of 1.9 MiB; runs in a second on two CPU cores. Timed are stacks of 2 and 16 MiB, of
lengths that leave a loop unrolled by two no iteration over: so far apart, for jax 0.10.2 copies
8 MiB twice as fast as 2, on both cores."""

LARGE = replace(SMALL, row=(2, 128, 48, 128))
"""The same for accelerators: timed are stacks of 96 and 768 MiB. An H200 starts kernels all the
time while it copies 2 MiB, so a loop that copies takes no longer (jax 0.11.2, 2026-11-26). 96 MiB
take it 53 microseconds (docs/device.md)."""

TIMED_SIZES = replace(SMALL, row=(2, 8, 8, 128), timed_at=(16, 24, 32, 48, 64, 80, 112, 144))
"""Stacks of 1 to 9 MiB; so many lengths that the interval of an exponent is narrow."""

GROWN = replace(MIDDLE, iterations=4, executed=False)
GROWN_TO = (4, 8, 16, 32, 64)
"""Stacks of 96 MiB to 1.5 GiB, which no on-chip memory holds and every model's memory does."""

_TELLING = (
    "plain",
    "squeeze",
    "reshape",
    "reshape-outside",
    "reshape-read",
    "transposed",
    "bitcast-converted",
    "barrier",
    "at-set",
    "conditional",
    "two-updates",
    "vmapped",
    "read-old",
    "swap",
    "swap-unrolled",
    "duplicate",
    "keep-old",
    "keep-old-once",
    "remat",
    "pipeline",
)
"""The report's program, those that some compiler copies, and remedies. The last two, whole
training steps, take half a minute to compile for a TPU."""

_DECISIVE = (
    "plain",
    "reshape",
    "reshape-outside",
    "reshape-read",
    "swap",
    "duplicate",
    "keep-old-once",
    "remat",
    "pipeline",
)
"""The report's program, its remedy, and one of each way in which a compiler comes to copy."""

_FITS_A_SMALL_DEVICE = ("[!n]*", "no-remat", "no-remat-pipeline")
"""All but the controls that keep every activation of several layers or stages."""


def _workload(name: str, sizes: StackSizes, *scopes: Scope) -> StackWorkload:
    return StackWorkload(
        suite="dus_remat",
        name=name,
        stack=sizes,
        variants=(*loop_variants(sizes), *remat_variants(sizes), *negative_control_variants(sizes)),
        scopes=scopes,
        known_defects=KNOWN_DEFECTS,
        upstream_issue=UPSTREAM_ISSUE,
    )


_quick = partial(Scope, level=Level.QUICK)
_full = partial(Scope, level=Level.FULL)
_device = partial(Scope, level=Level.DEVICE)

STACK = _workload(
    "stack",
    UPSTREAM,
    _quick(targets=("gpu-h100*",), variants=_TELLING),
    _quick(targets=("tpu-v5e*",), variants=_TELLING[:-2]),
    _full(targets=("cpu*", "gpu-[abh]*", "tpu-v[46]*", "tpu-v5p*", "tpu7x*")),
    _full(targets=("gpu-l4*", "tpu-v5e*"), variants=_FITS_A_SMALL_DEVICE),
)
_TIMED = (*AS_FAST_AS_THEIR_REFERENCE, *GROWING)
TIMED = (
    _workload("stack-timed", TIMED_SIZES, _full(targets=("cpu*",), variants=_TIMED)),
    _workload(
        "stack-large-timed",
        replace(LARGE, timed_at=TIMED_SIZES.timed_at),
        _full(targets=("gpu", "tpu"), variants=_TIMED),
    ),
)
HELD_TO_BASELINE = (
    _workload("stack-baseline", TIMED_SIZES, _device(targets=("cpu*",), variants=TIMED_ALONE)),
    _workload(
        "stack-middle-baseline", MIDDLE, _device(targets=("gpu", "tpu"), variants=TIMED_ALONE)
    ),
)
"""Timed alone, against what was stored on the machine: only where it is the same every night."""

GROWN_STACK = Workload(
    suite="dus_remat",
    name="stack-grown",
    variants=growing_variants(GROWN, GROWN_TO),
    scopes=(_full(targets=("cpu*", "gpu-h100*", "tpu-v5e*"), variants=GROWING),),
    known_defects=KNOWN_DEFECTS,
)
MIDDLE_STACK = _workload("stack-middle", MIDDLE, _full(targets=("cpu*", "gpu", "tpu")))
EXECUTED = _workload(
    "stack-executed",
    SMALL,
    _quick(targets=("cpu*",), variants=_DECISIVE),
    _full(targets=("cpu*",)),
)
LARGE_STACK = _workload("stack-large", LARGE, _quick(targets=("gpu", "tpu")))

COMPILED = (STACK, MIDDLE_STACK, LARGE_STACK, EXECUTED)
EXECUTED_WORKLOADS = (MIDDLE_STACK, LARGE_STACK, EXECUTED)
