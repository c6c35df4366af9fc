"""What today's compilers do not keep, and where that is reported.

Each entry was seen broken on jaxlib 0.10.2 and 0.12.0.1 with libtpu 0.0.51, unless it says on
which. The README of this suite tells each story.
"""

from assay import KnownDefect

_REPORT = "https://github.com/openxla/xla/issues/17541"
_JAX_REPORT = "https://github.com/jax-ml/jax/issues/23869"
_SEEN = "2026-11-20"
_UNROLLED = "the offloader does not follow the stack through an unrolled body's reshape"
_DEVICES = ("gpu*", "tpu*")
_OFFLOAD = ("host-bytes", "device-bytes-fall", "to-host-bytes", "to-device-bytes")
_AFTER_COMPILING = (*_OFFLOAD, "fits-device", "no-worse-than-nothing", "temp-bytes", "values-equal")

KNOWN_DEFECTS = (
    KnownDefect(
        arms=("offload-residual-output", "offload-residual-on-carry"),
        claims=("residuals-on-host",),
        targets=("*",),
        reason="a name on the block's output, or on the carry outside jax.checkpoint, is not what "
        "autodiff saves: it saves the block's input, so the policy never sees the name",
        upstream=_JAX_REPORT,
        last_seen=_SEEN,
    ),
    KnownDefect(
        arms=("offload-residual-output", "offload-residual-on-carry"),
        claims=_OFFLOAD,
        targets=_DEVICES,
        reason="the name is ignored, in silence; name the value at the block's input instead",
        upstream=_REPORT,
        last_seen=_SEEN,
    ),
    KnownDefect(
        arms=("outside-offload-*", "nested-offload-residual-output"),
        claims=("device-bytes-fall",),
        targets=_DEVICES,
        reason="with remat outside the scan the stack goes to the host and the recomputation "
        "makes it again on the device: it moves, but saves nothing",
        upstream=_REPORT,
        last_seen=_SEEN,
    ),
    KnownDefect(
        arms=("unroll-2-offload-*",),
        claims=("compiles", *_AFTER_COMPILING),
        targets=("gpu*",),
        reason=_UNROLLED,
        upstream=_REPORT,
        last_seen=_SEEN,
    ),
    KnownDefect(
        arms=("unroll-2-offload-*",),
        claims=("compiles", *_AFTER_COMPILING),
        targets=("tpu*",),
        toolchain={"libtpu": "<0.0.52"},
        reason=_UNROLLED,
        upstream=_REPORT,
        last_seen=_SEEN,
    ),
    KnownDefect(
        arms=("unroll-2-offload-*",),
        claims=(*_OFFLOAD, "temp-bytes"),
        targets=("tpu*",),
        toolchain={"libtpu": ">=0.0.52"},
        reason="since libtpu 0.0.52 an offload in an unrolled scan compiles, and moves the whole "
        "stack to the host and back in every iteration",
        upstream=_REPORT,
        last_seen="2026-11-22",
    ),
    KnownDefect(
        arms=("outside-offload-residual-*",),
        claims=("temp-bytes",),
        targets=("tpu-v5e*", "tpu-v5p*"),
        toolchain={"libtpu": ">=0.0.52"},
        reason="libtpu 0.0.52 takes a sixth to a fifth more temporaries than 0.0.51",
        upstream=_REPORT,
        last_seen="2026-11-22",
    ),
    KnownDefect(
        arms=("loop-offload-residual-input",),
        claims=_OFFLOAD,
        targets=("gpu*",),
        reason="without a scan the compiler drops the copies to the host and back as redundant",
        upstream=_REPORT,
        last_seen=_SEEN,
    ),
    KnownDefect(
        arms=("loop-offload-residual-input",),
        claims=("host-bytes", "to-host-bytes", "to-device-bytes"),
        targets=("tpu*",),
        reason="without a scan each block's input is placed by itself: one row more than the stack "
        "is moved, and the compiler's analysis counts only some of the rows as host memory",
        upstream=_REPORT,
        last_seen=_SEEN,
    ),
    KnownDefect(
        arms=("custom-vjp-literal*",),
        claims=("compiles", *_AFTER_COMPILING),
        targets=("*",),
        reason="JAX rejects the report's program by type: its forward rule returns the output in "
        "host memory where the function returns it on the device",
        upstream=_REPORT,
        last_seen=_SEEN,
    ),
    KnownDefect(
        arms=("custom-vjp-roundtrip*",),
        claims=_OFFLOAD,
        targets=("gpu*",),
        reason="the compiler removes the round trip of the output, and what autodiff saves stays "
        "on the device",
        upstream=_REPORT,
        last_seen=_SEEN,
    ),
    KnownDefect(
        arms=("custom-vjp-roundtrip*", "custom-vjp-residual-remat"),
        claims=("host-bytes", "device-bytes-fall"),
        targets=("tpu*",),
        reason="each row goes to the host and straight back: the whole activation crosses both "
        "ways in every step, one row of it is kept on the host, and the device saves nothing",
        upstream=_REPORT,
        last_seen=_SEEN,
    ),
    KnownDefect(
        arms=("custom-vjp-residual-remat",),
        claims=_OFFLOAD,
        targets=("gpu*",),
        reason="jax.checkpoint around the custom_vjp undoes its offload",
        upstream=_REPORT,
        last_seen=_SEEN,
    ),
    KnownDefect(
        arms=("offload-hidden",),
        claims=("device-bytes-fall", "no-worse-than-nothing"),
        targets=("tpu*",),
        reason="the TPU compiler keeps a bf16 copy of the stack on the device beside the f32 one "
        "on the host: the policy costs more device memory than saving nothing",
        upstream=_REPORT,
        last_seen=_SEEN,
    ),
)
