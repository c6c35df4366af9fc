"""However a row is written, stacks and rows come out the same.

Bit for bit on CPU where the variants do the same arithmetic on the same numbers. A product of
matrices adds in another order for another layout, and on another CPU.
"""

from assay import Check, claims
from suites.dus_remat.workloads import EXECUTED_WORKLOADS, MIDDLE

_NAMES = dict.fromkeys(each.name for work in EXECUTED_WORKLOADS for each in work.variants)
_PRODUCTS = tuple(name for name in _NAMES if "dot" in name)

test_stack_equals_the_plainly_written_one = Check(
    claim=claims.ValuesEqual(),
    workloads=EXECUTED_WORKLOADS,
    variants=tuple(name for name in _NAMES if name not in _PRODUCTS),
    negative_control="negative-one-row-wrong",
)

# Two sums of K terms of f32, each wrong by at most K·2⁻²⁴ of them (Higham, Accuracy and Stability
# of Numerical Algorithms, 2nd edition, section 3.1), once per iteration.
test_stack_of_products_equals_the_plainly_written_one = Check(
    claim=claims.ValuesEqual(
        name="values-equal-to-rounding",
        exact_on=(),
        relative_tolerance=2 * MIDDLE.iterations * MIDDLE.row[-1] * 2.0**-24,
    ),
    workloads=EXECUTED_WORKLOADS,
    variants=_PRODUCTS,
    negative_control="negative-one-row-wrong",
)

test_program_runs = Check(
    claim=claims.Runs(), workloads=EXECUTED_WORKLOADS, negative_control="negative-does-not-run"
)
