"""A scan over many layers is traced in the time that one layer takes.

That is what a scan over layers is for: the tracing of a loop grows with the model.
"""

from assay import Check, claims
from suites.placeholder_trace.formulas import HALF_AS_MUCH_AGAIN
from suites.placeholder_trace.workloads import TRACED

test_sixteen_layers_are_traced_in_the_time_of_one = Check(
    claim=claims.TraceTimeRatio(
        at_most=HALF_AS_MUCH_AGAIN, against="one-layer", least_change=0.1, seen_change=0.25
    ),
    workloads=TRACED,
    negative_control="negative-in-three",
)
