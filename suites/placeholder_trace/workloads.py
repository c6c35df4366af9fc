"""The models at their sizes, the contract, the reads and JAX, and where each is tried."""

from dataclasses import replace
from functools import partial

from assay import Level, Scope, Workload
from suites.placeholder_trace.known_defects import KNOWN_DEFECTS, READ_ISSUE, SENT_ISSUE
from suites.placeholder_trace.sizes import JaxSizes, LayerSizes, StagedSizes
from suites.placeholder_trace.variants import (
    contract_variants,
    jax_variants,
    layer_variants,
    read_variants,
    staged_variants,
)

TRANSFORMER = StagedSizes(
    layers=2, width=1024, hidden=4096, heads=1, key_value_heads=1, sequence=512, batch=8
)
"""48 MiB a layer in bf16, and scores of 4 MiB."""

SMALL_TRANSFORMER = StagedSizes(
    layers=2, width=256, hidden=1024, heads=1, key_value_heads=1, sequence=128, batch=2
)
"""The same for the quick level: the TPU compiler takes a minute for the larger one."""

TRACED_LAYERS = 16
"""So many that to trace each of them would take several times what one takes."""

LLAMA = StagedSizes(
    layers=1, width=16384, hidden=53248, heads=128, key_value_heads=8, sequence=2048, batch=1
)
"""A layer of Llama 3.1 405B (arXiv:2407.21783, table 3), 5.9 GiB in bf16; a quarter of its first
8192 positions, of which the written-out scores alone would take 16 GiB."""

_quick = partial(Scope, level=Level.QUICK)
_full = partial(Scope, level=Level.FULL)
_suite = partial(Workload, suite="placeholder_trace", known_defects=KNOWN_DEFECTS)
_torch_xla = partial(_suite, framework="torch_xla")

_LIVE = ("cpu*", "tpu")
_HOST = ("cpu*",)
_COMPILED_FOR = ("gpu-a100*", "gpu-h100*", "gpu-b200*", "tpu-v5e*", "tpu-v5p*")
_TELLING = ("loop", "scan-layers")


def _layers(name: str, *scopes: Scope, layers: int = 4, width: int = 64) -> Workload:
    return _torch_xla(
        name=f"layers-{name}",
        variants=layer_variants(LayerSizes(layers=layers, width=width)),
        upstream_issue=SENT_ISSUE,
        scopes=scopes,
    )


LAYERS = (
    _layers("n2", _full(targets=_LIVE), layers=2),
    _layers("n4", _quick(targets=_LIVE)),
    _layers("n8", _full(targets=_LIVE), layers=8),
    _layers("n16", _full(targets=_LIVE), layers=16),
    _layers("h32", _quick(targets=_LIVE, variants=_TELLING), _full(targets=_LIVE), width=32),
    _layers("h128", _full(targets=_LIVE), width=128),
    _layers("h256", _full(targets=_LIVE), width=256),
)
STAGED = tuple(
    _torch_xla(name=name, variants=staged_variants("plain", sizes), scopes=(scope,))
    for name, sizes, scope in (
        ("staged-small", SMALL_TRANSFORMER, _quick(targets=("gpu-h100*", "tpu-v5e*"))),
        ("staged", TRANSFORMER, _full(targets=_COMPILED_FOR)),
    )
)
STAGED_LLAMA = _torch_xla(
    name="staged-llama-405b",
    variants=staged_variants("llama", LLAMA),
    scopes=(_full(targets=("tpu-v5p*",)),),
)
TRACED = (
    _torch_xla(
        name="staged-traced",
        variants=staged_variants("plain", replace(SMALL_TRANSFORMER, layers=TRACED_LAYERS)),
        scopes=(_full(targets=("cpu*",), variants=("scan-layers",)),),
    ),
    _suite(
        name="jax-traced",
        variants=jax_variants(JaxSizes(layers=TRACED_LAYERS, width=64)),
        scopes=(_full(targets=("cpu*",), variants=("scan",)),),
    ),
)
CONTRACT = _torch_xla(
    name="contract", variants=contract_variants(), scopes=(_quick(targets=_HOST),)
)
READS = _torch_xla(
    name="reads",
    variants=read_variants(),
    scopes=(_quick(targets=_HOST),),
    upstream_issue=READ_ISSUE,
)
JAX = tuple(
    _suite(name=name, variants=jax_variants(sizes), scopes=(scope, _full(targets=("gpu-h100*",))))
    for name, sizes, scope in (
        ("jax", JaxSizes(layers=4, width=64), _quick(targets=_HOST)),
        ("jax-wide", JaxSizes(layers=4, width=16384), _full(targets=_HOST)),
    )
)
