"""However a problem is written, its values and gradients are the same.

Splitting changes only the order of sums. In double precision, nine digits of every gradient remain.
JAX's own attention, which computes its softmax in single precision, has a check of its own.
"""

from assay import Check, claims
from suites.tensor_splitting.executed import DOUBLE, EXECUTED, SINGLE

OTHERS = ("[!p]*",)
"""All variants except ``plain``, which is the reference."""

test_values_and_gradients_equal_the_plain_programs = Check(
    claim=claims.ValuesEqual(exact_on=(), relative_tolerance=1e-9),
    workloads=DOUBLE,
    variants=OTHERS,
    negative_control="negative-wrong-value",
)

test_single_precision_agrees_to_its_rounding = Check(
    claim=claims.ValuesEqual(exact_on=(), relative_tolerance=2.0**-14),
    workloads=SINGLE,
    variants=OTHERS,
    negative_control="negative-wrong-value",
)

test_program_runs = Check(
    claim=claims.Runs(), workloads=EXECUTED, negative_control="negative-does-not-run"
)
