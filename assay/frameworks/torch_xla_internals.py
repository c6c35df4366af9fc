"""How PyTorch/XLA is imported and started, and its interfaces below the documented ones.

What is compiled is read from XLA's own dump: one module for each graph that the cache did not have.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from assay.frameworks.framework import Unsupported


@cache
def import_only() -> str:
    """Import PyTorch/XLA without starting a client, so that a fork may start its own.

    Returns XLA's flags with those that the import adds, and restores ``XLA_FLAGS``: the added ones
    are for PyTorch/XLA's own XLA, not for the compilers of other targets.
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


def wait() -> None:
    """Wait until the device has finished all its work; stages and compiles nothing."""
    import torch_xla

    torch_xla._XLAC._xla_wait_device_ops([])


def compiled_so_far() -> tuple[Path, ...]:
    """The dumps of all graphs that were compiled until now, oldest first."""
    return tuple(sorted(dump_folder().glob("*.before_optimizations.hlo.pb")))


def staged_module(tensors: Sequence[Any]) -> bytes:
    """The serialised HloModuleProto that computes tensors which are staged and not yet run."""
    import torch_xla

    return bytes(torch_xla._XLAC._get_xla_tensors_hlo_proto(list(tensors)))
