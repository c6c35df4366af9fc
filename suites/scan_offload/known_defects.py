"""What today's compilers do not keep, how it fails, and where that is reported.

Each entry was seen to fail on jaxlib 0.10.2 and 0.12.0.1 with libtpu 0.0.52, unless it says on
which. The README of this suite tells each story.
"""

from functools import partial

from assay import (
    Case,
    Expected,
    Fails,
    FailureKind,
    KnownDefect,
    Measures,
    RemedyEffect,
    Upstream,
    UpstreamIssue,
    UpstreamState,
    exactly,
)
from suites.scan_offload.formulas import IN_USE, moved_bytes, row_bytes

_closed = partial(Upstream, state=UpstreamState.CLOSED, seen="2026-11-25")
_REPORT = _closed(link="https://github.com/openxla/xla/issues/17541", opened="2024-09-24")
_JAX_REPORT = _closed(link="https://github.com/jax-ml/jax/issues/23869")
_SEEN = "2026-11-23"
_GPU, _TPU = ("gpu*",), ("tpu*",)
_OLD_LIBTPU, _LIBTPU = {"libtpu": "<0.0.52"}, {"libtpu": ">=0.0.52"}

_Ways = dict[str, Expected | tuple[Expected, ...]]
_REMEDIES = dict.fromkeys(
    (
        "*offload-residual-output",
        "*offload-residual-on-carry",
        "outside-offload-residual-*",
        "unroll-2-offload-residual-*",
        "loop-offload-residual-input",
        "custom-vjp-*",
    ),
    "offload-residual-input",
)
_entry = partial(KnownDefect, upstream=_REPORT, remedies=_REMEDIES, last_seen=_SEEN)


def _rows(count: float, case: Case) -> float:
    """So many rows, of which the moved stack has one for each layer."""
    return count * row_bytes(case)


def _stack(share: float, case: Case) -> float:
    """A share of what is moved."""
    return share * moved_bytes(case)


def _times_the_baseline(factor: float, case: Case) -> float:
    assert case.baseline is not None
    return factor * case.baseline.value


_SAVES_NOTHING = Measures(least=partial(_rows, -2), most=partial(_rows, 2))
"""Within two rows, for the loops differ."""

_COSTS_UP_TO_THREE_ROWS = Measures(least=partial(_rows, -3), most=partial(_rows, 2))
"""jax 0.12 needs 1.4 rows more than without the offload, jax 0.10.2 2.9 rows."""

_NOTHING_MOVES: _Ways = {
    "host-bytes": exactly(0),
    "device-bytes-fall": _SAVES_NOTHING,
    "to-host-bytes": exactly(0),
    "to-device-bytes": exactly(0),
}


_A_ROW_MORE = exactly(lambda case: moved_bytes(case) + row_bytes(case))


