"""What can be wrong with a target, and the step that fixes it. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from assay.model.target import Availability, unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One known cause; `sign` is the part of an error's text that gives it away, if any does."""

    reason: str
    remedy: str
    sign: str | None = None

    @property
    def availability(self) -> Availability:
        """The fault as a target reports it."""
        return unavailable(self.reason, self.remedy)


NO_JAX = Fault(
    sign="No module named 'jax",
    reason="jax is not installed",
    remedy="pip install jax",
)
NO_LIBTPU = Fault(
    sign="JAX TPU support not installed",
    reason="the TPU compiler, libtpu, is not installed",
    remedy="pip install libtpu",
)
NO_GPU_PLUGIN = Fault(
    sign="topology not implemented for cuda",
    reason="jax's CUDA plugin is not installed",
    remedy="pip install jax-cuda13-plugin jax-cuda13-pjrt, in the version of jaxlib",
)
NO_PTX_ASSEMBLER = Fault(
    sign="No PTX compilation provider",
    reason="the GPU compiler finds no PTX assembler (ptxas)",
    remedy="pip install nvidia-cuda-nvcc nvidia-nvvm",
)
NO_LIBDEVICE = Fault(
    sign="libdevice not found",
    reason="the GPU compiler finds no libdevice",
    remedy="pip install nvidia-cuda-nvcc nvidia-nvvm",
)
NO_GPU_DEVICE = Fault(
    reason="this machine shows no NVIDIA GPU",
    remedy="run where /dev/nvidiactl exists, or take a compile-only target such as gpu-h100:8",
)
NO_TPU_DEVICE = Fault(
    reason="this machine shows no TPU",
    remedy="run on a TPU machine, or take a compile-only target such as tpu-v5e:2x4",
)
FAULTS = (
    NO_JAX,
    NO_LIBTPU,
    NO_GPU_PLUGIN,
    NO_PTX_ASSEMBLER,
    NO_LIBDEVICE,
    Fault(
        sign="Unknown backend",
        reason="jax was started without this platform",
        remedy="name it in JAX_PLATFORMS, or unset that, before jax starts",
    ),
    Fault(
        sign="multi-process lockfile",
        reason="another process holds libtpu's lock",
        remedy="set ALLOW_MULTIPLE_LIBTPU_LOAD=1 before jax starts (assay does, if it may)",
    ),
    Fault(
        sign="chips_per_host_bounds",
        reason="the TPU compiler cannot lay the topology out on hosts",
        remedy="ask for sizes that divide into hosts of 2x2, such as 2x4 or 2x2x2",
    ),
    Fault(
        sign="GpuTargetConfigProto",
        reason="this jaxlib cannot read the device model",
        remedy="remove the fields that it does not know from the model's [compiler.fields]",
    ),
)


def recognise(error: BaseException) -> Availability | None:
    """The availability that a known fault of the installation amounts to; None for any other."""
    text = str(error)
    for fault in FAULTS:
        if fault.sign is not None and fault.sign in text:
            return unavailable(f"{fault.reason} ({_first_line(text)})", fault.remedy)
    return None


def diagnose(error: BaseException) -> Availability:
    """The availability that `error` amounts to, with a remedy where the cause is known."""
    text = str(error) or type(error).__name__
    return recognise(error) or unavailable(
        f"{type(error).__name__}: {_first_line(text)}",
        "read the message; if the target itself is at fault, report it to Assay",
    )


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:300]
