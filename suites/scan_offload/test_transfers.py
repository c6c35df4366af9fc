"""Each step moves the offloaded activation to the host once, and back once.

A scheduler may move a buffer twice (once for each user), or move the whole stack where a row would
do; loops may be peeled, so that an iteration's transfer stands outside its loop.
"""

from assay import Check, Direction, claims
from suites.scan_offload.formulas import ACTIVATION_PER_DEVICE
from suites.scan_offload.test_host_memory import OFFLOADING
from suites.scan_offload.workloads import COMPILED

test_activation_goes_to_the_host_once_a_step = Check(
    claim=claims.TransferredBytes(direction=Direction.TO_HOST, equal=ACTIVATION_PER_DEVICE),
    workloads=COMPILED,
    variants=OFFLOADING,
    negative_control="save-hidden",
)

test_activation_comes_back_once_a_step = Check(
    claim=claims.TransferredBytes(direction=Direction.TO_DEVICE, equal=ACTIVATION_PER_DEVICE),
    workloads=COMPILED,
    variants=OFFLOADING,
    negative_control="save-hidden",
)
