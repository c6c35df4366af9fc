"""The programs to compare, at sizes of about a second or less.

They are in single precision. Sparse regression is in double precision, because users compute its
Cholesky factors in double.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks.experts import grids, networks, points
from benchmarks.experts.by_hand import in_blocks
from suites.tensor_splitting.kernels import by_differences, by_products
from suites.tensor_splitting.loops import LoopSizes
from suites.tensor_splitting.neighbours import NEIGHBOURS, l2
from suites.tensor_splitting.problems import Problem
from suites.tensor_splitting.sized import (
    Build,
    attention,
    encoder,
    gradients,
    kernel,
    nearest,
    regression,
)
from suites.tensor_splitting.stencils import StencilSizes, heat_problem, network_problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A problem, and the ways that an expert would take (all of the problem's ways if empty).

    ``timed_only`` maps names to other versions, which are only timed.
    """

    name: str
    problem: Build
    ways: tuple[str, ...] = ()
    timed_only: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


def keops_products(x: Any, y: Any, v: Any) -> Any:
    """The product of a kernel matrix and ``v`` by KeOps."""
    return (-_squared_distances(x, y) / 2).exp() @ v


def keops_neighbours(queries: Any, found: Any) -> Any:
    """The indices of the nearest points by KeOps."""
    return _squared_distances(queries, found).argKmin(NEIGHBOURS, dim=1)


def _squared_distances(x: Any, y: Any) -> Any:
    from pykeops.numpy import LazyTensor

    return ((LazyTensor(x[:, None, :]) - LazyTensor(y[None, :, :])) ** 2).sum(-1)


def _by_rows(build: Build, rows: int) -> Build:
    """Add a way: the plain program on ``rows`` rows of its first argument at a time."""

    def built() -> Problem:
        problem = build()

        def blocks(first: Any, *others: Any) -> Any:
            return in_blocks(lambda some: problem.plain(some, *others), rows, first)

        return replace(problem, ways={**problem.ways, points.BY_HAND: blocks})

    return built


def _stencil(build: Any, steps: int, side: int, rows: int) -> Build:
    sizes = StencilSizes(steps=steps, side=side, rows=rows, channels=8, dtype=np.float32)
    return gradients(partial(build, sizes), 0, 1)


def _loop(build: Any, steps: int, batch: int, width: int) -> Build:
    rows = batch // 16
    sizes = LoopSizes(steps=steps, batch=batch, width=width, rows=rows, dtype=np.float32)
    return partial(build, sizes)


_ATTEND: Final = ("lax-map", "dot-product-attention")
_LAYERS: Final = (*_ATTEND, "checkpoint")
_MAP: Final = ("lax-map",)
_BOUND: Final = regression(20_000, 256, rows=2_048)
_ENCODER: Final = encoder(2, 512, layers=4)

CASES: Final = (
    Case(
        name="kernel product",
        problem=_by_rows(kernel(6_000, by_differences, rows=200), 200),
        timed_only={"KeOps": keops_products},
    ),
    Case(
        name="kernel gradient",
        problem=gradients(_by_rows(kernel(4_000, by_products), 200), 0, 1, 2),
        ways=(points.BY_HAND,),
    ),
    Case(
        name="nearest neighbours",
        problem=_by_rows(nearest(20_000, l2, queries=500, rows=25), 25),
        timed_only={"KeOps": keops_neighbours},
    ),
    Case(name="SGPR bound", problem=_BOUND),
    Case(name="SGPR gradient", problem=gradients(_BOUND, 0, squared=False)),
    Case(name="attention", problem=attention(2_048), ways=_ATTEND),
    Case(name="attention gradient", problem=gradients(attention(1_536), 0, 1, 2), ways=_ATTEND),
    Case(name="encoder gradient", problem=gradients(_ENCODER, 0), ways=_LAYERS),
    Case(name="GPT gradient", problem=partial(networks.gpt, 4, 4, 256, 256)),
    Case(name="ViT gradient", problem=partial(networks.vit, 4, 8, 192, 1)),
    Case(
        name="cross-entropy gradient",
        problem=partial(networks.cross_entropy, 1_024, 128, 32_768, 64),
    ),
    Case(name="mixture of experts", problem=partial(networks.mixture, 4_096, 16, 128, 256)),
    Case(name="triangle attention", problem=partial(networks.triangle_attention, 160, 64, 10)),
    Case(name="triangle product", problem=partial(networks.triangle_product, 256, 64, 16)),
    Case(name="gradient norms", problem=partial(networks.gradient_norms, 512, 256, 32)),
    Case(name="MLP scan gradient", problem=_loop(grids.perceptron, 16, 8_192, 128)),
    Case(name="recurrent gradient", problem=_loop(grids.recurrent, 256, 512, 128)),
    Case(name="wave equation", problem=partial(grids.wave, 64, 64)),
    Case(name="neural ODE", problem=partial(grids.neural_ode, 64, 1_024, 64)),
    Case(name="ResNet, batch norm", problem=partial(grids.resnet, 6, 16, 32, 32)),
    Case(name="U-Net gradient", problem=partial(grids.unet, 8, 64, 16, 1)),
    Case(name="convolutions, one image", problem=_stencil(network_problem, 4, 512, 64)),
    Case(name="heat equation", problem=_stencil(heat_problem, 4, 128, 32)),
    Case(name="InfoNCE gradient", problem=partial(points.info_nce, 4_096, 128, 256)),
    Case(name="t-SNE gradient", problem=partial(points.t_sne, 3_000, 50, 150)),
    Case(name="Sinkhorn", problem=partial(points.sinkhorn, 3_000, 10, 100)),
    Case(name="k-means step", problem=partial(points.k_means, 100_000, 256, 16, 2_000)),
    Case(name="Chamfer gradient", problem=partial(points.chamfer, 3_000, 100)),
    Case(name="random features", problem=partial(points.features, 60_000, 16, 256, 2_000)),
    Case(name="graph attention", problem=partial(points.attention_edges, 10_000, 100_000, 8, 32)),
)
