"""One training step of PyTorch/XLA, done in ways that differ only in who frees gradients, and when.

Losses and updates are the same in all of them. Each way is a `Condition`; the first two are the
step as a user writes it and the remedy, the others move one link of the supposed cause.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

# Untyped where they are not installed, typed where they are.
import torch  # type: ignore[import-not-found, unused-ignore]
import torch_xla  # type: ignore[import-not-found, unused-ignore]
import torch_xla.core.xla_model as xm  # type: ignore[import-not-found, unused-ignore]
import torch_xla.debug.metrics as met  # type: ignore[import-not-found, unused-ignore]

from suites.fsdp_accumulation.stable_step import backward_on_this_thread

SHAPES: Final = ((8, 16), (16,), (16, 8), (8,), (32, 8), (8, 4), (4,))
OUTPUTS: Final = len(SHAPES) + 1
"""What the step's own graph returns: every new parameter, and the loss."""

_CORES: Final = frozenset(os.sched_getaffinity(0))
_SPIN_SECONDS: Final = 0.003  # under the 5 ms after which Python takes the GIL from its holder

Tensor = Any  # torch's own type, which is untyped where torch is not installed
Backward = Callable[["Model", Tensor], object]


class Model:
    """A small network, and an update of its parameters as FSDP makes it at the end of backward."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        device = torch_xla.device()
        self.parameters = [torch.nn.Parameter((0.1 * torch.randn(s)).to(device)) for s in SHAPES]
        torch_xla.sync(wait=True)

    def loss(self, batch: Tensor) -> Tensor:
        """The mean square of the network's output."""
        w = self.parameters
        hidden = torch.tanh(torch.tanh(batch @ w[0] + w[1]) @ w[2] + w[3])
        return ((hidden @ w[4].view(8, 32))[:, :4] + hidden @ w[5] + w[6]).pow(2).mean()

    def gradients(self, loss: Tensor) -> tuple[Tensor, ...]:
        """The loss's gradient by every parameter."""
        found: tuple[Tensor, ...] = torch.autograd.grad(loss, self.parameters)
        return found

    def update(self, gradients: Sequence[Tensor]) -> None:
        """One coalesced reduce-scatter of all gradients, then a step of gradient descent."""
        with torch.no_grad():
            reduced = xm.reduce_scatter(
                xm.REDUCE_SUM,
                [each.reshape(-1) for each in gradients],
                scale=1.0,
                scatter_dim=0,
                shard_count=1,
                pin_layout=False,
            )
            for parameter, each in zip(self.parameters, reduced, strict=True):
                parameter.sub_(0.1 * each.view(parameter.shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A way to do the step.

    ``backward`` runs the backward pass and the update; what it returns lives until after the sync.
    ``then`` runs between the two. ``cores`` are those that the calling thread and the engine's
    thread may use; None where they may use all.
    """

    name: str
    backward: Backward
    then: Callable[[], object] = lambda: None
    cores: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step did: the outputs of the graph that ran, the graphs compiled, its time."""

    outputs: int
    compiled: int
    seconds: float


def conditions() -> tuple[Condition, ...]:
    """The plain step, the remedy, then what tells the causes apart."""
    callback = partial(_in_callback, clears=False)
    first, last = min(_CORES), max(_CORES)
    pinned = (
        Condition(name="plain, both threads on one core", backward=_plain, cores=(first, first)),
        Condition(name="plain, a core each", backward=_plain, cores=(first, last)),
    )
    return (
        Condition(name="plain", backward=_plain),
        Condition(name="remedy: backward_on_this_thread", backward=_with_remedy(_plain)),
        Condition(name="sleep(0) before the sync", backward=_plain, then=partial(time.sleep, 0)),
        Condition(name="3 ms busy, then free", backward=_busy_then_free),
        Condition(name="free, then 3 ms busy", backward=_plain, then=_busy),
        *(pinned if first != last else ()),
        Condition(name="loss.backward()", backward=_accumulated),
        Condition(name="queued callback holds gradients", backward=callback),
        Condition(name="queued callback, list cleared", backward=_in_callback),
        Condition(name="queued callback, remedy", backward=_with_remedy(callback)),
        Condition(name="all held until after the sync", backward=_held),
    )


def run(model: Model, condition: Condition) -> Step:
    """Does one step, waits for the device, and reads what it did from torch_xla's own counters."""
    with _pinned(condition.cores):
        return _run(model, condition)


def _run(model: Model, condition: Condition) -> Step:
    batch = torch.randn(4, SHAPES[0][0]).to(torch_xla.device())
    torch_xla.sync(wait=True)
    compiled = _count("UncachedCompile")
    start = time.perf_counter()
    loss = model.loss(batch)
    held = condition.backward(model, loss)
    condition.then()
    outputs = _count("CreateDataHandles")  # here, for tracing sends each new constant once
    torch_xla.sync()
    xm.wait_device_ops()
    seconds = time.perf_counter() - start
    del held, loss
    return Step(
        outputs=_count("CreateDataHandles") - outputs,
        compiled=_count("UncachedCompile") - compiled,
        seconds=seconds,
    )


def _plain(model: Model, loss: Tensor) -> None:
    model.update(model.gradients(loss))


def _with_remedy(backward: Backward) -> Backward:
    return backward_on_this_thread()(backward)


def _busy_then_free(model: Model, loss: Tensor) -> None:
    gradients = model.gradients(loss)
    model.update(gradients)
    _busy()


def _held(model: Model, loss: Tensor) -> object:
    gradients = model.gradients(loss)
    model.update(gradients)
    return gradients


def _accumulated(model: Model, loss: Tensor) -> None:
    loss.backward()
    model.update([each.grad for each in model.parameters])
    for each in model.parameters:
        each.grad = None


def _in_callback(model: Model, loss: Tensor, *, clears: bool = True) -> None:
    """Gradients go into a list as they come; a callback at the end of backward flushes it."""
    found: dict[int, Tensor] = {}
    engine = torch.autograd.Variable._execution_engine  # noqa: SLF001  # where FSDP queues its own

    def flush() -> None:
        model.update([found[id(each)] for each in model.parameters])
        if clears:
            found.clear()

    def collect(parameter: Tensor) -> None:
        if not found:
            engine.queue_callback(flush)
        found[id(parameter)], parameter.grad = parameter.grad, None

    hooks = [each.register_post_accumulate_grad_hook(collect) for each in model.parameters]
    loss.backward()
    for hook in hooks:
        hook.remove()


def _busy() -> None:
    """Computes without letting go of the GIL."""
    end = time.perf_counter() + _SPIN_SECONDS
    while time.perf_counter() < end:
        pass


@contextmanager
def _pinned(cores: tuple[int, int] | None) -> Iterator[None]:
    """Gives the calling thread and the engine's thread, once there is one, a core each."""
    engines = _engine_threads() if cores else []
    for thread, core in zip([0, *engines], cores or (), strict=False):
        os.sched_setaffinity(thread, {core})
    try:
        yield
    finally:
        for thread in [0, *engines] if cores else []:
            os.sched_setaffinity(thread, _CORES)


def _engine_threads() -> list[int]:
    """The one thread that the autograd engine has for the one XLA device."""
    tasks = Path("/proc/self/task").iterdir()
    return [int(each.name) for each in tasks if "pt_autograd" in (each / "comm").read_text()]


def _count(name: str) -> int:
    return met.counter_value(name) or 0
