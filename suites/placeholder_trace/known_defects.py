"""What today's PyTorch/XLA does not keep, and where that is reported.

Each entry was seen broken with torch_xla 2.9.0, those for what came before placeholders with 2.6.0.
The README of this suite tells each story.
"""

from functools import partial

from assay import KnownDefect

_SENT = ("sent-tensors-per-step", "sent-bytes-per-step")

_seen = partial(KnownDefect, targets=("*",), last_seen="2026-11-21")
_before_placeholders = partial(_seen, toolchain={"torch-xla": "<2.7"})
_crash = partial(
    _seen,
    workloads=("reads",),
    claims=("refuses",),
    upstream="https://github.com/pytorch/xla/issues/9049",
)

KNOWN_DEFECTS = (
    _before_placeholders(
        workloads=("layers-*",),
        arms=("scan", "scan-layers", "scan-layers-pure"),
        claims=_SENT,
        reason="scan traces its function on uninitialised arrays, which it sends, one for each "
        "input of a layer's forward and backward, in every step",
        upstream="https://github.com/pytorch/xla/issues/8612",
    ),
    _before_placeholders(
        workloads=("contract",),
        arms=("hash-of-placeholders",),
        claims=("values-equal",),
        reason="there are no placeholders yet",
        upstream="https://github.com/pytorch/xla/pull/8785",
    ),
    _seen(
        workloads=("layers-*",),
        arms=("scan-layers-pure",),
        claims=("graphs-compiled", "steps-until-last-compile"),
        toolchain={"torch-xla": ">=2.9"},
        reason="the copy of the first layer that is kept for later steps is staged with the first "
        "step: its graph has one output more for each parameter of a layer",
        upstream="https://github.com/pytorch/xla/pull/9367",
    ),
    _crash(
        arms=("read-item", "read-clone", "read-equal", "read-nonzero"),
        reason="the runtime checks for the missing buffer, and aborts (SIGABRT)",
    ),
    _crash(
        arms=(
            "read-sum-with-one",
            "read-item-of-sum",
            "read-any-positive",
            "read-masked-select",
            "read-sync-beside-lazy-result",
        ),
        reason="the graph is run on the missing buffer (SIGSEGV)",
    ),
)
