"""Comparing two sets of result arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt

from assay.model.evidence import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The largest difference between two result sets, relative to the reference's own size.

    ``ratio`` is max|a − b| / max|b| of the array at ``path``, the worst of all arrays; it is
    infinite where shapes or types differ, an array is missing, or a value is not a number.
    """

    ratio: float
    path: str
    reason: str


def largest_difference(results: Sequence[Tensor], reference: Sequence[Tensor]) -> Difference:
    """The worst array of the two sets, compared path by path."""
    mine = {tensor.path: tensor for tensor in results}
    theirs = {tensor.path: tensor for tensor in reference}
    if not theirs:
        return Difference(ratio=float("inf"), path="", reason="the reference has no results")
    if mine.keys() != theirs.keys():
        odd = sorted(mine.keys() ^ theirs.keys())
        return Difference(ratio=float("inf"), path=odd[0], reason=f"only one side has {odd}")
    return max(
        (_difference(mine[path], theirs[path]) for path in theirs),
        key=lambda difference: difference.ratio,
    )


def _difference(mine: Tensor, theirs: Tensor) -> Difference:
    if (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape):
        reason = f"{mine.dtype}{list(mine.shape)} against {theirs.dtype}{list(theirs.shape)}"
        return Difference(ratio=float("inf"), path=mine.path, reason=reason)
    ours, reference = _array(mine), _array(theirs)
    if not (np.isfinite(ours).all() and np.isfinite(reference).all()):
        return Difference(ratio=float("inf"), path=mine.path, reason="not all values are finite")
    gap = float(np.max(np.abs(ours - reference), initial=0.0))
    scale = float(np.max(np.abs(reference), initial=0.0))
    ratio = 0.0 if gap == 0.0 else gap / scale if scale else float("inf")
    reason = f"largest difference {gap:.3g} where the largest value is {scale:.3g}"
    return Difference(ratio=ratio, path=mine.path, reason=reason)


def _array(tensor: Tensor) -> npt.NDArray[np.float64] | npt.NDArray[np.complex128]:
    extended = getattr(ml_dtypes, tensor.dtype, None)
    dtype = np.dtype(extended if extended is not None else tensor.dtype)
    array = np.frombuffer(tensor.data, dtype=dtype).reshape(tensor.shape)
    if dtype.kind == "c":
        return array.astype(np.complex128)
    return array.astype(np.float64)
