"""Tracing is timed from nothing each time, and nothing is compiled or run for it."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from assay.frameworks.jax import JaxFramework
from assay.frameworks.timing import ready_to_trace
from assay.isolate import Observer
from assay.model.evidence import FailureKind
from assay.model.target import TargetName
from assay.model.timing import TimedPair, Times, Turns, Work
from assay.model.workload import Program, Role, Variant, Workload

SLEEP = 0.05
SHAPE = jax.ShapeDtypeStruct((8,), jnp.float32)
SEEN: list[None] = []


@jax.jit
def _inner(x: jax.Array) -> jax.Array:
    SEEN.append(None)
    time.sleep(SLEEP)
    return x + 1


def _outer(x: jax.Array) -> jax.Array:
    return _inner(x) * 2


def _double(x: jax.Array) -> jax.Array:
    return x * 2


def _not_traced_twice(traced: list[None], x: jax.Array) -> jax.Array:
    if traced:
        raise ValueError("not again")
    traced.append(None)
    return x


def _program(function: Any, _devices: Any) -> Program:
    return Program(function=function, arguments=(SHAPE,))


def test_a_function_within_is_traced_again_each_time() -> None:
    program = _program(_outer, None)
    ready = ready_to_trace(JaxFramework(jax.devices(), jax.default_backend()), program)
    SEEN.clear()
    assert ready.run(3) >= 3 * SLEEP
    assert len(SEEN) == 3


def test_without_forgetting_it_would_be_traced_once() -> None:
    tools = JaxFramework(jax.devices(), "cpu")
    program = _program(_outer, None)
    tools.forget()
    SEEN.clear()
    for _ in range(3):
        tools.trace(program)
    assert len(SEEN) == 1


def _timed(judged: Any) -> Times:
    variants = [
        Variant(name=name, role=Role.CONTROL, program=partial(_program, function))
        for name, function in (("reference", _double), ("judged", judged))
    ]
    pair = TimedPair(
        workload=Workload(suite="tests", name="w", variants=tuple(variants)),
        reference=variants[0],
        judged=variants[1],
        target="cpu",
        turns=Turns(
            reference="reference",
            question="tracing",
            enough=_never,
            most=4,
            work=Work.TRACE,
        ),
        most_seconds=20.0,
    )
    with Observer([TargetName.parse("cpu")], timeout_seconds=60) as observer:
        return observer.time(pair, lambda _: None)


def _never(_reference: Any, _judged: Any) -> bool:
    return False


def test_programs_without_values_are_traced_in_turns() -> None:
    seen = _timed(_outer)
    assert seen.failure is seen.unavailable is None
    assert len(seen.judged.samples) == 4
    assert min(seen.judged.samples) >= SLEEP > min(seen.reference.samples)
    assert seen.judged.compile is None


def test_a_program_that_does_not_trace_again_is_said_to() -> None:
    seen = _timed(partial(_not_traced_twice, []))
    assert seen.failure is not None
    assert (seen.failure.kind, seen.failed_variant) == (FailureKind.TRACE, "judged")


@pytest.fixture(autouse=True)
def _on_cpu() -> Any:
    with jax.default_device(jax.devices("cpu")[0]):
        yield
