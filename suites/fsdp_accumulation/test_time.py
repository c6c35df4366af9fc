"""Accumulating gradients in a bucket makes a step no slower than to reduce each by itself.

A bucket is there to save time. One that has every step compiled anew costs seconds in each.
"""

from assay import Check, claims
from suites.fsdp_accumulation.formulas import QUARTER_LONGER
from suites.fsdp_accumulation.workloads import TIMED

test_step_with_a_bucket_takes_no_longer = Check(
    claim=claims.TimeRatio(at_most=QUARTER_LONGER, least_change=0.05, seen_change=0.1),
    workloads=TIMED,
    negative_control="negative-steps-twice",
)
