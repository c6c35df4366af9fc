"""The user's program, unchanged, fits with memsafe where it does not fit with stock XLA.

Stock XLA keeps large values whole: the matrix between all pairs of points, the scores of all
queries and keys. A pull request with passes that split such tensors was never merged
(tensorflow#58679). ``memsafe`` splits them before the compiler sees them.
"""

from assay import Check, claims
from suites.tensor_splitting.executed import EXECUTED, GROWN
from suites.tensor_splitting.formulas import BUDGET, GIGABYTE, HALF_WAY, LIKE_CUDNN, LIKE_FLASH
from suites.tensor_splitting.workloads import BESIDE_CUDNN, BESIDE_FLASH, COMPILED, MATRICES

SAFE = ("memsafe*",)

test_problem_fits_the_device = Check(
    claim=claims.FitsDevice(), workloads=COMPILED, negative_control="negative-oversized"
)

test_memsafe_keeps_its_budget = Check(
    claim=claims.FitsBudget(budget=BUDGET),
    workloads=(*COMPILED, *EXECUTED),
    variants=SAFE,
    negative_control="negative-over-budget",
)

test_matrix_of_millions_takes_a_gigabyte = Check(
    claim=claims.TempBytesAtMost(limit=GIGABYTE),
    workloads=MATRICES,
    variants=SAFE,
    negative_control="negative-over-budget",
)

test_memory_grows_with_the_sequence_and_not_with_its_square = Check(
    claim=claims.BytesExponent(of=claims.Cost.TEMP, at_most=HALF_WAY),
    workloads=GROWN,
    variants=SAFE,
    negative_control="negative-plain",
)

test_attention_takes_little_more_than_the_flash_kernel = Check(
    claim=claims.TempBytesAtMost(limit=LIKE_FLASH),
    workloads=BESIDE_FLASH,
    variants=SAFE,
    negative_control="negative-over-budget",
)

test_attention_takes_at_most_twice_what_cudnn_does = Check(
    claim=claims.TempBytesAtMost(limit=LIKE_CUDNN),
    workloads=BESIDE_CUDNN,
    variants=SAFE,
    negative_control="negative-over-budget",
)
