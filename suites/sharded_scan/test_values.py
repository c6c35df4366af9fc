"""Sharding moves parameters and changes no number, up to the order in which gradients are added."""

from assay import Check, claims
from suites.sharded_scan.workloads import EXECUTED, SIZES

# A sum over devices and rows in another order: each of `batch` terms is wrong by at most 2⁻²⁴ of
# the sum for each addition (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition,
# section 3.1), in every layer.
test_step_equals_the_replicated_one = Check(
    claim=claims.ValuesEqual(
        exact_on=(), relative_tolerance=2 * SIZES.layers * SIZES.batch * 2.0**-24
    ),
    workloads=(EXECUTED,),
    variants=("sharded",),
    negative_control="negative-not-averaged",
)

test_step_runs = Check(
    claim=claims.Runs(), workloads=(EXECUTED,), negative_control="negative-does-not-run"
)
