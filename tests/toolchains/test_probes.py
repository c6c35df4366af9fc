"""A probe measures what Assay measures, and says how each other program ended."""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import pytest

from assay.inspection import inspect
from assay.model.bisection import Bisection
from assay.model.evidence import FailureKind
from assay.targets import resolve
from assay.toolchains import probe, probes
from assay.toolchains.bisect import Question, find, subject_of
from assay.toolchains.environments import CannotMake, Environment
from assay.toolchains.metrics import METRICS, copied_bytes
from assay.toolchains.pairs import RerunError
from assay.toolchains.probes import Probed, Prober, Wanted
from assay.toolchains.releases import Release

SUBJECTS = Path(__file__).with_name("subjects.py")
EXHAUSTIVE = pytest.mark.exhaustive
RELEASE = Release(component="jax", version="0.0.1", platform="cpu")


@pytest.fixture(autouse=True)
def this_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every release is this environment, and the cache is empty."""
    here = Environment(folder=Path(sys.prefix), versions={})
    monkeypatch.setattr(Release, "environment", lambda *_: here)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def prober(
    function: str,
    target: str = "cpu",
    wanted: Wanted = Wanted.COMPILE,
    file: Path = SUBJECTS,
    timeout_seconds: float = 120.0,
) -> Prober:
    return Prober(
        subject=subject_of(f"{file}:{function}"),
        target=resolve(target),
        wanted=wanted,
        timeout_seconds=timeout_seconds,
    )


class Elsewhere(Executor):
    """Another machine: it has a cache of its own, and a copy of the folder in which it works."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch
        self.calls = 0

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        self.calls += 1
        future = Future[Any]()
        with self._monkeypatch.context() as there:
            there.chdir(self._folder)
            there.setenv("XDG_CACHE_HOME", str(self._folder / "cache"))
            future.set_result(function(*arguments, **named))
        return future


def test_a_probe_elsewhere_gives_the_same_and_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        shutil.copy(SUBJECTS, folder)
    monkeypatch.chdir(here)
    own = prober("in_place", file=here / SUBJECTS.name)
    elsewhere = Elsewhere(there, monkeypatch)
    found = replace(own, executor=elsewhere).probe(RELEASE)
    assert found.evidence.memory == own.probe(RELEASE).evidence.memory
    (here / SUBJECTS.name).unlink()  # What follows is read from the files that came back.
    assert elsewhere.calls == 1
    assert found.folder is not None
    assert found.folder.is_relative_to(tmp_path / "assay")
    assert found.module


def test_an_environment_that_is_missing_elsewhere_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Environment:
        raise CannotMake("uv is not there", "install it")

    monkeypatch.setattr(Release, "environment", refuse)
    elsewhere = Elsewhere(tmp_path, monkeypatch)
    found = replace(prober("in_place"), executor=elsewhere).probe(RELEASE)
    assert found.evidence.unavailable is not None
    assert found.evidence.unavailable.reason == "uv is not there"


def number(metric: str, probed: Probed) -> float | None:
    return METRICS[metric].of_release(probed, lambda: probed).number


@pytest.mark.parametrize(
    "target",
    ["cpu", *(pytest.param(each, marks=EXHAUSTIVE) for each in ("gpu-h100", "tpu-v5e:2x2"))],
)
def test_an_update_in_place_copies_nothing_and_its_control_does(target: str) -> None:
    row, stack = 4096 * 4, 15 * 4096 * 4
    metric = replace(METRICS["loop_copies"], of=partial(copied_bytes, row))
    in_place, control = (
        metric.of_release(prober(each, target).probe(RELEASE), pytest.fail).number
        for each in ("in_place", "keeps_the_old")
    )
    assert in_place == 0
    assert control is not None
    assert control >= stack


@EXHAUSTIVE
@pytest.mark.parametrize("target", ["cpu:8", "gpu-h100:8", "tpu-v5e:2x4"])
def test_a_step_on_a_mesh_has_the_numbers_that_inspect_prints(target: str) -> None:
    probed = prober("on_a_mesh", target).probe(RELEASE)
    (inspected,) = inspect(f"{SUBJECTS}:on_a_mesh", [target])
    assert inspected.evidence.failure is None
    assert inspected.evidence.memory is not None
    assert number("device_bytes", probed) == inspected.evidence.memory.device_bytes


