"""When callbacks are called changes no loss, and neither do wrapping and sharding.

A bucket does the same arithmetic as no bucket, bit for bit on CPU. Another wrapping is another
program, in which XLA may sum in another order; so are four devices that hold a part each.
"""

from assay import Check, claims
from suites.fsdp_accumulation.workloads import DEEP_FSDP, FSDP, JAX_ANALOGUE, MINIMAL, SPMD

_BUCKETS = ("*bucket-1", "*bucket-20")

# The longest sum, of 640 terms, in another order: √640 roundings of 2⁻²⁴, as random ones add up.
_TO_ROUNDING = claims.ValuesEqual(
    exact_on=(), relative_tolerance=2.0**-19, name="values-equal-to-rounding"
)

test_losses_equal_those_of_bucket_size_0 = Check(
    claim=claims.ValuesEqual(),
    workloads=(FSDP, DEEP_FSDP),
    variants=_BUCKETS,
    negative_control="negative-other-rate",
)
test_losses_equal_those_of_the_unwrapped_model = Check(
    claim=_TO_ROUNDING,
    workloads=(FSDP, DEEP_FSDP),
    variants=("*unwrapped", "*bucket-0"),
    negative_control="negative-other-rate",
)
test_losses_equal_those_of_replicated_parameters = Check(
    claim=_TO_ROUNDING, workloads=(SPMD,), negative_control="negative-other-rate"
)
test_losses_equal_those_of_immediate_callbacks = Check(
    claim=claims.ValuesEqual(),
    workloads=(MINIMAL, JAX_ANALOGUE),
    negative_control="negative-carried",
)
