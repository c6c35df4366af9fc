"""The variants of the scanned block: every way to write it, and the negative controls."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from assay import FailureKind, Program, Role
from suites.failing import failing_controls
from suites.scan_offload.custom_vjp_programs import custom_vjp_program
from suites.scan_offload.formulas import BlockVariant
from suites.scan_offload.negative_controls import (
    oversized,
    oversized_temporaries,
    step_twice,
    wrong_gradient,
)
from suites.scan_offload.programs import (
    HIDDEN,
    RESIDUAL,
    Budget,
    Sizes,
    Writing,
    budgeted_program,
)

Build = Callable[[Sizes, Writing, Sequence[Any]], Program]
"""Builds the training step of one framework, written one way, for a target's devices."""

CORE = (
    "nothing",
    "save-hidden",
    "offload-hidden",
    "offload-residual-output",
    "offload-residual-input",
)
"""The upstream report's policies, and the remedy."""

# (name, role, reference, writing). Under remat, what ``nothing`` saves is the residual itself:
# each block's input. It is the variant that saves what the residual's variants offload.
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
        "nothing",
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
        "nothing",
        Writing(offload=(RESIDUAL,), residual_at=("input",)),
    ),
    (
        "offload-residual-both-ends",
        Role.REMEDY,
        "nothing",
        Writing(offload=(RESIDUAL,), residual_at=("input", "output")),
    ),
    (
        "offload-residual-on-carry",
        Role.DEFECT,
        "nothing",
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
        "nothing",
        Writing(remat=("inside", "outside"), offload=(RESIDUAL,), residual_at=("input",)),
    ),
    (
        "nested-offload-residual-output",
        Role.DEFECT,
        "nothing",
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


def written_variants(sizes: Sizes, build: Build) -> tuple[BlockVariant, ...]:
    """All variants that differ by policy, by where names stand, or by where remat does."""
    return tuple(
        BlockVariant(
            name=name,
            role=role,
            reference=reference,
            names=writing.save + writing.offload,
            moves=writing.offload or writing.save,
            program=partial(build, sizes, writing),
        )
        for name, role, reference, writing in _WRITINGS
    )


def core_variants(sizes: Sizes, build: Build) -> tuple[BlockVariant, ...]:
    """The variants of ``CORE`` alone."""
    return tuple(variant for variant in written_variants(sizes, build) if variant.name in CORE)


def memsafe_variants(sizes: Sizes, budget: Budget) -> tuple[BlockVariant, ...]:
    """The reported program, and one without any ``jax.checkpoint``, within a budget."""
    writings = {
        "memsafe": Writing(offload=(RESIDUAL,), residual_at=("output",)),
        "memsafe-no-remat": Writing(remat=()),
    }
    return tuple(
        BlockVariant(
            name=name,
            role=Role.REMEDY,
            reference="nothing",
            program=partial(budgeted_program, sizes, writing, budget),
        )
        for name, writing in writings.items()
    )


def custom_vjp_variants(sizes: Sizes) -> tuple[BlockVariant, ...]:
    """The report's second attempt, as written and fixed."""
    return tuple(
        BlockVariant(
            name=name,
            role=role,
            reference=reference,
            moves=(RESIDUAL,),
            program=partial(custom_vjp_program, sizes, attempt, remat=remat),
        )
        for name, role, reference, attempt, remat in _CUSTOM_VJPS
    )


def negative_control_variants(sizes: Sizes, build: Build) -> tuple[BlockVariant, ...]:
    """Programs that must fail a claim; never tried by themselves."""
    tiny = replace(sizes, layers=2, batch=16, sequence=16, embedding=128, hidden=128)
    misspelt = partial(build, tiny, Writing(offload=("hiden",)))
    wrong = partial(wrong_gradient, partial(build, sizes, Writing()))
    slow = partial(step_twice, partial(build, sizes, Writing(offload=(HIDDEN,))))
    control = partial(BlockVariant, role=Role.NEGATIVE_CONTROL)
    return (
        control(name="negative-step-twice", reference="save-hidden", moves=(HIDDEN,), program=slow),
        control(name="negative-misspelt-name", names=("hiden",), program=misspelt),
        control(name="negative-wrong-gradient", reference="nothing", program=wrong),
        *failing_controls(control),
        control(name="negative-oversized", program=oversized, fails_with=FailureKind.OUT_OF_MEMORY),
        control(
            name="negative-oversized-temporaries",
            program=oversized_temporaries,
            fails_with=FailureKind.OUT_OF_MEMORY,
        ),
    )
