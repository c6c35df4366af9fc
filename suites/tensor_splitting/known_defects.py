"""Programs that do not fit with stock compilers, their needed memory, and the upstream report.

The pull request that would have fixed them (passes that split tensors) was closed without a merge.
Each entry was seen to fail with jaxlib 0.12.0.1 (libtpu 0.0.52 for TPUs), or with the older jaxlib
that it names. README.md of this suite explains the entries.
"""

from functools import partial

from assay import (
    Case,
    Fails,
    FailureKind,
    KnownDefect,
    Measures,
    RemedyEffect,
    Upstream,
    UpstreamIssue,
    UpstreamState,
)

_H100, _V5E = ("gpu-h100*",), ("tpu-v5e*",)
_OLDER, _NEWER = {"jaxlib": "<0.12"}, {"jaxlib": ">=0.12"}
_BESIDES = 0.05
"""Tolerance, as a share of the needed memory: temporaries besides the one large array differ from
release to release."""

_GB_ON_H100 = {
    ("kernel-mvp", "plain"): 36_000,
    ("kernel-mvp-products", "plain"): 36_000,
    ("knn-l2-10m", "plain"): 404,
    ("knn-l2-10m-products", "plain"): 404,
    ("knn-l1-10m", "plain"): 404,
    ("chain", "plain"): 4_001,
    ("sgpr-gradient", "plain"): 210.4,
    ("sgpr-gradient-houseelectric", "plain"): 394.2,
    ("encoder-forward", "plain"): 211.2,
    ("encoder-forward", "dot-product-attention"): 211.2,
    ("encoder-forward", "checkpoint"): 211.2,
    ("encoder-gradient-65536", "plain"): 5_510,
    ("encoder-gradient-65536", "dot-product-attention"): 5_510,
    ("encoder-gradient-65536", "checkpoint"): 2_206,
    ("encoder-gradient-131072", "plain"): 22_015,
    ("encoder-gradient-131072", "dot-product-attention"): 22_015,
    ("encoder-gradient-131072", "checkpoint"): 8_810,
}
"""Measured memory that each workload and variant needs on an H100, in 10⁹ bytes."""

_GB_ON_V5E = {
    ("kernel-mvp", "plain"): 35_998,
    ("knn-l2-10m", "plain"): 404.2,
    ("knn-l2-10m-products", "plain"): 404.2,
    ("knn-l1-10m", "plain"): 404.2,
    ("knn-l2-1m", "plain"): 40.4,
    ("knn-cosine-glove-100", "plain"): 47.7,
    ("encoder-forward", "plain"): 109.7,
    ("encoder-forward", "dot-product-attention"): 211.2,
    ("encoder-forward", "checkpoint"): 109.7,
    ("encoder-gradient-65536", "plain"): 5_509,
    ("encoder-gradient-65536", "dot-product-attention"): 5_509,
    ("encoder-gradient-65536", "checkpoint"): 2_199,
    ("encoder-gradient-65536", "flash"): 51.2,
    ("decoder-gradient-16384", "plain"): 139.0,
    ("decoder-gradient-16384", "dot-product-attention"): 138.4,
    ("attention-flash", "plain"): 17.4,
    ("attention-flash", "dot-product-attention"): 17.4,
}
"""Measured memory that each workload and variant needs on a TPU v5e, in 10⁹ bytes."""


def _needed(share: float, case: Case) -> float:
    table = _GB_ON_V5E if case.evidence.target.startswith("tpu") else _GB_ON_H100
    return share * table[case.workload.name, case.variant.name] * 1e9


_REPORT = Upstream(
    link="https://github.com/tensorflow/tensorflow/pull/58679",
    state=UpstreamState.CLOSED,
    opened="2022-11-24",
    seen="2026-11-25",
)

UPSTREAM_ISSUE = UpstreamIssue(
    problem="A matrix between millions of points is kept whole and exceeds the device's memory",
    upstream=_REPORT,
    variants=("plain",),
    claims=("fits-device",),
    workloads=("kernel-mvp*", "knn-*"),
    remedy="Use memsafe(f, budget=…)",
    effects=tuple(
        RemedyEffect(
            quantity="needed memory",
            workload=workload,
            claim="fits-device",
            without="plain",
            remedied="memsafe",
        )
        for workload in ("kernel-mvp", "knn-l2-10m")
    ),
)

_unsplit = partial(
    KnownDefect,
    expects={
        "fits-device": Measures(
            least=partial(_needed, 1 - _BESIDES), most=partial(_needed, 1 + _BESIDES)
        )
    },
    upstream=_REPORT,
    remedies={"*": "memsafe"},
    last_seen="2026-11-24",
)

_NO_TILES = Fails(kind=FailureKind.COMPILER, message="Couldn't find output tile sizes")

KNOWN_DEFECTS = (
    _unsplit(
        variants=("plain",),
        targets=_H100,
        workloads=(
            "kernel-mvp",
            "knn-l*-10m*",
            "sgpr-gradient",
            "sgpr-gradient-houseelectric",
            "chain",
        ),
        reason="XLA computes the whole matrix between two sets of points at once",
    ),
    _unsplit(
        variants=("plain",),
        targets=_H100,
        toolchain=_NEWER,
        workloads=("kernel-mvp-products",),
        reason="XLA computes the whole matrix between two sets of points at once",
    ),
    _unsplit(
        variants=("plain",),
        targets=_H100,
        toolchain=_OLDER,
        workloads=("kernel-mvp-products",),
        expects={"compiles": _NO_TILES, "fits-device": _NO_TILES},
        reason="the GPU compiler of jaxlib 0.10.2 fails at a product of two sets of points with "
        "3 million rows",
    ),
    _unsplit(
        variants=("plain",),
        targets=_V5E,
        workloads=("kernel-mvp", "knn-*"),
        reason="XLA computes the whole matrix between two sets of points at once",
    ),
    _unsplit(
        variants=("plain", "dot-product-attention"),
        targets=(*_H100, *_V5E),
        workloads=("encoder-*",),
        reason="XLA keeps the scores of all queries and keys, in each layer",
    ),
    _unsplit(
        variants=("plain", "dot-product-attention"),
        targets=_V5E,
        workloads=("decoder-*",),
        reason="XLA keeps the scores of all queries and keys, in each layer",
    ),
    *(
        _unsplit(
            variants=("plain", "dot-product-attention"),
            targets=_H100,
            toolchain=toolchain,
            workloads=("decoder-*",),
            expects={
                "fits-device": Measures(least=(1 - _BESIDES) * needed, most=(1 + _BESIDES) * needed)
            },
            reason="XLA keeps the scores of all queries and keys, in each layer",
        )
        for toolchain, needed in ((_OLDER, 224.0e9), (_NEWER, 276.6e9))
    ),
    _unsplit(
        variants=("plain", "dot-product-attention"),
        targets=_V5E,
        workloads=("attention-*",),
        reason="XLA keeps the scores of all queries and keys",
    ),
    _unsplit(
        variants=("checkpoint",),
        targets=(*_H100, *_V5E),
        workloads=("encoder-*",),
        reason="remat by layers keeps the scores of one layer, which exceed the device",
    ),
    _unsplit(
        variants=("flash",),
        targets=_V5E,
        workloads=("encoder-gradient-*",),
        reason="the kernel pads a head of 16 features to 128 lanes: its arrays are 8 times as "
        "large",
    ),
)
