"""Whatever the size of the bucket, steps that do the same are compiled once.

PyTorch/XLA compiles the graph of all tensors that are alive at the end of a step. A callback that
waits for a later step, or is called in another order, is in another graph: upstream's report saw
four graphs of 35,000 instructions where two are needed.
"""

from assay import Check, claims
from suites.fsdp_accumulation.formulas import NEEDED, TWO_STEPS
from suites.fsdp_accumulation.workloads import DEEP_FSDP, FSDP, JAX_ANALOGUE, MINIMAL, SPMD

_NESTED, _UN_NESTED = ("[!u]*", "unw*", "unr*"), ("un-nested-*",)
_NO_MORE_THAN_NEEDED = claims.GraphsCompiled(at_most=NEEDED)
_NONE_AFTER_STEP_TWO = claims.LastCompile(within=TWO_STEPS)

test_nested_fsdp_compiles_what_its_steps_need = Check(
    claim=_NO_MORE_THAN_NEEDED,
    workloads=(FSDP, DEEP_FSDP),
    variants=_NESTED,
    negative_control="negative-tail-waits",
)
test_nested_fsdp_compiles_nothing_after_step_two = Check(
    claim=_NONE_AFTER_STEP_TWO,
    workloads=(FSDP, DEEP_FSDP),
    variants=_NESTED,
    negative_control="negative-tail-waits",
)
test_un_nested_fsdp_compiles_what_its_steps_need = Check(
    claim=_NO_MORE_THAN_NEEDED,
    workloads=(FSDP, DEEP_FSDP),
    variants=_UN_NESTED,
    negative_control="negative-un-nested-tail-waits",
)
test_un_nested_fsdp_compiles_nothing_after_step_two = Check(
    claim=_NONE_AFTER_STEP_TWO,
    workloads=(FSDP, DEEP_FSDP),
    variants=_UN_NESTED,
    negative_control="negative-un-nested-tail-waits",
)
test_spmd_compiles_what_its_steps_need = Check(
    claim=_NO_MORE_THAN_NEEDED, workloads=(SPMD,), negative_control="negative-gathers"
)
test_spmd_compiles_nothing_after_step_two = Check(
    claim=_NONE_AFTER_STEP_TWO, workloads=(SPMD,), negative_control="negative-gathers"
)
test_minimal_model_compiles_what_its_steps_need = Check(
    claim=_NO_MORE_THAN_NEEDED, workloads=(MINIMAL,), negative_control="negative-carried"
)
test_minimal_model_compiles_nothing_after_step_two = Check(
    claim=_NONE_AFTER_STEP_TWO, workloads=(MINIMAL,), negative_control="negative-carried"
)
test_jax_compiles_what_its_steps_need = Check(
    claim=_NO_MORE_THAN_NEEDED, workloads=(JAX_ANALOGUE,), negative_control="negative-end-shuffled"
)
test_jax_compiles_nothing_after_step_two = Check(
    claim=_NONE_AFTER_STEP_TWO, workloads=(JAX_ANALOGUE,), negative_control="negative-carried"
)
