"""``assay bisect``: its answer, its exit codes, and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from assay.cli import app
from assay.model.bisection import Bisection, Point, Step
from assay.model.evidence import Evidence, Failure, FailureKind, Memory, Toolchain
from assay.model.units import Unit
from assay.report.regression import issue, point_line
from assay.toolchains.environments import Environment
from assay.toolchains.metrics import METRICS
from assay.toolchains.probes import Probed, Prober
from assay.toolchains.releases import COMPONENTS, Release
from tests.toolchains.small_suite import STACK_BYTES, SUITE, write_suite

VERSIONS = tuple(f"0.{minor}.0" for minor in range(1, 9))
FILE = Path(__file__).parents[1] / "toolchains" / "subjects.py"


def memory(temp_bytes: int) -> Memory:
    return Memory(
        temp_bytes=temp_bytes, argument_bytes=0, output_bytes=0, alias_bytes=0, host_temp_bytes=0
    )


def evidence(**found: Any) -> Evidence:
    return Evidence(
        workload="f",
        variant="f",
        target="cpu",
        toolchain=Toolchain(versions={"jax": "0"}),
        separate_host_memory=False,
        **found,
    )


@pytest.fixture(autouse=True)
def releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight releases: temporaries grow at 0.5.0, and 0.8.0 does not compile."""

    def probe(_: Prober, release: Release) -> Probed:
        minor = int(release.version.split(".")[1])
        if minor == 8:
            failure = Failure(kind=FailureKind.COMPILER, message="INTERNAL: no\nluck")
            return Probed(release=release, evidence=evidence(failure=failure))
        temp_bytes = memory(2**20 if minor >= 5 else 2**10)
        return Probed(release=release, evidence=evidence(memory=temp_bytes))

    def versions(_: str, first: str, last: str) -> tuple[str, ...]:
        return VERSIONS[VERSIONS.index(first) : VERSIONS.index(last) + 1]

    here = Environment(folder=Path(sys.prefix), versions={"jax": "0.1.0", "jaxlib": "0.1.0"})
    monkeypatch.setattr("assay.toolchains.bisect.versions", versions)
    monkeypatch.setattr(Prober, "probe", probe)
    monkeypatch.setattr(Release, "environment", lambda *_: here)


def bisect(good: str, bad: str, *options: str) -> Result:
    command = ["bisect", f"{FILE}:in_place", "--good", good, "--bad", bad, *options]
    return CliRunner().invoke(app, command)


def test_the_release_that_changed_the_number_is_named() -> None:
    found = bisect("0.1.0", "0.7.0")
    assert found.exit_code == 1
    assert "jax 0.5.0 changed it, 1.0 KiB → 1.0 MiB" in found.stdout
    assert "0.5.0: 1,048,576" in found.stderr


def test_json_holds_every_point() -> None:
    found = json.loads(bisect("0.7.0", "0.1.0", "--json", "--scan").stdout)
    assert [point["version"] for point in found["points"]] == list(VERSIONS[:7])
    assert found["steps"][0]["after"] == {"version": "0.5.0", "number": 2**20, "why": ""}


def test_no_change_is_no_regression() -> None:
    found = bisect("0.1.0", "0.4.0")
    assert found.exit_code == 0
    assert "No change" in found.stdout


def test_an_end_that_does_not_compile_is_misuse_unless_errors_count() -> None:
    found = bisect("0.1.0", "0.8.0")
    assert found.exit_code == 2
    assert "0.8.0 gives no number: does not compile: INTERNAL: no luck" in " ".join(
        found.stdout.split()
    )
    counted = bisect("0.1.0", "0.8.0", "--metric", "error")
    assert counted.exit_code == 1
    assert "jax 0.8.0 changed it, 0 → 1" in counted.stdout


