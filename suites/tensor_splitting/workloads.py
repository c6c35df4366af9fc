"""The problems at the paper's sizes and beyond, with their budgets and targets.

``executed.py`` has the problems that are small enough to run.
"""

from functools import partial

import numpy as np

from assay import Level
from suites.tensor_splitting.attention import AttentionSizes, cudnn_problem
from suites.tensor_splitting.chains import ChainSizes, chain_problem
from suites.tensor_splitting.kernels import by_differences, by_products
from suites.tensor_splitting.neighbours import cosine, l1, l2, l2_by_products
from suites.tensor_splitting.residual import ResidualSizes, residual_problem
from suites.tensor_splitting.sized import (
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

_GIGABYTE, _MEGABYTE = 10**9, 10**6
_V5E_BYTES = 31 * 2**29
"""15.5 GiB: a v5e's compiler allows 15.75 GiB, and `negative-over-budget` must compile."""

_H100, _V5E, _CPU = "gpu-h100*", "tpu-v5e*", "cpu*"
_QUICK, _FULL = Level.QUICK, Level.FULL
_OWN = ("plain", "memsafe")
"""Variants that compile in a second on a TPU; loops by hand over millions of rows take ten."""

MATRICES = (
    workload(
        "kernel-mvp",
        with_room(_GIGABYTE, kernel(3_000_000, by_differences)),
        on(_QUICK, _H100, variants=_OWN),
        on(_FULL, _H100, _V5E, _CPU),
    ),
    workload(
        "kernel-mvp-products",
        with_room(_GIGABYTE, kernel(3_000_000, by_products)),
        on(_FULL, _H100, _V5E, _CPU),
    ),
    workload(
        "kernel-mvp-double",
        with_room(_GIGABYTE, kernel(1_000_000, by_differences, dtype=np.float64)),
        on(_FULL, _H100, _CPU),
    ),
    workload(
        "knn-l2-10m",
        with_room(_GIGABYTE, nearest(10_000_000, l2)),
        on(_QUICK, _V5E, variants=_OWN),
        on(_FULL, _H100, _V5E, _CPU),
    ),
    workload(
        "knn-l2-10m-products",
        with_room(_GIGABYTE, nearest(10_000_000, l2_by_products)),
        on(_FULL, _H100, _V5E, _CPU),
    ),
    workload(
        "knn-l1-10m",
        with_room(_GIGABYTE, nearest(10_000_000, l1)),
        on(_FULL, _H100, _V5E, _CPU),
    ),
    workload(
        "knn-l2-1m",
        with_room(_GIGABYTE, nearest(1_000_000, l2)),
        on(_FULL, _H100, _V5E, _CPU),
    ),
    workload(
        "knn-cosine-glove-100",
        with_room(_GIGABYTE, nearest(1_180_000, cosine)),
        on(_FULL, _H100, _V5E, _CPU),
    ),
    workload(
        "chain",
        with_room(
            _GIGABYTE,
            partial(chain_problem, ChainSizes(rows=1_000_000, inner=128, columns=1_000_000)),
        ),
        on(_FULL, _H100, _V5E, _CPU),
    ),
)
"""Matrices between millions of points, including the paper's, in a gigabyte of temporaries."""

REGRESSIONS = (
    workload(
        "sgpr-value",
        within(8 * _GIGABYTE, regression(434_874, 10_000)),
        on(_FULL, _H100, _CPU),
    ),
    workload(
        "sgpr-gradient",
        within(8 * _GIGABYTE, gradients(regression(434_874, 10_000), 0, squared=False)),
        on(_FULL, _H100, _CPU),
    ),
    workload(
        "sgpr-gradient-houseelectric",
        within(
            8 * _GIGABYTE,
            gradients(regression(2_049_280, 4_000, dimensions=11), 0, squared=False),
        ),
        on(_FULL, _H100, _CPU),
    ),
    workload(
        "sgpr-value-single",
        within(2 * _GIGABYTE, regression(434_874, 1_000, dtype=np.float32)),
        on(_FULL, _H100),
    ),
)
"""3droad (434,874 points) and houseelectric (2,049,280), with the paper's numbers of inducing
points. No target is a TPU, which has no double precision. Its compiler takes minutes for the
gradient of a Cholesky factor, or for a factor of thousands of rows."""

TRANSFORMERS = (
    workload(
        "encoder-forward",
        within(_V5E_BYTES, encoder(64, 7_168)),
        on(_FULL, _H100, _V5E),
    ),
    workload(
        "encoder-gradient-65536",
        within(_V5E_BYTES, gradients(encoder(8, 65_536), 0)),
        on(_FULL, _H100, _V5E),
    ),
    workload(
        "encoder-gradient-131072",
        within(80 * _GIGABYTE, gradients(encoder(8, 131_072), 0)),
        on(_FULL, _H100),
    ),
    workload(
        "decoder-gradient-16384",
        within(_V5E_BYTES, gradients(decoder(8, 16_384, layers=8), 0, squared=False)),
        on(_FULL, _H100, _V5E),
    ),
)

NETWORKS = (
    workload(
        "residual-gradient",
        with_room(
            72 * _MEGABYTE,
            gradients(
                partial(residual_problem, ResidualSizes(blocks=16, batch=32, side=32, channels=32)),
                0,
                1,
            ),
        ),
        on(_FULL, _H100),
    ),
)
"""The room is a quarter of the residual network's temporaries on a GPU: memsafe recomputes blocks,
some of them twice."""

BESIDE_FLASH = (
    workload(
        "attention-flash",
        with_room(640 * _MEGABYTE, gradients(attention(16_384), 0, 1, 2)),
        on(_FULL, _V5E),
    ),
)
BESIDE_CUDNN = (
    workload(
        "attention-cudnn",
        with_room(
            130 * _MEGABYTE,
            gradients(attention(16_384), 0, 1, 2),
            cudnn=gradients(partial(cudnn_problem, AttentionSizes(sequence=16_384)), 0, 1, 2),
        ),
        on(_QUICK, _H100, variants=_OWN),
        on(_FULL, _H100),
    ),
)
"""The room is just below the limit of the claim: 1.2 times the 537 MB of temporaries of the Pallas
kernel; 2 times the 34 MB of cuDNN's, doubled for the wider type (`LIKE_FLASH`, `LIKE_CUDNN`)."""

COMPILED = (*MATRICES, *REGRESSIONS, *TRANSFORMERS, *NETWORKS, *BESIDE_FLASH, *BESIDE_CUDNN)
