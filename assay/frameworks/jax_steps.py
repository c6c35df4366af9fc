"""A training loop in JAX, and what it has compiled step by step."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax

from assay.frameworks.arrays import tensor_of
from assay.frameworks.framework import RanStep, RanSteps
from assay.frameworks.jax_placement import check_results
from assay.model.steps import Counters, Steps

_COMPILED = "/jax/core/compile/backend_compile_duration"


def run_steps(steps: Steps, devices: Sequence[Any]) -> RanSteps:
    """Build the loop, then count what each step has compiled; what is sent is not counted.

    Caches are cleared first: what another program had compiled would not be compiled again.
    """
    with jax.default_device(devices[0]):
        return _run(steps, devices)


def _run(steps: Steps, devices: Sequence[Any]) -> RanSteps:
    loop = steps.build()
    jax.clear_caches()
    ran = []
    for _ in range(steps.count):
        with _compile_seconds() as seconds:
            given = dict(loop.step())
            results = jax.device_get(given)
        check_results(given, devices)
        counted = Counters(
            sent=None,
            sent_bytes=None,
            handles=None,
            compiles=len(seconds),
            compile_seconds=sum(seconds),
        )
        tensors = tuple(tensor_of(name, array) for name, array in results.items())
        ran.append(RanStep(counters=counted, results=tensors, compiled=()))
    shapes = {name: tuple(array.shape) for name, array in loop.parameters.items()}
    return RanSteps(steps=tuple(ran), parameters=shapes)


@contextmanager
def _compile_seconds() -> Iterator[list[float]]:
    """The seconds of each program that is compiled from here on."""
    seconds: list[float] = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event == _COMPILED:
            seconds.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seconds
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
