"""The problems that are small enough to run, with budgets that the plain programs exceed."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from assay import Level, Scope, Workload
from suites.tensor_splitting.chains import ChainSizes, chain_problem
from suites.tensor_splitting.derivatives import (
    Transform,
    derivative_problem,
    hessian,
    jacobian,
    linear,
    tangent,
)
from suites.tensor_splitting.draws import DrawSizes, draws_problem
from suites.tensor_splitting.formulas import SplitWorkload
from suites.tensor_splitting.kernels import KernelSizes, by_differences, by_products
from suites.tensor_splitting.loops import (
    LoopSizes,
    branches_problem,
    layers_problem,
    recurrent_problem,
)
from suites.tensor_splitting.medians import MedianSizes, heuristic, median_problem, quantile
from suites.tensor_splitting.meshes import MeshSizes, contrast_problem, mapped_problem
from suites.tensor_splitting.neighbours import Distances, cosine, l1, l2, l2_by_products
from suites.tensor_splitting.problems import Function, Problem
from suites.tensor_splitting.residual import ResidualSizes, residual_problem
from suites.tensor_splitting.sized import (
    Build,
    attention,
    decoder,
    encoder,
    gradients,
    kernel,
    nearest,
    on,
    regression,
    with_room,
    within,
    workload,
)
from suites.tensor_splitting.stencils import (
    StencilSizes,
    heat_problem,
    network_problem,
    wave_problem,
)
from suites.tensor_splitting.variants import INSIDE, Tried, growing_variants, planning_variants

_MEGABYTE, _GIGABYTE = 10**6, 10**9
_LIVE = ("cpu*", "gpu")
"""Live targets. cuDNN's attention does not run: it rounds to bf16, and no claim allows for that."""

_BY_HAND = ("memsafe*", "lax-map", "checkpoint", "reordered")
"""Without `dot-product-attention`, JAX's own, whose softmax is in single precision."""

_BY_LIBRARY = ("memsafe", "dot-product-attention")


def _live(level: Level, variants: tuple[str, ...]) -> tuple[Scope, ...]:
    return (Scope(level=level, targets=_LIVE, variants=variants),)


def _executed(
    name: str, room_bytes: int, problem: Build, *scopes: tuple[Scope, ...]
) -> SplitWorkload:
    tried = replace(with_room(room_bytes, problem), executed=True)
    return workload(f"{name}-executed", tried, *scopes)


def _points(product: Function) -> Build:
    return gradients(kernel(600, product, others=500, dtype=np.float64), 0, 1, 2)


def _neighbours(distances: Distances) -> Build:
    return nearest(3_000, distances, queries=400, dimensions=20, rows=24, dtype=np.float64)


def _attention(dtype: Any) -> Build:
    sizes: dict[str, Any] = {"heads": 4, "head_width": 16, "rows": 40, "causal": True}
    return gradients(attention(256, dtype=dtype, **sizes), 0, 1, 2)


def _encoder(dtype: Any, layers: int) -> Build:
    return gradients(encoder(2, 192, layers=layers, dtype=dtype, **_SMALL), 0)


def _decoder(dtype: Any) -> Build:
    return gradients(decoder(2, 192, dtype=dtype, layers=2, **_SMALL), 0, squared=False)


def _loop(problem: Callable[[LoopSizes], Problem], steps: int, batch: int) -> Build:
    return gradients(partial(problem, LoopSizes(steps=steps, batch=batch, width=16)), 0)


def _median(points: int, plain: Function, **sizes: Any) -> Build:
    tried = partial(median_problem, MedianSizes(points=points, **sizes), plain)
    return gradients(tried, 0, squared=False)


def _mapped(budget_bytes: int) -> Problem:
    problem = partial(mapped_problem, MeshSizes(points=2048), budget_bytes)
    return gradients(problem, 0, 1, 2)()


