"""The loops at three sizes, and where each arm is tried."""

from functools import partial

from assay import Level, Scope
from suites.dus_remat.arms import AS_FAST_AS_THEIR_REFERENCE, loop_arms, remat_arms
from suites.dus_remat.formulas import StackWorkload
from suites.dus_remat.known_defects import KNOWN_DEFECTS
from suites.dus_remat.stacks import StackSizes
from suites.dus_remat.twins import twin_arms

UPSTREAM = StackSizes(length=15, iterations=15, row=(2, 2048, 48, 128))
"""The report's own, a stack of 1440 MiB: no on-chip memory holds it (a TPU has 16 to 128 MiB)."""

MIDDLE = StackSizes(length=15, iterations=15, row=(2, 512, 48, 128), executed=True)
"""A stack of 360 MiB, which no cache of a CPU holds; runs in seconds."""

SMALL = StackSizes(length=15, iterations=15, row=(2, 8, 16, 128), executed=True, timed=True)
"""A stack of 1.9 MiB; runs in a second on two CPU cores."""

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
"""The report's program, those that some compiler copies, and remedies."""

_FITS_A_SMALL_DEVICE = ("[!n]*", "no-remat", "no-remat-pipeline")
"""All but the controls that keep every activation of several layers or stages."""


def _workload(name: str, sizes: StackSizes, *scopes: Scope) -> StackWorkload:
    return StackWorkload(
        suite="dus_remat",
        name=name,
        stack=sizes,
        arms=(*loop_arms(sizes), *remat_arms(sizes), *twin_arms(sizes)),
        scopes=scopes,
        known_defects=KNOWN_DEFECTS,
    )


_quick = partial(Scope, level=Level.QUICK)
_full = partial(Scope, level=Level.FULL)

STACK = _workload(
    "stack",
    UPSTREAM,
    _quick(targets=("gpu-h100*", "tpu-v5e*"), arms=_TELLING),
    _full(targets=("cpu*", "gpu-[abh]*", "tpu-v[46]*", "tpu-v5p*", "tpu7x*")),
    _full(targets=("gpu-l4*", "tpu-v5e*"), arms=_FITS_A_SMALL_DEVICE),
)
TIMED = _workload(
    "stack-timed", SMALL, _full(targets=("cpu", "gpu", "tpu"), arms=AS_FAST_AS_THEIR_REFERENCE)
)
MIDDLE_STACK = _workload("stack-middle", MIDDLE, _full(targets=("cpu*", "gpu", "tpu")))
EXECUTED = _workload("stack-executed", SMALL, _quick(targets=("cpu*", "gpu", "tpu")))

COMPILED = (STACK, MIDDLE_STACK, EXECUTED)
EXECUTED_WORKLOADS = (MIDDLE_STACK, EXECUTED)
