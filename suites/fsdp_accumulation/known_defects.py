"""What today's PyTorch/XLA does not keep, how it breaks, and where that is reported."""

from assay import Fails, FailureKind, KnownDefect, exactly

_ORDERS = 3
"""Of callbacks, one for each step in turn."""

_WAITS = Fails(kind=FailureKind.CRASH, message="the process ended by SIGABRT")

KNOWN_DEFECTS = (
    KnownDefect(
        workloads=("minimal",),
        arms=("*-shuffled",),
        expects={
            "graphs-compiled": exactly(_ORDERS),
            "steps-until-last-compile": exactly(_ORDERS),
        },
        targets=("cpu*", "tpu"),
        upstream="https://github.com/pytorch/xla/issues/4160",
        last_seen="2026-11-21",
        reason="callbacks of one step in another order are a graph of another hash, though it "
        "computes the same: each order is compiled by itself",
    ),
    KnownDefect(
        workloads=("fsdp",),
        arms=("replicas-*",),
        expects={
            "graphs-compiled": _WAITS,
            "steps-until-last-compile": _WAITS,
            "values-equal": _WAITS,
        },
        targets=("cpu*",),
        upstream="https://github.com/pytorch/xla",
        last_seen="2026-11-21",
        reason="each replica's thread compiles a module of its own, so that their collectives "
        "wait for each other under different numbers, and XLA ends the process after 10 s",
    ),
)
