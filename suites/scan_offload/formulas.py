"""What the claims expect, as formulas of the shapes."""

from dataclasses import dataclass
from math import prod

from assay import Arm, Case, Formula, Quantity, Unit, Workload
from suites.scan_offload.programs import Sizes

_F32_BYTES = 4
_ROWS_IN_FLIGHT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockWorkload(Workload):
    """The scanned block at given dimensions."""

    block: Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockArm(Arm):
    """An arm that says which named activations it moves to the host, or saves in their place."""

    moves: tuple[str, ...] = ()


def _sizes(case: Case) -> Sizes:
    assert isinstance(case.workload, BlockWorkload)
    return case.workload.block


def _moved(case: Case) -> tuple[str, ...]:
    assert isinstance(case.arm, BlockArm)
    return case.arm.moves


def _moved_bytes(case: Case, devices: int) -> int:
    shapes = [_sizes(case).activation_shape(name, devices) for name in _moved(case)]
    return sum(map(prod, shapes)) * _F32_BYTES


def _moved_everywhere(case: Case) -> Quantity:
    return Quantity(_moved_bytes(case, 1), Unit.BYTES)


def _moved_per_device(case: Case) -> Quantity:
    return Quantity(_moved_bytes(case, case.evidence.device_count), Unit.BYTES)


def _freed_per_device(case: Case) -> Quantity:
    rows = _ROWS_IN_FLIGHT * _moved_bytes(case, case.evidence.device_count) // _sizes(case).layers
    stored = sum(_stored_bytes(case, name) for name in _moved(case))
    return Quantity(stored - rows, Unit.BYTES)


def _stored_bytes(case: Case, name: str) -> int:
    """Bytes that the reference arm's loops really carry of an activation on the device.

    A compiler may keep the stack narrower than f32 (TPU keeps what only feeds a bf16 product as
    bf16); offloading cannot free more than was there. Without such a loop it is the f32 stack.
    """
    shape = _sizes(case).activation_shape(name, case.evidence.device_count)
    module = case.other(case.arm.reference).module
    carried = [
        sum(carry.nbytes for carry in loop.carries if sorted(carry.dimensions) == sorted(shape))
        for loop in (module.loops if module else ())
    ]
    return max(carried, default=0) or prod(shape) * _F32_BYTES


ACTIVATION = Formula("layers · batch · sequence · width · 4 B of what is moved", _moved_everywhere)
"""The moved activations over all devices."""

ACTIVATION_PER_DEVICE = Formula(
    "layers · batch · sequence · width · 4 B / devices of what is moved", _moved_per_device
)
"""The moved activations on one device."""

FREED_PER_DEVICE = Formula(
    "the moved activations as the reference arm stores them, less two rows in flight",
    _freed_per_device,
)
"""What offloading must free: one row may be on its way out and one on its way in."""