def _every_iteration(more: int, case: Case) -> float:
    """The whole stack in each iteration of two layers, and so many times more."""
    return (moved_bytes(case) // row_bytes(case) / 2 + more) * moved_bytes(case)


_EVERY_ITERATION = Measures(least=partial(_every_iteration, 0), most=partial(_every_iteration, 4))
_UNROLLED_MOVES: _Ways = {
    "host-bytes": Measures(least=partial(_stack, 1.0), most=partial(_stack, 1.1)),
    "device-bytes-fall": Measures(least=partial(_stack, -2.0), most=0),
    "to-host-bytes": _EVERY_ITERATION,
    "to-device-bytes": _EVERY_ITERATION,
    "temp-bytes": Measures(least=partial(_stack, 1.0), most=partial(_stack, 3.0)),
}


def _nothing_and_half_the_stack(case: Case) -> float:
    nothing = case.other("nothing").memory
    assert nothing is not None
    return nothing.temp_bytes + IN_USE.of(case).value + moved_bytes(case) / 2


def _all(way: Expected) -> _Ways:
    """Nothing can be measured."""
    names = ("compiles", "fits-device", "no-worse-than-nothing", "temp-bytes", "runs")
    return dict.fromkeys((*names, "values-equal", *_NOTHING_MOVES), way)


_UNROLLED = "host offloading fails at the reshape of an unrolled loop body"
_STRAIGHT_BACK = (
    "each row is copied to the host and back at once: each step transfers the whole activation "
    "both ways, the host keeps one row, and no device memory is saved"
)
_DOES_NOT_COMPILE = Fails(
    kind=FailureKind.COMPILER, message="Expected instruction to have shape equal to"
)
_DOES_NOT_TRACE = Fails(kind=FailureKind.TRACE, message="Custom VJP fwd rule forward")

_DEVICE_MEMORY = partial(
    RemedyEffect,
    quantity="temporaries",
    claim="temp-bytes",
    without="offload-residual-output",
    remedied="offload-residual-input",
)

UPSTREAM_ISSUE = UpstreamIssue(
    problem="Offloading a block's output is ignored",
    upstream=_REPORT,
    variants=("offload-residual-output",),
    claims=("host-bytes", "device-bytes-fall"),
    workloads=("block", "block-full", "flax", "flax-full"),
    remedy="Name the value at the block's input",
    effects=(
        _DEVICE_MEMORY(workload="block-full", targets=("gpu-h100*", "tpu-v5p*", "*")),
        _DEVICE_MEMORY(workload="block", targets=("gpu-h100*", "gpu*", "tpu*")),
    ),
)

KNOWN_DEFECTS = (
    _entry(
        variants=("offload-residual-output", "offload-residual-on-carry"),
        expects={"residuals-on-host": exactly(0)},
        targets=("*",),
        reason="autodiff saves the block's input, so a policy never sees a name on the block's "
        "output or on the carry outside jax.checkpoint",
        upstream=_JAX_REPORT,
    ),
    _entry(
        variants=("offload-residual-output", "offload-residual-on-carry"),
        expects=_NOTHING_MOVES,
        targets=(*_GPU, *_TPU),
        reason="the policy ignores this name without a warning; name the block's input instead",
    ),
    _entry(
        variants=("outside-offload-*", "nested-offload-residual-output"),
        expects={"device-bytes-fall": _SAVES_NOTHING},
        targets=_GPU,
        reason="with remat outside the scan, the stack is copied to the host, and the "
        "recomputation creates it on the device again: no device memory is saved",
    ),
    _entry(
        variants=("outside-offload-*", "nested-offload-residual-output"),
        expects={
            "device-bytes-fall": Measures(least=partial(_stack, -0.6), most=partial(_rows, 2))
        },
        targets=_TPU,
        reason="with remat outside the scan, the stack is copied to the host, and the "
        "recomputation creates it on the device again: no device memory is saved",
    ),
    _entry(
        variants=("unroll-2-offload-*",),
        expects=_all(_DOES_NOT_COMPILE),
        targets=_GPU,
        reason=_UNROLLED,
    ),
    _entry(
        variants=("unroll-2-offload-*",),
        expects=_all(_DOES_NOT_COMPILE),
        targets=_TPU,
        toolchain=_OLD_LIBTPU,
        reason=_UNROLLED,
    ),
    _entry(
        variants=("unroll-2-offload-*",),
        expects=_UNROLLED_MOVES,
        targets=_TPU,
        toolchain=_LIBTPU,
        reason="since libtpu 0.0.52 an offload in an unrolled scan compiles, but every iteration "
        "moves the whole stack to the host and back",
    ),
    _entry(
        variants=("outside-offload-residual-*",),
        expects={
            "temp-bytes": Measures(
                least=partial(_times_the_baseline, 1.1), most=partial(_times_the_baseline, 1.25)
            )
        },
        targets=("tpu-v5e*", "tpu-v5p*"),
        toolchain=_LIBTPU,
        reason="libtpu 0.0.52 needs a sixth to a fifth more temporary bytes than 0.0.51",
    ),
    _entry(
        variants=("loop-offload-residual-input",),
        expects=_NOTHING_MOVES | {"device-bytes-fall": _COSTS_UP_TO_THREE_ROWS},
        targets=_GPU,
        reason="without a scan, the compiler removes the copies to the host and back as redundant",
    ),
    *(
        _entry(
            variants=("loop-offload-residual-input",),
            expects={
                "host-bytes": exactly(partial(_rows, counted)),
                "to-host-bytes": _A_ROW_MORE,
                "to-device-bytes": _A_ROW_MORE,
            },
            targets=_TPU,
            toolchain=toolchain,
            reason="without a scan, each block's input is placed separately: one row more than "
            f"the stack is moved, and the memory analysis counts only {counted} of 32 rows as "
            "host memory",
        )
        for toolchain, counted in ((_OLD_LIBTPU, 7), (_LIBTPU, 17))
    ),
    _entry(
        variants=("custom-vjp-literal*",),
        expects=_all(_DOES_NOT_TRACE),
        targets=("*",),
        reason="JAX rejects the report's program with a type error: its forward rule returns the "
        "output in host memory, and the function returns it in device memory",
    ),
    _entry(
        variants=("custom-vjp-roundtrip*",),
        expects=_NOTHING_MOVES,
        targets=_GPU,
        reason="the compiler removes the round trip of the output, and the residuals of autodiff "
        "stay on the device",
    ),
    _entry(
        variants=("custom-vjp-roundtrip*",),
        expects={"host-bytes": exactly(partial(_rows, 1)), "device-bytes-fall": _SAVES_NOTHING},
        targets=_TPU,
        reason=_STRAIGHT_BACK,
    ),
    _entry(
        variants=("custom-vjp-residual-remat",),
        expects={
            "host-bytes": exactly(partial(_rows, 1)),
            "device-bytes-fall": Measures(least=partial(_stack, -1), most=0),
        },
        targets=_TPU,
        reason=_STRAIGHT_BACK,
    ),
    _entry(
        variants=("custom-vjp-residual-remat",),
        expects=_NOTHING_MOVES,
        targets=_GPU,
        reason="jax.checkpoint around the custom_vjp function disables its offload",
    ),
    _entry(
        variants=("offload-hidden",),
        expects={
            # Half of the stack stays, and a part of it was on the device before.
            "device-bytes-fall": Measures(least=partial(_stack, 0.4)),
            "no-worse-than-nothing": Measures(most=_nothing_and_half_the_stack),
        },
        targets=_TPU,
        reason="the TPU compiler keeps a bf16 copy of the stack on the device in addition to the "
        "f32 copy on the host: the policy needs more device memory than saving nothing",
    ),
)
