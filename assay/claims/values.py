"""Claims on numbers: a variant that moves or recomputes data computes the same results."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.claims.measurement import never_executed, stop_unless_executed
from assay.judge.values import largest_difference
from assay.model.claim import Case
from assay.model.evidence import Evidence, Tensor
from assay.model.units import Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Variant, matches_any


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesEqual:
    """Every observed result equals the reference variant's, or those of an independent ``truth``.

    Measures the smallest tolerance that accepts the worst array, derived in
    ``assay.judge.values``. Equal values that are not finite, in equal places, are equal. On targets
    that match ``exact_on`` the limit is 0; elsewhere it is ``relative_tolerance``, by default 2⁻¹⁰,
    the rounding of TF32 (10-bit significand, NVIDIA A100 white paper), in which GPUs multiply f32
    matrices.

    ``truth`` is a function without arguments that gives arrays in the structure of the results
    (tuples, lists and dicts), computed by numpy for instance; or an ``.npz`` file whose names are
    the paths of the results, ``[0]`` or ``['loss']``. Its element types may differ.
    """

    exact_on: tuple[str, ...] = ("cpu", "cpu:*")
    relative_tolerance: float = 2.0**-10
    # Arrays of whoever computes them, hence Any.
    truth: Callable[[], Any] | Path | None = None
    name: str = "values-equal"
    unit: Unit = Unit.RATIO
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variant whose results are the truth, if nothing else is."""
        return () if self.truth is not None else (variant.reference,)

    def judge(self, case: Case) -> Finding:
        """Passes if no result differs by more than the limit."""
        ours = _values(case, case.evidence)
        if ours is None:
            return never_executed(case.evidence, "results")
        theirs, whose = self._truth(case)
        if theirs is None:
            return never_executed(case.other(case.variant.reference), "results")
        exact = matches_any(case.evidence.target, self.exact_on)
        limit = 0.0 if exact else self.relative_tolerance
        worst = largest_difference(
            ours, theirs, self.relative_tolerance, same_types=self.truth is None
        )
        passed = worst.ratio <= limit
        many = f"all {len(theirs)} results" if passed else worst.path
        return Finding(
            outcome=Outcome.PASSED if passed else Outcome.FAILED,
            measured=worst.ratio,
            limit=limit,
            reason=f"{many} against {whose}: {worst.reason}",
        )

    def _truth(self, case: Case) -> tuple[tuple[Tensor, ...] | None, str]:
        if self.truth is None:
            reference = case.variant.reference
            return _values(case, case.other(reference)), repr(reference)
        if callable(self.truth):
            name = getattr(self.truth, "__name__", "the truth")
            return tuple(_tensors("", self.truth())), f"{name}()"
        with np.load(self.truth) as stored:
            named = tuple(_tensor(path, array) for path, array in stored.items())
        return named, self.truth.name


def _values(case: Case, evidence: Evidence) -> tuple[Tensor, ...] | None:
    stop_unless_executed(case, evidence)
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