def test_rubbish_on_standard_output_changes_nothing() -> None:
    clean, loud = (prober(each).probe(RELEASE) for each in ("update_row", "prints_rubbish"))
    assert loud.evidence.failure is None
    assert number("temp_bytes", loud) == number("temp_bytes", clean)


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        ("crashes", FailureKind.CRASH, "SIGABRT; stderr tail: the last words"),
        ("fails", FailureKind.TRACE, "ValueError: the shapes do not fit"),
        ("no_such_function", FailureKind.BUILD, "no_such_function"),
    ],
)
def test_a_program_that_fails_has_no_number_but_is_an_error(
    function: str, kind: FailureKind, words: str
) -> None:
    probed = prober(function).probe(RELEASE)
    assert probed.evidence.failure is not None
    assert probed.evidence.failure.kind is kind
    assert words in METRICS["temp_bytes"].of_release(probed, lambda: probed).why
    assert number("temp_bytes", probed) is None
    assert number("error", probed) == 1
    assert number("error", prober("in_place").probe(RELEASE)) == 0


def test_a_program_that_hangs_is_ended_and_not_cached(tmp_path: Path) -> None:
    probed = prober("hangs", timeout_seconds=3.0).probe(RELEASE)
    assert probed.evidence.failure is not None
    assert probed.evidence.failure.kind is FailureKind.TIMEOUT
    assert not list((tmp_path / "assay/probes").iterdir())


def test_a_fault_of_the_probe_is_never_the_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "probe.py"
    script.write_text(
        probes.SCRIPT.read_text().replace("return read(result", "return broken(result")
    )
    monkeypatch.setattr(probes, "SCRIPT", script)
    with pytest.raises(RerunError, match="name 'broken' is not defined"):
        prober("in_place").probe(RELEASE)
    script.write_text("import no_such_module_of_ours\n")
    with pytest.raises(RerunError, match="no_such_module_of_ours"):
        prober("in_place").probe(RELEASE)


@pytest.mark.parametrize("metric", ["host_bytes", "transfers"])
def test_a_target_with_one_memory_has_no_host_numbers(metric: str) -> None:
    probed = prober("in_place").probe(RELEASE)
    point = METRICS[metric].of_release(probed, lambda: probed)
    assert point.number is None
    assert "no placement in host memory" in point.why


@EXHAUSTIVE
@pytest.mark.parametrize("target", ["gpu-h100", "tpu-v5e:2x2"])
def test_a_target_with_host_memory_has_host_numbers(target: str) -> None:
    probed = prober("in_place", target).probe(RELEASE)
    assert number("host_bytes", probed) == 0
    assert number("transfers", probed) == 0


def test_a_missing_package_is_unsupported_and_names_the_option() -> None:
    missing = prober("needs_a_package").probe(RELEASE).evidence.unavailable
    assert missing is not None
    assert missing.remedy == "add --with no_such_package_of_ours"


def test_compile_only_devices_without_memory_are_unsupported() -> None:
    missing = prober("has_no_memory").probe(RELEASE).evidence.unavailable
    assert missing is not None
    assert missing.reason.startswith("ValueError: Could not find memory addressable by device")


def test_a_result_is_reused_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(SUBJECTS.read_text())
    first = prober("in_place", file=file).probe(RELEASE)
    monkeypatch.setattr(Prober, "_run", lambda *_: pytest.fail("measured again"))
    again = prober("in_place", file=file).probe(RELEASE).evidence
    assert again == replace(first.evidence, cached=True)
    file.write_text(SUBJECTS.read_text() + "# changed\n")
    with pytest.raises(pytest.fail.Exception, match="measured again"):
        prober("in_place", file=file).probe(RELEASE)


