"""Whoever reads a placeholder gets an exception, and the process lives on.

Many reads take the process down instead; each is observed in a process of its own.
"""

from assay import Check, claims
from suites.placeholder_trace.workloads import READS

test_read_is_refused = Check(
    claim=claims.Refuses(),
    workloads=(READS,),
    variants=("read-*",),
    negative_control="use-zeros-like",
)

test_use_without_data_is_not_refused = Check(
    claim=claims.Compiles(), workloads=(READS,), variants=("use-*",), negative_control="read-cpu"
)
