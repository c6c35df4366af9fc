"""Every way to write the loop compiles.

It is no matter of course: upstream's own answers to the report were compiler passes that had to be
turned off where they met a view that they did not know.
"""

from assay import Check, claims
from suites.dus_remat.workloads import COMPILED

test_loop_compiles = Check(
    claim=claims.Compiles(),
    workloads=COMPILED,
    negative_control=("negative-does-not-trace", "negative-does-not-compile"),
)