LEDGER = """
from assay import KnownDefect, Measures, Upstream, UpstreamState

ROWS = 15
DEFECT = KnownDefect(
    variants=("row",),
    expects={"temp-bytes-at-most": Measures(least=1)},
    targets=("*",),
    reason="it copies",
    upstream=Upstream(link="https://example.org/1", state=UpstreamState.OPEN),
    last_seen="2026-11-25",
)
"""
SUITE = """
import jax
from assay import Program, Role, Variant, Workload
from mini.ledger import DEFECT{also}
from mini.rows import update


def program(devices):
    return Program(function=update, arguments=(jax.ShapeDtypeStruct(({rows}, 8), "float32"),))


ROWS = Workload(
    suite="mini",
    name="rows",
    variants=(Variant(name="row", role=Role.DEFECT, program=program),),
    known_defects=(DEFECT,),
)
"""
PROGRAM = """
def update(x):
    return x.at[0].set(1)
"""


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite of one program and a ledger, in the current folder."""
    folder = tmp_path / "mini"
    folder.mkdir()
    for name, text in (
        ("__init__", ""),
        ("ledger", LEDGER),
        ("rows", PROGRAM),
        ("workloads", SUITE.format(also="", rows=15)),
    ):
        (folder / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    return folder


def probe_mini() -> Probed:
    subject = subject_of("mini.workloads:rows/row")
    return replace(prober("in_place"), subject=subject).probe(RELEASE)


def no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prober, "_run", lambda *_: pytest.fail("measured again"))


def test_a_change_of_the_program_is_measured_and_of_the_ledger_is_not(
    mini: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = probe_mini()
    assert first.evidence.failure is None
    no_more(monkeypatch)
    (mini / "ledger.py").write_text(LEDGER.replace("it copies", "it copies twice"))
    assert probe_mini().evidence == replace(first.evidence, cached=True)
    for module in ("rows", "workloads"):
        file = mini / f"{module}.py"
        before = file.read_text()
        file.write_text(before + "\nLIMIT = 1\n")
        with pytest.raises(pytest.fail.Exception, match="measured again"):
            probe_mini()
        file.write_text(before)
    assert probe_mini().evidence.cached


def test_a_ledger_that_gives_a_program_its_size_is_measured_again(
    mini: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mini / "workloads.py").write_text(SUITE.format(also=", ROWS as MOST", rows="MOST"))
    assert probe_mini().evidence.failure is None
    no_more(monkeypatch)
    (mini / "ledger.py").write_text(LEDGER.replace("ROWS = 15", "ROWS = 16"))
    with pytest.raises(pytest.fail.Exception, match="measured again"):
        probe_mini()


@pytest.mark.parametrize(
    ("importer", "is_ledger"),
    [
        ("from a.ledger import D\nw = W(known_defects=(D,), upstream_issue=D)", True),
        ("from a.ledger import D as E\nw = W(known_defects=E)", True),
        ("from a.ledger import D\nw = W(known_defects=D)\nn = len(D)", False),
        ("from a.ledger import D\nw = W(variants=D)", False),
        ("from a.ledger import *\nw = W(known_defects=D)", False),
        ("from a import ledger\nw = W(known_defects=ledger.D)", False),
        ("import a.ledger\nw = W(known_defects=a.ledger.D)", False),
        ("def f():\n    from a.ledger import N\n    return N", False),
        ("import importlib\nd = importlib.import_module('a.ledger').D", False),
    ],
)
def test_a_ledger_is_a_module_that_is_used_as_nothing_else(
    tmp_path: Path, importer: str, *, is_ledger: bool
) -> None:
    file, ledger = tmp_path / "importer.py", tmp_path / "ledger.py"
    file.write_text(importer)
    assert probes.is_ledger(str(ledger), [str(file)]) is is_ledger


def test_a_run_counts_compilations_and_compares_outputs() -> None:
    one, other = (
        prober(each, wanted=Wanted.RUN).probe(RELEASE) for each in ("in_place", "keeps_the_old")
    )
    assert number("compiles", one) == 1
    assert number("value", one) == 0
    assert METRICS["value"].of_release(other, lambda: one).number != 0


def test_shapes_of_arguments_are_compiled_as_they_are() -> None:
    weak = jax.ShapeDtypeStruct((4,), "float32", weak_type=True)
    assert probe.placed((weak,), None)[0].weak_type


def timed(function: str, timing_seconds: float) -> Bisection:
    question = Question(
        subject=subject_of(f"{SUBJECTS}:{function}"),
        target=resolve("cpu"),
        metric="time",
        good="0.1.0",
        bad="0.2.0",
        timing_seconds=timing_seconds,
    )
    return find(question, lambda *_: None).bisection


@EXHAUSTIVE
def test_times_of_one_program_under_one_toolchain_do_not_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("assay.toolchains.bisect.versions", lambda *_: ("0.1.0", "0.2.0"))
    for point in timed("in_place", 20.0).points:
        assert point.why.startswith("too noisy") or 0.5 < (point.number or 0) < 2
    assert "the shapes do not fit" in timed("fails", 5.0).reason


class Refused:
    """A lowered program that jax refuses once the compiler is done, as jax 0.8.3 for a GPU."""

    def __init__(self, dump: Path | None) -> None:
        self.dump = dump

    def compile(self, compiler_options: object = None) -> None:
        if self.dump is not None:
            self.dump.mkdir(exist_ok=True)
            (self.dump / "m.gpu_after_optimizations.hlo.pb").write_bytes(b"module")
        raise ValueError("Could not find memory addressable by device NVIDIA H100.")


def test_what_the_compiler_made_counts_if_jax_then_misses_memories(tmp_path: Path) -> None:
    request = {"options": {}, "folder": str(tmp_path)}
    result = probe.with_options(Refused(tmp_path / "dump"), request)
    assert probe.read(result, tmp_path) == {"memory": None, "has_buffers": True}
    assert (tmp_path / "module.hlo.pb").read_bytes() == b"module"


def test_a_refusal_before_the_compiler_is_raised(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="memory addressable"):
        probe.with_options(Refused(None), {"options": {}, "folder": str(tmp_path)})
