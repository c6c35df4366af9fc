"""What today's PyTorch/XLA does not keep, and where that is reported.

Each entry was seen to fail with torch_xla 2.9.0, those for what came before placeholders with
2.6.0. The README of this suite tells each story.
"""

from functools import partial

from assay import (
    Case,
    Expected,
    Fails,
    FailureKind,
    KnownDefect,
    RemedyEffect,
    Upstream,
    UpstreamIssue,
    UpstreamState,
    exactly,
)

_SENT_BYTES = {"layers-h32": 194_944, "layers-h128": 1_945_600, "layers-h256": 7_032_320}
_SENT_BYTES_AT_WIDTH_64 = 581_888


def _sent_bytes(case: Case) -> int:
    """The inputs of one layer's forward and backward pass, as 2.6.0 was seen to send them."""
    return _SENT_BYTES.get(case.workload.name, _SENT_BYTES_AT_WIDTH_64)


# The dates of merged pull requests are those of their commits in pytorch/xla (a927928, 41b9e45).
_upstream = partial(Upstream, seen="2026-11-25")
_SENT_REPORT = _upstream(
    link="https://github.com/pytorch/xla/issues/8612",
    state=UpstreamState.CLOSED,
    opened="2025-01-22",
)
_READ_REPORT = _upstream(
    link="https://github.com/pytorch/xla/issues/9049",
    state=UpstreamState.OPEN,
    opened="2025-04-28",
)

SENT_ISSUE = UpstreamIssue(
    problem="scan sends a layer's inputs to the device to trace it",
    upstream=_SENT_REPORT,
    variants=("scan", "scan-layers"),
    claims=("sent-bytes-per-step",),
    workloads=("layers-*",),
    remedy="Use PyTorch/XLA 2.7 or newer",
    effects=(
        RemedyEffect(
            quantity="sent per step",
            workload="layers-n4",
            claim="sent-bytes-per-step",
            without="negative-old-tracing",
            remedied="scan-layers",
        ),
    ),
)
READ_ISSUE = UpstreamIssue(
    problem="Reading a placeholder ends the process",
    upstream=_READ_REPORT,
    variants=("read-*",),
    claims=("refuses",),
    workloads=("reads",),
)

_SENT: dict[str, Expected] = {
    "sent-tensors-per-step": exactly(46),
    "sent-bytes-per-step": exactly(_sent_bytes),
}

_seen = partial(KnownDefect, targets=("*",), last_seen="2026-11-21")
_before_placeholders = partial(_seen, toolchain={"torch-xla": "<2.7"})
_crash = partial(
    _seen,
    workloads=("reads",),
    upstream=_READ_REPORT,
)

KNOWN_DEFECTS = (
    _before_placeholders(
        workloads=("layers-*",),
        variants=("scan", "scan-layers", "scan-layers-pure"),
        expects=_SENT,
        reason="scan traces its function on uninitialized arrays and sends them in every step, one "
        "for each input of a layer's forward and backward pass",
        upstream=_SENT_REPORT,
    ),
    _before_placeholders(
        workloads=("contract",),
        variants=("hash-of-placeholders",),
        expects={
            "values-equal": Fails(kind=FailureKind.EXECUTION, message="create_placeholder_tensor")
        },
        reason="this release has no placeholder tensors",
        upstream=_upstream(
            link="https://github.com/pytorch/xla/pull/8785",
            state=UpstreamState.CLOSED,
            closed="2025-03-05",
        ),
    ),
    _seen(
        workloads=("layers-*",),
        variants=("scan-layers-pure",),
        expects={"graphs-compiled": exactly(2), "steps-until-last-compile": exactly(2)},
        toolchain={"torch-xla": ">=2.9"},
        reason="the first step also computes the copy of the first layer for later steps: its "
        "graph has one more output for each parameter of a layer",
        upstream=_upstream(
            link="https://github.com/pytorch/xla/pull/9367",
            state=UpstreamState.CLOSED,
            closed="2025-06-16",
        ),
    ),
    _crash(
        variants=("read-item", "read-clone", "read-equal", "read-nonzero"),
        expects={"refuses": Fails(kind=FailureKind.CRASH, message="ended by SIGABRT")},
        reason="the runtime checks for the missing buffer and aborts (SIGABRT)",
    ),
    _crash(
        variants=(
            "read-sum-with-one",
            "read-item-of-sum",
            "read-any-positive",
            "read-masked-select",
            "read-sync-beside-lazy-result",
        ),
        expects={"refuses": Fails(kind=FailureKind.CRASH, message="ended by SIGSEGV")},
        reason="the runtime executes the graph with the missing buffer (SIGSEGV)",
    ),
)
