"""Every way to write a problem compiles. This does not say whether the program fits."""

from assay import Check, claims
from suites.tensor_splitting.executed import EXECUTED
from suites.tensor_splitting.workloads import COMPILED

test_problem_compiles = Check(
    claim=claims.Compiles(),
    workloads=(*COMPILED, *EXECUTED),
    negative_control=("negative-does-not-trace", "negative-does-not-compile"),
)
