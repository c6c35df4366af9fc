"""The temporaries of a staged step stay what they were.

No formula gives them: a scan keeps every layer's activations in stacks, and the compiler decides
what else. They are baselines, for the loop and for the scan.
"""

from assay import Check, claims
from suites.placeholder_trace.workloads import STAGED, STAGED_LLAMA

test_temporaries_is_no_worse_than_the_baseline = Check(
    claim=claims.BaselineTempBytes(),
    workloads=(*STAGED, STAGED_LLAMA),
    negative_control="negative-many-rows",
)