def _stencil(problem: Callable[[StencilSizes], Problem], steps: int, side: int) -> Build:
    return gradients(partial(problem, StencilSizes(steps=steps, side=side, rows=side // 4)), 0, 1)


_SMALL = {"width": 32, "heads": 4, "hidden": 64, "vocabulary": 256, "rows": 40}
_RESIDUAL = ResidualSizes(blocks=6, batch=8, side=16, channels=8, dtype=np.float64)
_WAVE = gradients(partial(wave_problem, StencilSizes(steps=60, side=16, rows=6)), 0, 1, 2)
_CONTRAST = gradients(partial(contrast_problem, MeshSizes(points=2048)), 0, 1)
_CHAIN = ChainSizes(rows=400, inner=16, columns=500, dtype=np.float64)

_ALL = _live(Level.QUICK, _BY_HAND)
_MEMSAFE_FIRST = (
    *_live(Level.QUICK, ("memsafe",)),
    *_live(Level.FULL, _BY_HAND),
)
"""memsafe alone at the quick level: compiling the others would take most of the main job."""

_LATER = _live(Level.FULL, _BY_HAND)
"""Not at the quick level: variations of the workloads that the main job runs."""


def _within(
    budget_bytes: int, name: str, build: Callable[[int], Problem], *scopes: tuple[Scope, ...]
) -> SplitWorkload:
    """A problem that also has a variant with memsafe inside a transform, with the same budget."""
    tried = within(budget_bytes, partial(build, budget_bytes))
    return workload(f"{name}-executed", replace(tried, executed=True), *scopes)


def _derivative(name: str, budget_bytes: int, transform: Transform) -> SplitWorkload:
    sizes = KernelSizes(points=600, others=500, dimensions=3, dtype=np.float64)
    return _within(budget_bytes, name, partial(derivative_problem, transform, sizes), _LATER)


DOUBLE = (
    _executed("kernel-mvp", _MEGABYTE, _points(by_differences), _ALL),
    _executed("kernel-mvp-products", _MEGABYTE, _points(by_products), _LATER),
    _executed("knn-l2", _MEGABYTE, _neighbours(l2), _ALL),
    _executed("knn-l2-products", _MEGABYTE, _neighbours(l2_by_products), _LATER),
    _executed("knn-l1", _MEGABYTE, _neighbours(l1), _LATER),
    _executed("knn-cosine", _MEGABYTE, _neighbours(cosine), _LATER),
    _executed(
        "sgpr",
        _MEGABYTE,
        gradients(regression(5_003, 40, rows=512), 0, squared=False),
        _MEMSAFE_FIRST,
    ),
    _executed("attention", _MEGABYTE, _attention(np.float64), _ALL),
    _executed("encoder", 3 * _MEGABYTE, _encoder(np.float64, 1), _LATER),
    _executed("decoder", 3 * _MEGABYTE, _decoder(np.float64), _LATER),
    _executed("layers-gradient", _MEGABYTE, _loop(layers_problem, 16, 2048), _MEMSAFE_FIRST),
    _executed("recurrent-gradient", _MEGABYTE, _loop(recurrent_problem, 32, 512), _MEMSAFE_FIRST),
    _executed("branches-gradient", _MEGABYTE, _loop(branches_problem, 3, 4096), _MEMSAFE_FIRST),
    _executed("network-gradient", 7 * _MEGABYTE, _stencil(network_problem, 3, 144), _MEMSAFE_FIRST),
    _executed("heat-gradient", 3 * _MEGABYTE, _stencil(heat_problem, 2, 52), _MEMSAFE_FIRST),
    _executed("wave-gradient", 1_400_000, _WAVE, _LATER),
    _executed(
        "residual-gradient",
        12 * _MEGABYTE,
        gradients(partial(residual_problem, _RESIDUAL), 0, 1),
        _LATER,
    ),
    _executed(
        "median-gradient", _MEGABYTE, _median(400, heuristic, dtype=np.float64), _MEMSAFE_FIRST
    ),
    _executed("quantile-gradient", 2 * _MEGABYTE, _median(400, quantile, dtype=np.float64), _LATER),
    _executed(
        "draws",
        _MEGABYTE,
        gradients(partial(draws_problem, DrawSizes(points=800)), 0, 1),
        _MEMSAFE_FIRST,
    ),
    _executed("chain", _MEGABYTE, gradients(partial(chain_problem, _CHAIN), 0, 1, 2), _ALL),
    _executed("contrast-gradient", _MEGABYTE, _CONTRAST, _LATER),
    _within(3 * _MEGABYTE, "mapped-gradient", _mapped, _live(Level.FULL, (INSIDE,))),
    _derivative("tangent", _MEGABYTE, tangent),
    _derivative("linear", _MEGABYTE, linear),
    _derivative("jacobian", 2 * _MEGABYTE, jacobian),
    _derivative("hessian", 3 * _MEGABYTE, hessian),
)
"""Workloads in double precision, so that rounding does not hide a wrong gradient."""

SINGLE = (
    _executed(
        "attention-single",
        _MEGABYTE,
        _attention(np.float32),
        _live(Level.FULL, _BY_LIBRARY),
    ),
    _executed(
        "encoder-single",
        3 * _MEGABYTE,
        _encoder(np.float32, 2),
        _live(Level.FULL, _BY_LIBRARY),
    ),
    _executed(
        "decoder-single",
        3 * _MEGABYTE,
        _decoder(np.float32),
        _live(Level.FULL, _BY_LIBRARY),
    ),
)
"""Workloads in single precision, as in the softmax of JAX's own attention."""


def _timed(name: str, room_bytes: int, problem: Build, *beside: str) -> SplitWorkload:
    tried = replace(with_room(room_bytes, problem), executed=True)
    scope = on(Level.FULL, "cpu*", variants=("memsafe", *beside))
    return workload(f"{name}-timed", tried, scope)


BESIDE_CHECKPOINT = (_timed("encoder", 16 * _MEGABYTE, gradients(encoder(8, 128, layers=1), 0)),)
TIMED = (
    _timed("kernel-mvp", 4 * _MEGABYTE, kernel(256, by_differences, others=8_000)),
    _timed("knn-l2", _MEGABYTE, nearest(50_000, l2, queries=16)),
    _timed(
        "sgpr",
        16 * _MEGABYTE,
        gradients(regression(8_192, 128, dtype=np.float32), 0, squared=False),
    ),
    _timed("median-gradient", 4 * _MEGABYTE, _median(1_000, heuristic)),
    *BESIDE_CHECKPOINT,
)
"""Not at the quick level, because each is timed for seconds."""


def _grown_attention(sequence: int) -> Tried:
    return with_room(_ATTENTION_ROOM * sequence, gradients(attention(sequence), 0, 1, 2))


def _grown_encoder(sequence: int) -> Tried:
    return with_room(_ENCODER_ROOM * sequence, gradients(encoder(1, sequence, layers=1), 0))


_ATTENTION_ROOM, _ENCODER_ROOM = 2**14, 2**16
"""Bytes per position: 8 times an argument of attention, 32 times the encoder's hidden array."""

_SEQUENCES = (2048, 3072, 4096, 6144, 8192, 16384, 32768)
"""Above what a TPU keeps on the chip. For the last, the plain gradients of attention take 64 GiB on
an H100 and 96 GiB on a CPU."""


def _grown(name: str, tried: Callable[[int], Tried], *targets: str) -> Workload:
    return Workload(
        suite="tensor_splitting",
        name=f"{name}-grown",
        variants=growing_variants(_SEQUENCES, tried),
        scopes=(Scope(level=Level.FULL, targets=targets, variants=("memsafe",)),),
    )


GROWN = (
    _grown("attention", _grown_attention, "cpu*", "gpu-h100*", "tpu-v5p*"),
    _grown("encoder", _grown_encoder, "cpu*"),
)

_LAYERS = (1, 2, 3, 4, 6)
PLANNED = Workload(
    suite="tensor_splitting",
    name="encoder-planned",
    variants=planning_variants(
        _LAYERS, lambda layers: within(_GIGABYTE, encoder(8, 4_096, layers=layers))
    ),
    scopes=(Scope(level=Level.FULL, targets=("cpu*",), variants=("memsafe",)),),
)
"""Encoders whose scores, 4 GiB per layer, no plan can keep within the budget."""

EXECUTED = (*DOUBLE, *SINGLE)
