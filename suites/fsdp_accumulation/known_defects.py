"""What today's PyTorch/XLA does not keep, and where that is reported."""

from assay import KnownDefect

KNOWN_DEFECTS = (
    KnownDefect(
        workloads=("minimal",),
        arms=("*-shuffled",),
        claims=("graphs-compiled", "steps-until-last-compile"),
        targets=("cpu*", "tpu"),
        upstream="https://github.com/pytorch/xla/issues/4160",
        last_seen="2026-11-21",
        reason="callbacks of one step in another order are a graph of another hash, though it "
        "computes the same: each order is compiled by itself",
    ),
    KnownDefect(
        workloads=("fsdp",),
        arms=("replicas-*",),
        claims=("graphs-compiled", "steps-until-last-compile", "values-equal"),
        targets=("cpu*",),
        upstream="https://github.com/pytorch/xla",
        last_seen="2026-11-21",
        reason="each replica's thread compiles a module of its own, so that their collectives "
        "wait for each other under different numbers, and XLA ends the process after 10 s",
    ),
)
