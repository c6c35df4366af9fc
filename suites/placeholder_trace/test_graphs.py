"""All steps are one graph, compiled in the first step, however the layers are applied."""

from assay import Check, claims
from suites.placeholder_trace.formulas import ONE
from suites.placeholder_trace.workloads import LAYERS

test_steps_are_one_graph = Check(
    claim=claims.GraphsCompiled(at_most=ONE),
    workloads=LAYERS,
    negative_control="negative-growing-batch",
)

test_first_step_compiles_all = Check(
    claim=claims.LastCompile(within=ONE),
    workloads=LAYERS,
    negative_control="negative-growing-batch",
)
