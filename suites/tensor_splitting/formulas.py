"""Limits of the claims: memsafe's budget, multiples of another kernel's bytes, and constants."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from assay import Case, Formula, Quantity, Unit, Variant, Workload
from assay.claims.measurement import memory_of

_GIGABYTE = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitWorkload(Workload):
    """A problem of given sizes; ``budget_bytes`` limits arguments, results and temporaries."""

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
"""The matrices between all pairs of points take 40 GB to 36 TB."""

LIKE_FLASH = Formula("1.2 × the Pallas flash kernel", partial(_times, 1.2, "flash"), _only("flash"))
"""A fifth more than the temporaries on a TPU of a kernel written for attention alone."""

LIKE_CUDNN = Formula(
    "2 × cuDNN's flash attention, scaled from bf16 to f32",
    partial(_times, 2 * 2, "cudnn"),
    _only("cudnn"),
)
"""cuDNN accepts 16-bit types only; arrays in f32 take twice the bytes."""

QUARTER_SLOWER = Formula("1.25 × the reference", lambda _case: Quantity(1.25, Unit.RATIO))
"""The most time that bounded memory may cost: some of the split values may be computed twice. To
compute all of them twice takes twice as long."""

HALF_WAY = Formula(
    "halfway between linear and quadratic in the sequence", lambda _case: Quantity(1.5, Unit.RATIO)
)
"""A budget in proportion to the sequence has exponent 1; the scores of all pairs have 2."""

NEARLY_LINEAR = Formula(
    "halfway between linear and quadratic in the layers", lambda _case: Quantity(1.5, Unit.RATIO)
)
"""To plan each layer of a program once has exponent 1; a search over pairs of layers has 2."""
