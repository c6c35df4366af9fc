"""What is staged on placeholders compiles for targets that are not there, and JAX's does too."""

from assay import Check, claims
from suites.placeholder_trace.workloads import JAX, STAGED, STAGED_LLAMA

test_staged_program_compiles = Check(
    claim=claims.Compiles(),
    workloads=(*STAGED, STAGED_LLAMA),
    negative_control="negative-does-not-trace",
)

test_jax_traces_without_a_transfer = Check(
    claim=claims.Compiles(), workloads=JAX, negative_control="negative-traced-on-data"
)
