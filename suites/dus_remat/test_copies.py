"""An iteration that replaces one row of a stack writes that row, and no whole stack.

XLA cannot always share the stack before with the stack after: a view taken for a new value, a read
of the old stack, or two carries that change places cost a copy of everything in every iteration.
Upstream's report saw 5 to 8 % of a training step go there.
"""

from assay import Check, claims
from suites.dus_remat.formulas import CONSTANT, HELD, NOTHING, ONE_ROW, THE_STACK
from suites.dus_remat.negative_controls import COPYING
from suites.dus_remat.workloads import COMPILED, GROWN_STACK

LOOPS = ("[!n]*",)
"""All but the controls without remat, which are there for their values."""

IN_ONE_BUFFER = ("plain", "squeeze", "at-set", "conditional")
"""Loops that keep their stack in the caller's buffer on every compiler, from the first row on."""

test_iteration_writes_no_whole_stack = Check(
    claim=claims.CopiedBytes(at_most=NOTHING, larger_than=ONE_ROW),
    workloads=COMPILED,
    variants=LOOPS,
    negative_control=tuple(COPYING),
)

test_what_an_iteration_writes_does_not_grow_with_the_stack = Check(
    claim=claims.BytesExponent(of=claims.Cost.COPIED, at_most=CONSTANT),
    workloads=(GROWN_STACK,),
    negative_control="negative-turned-round",
)

test_loop_needs_no_second_stack = Check(
    claim=claims.TempBytesAtMost(limit=HELD),
    workloads=COMPILED,
    variants=LOOPS,
    negative_control="negative-difference",
)

test_nothing_copies_the_stack_before_or_after_the_loop = Check(
    claim=claims.CopiedBytesOutsideLoops(larger_than=ONE_ROW),
    workloads=COMPILED,
    variants=IN_ONE_BUFFER,
    negative_control="negative-difference",
)

test_donated_stack_is_reused = Check(
    claim=claims.DonatedBytesReused(at_least=THE_STACK),
    workloads=COMPILED,
    variants=IN_ONE_BUFFER,
    negative_control=("negative-difference", "negative-no-stack-back"),
)
