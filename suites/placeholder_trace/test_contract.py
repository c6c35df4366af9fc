"""A placeholder stands for one array: as many of them as a program uses are its parameters.

They have no data to be told apart by, and their addresses are used again once they are gone. The
graph cache must not see that they are none: the hash of a graph is that of the same on real data.
"""

from assay import Check, claims
from suites.placeholder_trace.formulas import PARAMETERS
from suites.placeholder_trace.workloads import CONTRACT

test_each_placeholder_is_one_parameter = Check(
    claim=claims.Parameters(equal=PARAMETERS),
    workloads=(CONTRACT,),
    variants=("[!h]*",),
    negative_control="negative-one-for-two",
)

test_graph_has_the_hash_of_the_same_on_data = Check(
    claim=claims.ValuesEqual(),
    workloads=(CONTRACT,),
    variants=("hash-of-placeholders",),
    negative_control="negative-hash-of-one-used-twice",
)
