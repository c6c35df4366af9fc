"""However a row is written, stacks and rows come out the same.

Bit for bit on CPU: the variants move the same numbers, and do the same arithmetic on them.
"""

from assay import Check, claims
from suites.dus_remat.workloads import EXECUTED_WORKLOADS

test_stack_equals_the_plainly_written_one = Check(
    claim=claims.ValuesEqual(),
    workloads=EXECUTED_WORKLOADS,
    negative_control="negative-one-row-wrong",
)

test_program_runs = Check(
    claim=claims.Runs(), workloads=EXECUTED_WORKLOADS, negative_control="negative-does-not-run"
)
