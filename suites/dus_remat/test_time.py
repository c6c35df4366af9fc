"""An iteration takes no longer on a long stack than on a short one, nor through a view.

It asks the machine, not the module: as many iterations on eight times the rows take as long where
each replaces a row, and eight times as long where each copies the stack. A loop that writes through
a view of the stack and the plain one, run in turns, take equally long where neither copies. On a
machine that is the same every night, no loop becomes slower than its baseline there.
"""

from assay import Check, claims
from suites.dus_remat import variants
from suites.dus_remat.formulas import HALF_WAY
from suites.dus_remat.workloads import EXECUTED, HELD_TO_BASELINE, LARGE_STACK, TIMED

test_iteration_time_does_not_grow_with_the_stack = Check(
    claim=claims.TimeGrowth(),
    workloads=(EXECUTED, LARGE_STACK),
    variants=variants.TIMED,
    negative_control="negative-turned-round",
)

test_iteration_time_follows_no_power_of_the_stack = Check(
    claim=claims.TimeExponent(at_most=HALF_WAY),
    workloads=TIMED,
    variants=variants.GROWING,
    negative_control="negative-turned-round",
)

test_a_view_takes_no_longer_than_the_plain_stack = Check(
    # A quarter, for a copy of the stack in each iteration takes several times as long.
    claim=claims.TimeRatio(least_change=0.1, seen_change=0.25),
    workloads=TIMED,
    variants=variants.AS_FAST_AS_THEIR_REFERENCE,
    negative_control="negative-turned-round",
)

test_a_view_takes_as_long_beside_the_plain_stack_as_stored = Check(
    claim=claims.StoredTimeRatio(),
    workloads=TIMED,
    # The other views are copied by some compilers: how long that takes is the memory's, not theirs.
    variants=("squeeze",),
    negative_control="negative-turned-round",
)

test_a_loop_takes_no_longer_than_the_baseline_on_this_machine = Check(
    claim=claims.BaselineTime(),
    workloads=HELD_TO_BASELINE,
    variants=variants.TIMED_ALONE,
    negative_control="negative-turned-round",
)
