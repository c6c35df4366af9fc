"""The loops as programs; what they are written in is imported where they run, and not before."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from assay import Loop, Program, Steps
from suites.fsdp_accumulation.callbacks import Plan
from suites.fsdp_accumulation.sizes import BertSizes, Sharding, SpmdSharding, Training

VIRTUAL_DEVICES = 4


def fsdp_program(
    sizes: BertSizes, sharding: Sharding, training: Training, _devices: Sequence[Any]
) -> Program:
    """The BERT-like model under XlaFullyShardedDataParallel, world size 1."""
    return Program(
        steps=Steps(count=sizes.steps, build=partial(_fsdp_loop, sizes, sharding, training))
    )


def replicas_program(
    sizes: BertSizes, sharding: Sharding, training: Training, _devices: Sequence[Any]
) -> Program:
    """The same, trained at world size 2 before."""
    steps = Steps(
        count=sizes.steps,
        build=partial(_replicas_loop, sizes, sharding, training),
        environment={"CPU_NUM_DEVICES": "2"},
    )
    return Program(steps=steps)


def spmd_program(
    sizes: BertSizes, sharding: SpmdSharding, training: Training, _devices: Sequence[Any]
) -> Program:
    """The BERT-like model on virtual devices.

    SPMD is switched on before PyTorch/XLA starts: ``use_spmd()`` afterwards, with nothing alive on
    the device, and the first result that is read takes the process down (PyTorch/XLA 2.9).
    """
    steps = Steps(
        count=sizes.steps,
        build=partial(_spmd_loop, sizes, sharding, training),
        environment={"CPU_NUM_DEVICES": str(VIRTUAL_DEVICES), "XLA_USE_SPMD": "1"},
    )
    return Program(steps=steps)


def steps_twice(build: Callable[[Sequence[Any]], Program], devices: Sequence[Any]) -> Program:
    """A loop that takes two steps of the other in each of its own."""
    once = build(devices).steps
    assert once is not None
    return Program(steps=replace(once, build=partial(_twice, once.build)))


def _twice(build: Callable[[], Loop]) -> Loop:
    loop = build()

    def step() -> Mapping[str, Any]:
        loop.step()
        return loop.step()

    return Loop(step=step, parameters=loop.parameters)


def lazy_program(plans: Sequence[Plan], _devices: Sequence[Any]) -> Program:
    """The minimal model in PyTorch/XLA."""
    return Program(steps=Steps(count=len(plans), build=partial(_lazy_loop, plans)))


def jax_program(plans: Sequence[Plan], by_name: bool, _devices: Sequence[Any]) -> Program:  # noqa: FBT001 - bound by partial
    """The minimal model in JAX."""
    return Program(steps=Steps(count=len(plans), build=partial(_jax_loop, plans, by_name=by_name)))


def _fsdp_loop(sizes: BertSizes, sharding: Sharding, training: Training) -> Loop:
    from suites.fsdp_accumulation.fsdp_loop import build

    return build(sizes, sharding, training)


def _replicas_loop(sizes: BertSizes, sharding: Sharding, training: Training) -> Loop:
    from suites.fsdp_accumulation.replicas import build_after_replicas

    return build_after_replicas(sizes, sharding, training)


def _spmd_loop(sizes: BertSizes, sharding: SpmdSharding, training: Training) -> Loop:
    from suites.fsdp_accumulation.spmd_loop import build

    return build(sizes, sharding, training)


def _lazy_loop(plans: Sequence[Plan]) -> Loop:
    from suites.fsdp_accumulation.lazy_loop import build

    return build(plans)


def _jax_loop(plans: Sequence[Plan], *, by_name: bool) -> Loop:
    from suites.fsdp_accumulation.jax_loop import build

    return build(plans, by_name=by_name)
