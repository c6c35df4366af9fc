"""A growing loop is timed where it is asked for, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from assay import Growth, Program, Role, Variant, Workload
from assay.isolate import Observer
from assay.model.evidence import Evidence, FailureKind
from assay.model.target import TargetName

LENGTHS = (8, 64)


def built(length: int) -> tuple[Any, Any]:
    return (lambda x: x + 1), lambda: (np.zeros(length, np.float32),)


def torn(length: int) -> tuple[Any, Any]:
    return (lambda x: x + np.ones(length + 1, np.float32)), built(length)[1]


def program(build: Any, _devices: object) -> Program:
    import jax

    growth = Growth(lengths=LENGTHS, build=build) if build else None
    shape = jax.ShapeDtypeStruct((8,), np.float32)
    return Program(function=lambda x: x * 2, arguments=(shape,), growth=growth)


@pytest.fixture(scope="module")
def observer() -> Iterator[Observer]:
    with Observer([TargetName.parse("cpu"), TargetName.parse("gpu-h100")], 60) as observer:
        yield observer


def grown(observer: Observer, build: Any, target: str = "cpu") -> Evidence:
    variant = Variant(name="grows", role=Role.CONTROL, program=partial(program, build))
    return observer.observe(
        Workload(suite="s", name="w", variants=(variant,)), variant, target, 0.1
    )


def test_the_loop_alone_is_timed(observer: Observer) -> None:
    evidence = grown(observer, built)
    assert evidence.growth is not None
    assert evidence.growth.lengths == LENGTHS
    assert min(evidence.growth.fastest) > 0
    assert evidence.module is None
    assert evidence.seconds.execute > 0


def test_to_observe_a_variant_times_no_loop(observer: Observer) -> None:
    variant = Variant(name="grows", role=Role.CONTROL, program=partial(program, torn))
    evidence = observer.observe(Workload(suite="s", name="w", variants=(variant,)), variant, "cpu")
    assert evidence.module is not None
    assert (evidence.growth, evidence.failure) == (None, None)


def test_a_loop_that_does_not_run_is_evidence(observer: Observer) -> None:
    failure = grown(observer, torn).failure
    assert failure is not None
    assert failure.kind is FailureKind.EXECUTION
    assert "9" in failure.message


def test_a_target_that_runs_nothing_says_what_would_mend_it(observer: Observer) -> None:
    why = grown(observer, built, "gpu-h100").not_executed
    assert why is not None
    assert "a compile-only target runs nothing" in why.reason
    assert "run it on a live target" in why.remedy


def test_a_program_without_a_growing_loop_is_not_timed(observer: Observer) -> None:
    evidence = grown(observer, None, "cpu")
    assert (evidence.growth, evidence.not_executed, evidence.failure) == (None, None, None)
