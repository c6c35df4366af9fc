"""Whose fault it is: the program's, the check's or Assay's, with the line of the user's code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.project import PREAMBLE, Ended, Project

FAULTS = (
    PREAMBLE
    + """
from assay import Formula, Quantity, Upstream, exactly

V = jnp.ones(8)

def nothing(devices):
    Program(function=lambda x: x * 2, arguments=(X,))

def no_tuple(devices):
    return Program(function=lambda x: x * 2, arguments=X)

def loses_names(x):
    return x.no_such_attribute

def does_not_trace(devices):
    return Program(function=loses_names, arguments=(X,))

def differentiated(devices):
    return Program(function=lambda x: x * 2, arguments=(X,), differentiated=loses_names)

def runs(values, observe):
    def program(devices):
        return Program(function=lambda x: x * 2, arguments=(X,), values=values, observe=observe)
    return program

def fails():
    raise KeyError("no data today")

def one():
    return (jnp.ones(8),)

def dies(x):
    jax.debug.callback(lambda: os.abort())
    return x

def odd_name(devices):
    raise ValueError("\\udcff is no text")

LOCK = threading.Lock()

def locked(lock):
    return lambda devices: lock and double(devices)

W = workload(
    variant("returns-nothing", nothing),
    variant("no-tuple", no_tuple),
    variant("does-not-trace", does_not_trace),
    variant("differentiated", differentiated),
    variant("values-raise", runs(fails, lambda x: x)),
    variant("values-no-tuple", runs(lambda: jnp.ones(8), lambda x: x)),
    variant("observe-raises", runs(one, lambda x: x.no_such_attribute)),
    variant("dies-running", runs(one, dies)),
    variant("odd-name", odd_name),
    variant("locked", locked(LOCK)),
    variant("sound", runs(one, lambda x: x)),
)
KNOWN = KnownDefect(
    variants=("*",), expects={"parameters": exactly(1)}, targets=("*",),
    reason="one is dropped", upstream=Upstream(link="https://example.org/1"),
    last_seen="2026-11-23",
)
K = workload(
    variant("as-known", double),
    variant("raises", does_not_trace),
    variant("killed", lambda devices: os.kill(os.getpid(), 9)),
    name="known", known_defects=(KNOWN,),
)
test_known = Check(
    claim=claims.Parameters(equal=Formula("two", lambda case: Quantity(2, Unit.COUNT))),
    workloads=(K,),
)
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))
test_runs = Check(
    claim=claims.Runs(), workloads=(W,),
    variants=("values-*", "observe-raises", "dies-running", "sound"),
)
test_temp = Check(
    claim=claims.TempBytesAtMost(limit=Formula("raises", lambda case: 1 // 0)),
    workloads=(W,), variants=("sound", "dies-running"),
)
test_memory = Check(
    claim=claims.TempBytesAtMost(
        limit=Formula("a MiB", lambda case: Quantity(2**20, Unit.BYTES)), name="memory"
    ),
    workloads=(W,), variants=("dies-running",),
)
test_diff = Check(
    claim=claims.TempBytesAtMost(
        limit=Formula(
            "less than nothing", lambda case: Quantity(-1, Unit.BYTES),
            lambda variant: ("values-raise",)
        ),
        name="diff",
    ),
    workloads=(W,), variants=("sound",),
)
test_number = Check(
    claim=claims.TempBytesAtMost(limit=Formula("a number", lambda case: 512), name="number"),
    workloads=(W,), variants=("sound",),
)
"""
)
SABOTAGE = """
import sys
if "assay.isolate" in sys.orig_argv:
    import assay.observe
    def read(*parts, platform):
        return parts.no_such_attribute
    assay.observe.read = read
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("blame"), {"test_blame.py": FAULTS})


@pytest.fixture(scope="module")
def ended(project: Project) -> Ended:
    return project.pytest()


def _line(text: str) -> str:
    (line,) = [number for number, words in enumerate(FAULTS.splitlines(), 1) if text in words]
    return f"test_blame.py:{line}"


@pytest.mark.parametrize(
    ("variant", "verdict"),
    [("as-known", "known-defect"), ("raises", "failed"), ("killed", "failed")],
)
def test_a_known_defect_absorbs_nothing_but_what_it_expects(
    ended: Ended, variant: str, verdict: str
) -> None:
    assert ended.record(variant, "parameters").verdict.value == verdict


def test_bytes_that_regressed_name_the_command_that_compares_both(
    project: Project, ended: Ended
) -> None:
    advice = ended.record("sound", "diff").advice
    command = advice.partition("compare the two programs: assay ")[2].split()
    page = project.assay(*command)
    assert page.exit_code == 0, page.output
    assert "DIFFERENCES" in page.output
    assert not list(project.newest().glob("evidence/*.hlo.pb.gz"))
    assert len(list(project.newest().glob("hlo/*.hlo.pb.gz"))) == 2


def test_no_fault_of_the_user_is_called_one_of_assay(ended: Ended) -> None:
    assert ended.exit_code == 1, ended.output
    assert "fault of Assay" not in ended.output
    verdicts = {record.verdict.value for record in ended.records}
    assert verdicts == {"passed", "failed", "known-defect"}


@pytest.mark.parametrize(
    ("variant", "line", "words"),
    [
        ("returns-nothing", "def nothing", "cannot be built: {line}: got NoneType from program("),
        ("no-tuple", "arguments=X)", "cannot be built: {line}: got ShapeDtypeStruct for Program("),
        ("does-not-trace", "return x.no_such", "does not trace: {line}: AttributeError: "),
        ("differentiated", "return x.no_such", "does not trace: {line}: AttributeError: "),
        ("odd-name", "is no text", "cannot be built: {line}: ValueError: \\udcff is no text"),
    ],
)
def test_a_fault_of_the_program_names_its_line(
    ended: Ended, variant: str, line: str, words: str
) -> None:
    record = ended.record(variant)
    assert record.verdict.value == "failed"
    assert words.format(line=_line(line)) in record.reason


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ("values-raise", "does not run: {line}: KeyError: 'no data today'"),
        ("values-no-tuple", "does not run: {line}: got ArrayImpl from Program.values(), wanted"),
        ("observe-raises", "does not run: {line}: AttributeError: "),
        ("dies-running", "crashes its process (stage: execution): the process ended by SIGABRT"),
    ],
)
def test_a_program_that_does_not_run_compiles(ended: Ended, variant: str, words: str) -> None:
    lines = {
        "values-raise": "no data today",
        "values-no-tuple": 'variant("values-no-tuple"',
        "observe-raises": 'variant("observe-raises"',
        "dies-running": "def dies",
    }
    record = ended.record(variant, "runs")
    assert ended.record(variant).verdict.value == "passed"
    assert (record.verdict.value, record.measured, record.limit) == ("failed", 1, 0)
    assert words.format(line=_line(lines[variant])) in record.reason
    assert ended.record("sound", "runs").verdict.value == "passed"


