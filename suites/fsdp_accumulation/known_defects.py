"""What today's PyTorch/XLA does not keep, how it fails, and where that is reported."""

from assay import (
    Fails,
    FailureKind,
    KnownDefect,
    RemedyEffect,
    Upstream,
    UpstreamIssue,
    UpstreamState,
    exactly,
)

_REPORT = Upstream(
    link="https://github.com/pytorch/xla/issues/4160",
    state=UpstreamState.OPEN,
    opened="2022-11-06",
    seen="2026-11-25",
)

UPSTREAM_ISSUE = UpstreamIssue(
    problem="A step whose callbacks run in another order is compiled again",
    upstream=_REPORT,
    variants=("*-shuffled",),
    claims=("graphs-compiled",),
    workloads=("minimal",),
    remedy="Call them in one order at the end of backward",
    effects=(
        RemedyEffect(
            quantity="graphs compiled",
            workload="minimal",
            claim="graphs-compiled",
            without="end-shuffled",
            remedied="end",
        ),
        RemedyEffect(
            quantity="programs compiled by JAX",
            workload="jax-analogue",
            claim="graphs-compiled",
            without="negative-end-shuffled",
            remedied="end-shuffled-by-name",
        ),
    ),
)

_ORDERS = 3
"""Of callbacks, one for each step in turn."""

_WAITS = Fails(kind=FailureKind.CRASH, message="the process ended by SIGABRT")

KNOWN_DEFECTS = (
    KnownDefect(
        workloads=("minimal",),
        variants=("*-shuffled",),
        expects={
            "graphs-compiled": exactly(_ORDERS),
            "steps-until-last-compile": exactly(_ORDERS),
        },
        targets=("cpu*", "tpu"),
        upstream=_REPORT,
        remedies={"*": "end"},
        last_seen="2026-11-21",
        reason="the graph's hash depends on the order of a step's callbacks: each order is "
        "compiled again, although it computes the same values",
    ),
    KnownDefect(
        workloads=("fsdp",),
        variants=("replicas-*",),
        expects={
            "graphs-compiled": _WAITS,
            "steps-until-last-compile": _WAITS,
            "values-equal": _WAITS,
        },
        targets=("cpu*",),
        upstream=Upstream(link="https://github.com/pytorch/xla", state=UpstreamState.UNREPORTED),
        last_seen="2026-11-21",
        reason="each replica's thread compiles its own module: the channel ids of their "
        "collectives differ, the replicas wait for each other, and XLA ends the process after 10 s",
    ),
)
