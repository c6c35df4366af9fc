"""Problems at given sizes, and workloads made of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

from assay import Level, Scope
from suites.tensor_splitting.attention import AttentionSizes, attention_problem
from suites.tensor_splitting.formulas import SplitWorkload
from suites.tensor_splitting.kernels import KernelSizes, kernel_problem
from suites.tensor_splitting.known_defects import KNOWN_DEFECTS, UPSTREAM_ISSUE
from suites.tensor_splitting.negative_controls import negative_control_variants
from suites.tensor_splitting.neighbours import Distances, NeighbourSizes, neighbour_problem
from suites.tensor_splitting.problems import Function, Problem, with_gradients
from suites.tensor_splitting.sparse_gp import RegressionSizes, regression_problem
from suites.tensor_splitting.transformers import (
    TransformerSizes,
    decoder_problem,
    encoder_problem,
)
from suites.tensor_splitting.variants import Tried, variants_of

Build = Callable[[], Problem]

_EVERYWHERE = ("plain", "memsafe", "lax-map", "checkpoint", "dot-product-attention", "reordered")
_ONE_VENDORS = {"gpu": ("cudnn",), "tpu": ("flash",)}


def kernel(points: int, product: Function, **sizes: Any) -> Build:
    """A kernel matrix between ``points`` and ``others`` (default: as many), times a vector."""
    others = sizes.pop("others", points)
    return partial(kernel_problem, KernelSizes(points=points, others=others, **sizes), product)


def nearest(points: int, distances: Distances, **sizes: Any) -> Build:
    """A search for neighbours."""
    return partial(neighbour_problem, NeighbourSizes(points=points, **sizes), distances)


def regression(data: int, inducing: int, **sizes: Any) -> Build:
    """A bound of sparse Gaussian process regression."""
    return partial(regression_problem, RegressionSizes(data=data, inducing=inducing, **sizes))


def encoder(batch: int, sequence: int, **sizes: Any) -> Build:
    """An encoder's forward pass."""
    return partial(encoder_problem, TransformerSizes(batch=batch, sequence=sequence, **sizes))


def decoder(batch: int, sequence: int, **sizes: Any) -> Build:
    """A decoder's loss."""
    return partial(decoder_problem, TransformerSizes(batch=batch, sequence=sequence, **sizes))


def attention(sequence: int, **sizes: Any) -> Build:
    """One attention's forward pass."""
    return partial(attention_problem, AttentionSizes(sequence=sequence, **sizes))


def gradients(problem: Build, *wanted: int, squared: bool = True) -> Build:
    """The problem's loss and its gradients with respect to the wanted arguments."""
    return partial(with_gradients, problem, wanted, squared=squared)


def within(budget_bytes: int, problem: Build, **beside: Build) -> Tried:
    """A problem and its budget, which limits arguments, results and temporaries."""
    return Tried(problem=problem, budget_bytes=budget_bytes, beside=beside)


def with_room(room_bytes: int, problem: Build, **beside: Build) -> Tried:
    """A problem whose budget is ``room_bytes`` more than its arguments and results."""
    return within(problem().least_bytes + room_bytes, problem, **beside)


def on(level: Level, *targets: str, variants: tuple[str, ...] = _EVERYWHERE) -> tuple[Scope, ...]:
    """Scopes from ``level`` on: the variants on all targets, cuDNN on GPUs, flash on TPUs."""
    own = (
        Scope(level=level, targets=(target,), variants=_ONE_VENDORS[target[:3]])
        for target in targets
        if target[:3] in _ONE_VENDORS
    )
    return (Scope(level=level, targets=targets, variants=variants), *own)


def workload(name: str, tried: Tried, *scopes: tuple[Scope, ...]) -> SplitWorkload:
    """The workload of a problem, with all its variants and negative controls."""
    return SplitWorkload(
        suite="tensor_splitting",
        name=name,
        budget_bytes=tried.budget_bytes,
        variants=(*variants_of(tried), *negative_control_variants(tried)),
        scopes=tuple(scope for some in scopes for scope in some),
        known_defects=KNOWN_DEFECTS,
        upstream_issue=UPSTREAM_ISSUE,
    )
