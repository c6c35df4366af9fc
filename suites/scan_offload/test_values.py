"""Offloading and rematerialisation move and recompute; they change no number.

Loss and every gradient equal those of the variant without offload: bit for bit on CPU, which does
every variant's arithmetic in one order, and to the rounding of the matrix unit elsewhere. What
memsafe computes again is fused in another way, and so rounded.
"""

from assay import Check, claims
from suites.scan_offload.workloads import EXECUTED_WORKLOADS

test_loss_and_gradients_equal_those_without_offload = Check(
    claim=claims.ValuesEqual(),
    workloads=EXECUTED_WORKLOADS,
    variants=("*save-*", "*offload-*", "outside-*", "nested-*", "unroll-*", "custom-*", "no-remat"),
    negative_control="negative-wrong-gradient",
)

test_memsafe_agrees_to_the_rounding_of_single_precision = Check(
    claim=claims.ValuesEqual(name="values-agree", exact_on=(), relative_tolerance=2.0**-14),
    workloads=EXECUTED_WORKLOADS,
    variants=("memsafe*",),
    negative_control="negative-wrong-gradient",
)

test_program_runs = Check(
    claim=claims.Runs(), workloads=EXECUTED_WORKLOADS, negative_control="negative-does-not-run"
)
