"""The loops, and where each variant is tried; all are executed, so on live targets only."""

from functools import partial

from assay import Level, Scope, Workload
from suites.fsdp_accumulation.known_defects import KNOWN_DEFECTS, UPSTREAM_ISSUE
from suites.fsdp_accumulation.negative_controls import (
    fsdp_negative_controls,
    jax_negative_controls,
    lazy_negative_controls,
    spmd_negative_controls,
)
from suites.fsdp_accumulation.sizes import BertSizes
from suites.fsdp_accumulation.variants import (
    fsdp_variants,
    jax_variants,
    lazy_variants,
    spmd_variants,
)

STEPS = 12

ONE_LAYER = BertSizes(layers=1, width=160, vocabulary=512, batch=4, sequence=16, steps=STEPS)
"""As in upstream's own small repro. The layer's gradients are 1.2 MB and the rest 0.8 MB: a bucket
of 1 MB is flushed within the layer, and has a tail at the end of backward, nested or not."""

THREE_LAYERS = BertSizes(layers=3, width=128, vocabulary=512, batch=4, sequence=16, steps=STEPS)
"""A layer is below the bucket's 1 MB, the model three times above: un-nested, four tails differ."""

TINY = BertSizes(layers=1, width=64, vocabulary=128, batch=4, sequence=16, steps=STEPS)
"""For SPMD, where nothing is measured against a bucket."""

_LIVE = ("cpu*", "tpu")  # PyTorch/XLA runs on no other here
_quick = partial(Scope, level=Level.QUICK, targets=_LIVE)
_full = partial(Scope, level=Level.FULL, targets=_LIVE)
_suite = partial(Workload, suite="fsdp_accumulation", upstream_issue=UPSTREAM_ISSUE)

FSDP = _suite(
    name="fsdp",
    framework="torch_xla",
    variants=(*fsdp_variants(ONE_LAYER), *fsdp_negative_controls(ONE_LAYER)),
    scopes=(
        _quick(variants=("bucket-0", "bucket-20", "un-nested-bucket-1")),
        _full(variants=("[!r]*",)),
        Scope(level=Level.FULL, targets=("cpu*",), variants=("replicas-*",)),
    ),
    known_defects=KNOWN_DEFECTS,
)
DEEP_FSDP = _suite(
    name="fsdp-deep",
    framework="torch_xla",
    variants=(*fsdp_variants(THREE_LAYERS), *fsdp_negative_controls(THREE_LAYERS)),
    scopes=(_full(variants=("unwrapped", "bucket-*", "un-nested-bucket-*", "everything-*")),),
)
SPMD = _suite(
    name="spmd",
    framework="torch_xla",
    variants=(*spmd_variants(TINY), *spmd_negative_controls(TINY)),
    scopes=(Scope(level=Level.FULL, targets=("cpu*",)),),
)
MINIMAL = _suite(
    name="minimal",
    framework="torch_xla",
    variants=(*lazy_variants(STEPS), *lazy_negative_controls(STEPS)),
    scopes=(_quick(),),
    known_defects=KNOWN_DEFECTS,
)
JAX_ANALOGUE = _suite(
    name="jax-analogue",
    variants=(*jax_variants(STEPS), *jax_negative_controls(STEPS)),
    scopes=(Scope(level=Level.QUICK, targets=("cpu*", "gpu", "tpu")),),
)

_TIMED = (
    (
        "fsdp",
        "torch_xla",
        (*fsdp_variants(ONE_LAYER), *fsdp_negative_controls(ONE_LAYER)),
        ("bucket-1", "bucket-20"),
    ),
    (
        "minimal",
        "torch_xla",
        (*lazy_variants(STEPS), *lazy_negative_controls(STEPS)),
        ("bucket", "end"),
    ),
    (
        "jax-analogue",
        "jax",
        (*jax_variants(STEPS), *jax_negative_controls(STEPS)),
        ("bucket", "end"),
    ),
)
TIMED = tuple(
    _suite(
        name=f"{name}-timed",
        framework=framework,
        variants=variants,
        scopes=(Scope(level=Level.FULL, targets=("cpu*",), variants=tried),),
    )
    for name, framework, variants, tried in _TIMED
)
"""Each bucket beside the callbacks that are called at once."""