def test_a_bundle_holds_what_upstream_needs(tmp_path: Path) -> None:
    found = bisect("0.1.0", "0.7.0", "--bundle", str(tmp_path / "bundle"))
    assert found.exit_code == 1
    names = {path.name for path in (tmp_path / "bundle").iterdir()}
    requirements = {"requirements-good.txt", "requirements-bad.txt"}
    assert {"repro.py", "issue.md", "good.txt", "bad.txt"} | requirements <= names
    assert "temp_size_in_bytes" in (tmp_path / "bundle" / "bad.txt").read_text()
    program = (tmp_path / "bundle" / "repro.py").read_text()
    _header, _, code = program.partition("\n\n")
    assert "assay" not in code.lower()
    assert program.index("os.environ['JAX_PLATFORMS'] = 'cpu'") < program.index("import jax")
    text = (tmp_path / "bundle" / "issue.md").read_text()
    assert text.startswith("# temp_bytes changed between jax 0.4.0 and 0.5.0\n")
    assert "jax-ml/jax/issues/new?template=bug-report.yml" in text
    form = (
        "### Description",
        "### System info (python version, jaxlib version, accelerator, etc.)",
    )
    assert [line for line in text.splitlines() if line.startswith("### ")] == list(form)
    assert "def in_place" not in text.partition("```python")[0]
    assert "in_place = jax.jit(update_row" in text.partition("```python")[2]
    assert text.count("(generated_code_size_in_bytes") == 2, "what repro.py prints on both sides"
    assert text.count("jaxlib: ") == 2, "the system of both sides"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--metric", "speed"), "got metric 'speed', wanted one of temp_bytes"),
        (("--component", "xla"), "got component 'xla', wanted one of jax"),
        (("--metric", "time", "--target", "gpu-h100"), "which runs nothing, wanted a live target"),
        (("--threshold", "much"), "got 'much', wanted a size in bytes"),
        (("--target", "gpu-h1000"), "write gpu-h100:8"),
        (("--good", "latest"), "'latest', wanted released versions"),
        (("--attribute", "--component", "jaxlib"), "wanted --component jax"),
    ],
)
def test_misuse_says_what_is_accepted(options: tuple[str, ...], words: str) -> None:
    found = bisect("0.1.0", "0.7.0", *options)
    assert isinstance(found.exception, ValueError)
    assert words in str(found.exception)


def test_help_names_every_metric_and_component() -> None:
    shown = CliRunner().invoke(app, ["bisect", "--help"], env={"TERMINAL_WIDTH": "300"}).stdout
    assert f"One of {', '.join(METRICS)}." in shown
    assert f"What varies: {', '.join(COMPONENTS)}." in shown


def test_a_page_holds_the_answer_the_plot_and_both_programs(tmp_path: Path) -> None:
    file = tmp_path / "new" / "page.html"
    found = bisect("0.1.0", "0.7.0", "--html", str(file))
    assert found.exit_code == 1
    assert f"written: {file}" in found.stderr
    page = file.read_text()
    assert "<h1>jax 0.5.0 changed it, 1.0 KiB → 1.0 MiB" in page
    assert page.count('<svg class="assay-plot"') == 1
    for version in VERSIONS[:7]:
        assert f"<td>{version}</td>" in page
    assert "not measured" in page
    assert f"{FILE}:in_place with jax 0.4.0" in page
    assert page.count("<strong>MEMORY</strong>") == 2
    assert "# temp_bytes changed between jax 0.4.0 and 0.5.0" in page


def test_a_page_without_a_step_says_so(tmp_path: Path) -> None:
    assert bisect("0.1.0", "0.4.0", "--html", str(tmp_path / "page.html")).exit_code == 0
    page = (tmp_path / "page.html").read_text()
    assert "<h1>No change" in page
    assert "Both programs" not in page
    assert "upstream" not in page


