"""The minimal model: what FSDP does to gradients at the end of backward, and nothing else."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, cycle

import torch
import torch_xla
import torch_xla.core.xla_model as xm

from assay import Loop
from suites.fsdp_accumulation.callbacks import SHAPES, Plan
from suites.fsdp_accumulation.stable_step import backward_on_this_thread

_RATE = 0.1


class _Bucket:
    """Gradients that wait, and what to do with each when it is reduced."""

    def __init__(self) -> None:
        self._waiting: list[tuple[torch.Tensor, Callable[[torch.Tensor], object]]] = []

    def add(self, gradient: torch.Tensor, callback: Callable[[torch.Tensor], object]) -> None:
        """One more gradient."""
        self._waiting.append((gradient, callback))

    def flush(self) -> None:
        """Reduce all that wait in one collective, and call them back in order."""
        waiting, self._waiting = self._waiting, []
        gradients = [gradient for gradient, _ in waiting]
        one = len(gradients) == 1  # which torch_xla compiles to another collective than a list
        reduced = xm.reduce_scatter(
            xm.REDUCE_SUM,
            gradients[0] if one else gradients,
            scale=1.0,
            scatter_dim=0,
            shard_count=1,
            pin_layout=False,
        )
        for (_, callback), result in zip(waiting, [reduced] if one else reduced, strict=True):
            callback(result)


class _Steps:
    """A step for each plan, on a batch of its own."""

    def __init__(self, plans: Sequence[Plan], batch: int) -> None:
        torch.manual_seed(0)
        device = torch_xla.device()
        self.parameters = [torch.nn.Parameter((0.1 * torch.randn(s)).to(device)) for s in SHAPES]
        self._plans: Iterator[tuple[int, Plan]] = zip(count(), cycle(plans), strict=False)
        self._batch = batch
        self._bucket = _Bucket()

    def __call__(self) -> Mapping[str, torch.Tensor]:
        number, plan = next(self._plans)
        generator = torch.Generator().manual_seed(number)
        batch = torch.randn(self._batch, 8, generator=generator).to(torch_xla.device())
        loss = self._loss(batch)
        self._backward(loss, plan)
        torch_xla.sync()
        return {"loss": loss}

    def _loss(self, batch: torch.Tensor) -> torch.Tensor:
        w = self.parameters
        hidden = torch.tanh(torch.tanh(batch @ w[0] + w[1]) @ w[2] + w[3])
        return ((hidden @ w[4].view(8, 32))[:, :4] + hidden @ w[5] + w[6]).pow(2).mean()

    def _backward(self, loss: torch.Tensor, plan: Plan) -> None:
        with backward_on_this_thread():
            gradients = torch.autograd.grad(loss, self.parameters)
        for arrived, number in enumerate(plan.order, 1):
            self._bucket.add(gradients[number].reshape(-1), self._update(number))
            if arrived in plan.flushes:
                self._bucket.flush()

    def _update(self, number: int) -> Callable[[torch.Tensor], object]:
        parameter = self.parameters[number]

        def update(reduced: torch.Tensor) -> None:
            with torch.no_grad():
                parameter.sub_(_RATE * reduced.view(parameter.shape))

        return update


def build(plans: Sequence[Plan], batch: int = 4) -> Loop:
    """The loop of these plans, one step each."""
    steps = _Steps(plans, batch)
    parameters = {f"w{number}": each for number, each in enumerate(steps.parameters)}
    return Loop(step=steps, parameters=parameters)
