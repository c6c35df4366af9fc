"""Comparing two sets of result arrays: as a whole, and element by element.

Two orders of one sum differ by rounding, which is relative to the terms that were summed, not to
their sum. The largest value of an array stands for its terms: no element may be off by more than
the tolerance relative to it. That alone lets small elements be wholly wrong, so elements are also
held to themselves. An element that is off by more than r relative to itself is a sum that
cancelled to less than tolerance / r of its terms. A sum of many terms of random sign does so with
a probability of at most tolerance / r (the density of the normal distribution at 0). Of N elements
so many are no chance as a Poisson variable of mean N · tolerance / r reaches once in a million
arrays. A difference of less than 1/256 of the tolerance, relative to the largest value, is left
out: values on the way were rounded too (seen: a gradient in f64 with rows at 7e-12 of its largest
value, off by 1e-15 of that).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import ml_dtypes
import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv

from assay.model.evidence import Tensor

_CHANCE: Final = 1e-6
_NOISE: Final = 2.0**-8
_LEVELS: Final = 2.0 ** -np.arange(0, 60, 0.5)

_Array = npt.NDArray[np.float64] | npt.NDArray[np.complex128]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The largest difference between two result sets.

    ``ratio`` is the smallest tolerance that would accept the array at ``path``, the worst of all
    arrays; it is infinite where shapes or types differ, an array is missing, or one side is not
    finite where the other is or is so otherwise.
    """

    ratio: float
    path: str
    reason: str


def largest_difference(
    results: Sequence[Tensor],
    reference: Sequence[Tensor],
    tolerance: float,
    *,
    same_types: bool = True,
) -> Difference:
    """The worst array of the two sets, compared path by path."""
    mine = {tensor.path: tensor for tensor in results}
    theirs = {tensor.path: tensor for tensor in reference}
    if not theirs:
        return Difference(ratio=float("inf"), path="", reason="the reference has no results")
    if mine.keys() != theirs.keys():
        odd = sorted(mine.keys() ^ theirs.keys())
        return Difference(ratio=float("inf"), path=odd[0], reason=f"only one side has {odd}")
    return max(
        (_difference(mine[path], theirs[path], tolerance, same_types) for path in theirs),
        key=lambda difference: difference.ratio,
    )


def _difference(mine: Tensor, theirs: Tensor, tolerance: float, same_types: bool) -> Difference:  # noqa: FBT001
    if mine.shape != theirs.shape or (same_types and mine.dtype != theirs.dtype):
        reason = f"{mine.dtype}{list(mine.shape)} against {theirs.dtype}{list(theirs.shape)}"
        return Difference(ratio=float("inf"), path=mine.path, reason=reason)
    ours, reference = _array(mine), _array(theirs)
    odd = ~(np.isfinite(ours) & np.isfinite(reference)) & ~_same_odd(ours, reference)
    if odd.any():
        where = int(np.argmax(odd))
        words = f"{_at(where, ours, reference)}; not finite, or not alike, in {_count(odd)}"
        return Difference(ratio=float("inf"), path=mine.path, reason=words)
    finite = np.isfinite(reference)
    gaps = np.abs(np.where(finite, ours, 0) - np.where(finite, reference, 0))
    scale = float(np.max(np.abs(reference), where=finite, initial=0.0))
    gap = float(np.max(gaps, initial=0.0))
    if gap == 0.0:
        return Difference(ratio=0.0, path=mine.path, reason=f"all {gaps.size} elements are equal")
    whole = gap / scale if scale else float("inf")
    relative = _relative(gaps, ours, reference, floor=scale * tolerance * _NOISE)
    each = _beyond_chance(relative)
    where = int(np.argmax(gaps if whole >= each else relative))
    reason = (
        f"{_at(where, ours, reference)}; {_count(gaps > 0)} differ, by {gap:.3g} at most where the "
        f"largest value is {scale:.3g}"
    )
    return Difference(ratio=max(whole, each), path=mine.path, reason=reason)


def _same_odd(ours: _Array, reference: _Array) -> npt.NDArray[np.bool_]:
    """Where both are NaN, or the same infinity; in each part of a complex number."""
    if np.iscomplexobj(ours) or np.iscomplexobj(reference):
        real = _same_odd(ours.real, reference.real) | (ours.real == reference.real)
        both = real & (_same_odd(ours.imag, reference.imag) | (ours.imag == reference.imag))
        return np.asarray(both, dtype=np.bool_)
    alike: npt.NDArray[np.bool_] = np.isnan(ours) & np.isnan(reference)
    return np.asarray(alike | (np.isinf(ours) & (ours == reference)), dtype=np.bool_)


def _relative(
    gaps: npt.NDArray[np.float64], ours: _Array, reference: _Array, floor: float
) -> npt.NDArray[np.float64]:
    """How far each element is off relative to itself; 0 for what is off by the floor at most."""
    size = np.maximum(np.abs(ours), np.abs(reference))
    held = np.isfinite(size) & (gaps > floor)
    return np.divide(gaps, size, out=np.zeros(gaps.shape), where=held)


def _beyond_chance(relative: npt.NDArray[np.float64]) -> float:
    """The smallest tolerance under which no more elements are so far off than chance explains."""
    counts = np.array([np.count_nonzero(relative >= level) for level in _LEVELS])
    # The mean of a Poisson variable that reaches the count with that chance.
    means = gammaincinv(np.maximum(counts, 1), _CHANCE) * (counts > 0)
    return float(np.max(means * _LEVELS) / max(relative.size, 1))


def _at(where: int, ours: _Array, reference: _Array) -> str:
    index = [int(each) for each in np.unravel_index(where, ours.shape)]
    left, right = ours.flat[where], reference.flat[where]
    return f"{left:.9g} against {right:.9g}{f' at {index}' if index else ''}"


def _count(which: npt.NDArray[np.bool_]) -> str:
    return f"{np.count_nonzero(which):,} of {which.size:,} elements"


def _array(tensor: Tensor) -> _Array:
    extended = getattr(ml_dtypes, tensor.dtype, None)
    dtype = np.dtype(extended if extended is not None else tensor.dtype)
    array = np.frombuffer(tensor.data, dtype=dtype).reshape(tensor.shape)
    if dtype.kind == "c":
        return array.astype(np.complex128)
    return array.astype(np.float64)
