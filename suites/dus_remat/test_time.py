"""An iteration takes no longer on a long stack than on a short one.

It asks the machine, not the module: as many iterations on four times the rows take as long where
each replaces a row, and four times as long where each copies the stack.
"""

from assay import Check, claims
from suites.dus_remat.arms import TIMED
from suites.dus_remat.workloads import EXECUTED

test_iteration_time_does_not_grow_with_the_stack = Check(
    claim=claims.TimeGrowth(), workloads=(EXECUTED,), arms=TIMED, twin="twin-turned-round"
)
