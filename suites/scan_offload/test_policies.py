"""A remat policy is no worse than saving nothing, and costs the memory of its baseline.

Offloading pays with transfers for device memory. A policy that ends with more device memory than
saving nothing at all pays twice; it happens where the compiler keeps a second copy on the device.
What else a step keeps on the device no formula tells: fusion and scheduling decide it, so it is
held against the baseline stored for the target.
"""

from assay import Check, claims
from suites.scan_offload.formulas import IN_USE
from suites.scan_offload.workloads import COMPILED

test_offloading_is_no_worse_than_saving_nothing = Check(
    claim=claims.DeviceBytesAtMost(against="nothing", beyond=IN_USE),
    workloads=COMPILED,
    variants=("offload-*", "nested-offload-*"),
    negative_control="save-hidden",
)

test_device_memory_is_no_worse_than_the_baseline = Check(
    claim=claims.BaselineTempBytes(), workloads=COMPILED, negative_control="save-hidden"
)
