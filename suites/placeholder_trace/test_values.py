"""A scan computes the loop's losses and gradients.

The fix that suggests itself, ``torch.empty`` on the device, sends nothing either, and computes
something else without a word.
"""

from assay import Check, claims
from suites.placeholder_trace.formulas import REORDERED_SUM
from suites.placeholder_trace.workloads import LAYERS

test_scan_computes_what_the_loop_computes = Check(
    claim=claims.ValuesEqual(exact_on=(), relative_tolerance=REORDERED_SUM),
    workloads=LAYERS,
    variants=("scan*",),
    negative_control="negative-empty-on-device",
)
