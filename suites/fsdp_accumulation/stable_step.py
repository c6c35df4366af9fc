"""A training step of PyTorch/XLA that hands the compiler the same graph every time.

`torch_xla.sync` compiles whatever lazy tensors are alive. A backward pass for an XLA device runs on
a thread of the autograd engine, and that thread destroys the pass's ``GraphTask`` only after it has
woken the caller. What the task holds (the gradients that `torch.autograd.grad` returned, the
closures of queued callbacks) is then alive or dead at the sync by chance, and each outcome is a
graph of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager

# Untyped where torch is not installed, typed where it is.
import torch  # type: ignore[import-not-found, unused-ignore]


@contextmanager
def backward_on_this_thread() -> Iterator[None]:
    """Runs every backward pass inside it on the calling thread.

    When such a pass returns, its caller holds the only references to the gradients: nothing is
    waited for. It may enclose one call of `torch.autograd.grad` or ``backward``, a whole training
    loop, or, as a decorator, a function; it holds for the thread that enters it and no other.
    """
    with torch.autograd.set_multithreading_enabled(False):
        yield
