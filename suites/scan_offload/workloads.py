"""The scanned block at three sizes, in plain JAX and in flax, and where each variant is tried."""

from functools import partial

from assay import Level, Scope
from suites.scan_offload.flax_programs import flax_program
from suites.scan_offload.formulas import BlockVariant, BlockWorkload
from suites.scan_offload.known_defects import KNOWN_DEFECTS, UPSTREAM_ISSUE
from suites.scan_offload.programs import Budget, Sizes, block_program
from suites.scan_offload.variants import (
    CORE,
    core_variants,
    custom_vjp_variants,
    memsafe_variants,
    negative_control_variants,
    written_variants,
)

UPSTREAM = Sizes(layers=32, batch=64, sequence=8192, embedding=2048, hidden=2048)
"""The report's own: f32[32,64,8192,2048]."""

SMALL = Sizes(layers=128, batch=64, sequence=512, embedding=256, hidden=512)
"""Small rows, which compile quickly, in stacks of 0.5 and 1 GiB a device: every model holds them,
and no on-chip memory does (a TPU has 16 to 128 MiB of it)."""

EXECUTED = Sizes(layers=4, batch=16, sequence=64, embedding=128, hidden=256, executed=True)
"""Runs on two CPU cores in a second."""

UPSTREAM_BUDGET = Budget(each=8 * 2**30, devices=8)
SMALL_BUDGET = Budget(each=384 * 2**20, devices=8)
EXECUTED_BUDGET = Budget(each=3 * 10**6)
"""What memsafe may take of a device.

The program as reported takes 20.3 GiB, 0.7 GiB and 2.6 MB; without remat 40.3 GiB, 2 GiB and 3.4 MB
(H100, and the last on a CPU; jax 0.10.2).
"""

OFFLOADED = ("offload-hidden", "offload-residual-input", "offload-hidden-and-residual")
"""What is timed: the report's policy, the remedy, and both."""

_MOST_LAYERS_IN_A_LOOP = 32
"""A Python loop is compiled layer by layer; more would take minutes."""

_REPORTED_ON = ("gpu-h100:8", "tpu-v5p:2x2x2")
_FITS_V5E = ("nothing", "save-residual-*", "offload-residual-*")

_UPSTREAM_SCOPES = (
    Scope(level=Level.FULL, targets=_REPORTED_ON),
    Scope(level=Level.FULL, targets=("cpu:8",), variants=("[!m]*",)),  # No host for memsafe.
    Scope(level=Level.FULL, targets=("tpu-v5e:2x4",), variants=_FITS_V5E),
)
_REPORTED_SCOPES = (
    Scope(level=Level.QUICK, targets=("gpu-h100:8",), variants=(*CORE, "memsafe")),
    *_UPSTREAM_SCOPES,
)
_SMALL_SCOPES = (
    Scope(level=Level.QUICK, targets=("tpu-v5e:2x4",), variants=CORE),
    Scope(level=Level.QUICK, targets=("gpu", "tpu")),
    Scope(level=Level.FULL, targets=("gpu-*", "tpu*"), variants=CORE),
    Scope(level=Level.FULL, targets=(*_REPORTED_ON, "tpu-v5e:2x4")),
)
_SMALL_FLAX_SCOPES = (
    Scope(level=Level.QUICK, targets=("gpu", "tpu")),
    Scope(level=Level.FULL, targets=("gpu*", "tpu*")),
)
_EXECUTED_SCOPES = (
    Scope(level=Level.QUICK, targets=("cpu*",), variants=CORE),
    # On a GPU the program takes 11 MB, and memsafe at the least 5.3: not within a CPU's budget.
    Scope(level=Level.QUICK, targets=("gpu", "tpu"), variants=("[!m]*",)),
    Scope(level=Level.FULL, targets=("cpu*",)),
)
_EXECUTED_FLAX_SCOPES = (
    Scope(level=Level.QUICK, targets=("gpu", "tpu")),
    Scope(level=Level.FULL, targets=("cpu*",)),
)


def _block_variants(sizes: Sizes, budget: Budget) -> tuple[BlockVariant, ...]:
    written = written_variants(sizes, block_program)
    if sizes.layers > _MOST_LAYERS_IN_A_LOOP:
        written = tuple(variant for variant in written if not variant.name.startswith("loop-"))
    safe = memsafe_variants(sizes, budget)
    return (
        *written,
        # Small rows move in more than twice the time in which they are computed.
        *(safe if sizes != SMALL else safe[:1]),
        *custom_vjp_variants(sizes),
        *negative_control_variants(sizes, block_program),
    )


def _flax_variants(sizes: Sizes) -> tuple[BlockVariant, ...]:
    return (*core_variants(sizes, flax_program), *negative_control_variants(sizes, flax_program))


_block = partial(
    BlockWorkload,
    suite="scan_offload",
    known_defects=KNOWN_DEFECTS,
    upstream_issue=UPSTREAM_ISSUE,
)

COMPILED = (
    _block(
        name="block-full",
        block=UPSTREAM,
        variants=_block_variants(UPSTREAM, UPSTREAM_BUDGET),
        budget=UPSTREAM_BUDGET,
        scopes=_REPORTED_SCOPES,
    ),
    _block(
        name="block",
        block=SMALL,
        variants=_block_variants(SMALL, SMALL_BUDGET),
        budget=SMALL_BUDGET,
        scopes=_SMALL_SCOPES,
    ),
    _block(
        name="flax-full", block=UPSTREAM, variants=_flax_variants(UPSTREAM), scopes=_UPSTREAM_SCOPES
    ),
    _block(name="flax", block=SMALL, variants=_flax_variants(SMALL), scopes=_SMALL_FLAX_SCOPES),
)
EXECUTED_WORKLOADS = (
    _block(
        name="block-executed",
        block=EXECUTED,
        variants=_block_variants(EXECUTED, EXECUTED_BUDGET),
        budget=EXECUTED_BUDGET,
        scopes=_EXECUTED_SCOPES,
    ),
    _block(
        name="flax-executed",
        block=EXECUTED,
        variants=_flax_variants(EXECUTED),
        scopes=_EXECUTED_FLAX_SCOPES,
    ),
)
TIMED = _block(
    name="block-timed",
    block=EXECUTED,
    variants=_block_variants(EXECUTED, EXECUTED_BUDGET),
    budget=EXECUTED_BUDGET,
    scopes=(Scope(level=Level.FULL, targets=("cpu*",), variants=OFFLOADED),),
)
WORKLOADS = (*COMPILED, *EXECUTED_WORKLOADS)
