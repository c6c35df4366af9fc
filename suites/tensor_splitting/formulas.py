"""What the claims expect: the budget that a variant was given, or what a rival's kernel needs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from assay import Case, Formula, Quantity, Unit, Variant, Workload
from assay.claims.measurement import memory_of

_GIGABYTE = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitWorkload(Workload):
    """A problem of given sizes, with the memory that it may take in all."""

    budget_bytes: int


def _budget(case: Case) -> Quantity:
    assert isinstance(case.workload, SplitWorkload)
    return Quantity(case.workload.budget_bytes, Unit.BYTES)


def _times(factor: float, rival: str, case: Case) -> Quantity:
    return Quantity(factor * memory_of(case, case.other(rival)).temp_bytes, Unit.BYTES)


def _only(rival: str) -> Callable[[Variant], tuple[str, ...]]:
    return lambda _variant: (rival,)


BUDGET = Formula("memsafe's budget", _budget)
"""Temporaries, arguments and results together."""

GIGABYTE = Formula("10⁹ B for all sizes", lambda _case: Quantity(_GIGABYTE, Unit.BYTES))
"""Where stock keeps a matrix of hundreds of gigabytes."""

LIKE_FLASH = Formula("1.2 × the Pallas flash kernel", partial(_times, 1.2, "flash"), _only("flash"))
"""What a kernel written for attention alone keeps on a TPU, and a fifth more."""

LIKE_CUDNN = Formula(
    "2 × cuDNN's flash attention, scaled from bf16 to f32",
    partial(_times, 2 * 2, "cudnn"),
    _only("cudnn"),
)
"""cuDNN knows 16-bit types only: its bytes in f32 are twice as many."""

QUARTER_SLOWER = Formula("1.25 × the reference", lambda _case: Quantity(1.25, Unit.RATIO))
"""What bounded memory may cost in time at worst: a second pass over a part of what is split, never
over all of it, which takes twice as long."""

HALF_WAY = Formula(
    "halfway between linear and quadratic in the sequence", lambda _case: Quantity(1.5, Unit.RATIO)
)
"""A budget in proportion to the sequence is 1; the scores of all pairs of positions are 2."""

NEARLY_LINEAR = Formula(
    "halfway between linear and quadratic in the layers", lambda _case: Quantity(1.5, Unit.RATIO)
)
"""Each layer of a program is planned once; a search over pairs of layers is 2."""
