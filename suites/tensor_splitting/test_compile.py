"""Every way to write a problem compiles; whether it then fits is another question."""

from assay import Check, claims
from suites.tensor_splitting.executed import EXECUTED
from suites.tensor_splitting.workloads import COMPILED

test_problem_compiles = Check(
    claim=claims.Compiles(),
    workloads=(*COMPILED, *EXECUTED),
    negative_control=("negative-does-not-trace", "negative-does-not-compile"),
)
