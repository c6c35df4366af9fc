"""The temporaries of a staged step stay what they were.

No formula gives them: a scan keeps every layer's activations in stacks, and the compiler decides
what else. They are accepted numbers, for the loop and for the scan.
"""

from assay import Check, claims
from suites.placeholder_trace.workloads import STAGED, STAGED_LLAMA

test_temporaries_are_as_accepted = Check(
    claim=claims.AcceptedTempBytes(), workloads=(*STAGED, STAGED_LLAMA), twin="twin-many-rows"
)
