"""The variants: every way to update a stack in a loop, and the loops that fix what breaks."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from assay import Program, Role, SizedVariant
from suites.dus_remat.formulas import StackVariant
from suites.dus_remat.loops import ON_NO_STACK, ON_ONE_STACK, ON_TWO_STACKS
from suites.dus_remat.negative_controls import TURNED_ROUND
from suites.dus_remat.programs import stack_program
from suites.dus_remat.remats import PROJECTION, Remat, remat_program
from suites.dus_remat.stacks import Loop, Repeated, StackSizes

CONTROL, POLICY, DEFECT, REMEDY = Role.CONTROL, Role.POLICY, Role.DEFECT, Role.REMEDY

# (name, role, reference, whole stacks in temporaries). A stack is held where the loop carries it
# in other dimensions, or as one of a pair, and so must be copied before and after.
_LOOPS: tuple[tuple[str, Role, str, int], ...] = (
    ("plain", CONTROL, "scan-ys", 0),
    ("scan-ys", CONTROL, "plain", 0),
    ("squeeze", DEFECT, "plain", 0),
    ("reshape", DEFECT, "plain", 0),
    ("reshape-outside", REMEDY, "plain", 2),
    ("barrier", DEFECT, "plain", 0),
    ("transposed", DEFECT, "plain", 0),
    ("transposed-outside", REMEDY, "plain", 1),
    ("bitcast-converted", DEFECT, "plain", 0),
    ("bitcast-converted-outside", REMEDY, "plain", 1),
    ("dot", CONTROL, "transposed-dot", 0),
    ("transposed-dot", DEFECT, "dot", 0),
    ("at-set", DEFECT, "plain", 0),
    ("add", CONTROL, "at-add-reshape", 0),
    ("at-add-reshape", DEFECT, "add", 0),
    ("at-add-outside", REMEDY, "add", 2),
    ("select-row", CONTROL, "where", 0),
    ("conditional", DEFECT, "select-row", 0),
    ("where", DEFECT, "select-row", 0),
    ("two-updates-one-view", CONTROL, "two-updates", 0),
    ("two-updates", DEFECT, "two-updates-one-view", 0),
    ("vmapped", DEFECT, "vmapped-one-by-one", 0),
    ("vmapped-scatter", REMEDY, "vmapped-one-by-one", 0),
    ("vmapped-one-by-one", REMEDY, "vmapped", 0),
    ("read", CONTROL, "squeeze-read", 0),
    ("squeeze-read", DEFECT, "read", 0),
    ("reshape-read", DEFECT, "read", 0),
    ("reshape-read-outside", REMEDY, "read", 2),
    ("read-old", DEFECT, "read", 0),
    ("read-old-barrier", REMEDY, "read", 0),
    ("read-dot", CONTROL, "read-old-dot", 1),
    ("read-old-dot", DEFECT, "read-dot", 0),
    ("read-old-dot-barrier", REMEDY, "read-dot", 1),
    ("swap", DEFECT, "swap-unrolled", 0),
    ("swap-unrolled", REMEDY, "swap", 2),
    ("swap-in-one", REMEDY, "swap", 2),
    ("duplicate", DEFECT, "duplicate-after", 0),
    ("duplicate-after", REMEDY, "duplicate", 0),
    ("keep-old", DEFECT, "keep-old-once", 0),
    ("keep-old-once", REMEDY, "keep-old", 0),
    ("two-stacks-one-view", CONTROL, "two-stacks", 0),
    ("two-stacks", DEFECT, "two-stacks-one-view", 0),
    ("two-stacks-outside", REMEDY, "two-stacks-one-view", 4),
)

_ROLES = {name: role for name, role, _, _ in _LOOPS}

_SAVING = (PROJECTION,)
_REMATS: tuple[tuple[str, Role, str, Remat], ...] = (
    ("no-remat", CONTROL, "remat-nothing-saved", Remat(save=None)),
    ("remat-nothing-saved", CONTROL, "no-remat", Remat()),
    ("remat", POLICY, "no-remat", Remat(save=_SAVING)),
    ("no-remat-nested", CONTROL, "remat-nested", Remat(save=None, layers=3)),
    ("remat-nested", POLICY, "no-remat-nested", Remat(save=_SAVING, layers=3)),
    ("no-remat-pipeline", CONTROL, "pipeline", Remat(save=None, stages=1)),
    ("pipeline", DEFECT, "no-remat-pipeline", Remat(save=_SAVING, stages=1)),
    (
        "pipeline-ys",
        REMEDY,
        "no-remat-pipeline",
        Remat(save=_SAVING, stages=1, stacked_by_scan=True),
    ),
    ("no-remat-pipeline-4", CONTROL, "pipeline-4", Remat(save=None, stages=4)),
    ("pipeline-4", DEFECT, "no-remat-pipeline-4", Remat(save=_SAVING, stages=4)),
    (
        "pipeline-4-ys",
        REMEDY,
        "no-remat-pipeline-4",
        Remat(save=_SAVING, stages=4, stacked_by_scan=True),
    ),
)
_ACTIVATIONS_OF_A_LAYER = 8
"""The layer's input, hidden value, projection and result, and the cotangent of each."""

