"""A sharded step sends each layer as often as it says, and no process holds all parameters.

A partitioner or a loop pass may gather the whole stack where a layer would do, gather twice, or sum
gradients whole on every device: the step is then right, slow, and too large.
"""

from assay import Check, claims
from suites.sharded_scan.workloads import NEEDED, SENT, WORKLOADS

test_step_compiles = Check(
    claim=claims.Compiles(),
    workloads=WORKLOADS,
    negative_control=("negative-does-not-trace", "negative-does-not-compile"),
)

test_layers_are_gathered_and_scattered_once = Check(
    claim=claims.CollectiveBytes(at_most=SENT),
    workloads=WORKLOADS,
    variants=("sharded",),
    negative_control="negative-stack-gathered",
)

test_no_process_holds_all_parameters = Check(
    claim=claims.ProcessBytes(at_most=NEEDED),
    workloads=WORKLOADS,
    variants=("sharded",),
    negative_control="replicated",
)
