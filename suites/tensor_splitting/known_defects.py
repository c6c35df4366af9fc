"""What stock compilers do not hold, and where a remedy in the compiler was offered.

The pull request that would have mended it (passes that split tensors) was closed without a merge.
Each entry was seen broken with jaxlib 0.12.0.1 (libtpu 0.0.52 for TPUs). The README of this suite
tells the story.
"""

from functools import partial

from assay import KnownDefect

_FITS = ("fits-device",)
_H100, _V5E = ("gpu-h100*",), ("tpu-v5e*",)

_unsplit = partial(
    KnownDefect,
    claims=_FITS,
    upstream="https://github.com/tensorflow/tensorflow/pull/58679",
    last_seen="2026-11-21",
)

KNOWN_DEFECTS = (
    _unsplit(
        arms=("plain",),
        targets=_H100,
        workloads=(
            "kernel-mvp",
            "kernel-mvp-products",
            "knn-l*-10m*",
            "sgpr-gradient",
            "sgpr-gradient-houseelectric",
            "chain",
        ),
        reason="the matrix between two sets of points is kept whole, and computed at once",
    ),
    _unsplit(
        arms=("plain",),
        targets=_V5E,
        workloads=("kernel-mvp", "knn-*"),
        reason="the matrix between two sets of points is kept whole, and computed at once",
    ),
    _unsplit(
        arms=("plain", "dot-product-attention"),
        targets=(*_H100, *_V5E),
        workloads=("encoder-*", "decoder-*"),
        reason="the scores of all queries and all keys are kept whole, in each layer",
    ),
    _unsplit(
        arms=("plain", "dot-product-attention"),
        targets=_V5E,
        workloads=("attention-*",),
        reason="the scores of all queries and all keys are kept whole",
    ),
    _unsplit(
        arms=("checkpoint",),
        targets=(*_H100, *_V5E),
        workloads=("encoder-*",),
        reason="remat by layers keeps one layer's scores, and these are too many already",
    ),
    _unsplit(
        arms=("flash",),
        targets=_V5E,
        workloads=("encoder-gradient-*",),
        reason="the kernel's arrays are a tile's 128 lanes wide, eight times a head's 16",
    ),
)
