"""Claims on numbers: two variants compute the same results, up to a derived rounding error."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv

from assay.claims.measurement import (
    ClaimBase,
    passed_if,
    stop_never_executed,
    stop_unless_executed,
)
from assay.model.claim import Case
from assay.model.evidence import Evidence, Tensor
from assay.model.units import Unit
from assay.model.verdict import Finding
from assay.model.workload import Variant, matches_any

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
        return _unlike("", "the reference has no results")
    if mine.keys() != theirs.keys():
        odd = sorted(mine.keys() ^ theirs.keys())
        return _unlike(odd[0], f"only one side has {odd}")
    return max(
        (_difference(mine[path], theirs[path], tolerance, same_types) for path in theirs),
        key=lambda difference: difference.ratio,
    )


def _unlike(path: str, reason: str) -> Difference:
    return Difference(ratio=float("inf"), path=path, reason=reason)


def _difference(mine: Tensor, theirs: Tensor, tolerance: float, same_types: bool) -> Difference:  # noqa: FBT001
    if mine.shape != theirs.shape or (same_types and mine.dtype != theirs.dtype):
        types = f"{mine.dtype}{list(mine.shape)} against {theirs.dtype}{list(theirs.shape)}"
        return _unlike(mine.path, types)
    ours, reference = _array(mine), _array(theirs)
    odd = ~(np.isfinite(ours) & np.isfinite(reference)) & ~_alike(ours, reference)
    if odd.any():
        where = int(np.argmax(odd))
        words = f"{_at(where, ours, reference)}; not finite, or not alike, in {_count(odd)}"
        return _unlike(mine.path, words)
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


def _alike(ours: _Array, reference: _Array) -> npt.NDArray[np.bool_]:
    """Where both are equal or both NaN; in each part of a complex number."""
    parts = ((ours.real, reference.real), (ours.imag, reference.imag))
    real, imag = ((mine == theirs) | (np.isnan(mine) & np.isnan(theirs)) for mine, theirs in parts)
    alike: npt.NDArray[np.bool_] = real & imag
    return alike


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
    dtype = np.dtype(getattr(ml_dtypes, tensor.dtype, tensor.dtype))
    array = np.frombuffer(tensor.data, dtype=dtype).reshape(tensor.shape)
    return array.astype(np.complex128) if dtype.kind == "c" else array.astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesEqual(ClaimBase):
    """Every observed result equals the reference variant's, or those of an independent ``truth``.

    Measures the smallest tolerance that accepts the worst array; this module derives it. Equal
    values that are not finite, in equal places, are equal. On targets that match ``exact_on`` the
    limit is 0. Elsewhere it is ``relative_tolerance``, by default 2⁻¹⁰: the rounding of TF32
    (10-bit significand, NVIDIA A100 white paper), in which GPUs multiply f32 matrices.

    ``truth`` is a function without arguments that returns arrays in the structure of the results
    (tuples, lists and dicts), for instance computed by numpy. It may also be an ``.npz`` file whose
    names are the paths of the results, ``[0]`` or ``['loss']``. Its element types may differ.
    """

    exact_on: tuple[str, ...] = ("cpu", "cpu:*")
    relative_tolerance: float = 2.0**-10
    # Arrays of whoever computes them, hence Any.
    truth: Callable[[], Any] | Path | None = None
    name: str = "values-equal"
    unit: ClassVar[Unit] = Unit.RATIO

    def _references(self, variant: Variant) -> tuple[str, ...]:
        return (variant.reference,) if self.truth is None else ()

    def judge(self, case: Case) -> Finding:
        ours = _values(case, case.evidence)
        theirs, whose = self._truth(case)
        exact = matches_any(case.evidence.target, self.exact_on)
        limit = 0.0 if exact else self.relative_tolerance
        worst = largest_difference(
            ours, theirs, self.relative_tolerance, same_types=self.truth is None
        )
        passed = worst.ratio <= limit
        many = f"all {len(theirs)} results" if passed else worst.path
        return Finding(
            outcome=passed_if(passed),
            measured=worst.ratio,
            limit=limit,
            reason=f"{many} against {whose}: {worst.reason}",
        )

    def _truth(self, case: Case) -> tuple[tuple[Tensor, ...], str]:
        if self.truth is None:
            reference = case.variant.reference
            return _values(case, case.other(reference)), repr(reference)
        if callable(self.truth):
            name = getattr(self.truth, "__name__", "the truth")
            return tuple(_tensors("", self.truth())), f"{name}()"
        with np.load(self.truth) as stored:
            named = tuple(_tensor(path, array) for path, array in stored.items())
        return named, self.truth.name


def _values(case: Case, evidence: Evidence) -> tuple[Tensor, ...]:
    stop_unless_executed(case, evidence)
    if evidence.values is None:
        stop_never_executed(evidence, "results")
    return evidence.values


def _tensors(path: str, results: Any) -> Iterator[Tensor]:
    """The arrays of a nested result, under the paths that JAX gives them."""
    if isinstance(results, Mapping):
        for key, each in results.items():
            yield from _tensors(f"{path}[{key!r}]", each)
    elif isinstance(results, tuple | list):
        for number, each in enumerate(results):
            yield from _tensors(f"{path}[{number}]", each)
    else:
        yield _tensor(path, np.asarray(results))


def _tensor(path: str, array: Any) -> Tensor:
    return Tensor(path=path, dtype=array.dtype.name, shape=array.shape, data=array.tobytes())
