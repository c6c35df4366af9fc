"""memsafe takes little more time, or none, than the plain program and loops by hand.

Two programs run alternately in one process, so that the ratio of their times holds on any machine.
"""

from assay import Check, claims
from suites.tensor_splitting.executed import BESIDE_CHECKPOINT, PLANNED, TIMED
from suites.tensor_splitting.formulas import NEARLY_LINEAR, QUARTER_SLOWER

_SAFE = ("memsafe",)


def _at_most_a_quarter_slower(than: str) -> claims.TimeRatio:
    return claims.TimeRatio(
        at_most=QUARTER_SLOWER,
        against=than,
        # The interval of a dozen pairs allows these on a busy machine; a negative control takes
        # twice as long.
        least_change=0.05,
        seen_change=0.1,
        name=f"time-ratio-to-{than}",
    )


test_memsafe_is_at_most_a_quarter_slower_than_plain = Check(
    claim=_at_most_a_quarter_slower("plain"),
    workloads=TIMED,
    variants=_SAFE,
    negative_control="negative-slow-plain",
)

test_memsafe_is_at_most_a_quarter_slower_than_a_loop_by_hand = Check(
    claim=_at_most_a_quarter_slower("lax-map"),
    workloads=TIMED,
    variants=_SAFE,
    negative_control="negative-slow-lax-map",
)

test_memsafe_is_at_most_a_quarter_slower_than_remat_of_each_layer = Check(
    claim=_at_most_a_quarter_slower("checkpoint"),
    workloads=BESIDE_CHECKPOINT,
    variants=_SAFE,
    negative_control="negative-slow-checkpoint",
)

test_planning_takes_time_in_proportion_to_the_program = Check(
    claim=claims.TimeExponent(at_most=NEARLY_LINEAR, name="planning-time-exponent"),
    workloads=(PLANNED,),
    variants=_SAFE,
    negative_control="negative-planned-for-each-layer",
)
