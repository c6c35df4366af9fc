"""Tracing sends nothing: a scan sends in each step what the loop over the same layers sends.

Upstream saw 23 GiB go to the device where the loop sent 182 MiB, in more than 200 tensors that
nobody reads, made only to trace the scanned function once more; with Llama 405B the device had no
room for them. Sending nothing is no proof of having traced the right thing: see ``test_values``.
"""

from assay import Check, Direction, claims
from suites.placeholder_trace.formulas import NOTHING
from suites.placeholder_trace.workloads import LAYERS, STAGED, STAGED_LLAMA

SCANNED = ("scan*",)
_OF_ALL = (*STAGED, STAGED_LLAMA)

test_scan_sends_as_many_tensors_as_the_loop = Check(
    claim=claims.SentPerStep(sent=claims.Sent.TENSORS),
    workloads=LAYERS,
    variants=SCANNED,
    negative_control="negative-old-tracing",
)

test_scan_sends_as_many_bytes_as_the_loop = Check(
    claim=claims.SentPerStep(sent=claims.Sent.BYTES),
    workloads=LAYERS,
    variants=SCANNED,
    negative_control="negative-old-tracing",
)

test_staging_sends_nothing = Check(
    claim=claims.TracingSends(at_most=NOTHING),
    workloads=STAGED,
    negative_control="negative-old-tracing",
)

# The old tracing of this layer would fill tens of gigabytes of this host's memory.
test_staging_a_large_layer_sends_nothing = Check(
    claim=claims.TracingSends(at_most=NOTHING),
    workloads=(STAGED_LLAMA,),
    negative_control="negative-factor",
)

test_step_moves_nothing_to_the_host = Check(
    claim=claims.TransferredBytes(direction=Direction.TO_HOST, equal=NOTHING),
    workloads=_OF_ALL,
    negative_control="negative-by-the-host",
)

test_step_moves_nothing_to_the_device = Check(
    claim=claims.TransferredBytes(direction=Direction.TO_DEVICE, equal=NOTHING),
    workloads=_OF_ALL,
    negative_control="negative-by-the-host",
)