def test_a_report_on_torch_xla_has_the_form_of_its_project() -> None:
    found = json.loads(bisect("0.1.0", "0.7.0", "--json").stdout)
    points = tuple(Point(**each) for each in found["points"])
    step = Step(before=points[1], after=points[2])
    names = ("subject", "target", "metric", "good", "bad")
    bisection = Bisection(
        **{name: found[name] for name in names},
        component="torch_xla",
        unit=Unit.BYTES,
        versions=tuple(found["versions"]),
        points=points,
        steps=(step,),
    )
    text = issue(bisection, ["a new copy"])
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## 🐛 Bug",
        "## To Reproduce",
        "## Environment",
    ]
    assert "pytorch/xla/issues/new" in text
    assert "- a new copy" in text


def bundle_of_a_suite(folder: Path, monkeypatch: pytest.MonkeyPatch, suite: str) -> Result:
    write_suite(folder).write_text(suite)
    monkeypatch.chdir(folder)
    command = ["bisect", "test_small:loop/slow", "--good", "0.1.0", "--bad", "0.7.0"]
    return CliRunner().invoke(app, [*command, "--bundle", str(folder / "bundle")])


def test_the_program_of_a_suite_is_extracted_and_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = bundle_of_a_suite(tmp_path, monkeypatch, SUITE)
    assert found.exit_code == 1
    assert "no repro.py" not in found.stderr
    program = (tmp_path / "bundle" / "repro.py").read_text()
    _header, _, code = program.partition("\n\n")
    assert "assay" not in code.lower()
    assert "def keeps_the_old(" in program
    assert "def in_place(" not in program, "it is another variant's"
    alone = subprocess.run(
        [sys.executable, str(tmp_path / "bundle" / "repro.py")],
        env={},
        cwd="/",
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for side in ("good", "bad"):
        said = (tmp_path / "bundle" / f"{side}.txt").read_text()
        assert said == alone
        temporaries = re.search(r", temp_size_in_bytes=(\d+)", said)
        assert temporaries is not None
        assert int(temporaries[1]) >= STACK_BYTES, "the stack that it keeps"
    assert "def keeps_the_old(" in (tmp_path / "bundle" / "issue.md").read_text()


def test_a_program_that_cannot_be_extracted_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = "import threading\nlock = threading.Lock()\n" + SUITE.replace(
        "lambda _devices: program", "partial(held, program, lock)"
    ).replace("STACK =", "from functools import partial\ndef held(p, _l, _d): return p\nSTACK =")
    found = bundle_of_a_suite(tmp_path, monkeypatch, held)
    assert found.exit_code == 1
    assert "no repro.py" in found.stderr
    assert "because it holds a value of lock" in " ".join(found.stderr.split())
    assert not (tmp_path / "bundle" / "repro.py").exists()
    assert "a variant of a test suite" in (tmp_path / "bundle" / "issue.md").read_text()


def test_the_package_that_made_the_step_is_in_each_report(tmp_path: Path) -> None:
    options = ("--attribute", "--json", "--html", str(tmp_path / "page.html"))
    found = json.loads(bisect("0.1.0", "0.7.0", *options).stdout)
    assert found["attribution"] == {"packages": ["jax"], "trials": []}
    words = "Made by jax: all other packages are the same."
    assert words in bisect("0.1.0", "0.7.0", "--attribute").stdout
    assert (tmp_path / "page.html").read_text().count(words) == 2, "the answer and the issue text"
    assert json.loads(bisect("0.1.0", "0.7.0", "--json").stdout)["attribution"] is None


@pytest.mark.parametrize(
    ("number", "shown"),
    [(2949120, "2,949,120"), (2949120.0, "2,949,120"), (0.00195, "0.00195"), (238.21, "238.2")],
)
def test_a_measured_release_is_one_line(number: float, shown: str) -> None:
    assert point_line(Point(version="0.9.2", number=number), None) == f"0.9.2: {shown}"
    assert point_line(Point(version="0.9.2", why="no\nwheel"), None) == "0.9.2: no wheel"
