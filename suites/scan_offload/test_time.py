"""An offload costs no more time than its copies, and a policy's tracing no more than another's.

On a CPU, whose host memory is the device's, the copies are all that an offload could do. What a
GPU or TPU takes depends on its link to the host, and is not claimed.
"""

from assay import Check, claims
from suites.scan_offload.formulas import QUARTER_LONGER, STEP_AND_COPIES
from suites.scan_offload.workloads import OFFLOADED, TIMED

test_offloading_step_takes_no_longer_than_its_copies = Check(
    claim=claims.TimeRatio(at_most=STEP_AND_COPIES, least_change=0.05, seen_change=0.1),
    workloads=(TIMED,),
    variants=OFFLOADED,
    negative_control="negative-step-twice",
)

test_offloading_policy_is_traced_as_fast_as_saving = Check(
    claim=claims.TraceTimeRatio(at_most=QUARTER_LONGER, least_change=0.1, seen_change=0.25),
    workloads=(TIMED,),
    variants=OFFLOADED,
    negative_control="negative-step-twice",
)

test_offloading_step_takes_as_long_beside_saving_as_stored = Check(
    claim=claims.StoredTimeRatio(),
    workloads=(TIMED,),
    variants=OFFLOADED,
    negative_control="negative-step-twice",
)
