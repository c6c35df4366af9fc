"""An offloaded activation lives in host memory, and frees its bytes on the device.

Both must hold. ``jax.checkpoint`` policies are requests: a compiler, or JAX itself, can move data
to the host and keep the device's copy (host bytes without a fall), or drop the move in silence
(neither). Upstream reported the second: openxla/xla#17541.
"""

from assay import Check, claims
from suites.scan_offload.formulas import ACTIVATION_PER_DEVICE, FREED_PER_DEVICE
from suites.scan_offload.workloads import COMPILED

OFFLOADING = ("*offload-*", "custom-vjp-*")

test_offloaded_activation_is_in_host_memory = Check(
    claim=claims.HostBytes(equal=ACTIVATION_PER_DEVICE),
    workloads=COMPILED,
    variants=OFFLOADING,
    negative_control="save-hidden",
)

test_offloaded_activation_leaves_the_device = Check(
    claim=claims.DeviceBytesFall(by=FREED_PER_DEVICE),
    workloads=COMPILED,
    variants=OFFLOADING,
    negative_control="save-hidden",
)
