"""The arms of the scanned block, and where each is tried."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from assay import Level, Program, Role, Scope
from suites.scan_offload.custom_vjp_programs import custom_vjp_program
from suites.scan_offload.flax_programs import flax_program
from suites.scan_offload.formulas import BlockArm, BlockWorkload
from suites.scan_offload.known_defects import KNOWN_DEFECTS
from suites.scan_offload.programs import HIDDEN, RESIDUAL, Sizes, Writing, block_program
from suites.scan_offload.twins import does_not_trace, oversized, wrong_gradient

UPSTREAM = Sizes(layers=32, batch=64, sequence=8192, embedding=2048, hidden=2048)
SMALL = Sizes(layers=8, batch=64, sequence=1024, embedding=1024, hidden=2048)
EXECUTED = Sizes(layers=4, batch=16, sequence=64, embedding=128, hidden=256, executed=True)

CORE = (
    "nothing",
    "save-hidden",
    "offload-hidden",
    "save-residual-output",
    "offload-residual-output",
    "save-residual-input",
    "offload-residual-input",
)
_WRITINGS: tuple[tuple[str, Role, str, Writing], ...] = (
    ("nothing", Role.CONTROL, "", Writing()),
    ("save-hidden", Role.CONTROL, "nothing", Writing(save=(HIDDEN,))),
    ("offload-hidden", Role.POLICY, "save-hidden", Writing(offload=(HIDDEN,))),
    (
        "save-residual-output",
        Role.CONTROL,
        "nothing",
        Writing(save=(RESIDUAL,), residual_at=("output",)),
    ),
    (
        "offload-residual-output",
        Role.DEFECT,
        "save-residual-output",
        Writing(offload=(RESIDUAL,), residual_at=("output",)),
    ),
    (
        "save-residual-input",
        Role.CONTROL,
        "nothing",
        Writing(save=(RESIDUAL,), residual_at=("input",)),
    ),
    (
        "offload-residual-input",
        Role.REMEDY,
        "save-residual-input",
        Writing(offload=(RESIDUAL,), residual_at=("input",)),
    ),
    (
        "offload-residual-both-ends",
        Role.REMEDY,
        "save-residual-input",
        Writing(offload=(RESIDUAL,), residual_at=("input", "output")),
    ),
    (
        "offload-residual-on-carry",
        Role.DEFECT,
        "save-residual-output",
        Writing(offload=(RESIDUAL,), name_carry=True),
    ),
    (
        "save-hidden-and-residual",
        Role.CONTROL,
        "nothing",
        Writing(save=(HIDDEN, RESIDUAL), residual_at=("input",)),
    ),
    (
        "offload-hidden-and-residual",
        Role.POLICY,
        "save-hidden-and-residual",
        Writing(offload=(HIDDEN, RESIDUAL), residual_at=("input",)),
    ),
    (
        "save-hidden-offload-residual",
        Role.POLICY,
        "save-hidden-and-residual",
        Writing(save=(HIDDEN,), offload=(RESIDUAL,), residual_at=("input",)),
    ),
    ("outside-nothing", Role.CONTROL, "nothing", Writing(remat=("outside",))),
    (
        "outside-offload-hidden",
        Role.DEFECT,
        "outside-nothing",
        Writing(remat=("outside",), offload=(HIDDEN,)),
    ),
    (
        "outside-offload-residual-input",
        Role.DEFECT,
        "outside-nothing",
        Writing(remat=("outside",), offload=(RESIDUAL,), residual_at=("input",)),
    ),
    (
        "outside-offload-residual-output",
        Role.DEFECT,
        "outside-nothing",
        Writing(remat=("outside",), offload=(RESIDUAL,), residual_at=("output",)),
    ),
    ("nested-nothing", Role.CONTROL, "nothing", Writing(remat=("inside", "outside"))),
    (
        "nested-offload-residual-input",
        Role.POLICY,
        "save-residual-input",
        Writing(remat=("inside", "outside"), offload=(RESIDUAL,), residual_at=("input",)),
    ),
    (
        "nested-offload-residual-output",
        Role.DEFECT,
        "save-residual-output",
        Writing(remat=("inside", "outside"), offload=(RESIDUAL,), residual_at=("output",)),
    ),
    ("unroll-2-nothing", Role.CONTROL, "nothing", Writing(unroll=2)),
    (
        "unroll-2-offload-hidden",
        Role.DEFECT,
        "save-hidden",
        Writing(unroll=2, offload=(HIDDEN,)),
    ),
    (
        "unroll-2-offload-residual-input",
        Role.DEFECT,
        "unroll-2-nothing",
        Writing(unroll=2, offload=(RESIDUAL,), residual_at=("input",)),
    ),
    ("loop-nothing", Role.CONTROL, "", Writing(python_loop=True)),
    (
        "loop-offload-residual-input",
        Role.DEFECT,
        "loop-nothing",
        Writing(python_loop=True, offload=(RESIDUAL,), residual_at=("input",)),
    ),
    ("no-remat", Role.CONTROL, "nothing", Writing(remat=())),
)

_CUSTOM_VJPS: tuple[tuple[str, Role, str, str, bool], ...] = (
    ("custom-vjp-literal", Role.DEFECT, "no-remat", "literal", False),
    ("custom-vjp-literal-remat", Role.DEFECT, "nothing", "literal", True),
    ("custom-vjp-roundtrip", Role.DEFECT, "no-remat", "roundtrip", False),
    ("custom-vjp-roundtrip-remat", Role.DEFECT, "nothing", "roundtrip", True),
    ("custom-vjp-residual", Role.REMEDY, "nothing", "residual", False),
    ("custom-vjp-residual-remat", Role.DEFECT, "nothing", "residual", True),
)


def _written_arms(
    sizes: Sizes, build: Callable[[Sizes, Writing, Sequence[Any]], Program], names: Sequence[str]
) -> tuple[BlockArm, ...]:
    return tuple(
        BlockArm(
            name=name,
            role=role,
            reference=reference,
            names=writing.save + writing.offload,
            moves=writing.offload or writing.save,
            program=partial(build, sizes, writing),
        )
        for name, role, reference, writing in _WRITINGS
        if not names or name in names
    )


def _custom_vjp_arms(sizes: Sizes) -> tuple[BlockArm, ...]:
    return tuple(
        BlockArm(
            name=name,
            role=role,
            reference=reference,
            moves=(RESIDUAL,),
            program=partial(custom_vjp_program, sizes, attempt, remat),
        )
        for name, role, reference, attempt, remat in _CUSTOM_VJPS
    )


def _twin_arms(
    sizes: Sizes, build: Callable[[Sizes, Writing, Sequence[Any]], Program]
) -> tuple[BlockArm, ...]:
    misspelt = partial(build, sizes, Writing(offload=("hiden",)))
    plain = partial(build, sizes, Writing())
    return (
        BlockArm(name="twin-misspelt-name", role=Role.TWIN, names=("hiden",), program=misspelt),
        *(
            [
                BlockArm(
                    name="twin-wrong-gradient",
                    role=Role.TWIN,
                    reference="nothing",
                    program=partial(wrong_gradient, plain),
                )
            ]
            if sizes.executed
            else []
        ),
        BlockArm(name="twin-does-not-trace", role=Role.TWIN, program=does_not_trace),
        BlockArm(name="twin-oversized", role=Role.TWIN, program=oversized),
    )


def _workload(
    name: str,
    sizes: Sizes,
    scopes: tuple[Scope, ...],
    build: Callable[[Sizes, Writing, Sequence[Any]], Program] = block_program,
    core: bool = False,
) -> BlockWorkload:
    written = _written_arms(sizes, build, CORE if core else ())
    custom = () if core else _custom_vjp_arms(sizes)
    return BlockWorkload(
        suite="scan_offload",
        name=name,
        block=sizes,
        arms=(*written, *custom, *_twin_arms(sizes, build)),
        scopes=scopes,
        known_defects=KNOWN_DEFECTS,
    )


_REPORTED_ON = ("gpu-h100:8", "tpu-v5p:2x2x2")
_FITS_V5E = ("nothing", "*residual-output", "*residual-input")

_FULL_SCOPES = (
    Scope(level=Level.QUICK, targets=_REPORTED_ON, arms=CORE),
    Scope(level=Level.FULL, targets=(*_REPORTED_ON, "cpu:8")),
    Scope(level=Level.FULL, targets=("tpu-v5e:2x4",), arms=_FITS_V5E),
)
_SMALL_SCOPES = (
    Scope(level=Level.QUICK, targets=_REPORTED_ON),
    Scope(level=Level.QUICK, targets=("gpu-*", "tpu*"), arms=CORE),
    Scope(level=Level.FULL, targets=("gpu*", "tpu*")),
)
_EXECUTED_SCOPES = (Scope(level=Level.QUICK, targets=("cpu", "cpu:*", "gpu", "tpu")),)

BLOCK_FULL = _workload("block-full", UPSTREAM, _FULL_SCOPES)
BLOCK = _workload("block", SMALL, _SMALL_SCOPES)
BLOCK_EXECUTED = _workload("block-executed", EXECUTED, _EXECUTED_SCOPES)
FLAX_FULL = _workload("flax-full", UPSTREAM, _FULL_SCOPES, flax_program, core=True)
FLAX = _workload("flax", SMALL, _SMALL_SCOPES, flax_program, core=True)
FLAX_EXECUTED = _workload("flax-executed", EXECUTED, _EXECUTED_SCOPES, flax_program, core=True)

COMPILED = (BLOCK_FULL, BLOCK, FLAX_FULL, FLAX)
EXECUTED_WORKLOADS = (BLOCK_EXECUTED, FLAX_EXECUTED)
WORKLOADS = (*COMPILED, *EXECUTED_WORKLOADS)
