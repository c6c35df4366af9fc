"""The sharded step at one size, its variants, what it may send and need, and where it is tried."""

from functools import partial

from assay import Case, Formula, Level, Quantity, Role, Scope, Unit, Variant, Workload
from suites.failing import failing_controls
from suites.sharded_scan.programs import (
    Sizes,
    replicated,
    sharded,
    stack_gathered,
    unscaled,
)

SIZES = Sizes(layers=16, batch=64, width=512)
"""Layers of 1 MiB: a TPU does not scatter 32 KiB. Runs on two CPU cores in a second."""

_SCALAR = 4
_GATHERS, _SCATTERS = 2, 1
"""Forward, and again under remat; the gradients."""
_LAYERS_IN_FLIGHT = 6
"""A whole layer, its gradient and their transposes, and the next ones where the loop overlaps."""


def _sent(case: Case) -> Quantity:
    devices = case.evidence.device_count
    stack = SIZES.layers * SIZES.layer_bytes
    parts = (_GATHERS + _SCATTERS) * stack + 2 * _SCALAR
    return Quantity(-(-parts * (devices - 1) // devices), Unit.BYTES)


def _needed(case: Case) -> Quantity:
    devices = case.evidence.device_count
    held = 2 * SIZES.layers * SIZES.layer_bytes + SIZES.activation_bytes
    rows = 4 * SIZES.batch * SIZES.width * 4
    each = (held + rows) // devices + _LAYERS_IN_FLIGHT * SIZES.layer_bytes
    return Quantity(max(own.device_count for own in case.evidence.processes) * each, Unit.BYTES)


SENT = Formula("(2 gathers + 1 scatter) · layers · width² · 4 B · (n − 1)/n, and the loss", _sent)
"""What a device of n sends in a step."""

NEEDED = Formula(
    "devices of the process · ((parameters + gradients + activations)/n + 6 layers in flight)",
    _needed,
)
"""What a process needs on its devices."""

_control = partial(Variant, role=Role.NEGATIVE_CONTROL)

_step = partial(
    Workload,
    suite="sharded_scan",
    variants=(
        Variant(name="replicated", role=Role.CONTROL, program=partial(replicated, SIZES)),
        Variant(
            name="sharded",
            role=Role.POLICY,
            reference="replicated",
            program=partial(sharded, SIZES),
        ),
        _control(name="negative-stack-gathered", program=partial(stack_gathered, SIZES)),
        _control(
            name="negative-not-averaged", reference="replicated", program=partial(unscaled, SIZES)
        ),
        *failing_controls(_control),
    ),
)
COMPILED = _step(
    name="step",
    scopes=(
        Scope(level=Level.QUICK, targets=("gpu-h100:8", "tpu-v5e:2x4"), variants=("sharded",)),
        Scope(level=Level.FULL, targets=("gpu-*", "tpu-*", "tpu7x*")),
    ),
)
EXECUTED = _step(
    name="step-executed", scopes=(Scope(level=Level.QUICK, targets=("cpu*", "gpu", "tpu")),)
)
WORKLOADS = (COMPILED, EXECUTED)
