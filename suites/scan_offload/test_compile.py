"""Every way to write the step compiles, and needs no more memory than the device has.

The TPU compiler refuses what does not fit and names the size; the GPU compiler accepts anything,
so there the sum of its memory analysis is held against the device model.
"""

from assay import Check, claims
from suites.scan_offload.formulas import BUDGET
from suites.scan_offload.workloads import COMPILED, WORKLOADS

test_step_compiles = Check(
    claim=claims.Compiles(),
    workloads=WORKLOADS,
    negative_control=("negative-does-not-trace", "negative-does-not-compile"),
)

test_step_fits_the_device = Check(
    claim=claims.FitsDevice(),
    workloads=COMPILED,
    negative_control=("negative-oversized", "negative-oversized-temporaries"),
)

test_memsafe_keeps_its_budget = Check(
    claim=claims.FitsBudget(budget=BUDGET),
    workloads=COMPILED,
    variants=("memsafe*",),
    negative_control="nothing",
)
