"""What the claims expect, as formulas of the shapes."""

from dataclasses import dataclass
from math import prod

from assay import Case, Formula, Quantity, Unit, Variant, Workload
from assay.claims.measurement import module_of
from suites.scan_offload.programs import HIDDEN, NO_BUDGET, Budget, Sizes

_F32_BYTES = 4
_ROWS_IN_FLIGHT = 3

_PASSES, _PRODUCTS = 4, 2
"""Forward, again under remat, and the gradients of two operands, of each of two products."""

_COPIES, _READ_AND_WRITTEN = 2, 2
"""There and back, each of which reads and writes what is moved."""

_FLOPS_IN_THE_TIME_OF_A_BYTE = 32
"""Of a CPU at the most: two cores at 160 GFLOP/s, and 5 GB/s of memory that neighbours share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockWorkload(Workload):
    """The scanned block at given dimensions, and what memsafe may take of a device for it."""

    block: Sizes
    budget: Budget = NO_BUDGET


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockVariant(Variant):
    """A variant that says which named activations it moves to the host, or saves in their place."""

    moves: tuple[str, ...] = ()


def _budget(case: Case) -> Quantity:
    assert isinstance(case.workload, BlockWorkload)
    return Quantity(case.workload.budget.of(case.evidence.device_count), Unit.BYTES)


def _sizes(case: Case) -> Sizes:
    assert isinstance(case.workload, BlockWorkload)
    return case.workload.block


def _moved(case: Case) -> tuple[str, ...]:
    assert isinstance(case.variant, BlockVariant)
    return case.variant.moves


def _moved_bytes(case: Case, devices: int) -> int:
    elements = sum(_sizes(case).activation_elements(name) for name in _moved(case))
    return elements * _F32_BYTES // devices


def moved_bytes(case: Case) -> int:
    """The moved activations on one device."""
    return _moved_bytes(case, case.evidence.device_count)


def row_bytes(case: Case) -> int:
    """One layer's share of them."""
    return moved_bytes(case) // _sizes(case).layers


def _moved_everywhere(case: Case) -> Quantity:
    return Quantity(_moved_bytes(case, 1), Unit.BYTES)


def _moved_per_device(case: Case) -> Quantity:
    return Quantity(moved_bytes(case), Unit.BYTES)


def _in_use(case: Case) -> Quantity:
    rows = _ROWS_IN_FLIGHT * moved_bytes(case) // _sizes(case).layers
    return Quantity(rows + case.evidence.on_chip_memory_bytes, Unit.BYTES)


def _freed_per_device(case: Case) -> Quantity:
    stored = sum(_stored_bytes(case, name) for name in _moved(case))
    return Quantity(stored - _in_use(case).value, Unit.BYTES)


def _stored_bytes(case: Case, name: str) -> int:
    """Bytes per device of the stack that the compiler keeps when the activation is saved.

    A compiler may keep it narrower than f32 (TPU keeps what only feeds a bf16 product as bf16),
    and offloading cannot free more than was there. The variant that saves nothing carries the
    residual's stack alone; what saving ``hidden`` adds to it is the hidden activation's.
    """
    elements = _sizes(case).activation_elements(name) // case.evidence.device_count
    stored = _carried_bytes(case, "nothing", elements)
    if name == HIDDEN:
        stored = _carried_bytes(case, "save-hidden", elements) - stored
    return stored or elements * _F32_BYTES


def _variants_that_save(variant: Variant) -> tuple[str, ...]:
    assert isinstance(variant, BlockVariant)
    return ("nothing", "save-hidden") if HIDDEN in variant.moves else ("nothing",)


def _carried_bytes(case: Case, variant: str, elements: int) -> int:
    module = module_of(case, case.other(variant))
    layers = _sizes(case).layers
    return max(
        (
            sum(
                carry.nbytes
                for carry in loop.carries
                if not carry.on_host
                and layers in carry.dimensions
                and prod(carry.dimensions) == elements
            )
            for loop in module.loops
        ),
        default=0,
    )


def _step_and_copies(case: Case) -> Quantity:
    sizes = _sizes(case)
    rows = sizes.layers * sizes.batch * sizes.sequence
    flops = _PASSES * _PRODUCTS * 2 * rows * sizes.embedding * sizes.hidden
    copied = _COPIES * _READ_AND_WRITTEN * _moved_bytes(case, 1)
    return Quantity(1 + copied * _FLOPS_IN_THE_TIME_OF_A_BYTE / flops, Unit.RATIO)


def _as_long(_case: Case) -> Quantity:
    return Quantity(1.25, Unit.RATIO)


ACTIVATION = Formula(
    "layers · batch · sequence · width · 4 B, for each offloaded value", _moved_everywhere
)
"""The moved activations over all devices."""

ACTIVATION_PER_DEVICE = Formula(
    "layers · batch · sequence · width · 4 B / devices, for each offloaded value", _moved_per_device
)
"""The moved activations on one device."""

BUDGET = Formula("memsafe's budget", _budget)
"""Temporaries, arguments and results together."""

IN_USE = Formula("three rows in flight and the on-chip memory", _in_use)
"""What offloading may still need: one layer's row leaving, one arriving, one in use; and where the
compiler also places temporaries on chip (TPU), what it placed there without offload only."""

STEP_AND_COPIES = Formula(
    "the step, and the transfer of the offloaded values both ways", _step_and_copies
)
"""What an offload may cost in time where the host's memory is the device's: a CPU."""

QUARTER_LONGER = Formula("1.25 × the other policy", _as_long)
"""Two policies trace the same layers; only what each says of a value differs."""

FREED_PER_DEVICE = Formula(
    "the offloaded values as stored without the offload, minus three rows in flight and the "
    "on-chip memory",
    _freed_per_device,
    _variants_that_save,
)
"""What offloading must free on one device."""
