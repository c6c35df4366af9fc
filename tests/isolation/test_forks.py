"""Observing each program in a fork: one that dies, or changes its process, ends or changes one."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.isolate import Observer
from assay.model.evidence import Evidence, FailureKind
from assay.model.target import TargetName
from assay.model.workload import Program, Role, Variant, Workload


@pytest.fixture
def observer() -> Iterator[Observer]:
    # JAX may be forked as long as nothing has run in the process that forks.
    target = TargetName.parse("cpu:8")
    with Observer([target], timeout_seconds=60, forks_for="jax") as observer:
        yield observer


def observed(observer: Observer, program: Any) -> Evidence:
    variant = Variant(name="variant", role=Role.CONTROL, program=program)
    return observer.observe(
        Workload(suite="isolation", name="w", variants=(variant,)), variant, "cpu:8"
    )


def _double(devices: Sequence[Any]) -> Program:
    import jax

    return Program(
        function=lambda x: x * 2,
        arguments=(jax.ShapeDtypeStruct((4,), "float32"),),
        in_shardings=jax.sharding.SingleDeviceSharding(devices[0]),
    )


def _aborts(_devices: object) -> Program:
    sys.stderr.write("these are its last words")
    sys.stderr.flush()
    os.abort()


def _leaves(_devices: object) -> Program:
    sys.exit(5)


def _leaves_well(_devices: object) -> Program:
    sys.exit(0)


def _says_its_process(_devices: object) -> Program:
    raise ValueError(f"process {os.getpid()} of {os.getppid()}")


def _hangs(_devices: object) -> Program:
    time.sleep(600)
    raise AssertionError


def test_a_program_in_a_fork_is_observed_as_any_other(observer: Observer) -> None:
    evidence = observed(observer, _double)
    assert evidence.failure is None
    assert evidence.module is not None
    assert evidence.memory is not None


def test_a_program_that_dies_takes_only_its_fork_with_it(observer: Observer) -> None:
    server = observer._running().pid
    evidence = observed(observer, _aborts)
    assert evidence.failure is not None
    assert evidence.failure.kind is FailureKind.CRASH
    assert "SIGABRT" in evidence.failure.message
    assert "these are its last words" in evidence.failure.message
    assert observed(observer, _double).failure is None
    assert observer._running().pid == server


def test_the_stderr_tail_is_the_programs_own(observer: Observer) -> None:
    observed(observer, _aborts)
    evidence = observed(observer, _leaves)
    assert evidence.failure is not None
    assert evidence.failure.message == ("the process ended by exit status 5; stderr tail: none")


def test_a_program_that_leaves_with_0_is_a_crash_too(observer: Observer) -> None:
    evidence = observed(observer, _leaves_well)
    assert evidence.failure is not None
    assert evidence.failure.kind is FailureKind.CRASH
    assert "exit status 0" in evidence.failure.message


def test_no_two_programs_share_a_process(observer: Observer) -> None:
    said = {str(observed(observer, _says_its_process).failure) for _ in range(2)}
    assert len(said) == 2
    assert all(f" of {observer._running().pid}" in each for each in said)


def _leaves_a_file(_devices: object) -> Program:
    folder = Path(tempfile.mkdtemp())
    (folder / "graph").write_text("much")
    raise ValueError(f"wrote {folder}")


@pytest.mark.parametrize("forks_for", ["", "jax"])
def test_what_a_program_leaves_in_temporary_folders_goes_with_its_process(forks_for: str) -> None:
    target = TargetName.parse("cpu:8")
    with Observer([target], timeout_seconds=60, forks_for=forks_for) as observer:
        failure = observed(observer, _leaves_a_file).failure
        assert failure is not None
        folder = Path(failure.message.rpartition("wrote ")[2])
        assert folder.is_absolute()
        assert folder.exists() == (not forks_for)  # a fork's goes at once
    assert not folder.exists()


def test_a_fork_that_hangs_ends_with_its_observer() -> None:
    with Observer([TargetName.parse("cpu:8")], timeout_seconds=3, forks_for="jax") as observer:
        observer._running()
        evidence = observed(observer, _hangs)
        assert evidence.failure is not None
        assert evidence.failure.kind is FailureKind.TIMEOUT
    waiting = [
        each
        for each in Path("/proc").glob("[0-9]*/environ")
        if _has(each, f"ASSAY_TEST={os.getpid()}")
    ]
    assert waiting == []


def _has(environ: Path, text: str) -> bool:
    try:
        return text.encode() in environ.read_bytes()
    except OSError:
        return False


@pytest.fixture(autouse=True)
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children of this test are known by their environment."""
    monkeypatch.setenv("ASSAY_TEST", str(os.getpid()))