_OF_TWO_WEIGHTS = 4
"""Two weights and the gradient of each, for every layer or stage, and summed over them."""

TIMED = tuple(
    name
    for name, loop in {**ON_ONE_STACK, **ON_TWO_STACKS}.items()
    if isinstance(loop, Repeated) and "dot" not in name and name != "transposed-outside"
)
"""The variants that are iterations alone, without a product, whose time would hide a copy's. The
others work on whole stacks once, before or after their loop: a transposition outside of it took 2.3
to 3.9 times as long on the long stack, and a claim on iterations would blame them for it."""


TIMED_ALONE = ("plain", "reshape", "remat")
"""A loop that copies nothing, one that has copied, and the report's program."""

AS_FAST_AS_THEIR_REFERENCE = ("squeeze", "barrier", "transposed")
"""Views of a stack that cost nothing by themselves: what they take longer, copies take."""


GROWING = (
    "plain",
    "squeeze",
    "reshape",
    "barrier",
    "transposed",
    "at-set",
    "bitcast-converted",
    "swap",
    "swap-unrolled",
    "duplicate",
)
"""The report's view, what some compiler copies whole, and a remedy, each at several lengths."""


def growing_variants(sizes: StackSizes, lengths: Sequence[int]) -> tuple[SizedVariant, ...]:
    """Loops of equally many iterations on stacks of those lengths, and the negative control's."""
    grown = {name: partial(_grown, *_loop(name), sizes) for name in GROWING}
    negative_control = partial(_grown, TURNED_ROUND, 1, sizes)
    return tuple(
        variant
        for name, program in {**grown, "negative-turned-round": negative_control}.items()
        for variant in SizedVariant.at(
            lengths, name=name, role=_ROLES.get(name, Role.NEGATIVE_CONTROL), program=program
        )
    )


def _grown(
    loop: Loop, count: int, sizes: StackSizes, length: int, devices: Sequence[Any]
) -> Program:
    return stack_program(replace(sizes, length=length), loop, count, devices)


def loop_variants(sizes: StackSizes) -> tuple[StackVariant, ...]:
    """The variants that are given their stacks."""
    return tuple(
        StackVariant(
            name=name,
            role=role,
            reference=reference,
            stacks_held=stacks_held,
            program=partial(stack_program, sizes, *_loop(name)),
        )
        for name, role, reference, stacks_held in _LOOPS
    )


def remat_variants(sizes: StackSizes) -> tuple[StackVariant, ...]:
    """The variants whose stacks autodiff makes."""
    return tuple(
        StackVariant(
            name=name,
            role=role,
            reference=reference,
            rows_held=remat.held_rows(sizes.length),
            rows_in_flight=_ACTIVATIONS_OF_A_LAYER * max(remat.stages, 1),
            weights_held=_OF_TWO_WEIGHTS * (remat.rows_an_iteration + 1),
            rows_an_iteration=remat.rows_an_iteration,
            program=partial(remat_program, sizes, remat),
        )
        for name, role, reference, remat in _REMATS
    )


def _loop(name: str) -> tuple[Loop, int]:
    """The loop of a variant, and the number of its stacks."""
    for count, loops in enumerate((ON_NO_STACK, ON_ONE_STACK, ON_TWO_STACKS)):
        if name in loops:
            return loops[name], count
    raise LookupError(f"got variant {name!r}, wanted one of the loops in loops.py")
