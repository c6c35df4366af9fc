"""A program that aborts, hangs or prints ends one observation, and is the program's fault."""

from __future__ import annotations

import pytest

from tests.plugin.project import PREAMBLE, Ended, Project

FAULTS = (
    PREAMBLE
    + """
def prints(devices):
    print("x" * 100_000)
    os.write(1, b"y" * 100_000)
    sys.stdin.read()
    return double(devices)

def aborts(devices):
    sys.stderr.write("the last words\\\\n")
    sys.stderr.flush()
    os.abort()

def exits(devices):
    sys.exit(5)

def hangs(devices):
    time.sleep(600)

def not_compiled(devices):
    def unknown(x):
        return jax.ffi.ffi_call("no_such_target", x)(x)
    return Program(function=unknown, arguments=(X,))

LOCK = threading.Lock()

def locked(lock):
    return lambda devices: lock and double(devices)

W = workload(
    variant("prints", prints),
    variant("not-compiled", not_compiled),
    variant("aborts", aborts),
    variant("after-abort", double),
    variant("hangs", hangs),
    variant("after-hang", double),
    variant("locked", locked(LOCK)),
    variant("last", double),
)
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))

from dataclasses import dataclass

@dataclass(frozen=True)
class Raises:
    name: str = "raises"
    unit: Unit = Unit.COUNT
    uses_baseline: bool = False

    def needs(self, variant):
        return ()

    def judge(self, case):
        return 1 / 0

test_raises = Check(claim=Raises(), workloads=(W,), variants=("last",))
"""
).replace("\\\\n", "\\n")


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    project = Project(tmp_path_factory.mktemp("faults"), {"test_faults.py": FAULTS})
    return project.pytest("--assay-compile-timeout=4")


def test_all_verdicts_are_recorded_in_order(faults: Ended) -> None:
    assert [(record.variant, record.verdict.value) for record in faults.records] == [
        ("prints", "passed"),
        ("not-compiled", "failed"),
        ("aborts", "failed"),
        ("after-abort", "passed"),
        ("hangs", "failed"),
        ("after-hang", "passed"),
        ("locked", "failed"),
        ("last", "passed"),
        ("last", "failed"),
    ]


def test_a_program_that_does_not_compile_fails_in_the_compilers_words(faults: Ended) -> None:
    reason = faults.record("not-compiled").reason
    assert "does not compile" in reason
    assert "no_such_target" in reason


def test_a_program_that_aborts_names_its_signal_and_stderr_tail(faults: Ended) -> None:
    reason = faults.record("aborts").reason
    assert "the process ended by SIGABRT" in reason
    assert "the last words" in reason


def test_a_program_that_hangs_is_given_up(faults: Ended) -> None:
    reason = faults.record("hangs").reason
    assert "takes too long (stage: build): no answer within 4 s" in reason


def test_a_workload_that_cannot_be_sent_fails_with_advice(faults: Ended) -> None:
    record = faults.record("locked")
    assert "cannot be sent to another process" in record.reason
    assert "lock" in record.reason
    assert record.advice


def test_a_claim_that_raises_names_its_own_line(faults: Ended) -> None:
    (line,) = [at for at, text in enumerate(FAULTS.splitlines(), 1) if "return 1 / 0" in text]
    reason = faults.record("last", "raises").reason
    assert f"test_faults.py:{line}: ZeroDivisionError" in reason


def test_none_of_them_is_called_a_fault_of_assay(faults: Ended) -> None:
    assert faults.exit_code == 1
    assert "Assay itself failed" not in faults.output
