"""``assay matrix``: its table, page and object, its exit codes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from assay.cli import app, main
from assay.model.blame import WrongValue
from assay.model.target import TargetError
from assay.toolchains.pairs import RerunError
from tests.toolchains.small_suite import AS_LISTED, RELEASES, FakeReleases, memory, write_suite


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_suite(tmp_path_factory.mktemp("project"))


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeReleases:
    found = FakeReleases(gives=AS_LISTED)
    found.install(monkeypatch)
    return found


def matrix(suite: Path, *options: str, release: str = ",".join(RELEASES)) -> Result:
    command = ["matrix", str(suite), "--release", release, "--target", "cpu", *options]
    return CliRunner().invoke(app, command, env={"COLUMNS": "120"})


def test_rows_that_differ_are_shown_and_the_others_counted(suite: Path) -> None:
    found = matrix(suite)
    assert found.exit_code == 0
    lines = [line.split() for line in found.stdout.splitlines()]
    assert ["program", "claim", *RELEASES] in lines
    assert ["small/loop/slow", "temp-bytes-at-most", "known-defect", "passed", "passed"] in lines
    assert "3 rows with one verdict on all releases: 3 passed; -v shows them" in found.stdout
    assert "small/loop/fast" not in found.stdout
    assert "1 check of jaxprs" in found.stdout
    assert "Nothing unexpected on 3 releases of jax (exit 0): 1 known defect, 11 passed." in (
        found.stdout
    )
    assert "9 of 9 programs measured" in found.stderr


def test_verbose_shows_every_row_and_known_defect(suite: Path) -> None:
    shown = matrix(suite, "-v").stdout
    assert "small/loop/fast" in shown
    assert "use variant 'fast'; closed upstream, still present" in shown
    assert "https://example.org/1" in shown


def test_a_wrong_range_fails_and_is_written_out(suite: Path, fake: FakeReleases) -> None:
    fake.gives = {("slow", "0.6.0"): {"memory": memory(0)}}
    found = matrix(suite)
    assert found.exit_code == 1
    words = " ".join(found.stdout.split())
    assert "holds on 0.4.0–0.5.0, passes on 0.6.0; listed for jaxlib <0.5" in words
    assert "write toolchain={'jaxlib': '<0.6.0'}" in words


def test_json_is_one_object_with_the_release_of_each_record(suite: Path) -> None:
    found = json.loads(matrix(suite, "--json").stdout)
    assert found["releases"] == list(RELEASES)
    assert (found["exit_code"], found["not_shown"]) == (0, {"runs": 1})
    assert len(found["records"]) == 12
    known = [each for each in found["records"] if each["verdict"] == "known-defect"]
    assert [(each["release"], each["variant"]) for each in known] == [("0.4.0", "slow")]
    assert {"suite", "workload", "claim", "target", "toolchain", "reason"} <= set(known[0])


def test_the_page_has_every_row_and_links_the_report(suite: Path, tmp_path: Path) -> None:
    page = tmp_path / "matrix.html"
    assert matrix(suite, "--html", str(page)).exit_code == 0
    text = page.read_text()
    assert '<a href="https://example.org/1">known-defect</a>' in text
    assert text.count("<tr>") == 2 + 4  # the heads of both tables, and four rows
    assert "<script" not in text
    assert "prefers-color-scheme: dark" in text


def test_patterns_select_and_controls_follow(suite: Path, fake: FakeReleases) -> None:
    assert matrix(suite, "--variant", "slow", "--claim", "temp-*").exit_code == 0
    assert {variant for variant, _ in fake.calls} == {"slow", "copied"}


@pytest.mark.parametrize(
    ("options", "release", "words"),
    [
        ((), "0.5.1", "got jax '0.5.1', wanted one of"),
        (("--variant", "quick"), "0.5.0", "got --variant 'quick', which matches none of copied, f"),
        (("--claim", "x*"), "0.5.0", "got --claim 'x*', which matches none of compiles"),
        (("-k", "nothing-of-it"), "0.5.0", "select no check"),
        (("--level", "fast"), "0.5.0", "got level 'fast', wanted one of quick"),
        (("--component", "torch_xla"), "0.5.0", "wanted one of jax, jaxlib, libtpu, plugin"),
        (("--claim", "runs"), "0.5.0", "a compiled program alone"),
        ((), ",", "got no --release, wanted one or more of each, such as"),
    ],
)
def test_misuse_says_what_is_accepted(
    suite: Path, options: tuple[str, ...], release: str, words: str
) -> None:
    found = matrix(suite, *options, release=release)
    assert isinstance(found.exception, WrongValue)
    assert words in str(found.exception)


def test_both_missing_options_are_named_with_an_example(suite: Path) -> None:
    found = CliRunner().invoke(app, ["matrix", str(suite)])
    words = "got no --release and no --target, wanted one or more of each, such as --release 0.8.0"
    assert words in str(found.exception)


def test_a_fault_of_a_probe_ends_with_exit_code_3(
    suite: Path,
    fake: FakeReleases,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake.gives = {("fast", "0.5.0"): RerunError("the probe failed: no such name")}
    command = ["assay", "matrix", str(suite), "--release", "0.5.0", "--target", "cpu"]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    assert "the probe failed: no such name" in capsys.readouterr().err


def test_an_unknown_target_or_suite_is_misuse(suite: Path) -> None:
    found = matrix(suite, "--target", "gpu-h1000")
    assert isinstance(found.exception, TargetError | WrongValue)
    assert "gpu-h100:8" in str(found.exception)
    found = matrix(suite.with_name("no_such_suite.py"))
    assert isinstance(found.exception, WrongValue)
    assert "no_such_suite.py" in str(found.exception)


def test_a_suite_that_cannot_be_imported_is_misuse_with_pytests_words(tmp_path: Path) -> None:
    broken = tmp_path / "test_broken.py"
    broken.write_text("import no_such_module_of_ours\n")
    found = matrix(broken)
    assert isinstance(found.exception, WrongValue)
    assert "No module named 'no_such_module_of_ours'" in str(found.exception)
