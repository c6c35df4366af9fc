"""PyTorch/XLA's interfaces below its documented ones.

Each is looked up where it is used: PyTorch/XLA 2.6 has no placeholders. What is compiled is read
from XLA's own dump: one module for each graph that the cache did not have.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from assay.frameworks.framework import Unsupported
from assay.model.evidence import Counters


@cache
def import_only() -> str:
    """Import PyTorch/XLA without starting a client, so that a fork may start its own.

    Returns the XLA flags that the import adds, and restores the environment: they are for
    PyTorch/XLA's own XLA, not for the compilers of other targets.
    """
    on_tpu = "tpu" in os.environ.get("JAX_PLATFORMS", "").split(",")
    os.environ.setdefault("PJRT_DEVICE", "TPU" if on_tpu else "CPU")
    with _flags(os.environ.get("XLA_FLAGS", "")):
        import torch_xla  # noqa: F401 - this is the import

        return os.environ["XLA_FLAGS"]


def start(environment: Mapping[str, str]) -> None:
    """Start PyTorch/XLA under these variables, which it reads once; they stay set in this process.

    Raises:
        Unsupported: it was started in this process without them.
    """
    other = {name for name, value in environment.items() if os.environ.get(name) != value}
    if other and dump_folder.cache_info().currsize:
        raise Unsupported(
            f"got {', '.join(sorted(other))} for PyTorch/XLA that was started without, wanted a "
            "process in which nothing has used it before; observe each program in its own"
        )
    os.environ.update(environment)
    dump_folder()


@cache
def dump_folder() -> Path:
    """The folder where XLA writes every graph that PyTorch/XLA compiles in this process.

    Raises:
        Unsupported: PyTorch/XLA has run something in this process before.
    """
    flags = import_only()
    folder = Path(tempfile.mkdtemp(prefix="assay-torch-xla-"))
    # XLA reads its flags once, when its first client starts.
    with _flags(f"{flags} --xla_dump_to={folder} --xla_dump_hlo_as_proto"):
        import torch
        import torch_xla

        one = torch.ones(1).to(torch_xla.device()) + 1
        torch_xla.sync(wait=True)
        del one
    if not any(folder.iterdir()):
        raise Unsupported(
            "got no dump of the first graph, wanted XLA to read its flags only now; observe "
            "PyTorch/XLA in a process in which nothing has used it before"
        )
    return folder


@contextmanager
def _flags(flags: str) -> Iterator[None]:
    """In it, XLA's flags are these."""
    before = os.environ.get("XLA_FLAGS")
    os.environ["XLA_FLAGS"] = flags
    try:
        yield
    finally:
        if before is None:
            del os.environ["XLA_FLAGS"]
        else:
            os.environ["XLA_FLAGS"] = before


def platform() -> str:
    """The platform of PyTorch/XLA's own devices, in the word of jax's devices."""
    from torch_xla import runtime

    name = str(runtime.device_type()).lower()
    return "gpu" if name == "cuda" else name


def wait() -> None:
    """Wait until the device has finished all its work; stages and compiles nothing."""
    import torch_xla

    torch_xla._XLAC._xla_wait_device_ops([])


def compiled_so_far() -> tuple[Path, ...]:
    """The dumps of all graphs that were compiled until now, oldest first."""
    return tuple(sorted(dump_folder().glob("*.before_optimizations.hlo.pb")))


def clear_counters() -> None:
    """Reset the counters."""
    from torch_xla.debug import metrics

    metrics.clear_all()


def counters() -> Counters:
    """What was counted since `clear_counters`."""
    from torch_xla.debug import metrics

    def samples(name: str) -> tuple[int, float]:
        """The number of samples, and their sum in nanoseconds or bytes."""
        count, total, _ = metrics.metric_data(name) or (0, 0.0, ())
        return int(count), float(total)

    return Counters(
        sent=samples("IrValueTensorToXlaData")[0],
        sent_bytes=int(samples("OutboundData")[1]),
        compiles=metrics.counter_value("UncachedCompile") or 0,
        compile_seconds=samples("CompileTime")[1] * 1e-9,
    )


def placeholder(shape: Sequence[int], dtype: Any) -> Any:
    """A tensor on the device that has a shape, and no data anywhere.

    Raises:
        Unsupported: PyTorch/XLA is older than 2.7.
    """
    from torch_xla.core import xla_builder as builder

    create = getattr(builder, "create_placeholder_tensor", None)
    if create is None:
        raise Unsupported(
            "got a PyTorch/XLA without create_placeholder_tensor, wanted 2.7 or newer; "
            "pip install -U torch_xla"
        )
    return create(tuple(shape), dtype)


def staged_module(tensors: Sequence[Any]) -> bytes:
    """The serialised HloModuleProto that computes tensors which are staged and not yet run."""
    import torch_xla

    return bytes(torch_xla._XLAC._get_xla_tensors_hlo_proto(list(tensors)))
