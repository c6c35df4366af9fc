"""PyTorch/XLA as a framework; runs where it is installed (`tox run -e torch_xla`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import pytest

from assay.isolate import Observer
from assay.model.evidence import Evidence, FailureKind, Loop, Steps
from assay.model.target import TargetName
from assay.model.workload import Program, Role, Variant, Workload
from assay.targets import resolve

# Looked for, not imported: the import adds XLA flags to this process, and to what it starts.
pytestmark = pytest.mark.skipif(find_spec("torch_xla") is None, reason="no PyTorch/XLA")

GPU, CPU = "gpu-h100:8", "cpu:8"
ROWS, WIDTH = 8, 64


@pytest.fixture(scope="module")
def observer() -> Iterator[Observer]:
    targets = [TargetName.parse(each) for each in (GPU, CPU)]
    with Observer(targets, timeout_seconds=300, forks_for="torch_xla") as observer:
        yield observer


def observed(observer: Observer, program: Any, target: str = CPU) -> Evidence:
    variant = Variant(name="variant", role=Role.CONTROL, program=program)
    workload = Workload(suite="tests", name="w", framework="torch_xla", variants=(variant,))
    return observer.observe(workload, variant, target)


def _loss(weight: Any, rows: Any) -> tuple[Any, Any]:
    weight.requires_grad_()
    loss = ((rows @ weight) * (rows @ weight)).sum()
    loss.backward()
    return loss, weight.grad


def _staged(_devices: Sequence[Any]) -> Program:
    import torch

    shapes = ((WIDTH, WIDTH), (ROWS, WIDTH))
    arguments = tuple(torch.empty(shape, device="meta") for shape in shapes)
    return Program(function=_loss, arguments=arguments)


def _run(_devices: Sequence[Any]) -> Program:
    import torch

    def values() -> tuple[Any, ...]:
        return torch.full((2, 2), 3.0), torch.ones(1, 2, dtype=torch.bfloat16).float()

    return Program(values=values, observe=_loss)


def _loop(kind: str, _devices: Sequence[Any]) -> Program:
    def build() -> Loop:
        import torch
        import torch_xla

        here = torch_xla.device()
        weight = torch.eye(4).to(here)
        number = 0

        def step() -> dict[str, Any]:
            nonlocal number
            number += 1
            total = (weight @ weight).sum()
            if kind == "grows":
                for _ in range(number):
                    total = total + 1
            if kind == "sends":
                total = total + torch.ones(4).to(here).sum()
            torch_xla.sync()
            return {"total": total, "half": total.to(torch.bfloat16)}

        return Loop(step=step, parameters={"weight": weight})

    return Program(steps=Steps(count=3, build=build))


def _raises_in_a_step(_devices: Sequence[Any]) -> Program:
    def step() -> dict[str, Any]:
        raise ValueError("not today")

    return Program(steps=Steps(count=1, build=lambda: Loop(step=step)))


@pytest.mark.skipif(resolve(GPU).unavailable() is not None, reason="no GPU compiler")
def test_a_function_is_traced_on_placeholders_and_compiled_for_a_gpu(observer: Observer) -> None:
    evidence = observed(observer, _staged, GPU)
    assert evidence.failure is None
    assert evidence.traced is not None
    assert evidence.traced.counters is not None
    assert evidence.traced.counters.sent == 0
    assert evidence.memory is not None
    assert evidence.memory.argument_bytes >= 4 * (WIDTH * WIDTH + ROWS * WIDTH)
    assert evidence.module is not None
    assert {each.dimensions for each in evidence.module.inventory.arguments} >= {
        (WIDTH, WIDTH),
        (ROWS, WIDTH),
    }


def test_a_step_that_stays_the_same_is_compiled_once_and_sends_nothing(
    observer: Observer,
) -> None:
    seen = observed(observer, partial(_loop, "same")).steps
    assert seen is not None
    assert [step.counters.compiles for step in seen.steps] == [1, 0, 0]
    assert [step.counters.sent_bytes for step in seen.steps] == [0, 0, 0]
    assert [step.graphs for step in seen.steps] == [(0,), (), ()]
    assert seen.parameters == {"weight": (4, 4)}
    assert len(seen.modules) == len(seen.graphs) == 1


def test_a_step_that_grows_is_compiled_each_time(observer: Observer) -> None:
    seen = observed(observer, partial(_loop, "grows")).steps
    assert seen is not None
    assert [step.counters.compiles for step in seen.steps] == [1, 1, 1]
    assert len({graph.canonical for graph in seen.graphs}) == 3


def test_what_a_step_sends_is_counted_in_bytes(observer: Observer) -> None:
    seen = observed(observer, partial(_loop, "sends")).steps
    assert seen is not None
    assert [step.counters.sent_bytes for step in seen.steps] == [16, 16, 16]


def test_the_results_of_each_step_are_kept_also_in_types_that_numpy_lacks(
    observer: Observer,
) -> None:
    values = observed(observer, partial(_loop, "same")).values
    assert values is not None
    assert [(each.path, each.dtype) for each in values[:2]] == [
        ("step 0: total", "float32"),
        ("step 0: half", "bfloat16"),
    ]
    assert len(values) == 6


def test_values_are_moved_to_the_device_and_back(observer: Observer) -> None:
    values = observed(observer, _run).values
    assert values is not None
    loss, slope = values
    assert (loss.shape, slope.shape) == ((), (2, 2))
    assert memoryview(loss.data).cast("f")[0] == 72.0


def test_no_program_sees_what_another_compiled(observer: Observer) -> None:
    for _ in range(2):
        seen = observed(observer, partial(_loop, "same")).steps
        assert seen is not None
        assert sum(step.counters.compiles for step in seen.steps) == 1


def test_a_step_that_raises_is_a_program_that_does_not_run(observer: Observer) -> None:
    failure = observed(observer, _raises_in_a_step).failure
    assert failure is not None
    assert (failure.kind, failure.message) == (FailureKind.EXECUTION, "ValueError: not today")


def test_flags_of_pytorch_xla_are_no_part_of_another_compilers_toolchain(
    observer: Observer,
) -> None:
    assert observed(observer, _staged, CPU).toolchain.flags == ""