def test_what_was_seen_before_a_crash_is_kept(ended: Ended) -> None:
    assert ended.record("dies-running", "temp-bytes-at-most").verdict.value == "failed"
    assert ended.record("dies-running", "memory").verdict.value == "passed"


def test_a_program_that_cannot_be_sent_fails(ended: Ended) -> None:
    assert ended.record("locked").verdict.value == "failed"
    assert "cannot be sent to another process" in ended.record("locked").reason


@pytest.mark.parametrize("claim", ["temp-bytes-at-most", "number"])
def test_a_formula_that_fails_names_its_line(ended: Ended, claim: str) -> None:
    record = ended.record("sound", claim)
    line = _line('Formula("raises"') if claim == "temp-bytes-at-most" else _line('"a number"')
    assert record.verdict.value == "failed"
    assert line in record.reason
    assert "the check's own code failed" in record.reason


def test_a_fault_of_assays_reader_is_an_error_on_every_program(tmp_path: Path) -> None:
    files = {
        "sabotage/sitecustomize.py": SABOTAGE,
        "test_small.py": PREAMBLE
        + 'W = workload(variant("double", double))\n'
        + "test_memory = Check(claim=claims.BaselineTempBytes(), workloads=(W,))\n"
        + "test_compiles = Check(claim=claims.Compiles(), workloads=(W,))\n",
    }
    project = Project(tmp_path, files)
    ended = project.pytest(path=tmp_path / "sabotage")
    assert ended.exit_code == 3, ended.output
    assert {record.verdict.value for record in ended.records} == {"error"}
    assert "no_such_attribute" in ended.records[0].reason
    assert "Nothing regressed" not in ended.output


WITHOUT_VALUES = (
    PREAMBLE
    + """
W = workload(variant("plain", double), variant("again", double, reference="plain"))
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))
test_values = Check(claim=claims.ValuesEqual(), workloads=(W,), variants=("again",))
"""
)


def test_a_value_claim_on_a_program_without_values_fails_where_programs_run(
    tmp_path: Path,
) -> None:
    """A target that runs nothing cannot judge any value: there it is unsupported."""
    project = Project(tmp_path, {"test_values.py": WITHOUT_VALUES})
    ended = project.pytest(target="cpu:8,gpu-h100")
    assert ended.exit_code == 1, ended.output
    found = {one.target: one for one in ended.records if one.claim == "values-equal"}
    assert {target: one.verdict.value for target, one in found.items()} == {
        "cpu:8": "failed",
        "gpu-h100": "unsupported",
    }
    assert "the program of 'again' gives no values to run it on" in found["cpu:8"].reason
    assert "write Program(values=…, observe=…)" in " ".join(ended.output.split())
