"""Claims on numbers: two variants compute the same results, up to a derived rounding error."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv

from assay.claims.measurement import VALUES, result_of_run
from assay.model.claim import Case, Claim
from assay.model.evidence import Evidence, Tensor
from assay.model.units import Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Variant, matches_any

_CHANCE: Final = 1e-6
_NOISE: Final = 2.0**-8
_LEVELS: Final = 2.0 ** -np.arange(0, 60, 0.5)
_WIDE_BYTES: Final = 8
"""Size of integers that doubles do not hold exactly; long doubles do (x86-64 and AArch64 Linux)."""

_Array = npt.NDArray[np.float64] | npt.NDArray[np.longdouble] | npt.NDArray[np.complex128]


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest difference between two result sets.

    ``ratio`` is the smallest tolerance that would accept the array at ``path``, the worst of all
    arrays. It is infinite where shapes or types differ, an array is missing, values that are not
    finite differ, or only the reference is zero everywhere.
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
        return Difference(inf, "", "the reference has no results")
    odd = sorted(mine.keys() ^ theirs.keys())
    if odd:
        return Difference(inf, odd[0], f"only one side has {odd}")
    differences = []
    for path, other in theirs.items():
        own = mine[path]
        if own.shape != other.shape or (same_types and own.dtype != other.dtype):
            types = (f"{each.dtype}{list(each.shape)}" for each in (own, other))
            differences.append(Difference(inf, path, " against ".join(types)))
        else:
            differences.append(_difference(path, _array(own), _array(other), tolerance))
    return max(differences, key=lambda difference: difference.ratio)


def _difference(path: str, ours: _Array, reference: _Array, tolerance: float) -> Difference:
    def at(where: int) -> str:
        index = [int(each) for each in np.unravel_index(where, ours.shape)]
        place = f" at {index}" if index else ""
        mine: Any = ours.flat[where]
        other: Any = reference.flat[where]
        size = abs(other)
        is_comparable = 0 < size < inf and np.isfinite(mine)
        off = f", {100 * abs(mine - other) / size:.3g} % off" if is_comparable else ""
        return f"{_text(mine)} against {_text(other)}{place}{off}"

    finite = np.isfinite(ours) & np.isfinite(reference)
    odd = ~finite & ~_alike(ours, reference)
    if odd.any():
        reason = f"{at(int(np.argmax(odd)))}; not finite, or not alike, in {_count(odd)}"
        return Difference(inf, path, reason)
    gaps = np.abs(np.where(finite, ours, 0) - np.where(finite, reference, 0))
    scale = float(np.max(np.abs(reference), where=finite, initial=0.0))
    gap = float(np.max(gaps, initial=0.0))
    if gap == 0.0:
        return Difference(0.0, path, f"all {gaps.size} elements are equal")
    whole = gap / scale if scale else inf
    size = np.maximum(np.abs(ours), np.abs(reference))
    # Rounding errors of the largest value are not compared with an element's own size.
    held = np.isfinite(size) & (gaps > scale * tolerance * _NOISE)
    relative = np.divide(gaps, size, out=np.zeros(gaps.shape), where=held)
    each = _beyond_chance(relative)
    where = int(np.argmax(gaps if whole >= each else relative))
    reason = (
        f"{at(where)}; {_count(gaps > 0)} differ, by {gap:.3g} at most where the largest value is "
        f"{scale:.3g}"
    )
    return Difference(max(whole, each), path, reason)


def _alike(ours: _Array, reference: _Array) -> npt.NDArray[np.bool_]:
    """Where both are equal or both NaN; in each part of a complex number."""
    parts = ((ours.real, reference.real), (ours.imag, reference.imag))
    real, imag = ((mine == theirs) | (np.isnan(mine) & np.isnan(theirs)) for mine, theirs in parts)
    alike: npt.NDArray[np.bool_] = real & imag
    return alike


def _beyond_chance(relative: npt.NDArray[np.float64]) -> float:
    """The smallest tolerance under which no more elements are so far off than chance explains."""
    counts = np.array([np.count_nonzero(relative >= level) for level in _LEVELS])
    # The mean of a Poisson variable that reaches the count with that chance.
    means = gammaincinv(np.maximum(counts, 1), _CHANCE) * (counts > 0)
    return float(np.max(means * _LEVELS) / max(relative.size, 1))


def _text(number: np.inexact[Any]) -> str:
    """The number; of 64-bit integers all digits."""
    return str(int(number)) if isinstance(number, np.longdouble) else f"{number:.9g}"


def _count(which: npt.NDArray[np.bool_]) -> str:
    return f"{np.count_nonzero(which):,} of {which.size:,} elements"


def _array(tensor: Tensor) -> _Array:
    dtype = np.dtype(getattr(ml_dtypes, tensor.dtype, tensor.dtype))
    array = np.frombuffer(tensor.data, dtype=dtype).reshape(tensor.shape)
    if dtype.kind in "iu" and dtype.itemsize == _WIDE_BYTES:
        return array.astype(np.longdouble)
    return array.astype(np.complex128) if dtype.kind == "c" else array.astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesEqual(Claim):
    """Every observed result equals the reference variant's, or those of an independent ``truth``.

    Measures the smallest tolerance that accepts the worst array; this module derives it. Equal
    values that are not finite, in equal places, are equal. On targets that match ``exact_on`` the
    limit is 0. Elsewhere it is ``relative_tolerance``, by default 2⁻¹⁰: the rounding of TF32
    (10-bit significand, NVIDIA A100 white paper). A program runs with f32 products, unless it or
    the user sets ``jax_default_matmul_precision``; with TF32, rounding grows from step to step.

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
        tolerance, same_types = self.relative_tolerance, self.truth is None
        worst = largest_difference(ours, theirs, tolerance, same_types=same_types)
        limit = 0.0 if matches_any(case.evidence.target, self.exact_on) else tolerance
        passed = worst.ratio <= limit
        many = f"all {len(theirs)} results" if passed else worst.path.removeprefix(".")
        return Finding(
            outcome=Outcome.PASSED if passed else Outcome.FAILED,
            measured=worst.ratio,
            limit=limit,
            reason=f"{many} against {whose}: {worst.reason}",
        )

    def _truth(self, case: Case) -> tuple[Sequence[Tensor], str]:
        """What the results are compared with, and its name."""
        if self.truth is None:
            reference = case.variant.reference
            return _values(case, case.other(reference)), repr(reference)
        if callable(self.truth):
            name = getattr(self.truth, "__name__", "the truth")
            return list(_tensors("", self.truth())), f"{name}()"
        with np.load(self.truth) as stored:
            return [_tensor(path, array) for path, array in stored.items()], self.truth.name


def _values(case: Case, evidence: Evidence) -> tuple[Tensor, ...]:
    return result_of_run(case, evidence, evidence.values, *VALUES)


def _tensors(path: str, results: Any) -> Iterator[Tensor]:
    """The arrays of a nested result, under the paths that JAX gives them."""
    if isinstance(results, Mapping | tuple | list):
        parts = results.items() if isinstance(results, Mapping) else enumerate(results)
        for key, each in parts:
            yield from _tensors(f"{path}[{key!r}]", each)
    else:
        yield _tensor(path, np.asarray(results))


def _tensor(path: str, array: Any) -> Tensor:
    return Tensor(path=path, dtype=array.dtype.name, shape=array.shape, data=array.tobytes())
