"""What the claims expect, as formulas of the shapes."""

from collections.abc import Callable
from dataclasses import dataclass

from assay import Case, Formula, Quantity, Unit, Variant, Workload
from suites.dus_remat.stacks import StackSizes

_SUBLANES = 8
_WORKSPACE_BYTES = 2**20
"""What kernels of a GPU take for themselves at the most, beside small arrays: 640 KiB were seen in
this suite (jax 0.10.2 to 0.12.0.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackWorkload(Workload):
    """The loops on stacks of given dimensions."""

    stack: StackSizes


@dataclass(frozen=True, slots=True, kw_only=True)
class StackVariant(Variant):
    """A variant that says what it may hold in temporaries.

    ``stacks_held`` counts whole stacks: copies outside of the loop, which the program itself asks
    for. ``rows_held`` is the rows that autodiff keeps, ``rows_in_flight`` those in use at one time.
    ``weights_held`` counts weights and their gradients. ``rows_an_iteration`` is the rows of the
    largest array that an iteration may write whole.
    """

    stacks_held: int = 0
    rows_held: int = 0
    rows_in_flight: int = 4
    weights_held: int = 0
    rows_an_iteration: int = 1


def _of(case: Case) -> tuple[StackSizes, StackVariant]:
    assert isinstance(case.workload, StackWorkload)
    assert isinstance(case.variant, StackVariant)
    return case.workload.stack, case.variant


def _nothing(_case: Case) -> Quantity:
    return Quantity(0, Unit.BYTES)


def _one_row(case: Case) -> Quantity:
    sizes, variant = _of(case)
    return Quantity(variant.rows_an_iteration * sizes.row_bytes, Unit.BYTES)


def _held(case: Case) -> Quantity:
    sizes, variant = _of(case)
    # A TPU tile has eight sublanes: with the rows' axis next to last, it is padded up to eight.
    padded_length = -(-sizes.length // _SUBLANES) * _SUBLANES
    rows = variant.rows_in_flight + variant.rows_held + variant.stacks_held * padded_length
    workspace = _WORKSPACE_BYTES if case.evidence.target.startswith("gpu") else 0
    held = rows * sizes.row_bytes + variant.weights_held * sizes.weight_bytes
    return Quantity(held + workspace, Unit.BYTES)


def _stack(case: Case) -> Quantity:
    sizes, _ = _of(case)
    return Quantity(sizes.length * sizes.row_bytes, Unit.BYTES)


def _power(exponent: float) -> Callable[[Case], Quantity]:
    return lambda _case: Quantity(exponent, Unit.RATIO)


NOTHING = Formula("no full-buffer write", _nothing)
"""An iteration that replaces one row rewrites no array above one row."""

ONE_ROW = Formula("one iteration's rows", _one_row)
"""What an iteration must write: a row; all stages' or all inner layers' rows where it has them."""

THE_STACK = Formula("the donated stack", _stack)
"""What a loop that updates its stack in place gets and gives back."""

CONSTANT = Formula("independent of the stack's length", _power(0.0))

HALF_WAY = Formula("halfway to an iteration that touches the whole stack", _power(0.5))

HELD = Formula("rows in flight, and the rows, stacks and weights that the program keeps", _held)
"""Temporaries: rows in use at one time, rows that autodiff keeps, and whole stacks that the program
asks for outside of the loop, with the rows' axis padded to a TPU's eight sublanes. On a GPU, a
workspace as well."""
