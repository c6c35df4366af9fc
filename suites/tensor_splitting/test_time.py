"""Bounded memory costs little time, or none.

Both programs run in turns on one machine, so that the ratio of their times holds on any.
"""

from assay import Check, claims
from suites.tensor_splitting.executed import TIMED
from suites.tensor_splitting.formulas import QUARTER_SLOWER

test_memsafe_is_at_most_a_quarter_slower = Check(
    claim=claims.TimeOverReference(at_most=QUARTER_SLOWER),
    workloads=TIMED,
    arms=("memsafe",),
    twin="twin-slow",
)
