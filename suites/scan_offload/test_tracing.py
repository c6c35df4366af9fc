"""The jaxpr already tells whether an offload will happen: a check that needs no compiler.

What autodiff saves is decided while tracing. A named value that is not among the saved residuals
is not offloaded by any compiler, and a name that matches nothing is accepted in silence.
"""

from assay import Check, claims
from suites.scan_offload.formulas import ACTIVATION
from suites.scan_offload.workloads import WORKLOADS

test_autodiff_saves_the_activation_on_the_host = Check(
    claim=claims.ResidualsOnHost(equal=ACTIVATION),
    workloads=WORKLOADS,
    variants=("*offload-*",),
    negative_control="save-hidden",
)

test_every_name_of_the_policy_is_given_to_a_value = Check(
    claim=claims.NamesMatch(),
    workloads=WORKLOADS,
    variants=("*save-*", "*offload-*"),
    negative_control="negative-misspelt-name",
)
