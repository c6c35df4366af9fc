"""The loops, and where each arm is tried; all are executed, so on live targets only."""

from functools import partial

from assay import Level, Scope, Workload
from suites.fsdp_accumulation.arms import fsdp_arms, jax_arms, lazy_arms, spmd_arms
from suites.fsdp_accumulation.known_defects import KNOWN_DEFECTS, UPSTREAM_ISSUE
from suites.fsdp_accumulation.sizes import BertSizes
from suites.fsdp_accumulation.twins import fsdp_twins, jax_twins, lazy_twins, spmd_twins

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
    arms=(*fsdp_arms(ONE_LAYER), *fsdp_twins(ONE_LAYER)),
    scopes=(
        _quick(arms=("bucket-0", "bucket-20", "un-nested-bucket-1")),
        _full(arms=("[!r]*",)),
        Scope(level=Level.FULL, targets=("cpu*",), arms=("replicas-*",)),
    ),
    known_defects=KNOWN_DEFECTS,
)
DEEP_FSDP = _suite(
    name="fsdp-deep",
    framework="torch_xla",
    arms=(*fsdp_arms(THREE_LAYERS), *fsdp_twins(THREE_LAYERS)),
    scopes=(_full(arms=("unwrapped", "bucket-*", "un-nested-bucket-*", "everything-*")),),
)
SPMD = _suite(
    name="spmd",
    framework="torch_xla",
    arms=(*spmd_arms(TINY), *spmd_twins(TINY)),
    scopes=(Scope(level=Level.FULL, targets=("cpu*",)),),
)
MINIMAL = _suite(
    name="minimal",
    framework="torch_xla",
    arms=(*lazy_arms(STEPS), *lazy_twins(STEPS)),
    scopes=(_quick(),),
    known_defects=KNOWN_DEFECTS,
)
JAX_ANALOGUE = _suite(
    name="jax-analogue",
    arms=(*jax_arms(STEPS), *jax_twins(STEPS)),
    scopes=(Scope(level=Level.QUICK, targets=("cpu*", "gpu", "tpu")),),
)

_TIMED = (
    (
        "fsdp",
        "torch_xla",
        (*fsdp_arms(ONE_LAYER), *fsdp_twins(ONE_LAYER)),
        ("bucket-1", "bucket-20"),
    ),
    ("minimal", "torch_xla", (*lazy_arms(STEPS), *lazy_twins(STEPS)), ("bucket", "end")),
    ("jax-analogue", "jax", (*jax_arms(STEPS), *jax_twins(STEPS)), ("bucket", "end")),
)
TIMED = tuple(
    _suite(
        name=f"{name}-timed",
        framework=framework,
        arms=arms,
        scopes=(Scope(level=Level.FULL, targets=("cpu*",), arms=tried),),
    )
    for name, framework, arms, tried in _TIMED
)
"""Each bucket beside the callbacks that are called at once."""
