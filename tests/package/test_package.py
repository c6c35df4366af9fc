"""The packages as they are published: what they hold, their version, and the suites of a wheel."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from assay.store.files import digest_of
from assay.toolchains.bisect import subject_of
from tests.plugin.project import Project

ROOT = Path(__file__).parents[2]
SHIPPED = "assay/shipped/"


def hatchling(folder: Path, *arguments: str) -> str:
    """Run the build backend in a folder, with what is installed here."""
    command = [sys.executable, "-m", "hatchling", *arguments]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    hatchling(ROOT, "build", "-t", "wheel", "-d", str(folder))
    (found,) = folder.glob("assay_xla-*.whl")
    return zipfile.ZipFile(found)


@pytest.fixture(scope="module")
def unpacked(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content, and nothing else of the repository."""
    folder = tmp_path_factory.mktemp("unpacked")
    wheel.extractall(folder)
    return folder


def test_the_wheel_holds_every_suite_and_baseline(wheel: zipfile.ZipFile) -> None:
    source = {
        path.relative_to(ROOT).as_posix(): path.read_bytes()
        for folder in ("suites", "baselines")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = {
        name.removeprefix(SHIPPED): wheel.read(name)
        for name in wheel.namelist()
        if name.startswith(SHIPPED)
    }
    assert held == source


def test_a_wheel_has_the_digest_of_its_source(unpacked: Path) -> None:
    assert digest_of(unpacked / "assay") == digest_of(ROOT / "assay")
    (unpacked / "assay/another.py").touch()
    other = digest_of(unpacked / "assay")
    (unpacked / "assay/another.py").unlink()
    assert other != digest_of(ROOT / "assay")


def test_the_wheel_holds_one_package_and_no_tests(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert len(tops) == 2
    assert "assay" in tops
    assert not [name for name in wheel.namelist() if name.startswith("assay/tests")]


def test_an_index_takes_every_requirement(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    wanted = message_from_bytes(wheel.read(name)).get_all("Requires-Dist", [])
    assert any(each.startswith("memsafe>=") for each in wanted)
    assert not [each for each in wanted if "@" in each]


def version(folder: Path, *, commits: int, tag: str = "", distribution: str = ".") -> str:
    """The version of a distribution, where the repository has so many commits, and then the tag."""
    parts = ("pyproject.toml", "README.md", "LICENSE")
    for name in (f"{place}{part}" for place in ("", "memsafe/") for part in parts):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    person = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    steps = [("commit", "-q", "--allow-empty", "-m", "x")] * commits
    steps = [("init", "-q"), ("add", "."), *steps] if commits else []
    for step in [*steps, *([("tag", tag)] if tag else [])]:
        subprocess.run(["git", *person, *step], cwd=folder, check=True)
    return hatchling(folder / distribution, "metadata", "version")


@pytest.mark.parametrize("distribution", [".", "memsafe"])
@pytest.mark.parametrize(
    ("commits", "tag", "wanted"),
    [
        (0, "", "0.1.dev0"),
        (3, "", "0.1.dev3"),
        (2, "v0.1.0", "0.1.0"),
        (2, "v1.2.3rc1", "1.2.3rc1"),
    ],
)
def test_the_version_is_that_of_the_tag(
    tmp_path: Path, distribution: str, commits: int, tag: str, wanted: str
) -> None:
    assert version(tmp_path, commits=commits, tag=tag, distribution=distribution) == wanted


def test_a_shallow_clone_has_a_version(tmp_path: Path) -> None:
    version(tmp_path / "whole", commits=3)
    clone = ["git", "clone", "-q", "--depth", "1", f"file://{tmp_path / 'whole'}", "shallow"]
    subprocess.run(clone, cwd=tmp_path, check=True)
    assert hatchling(tmp_path / "shallow", "metadata", "version").startswith("0.1.dev")


@pytest.mark.exhaustive
def test_a_wheel_runs_its_suites_whatever_is_around_it(tmp_path: Path, unpacked: Path) -> None:
    project = Project(tmp_path, {"pytest.ini": "[pytest]\naddopts = --no-such-option\n"})
    (tmp_path / "venv").symlink_to(unpacked)
    before = {path for path in unpacked.rglob("*") if path.suffix != ".pyc"}
    words = ("run", "dus_remat", "--", "--assay-target", "cpu:8", "-k", "plain and donated")
    ended = project.assay(*words, path=tmp_path / "venv")
    assert ended.exit_code == 0, ended.output
    assert {record.suite for record in ended.records} == {"dus_remat"}
    assert all(not record.verdict.fails for record in ended.records)
    assert {name.partition("/")[0] for name in ended.changed} == {"results"}
    after = {path for path in unpacked.rglob("*") if path.suffix != ".pyc"}
    assert [path for path in after - before if path.name != "__pycache__"] == []
    (invocation,) = tmp_path.glob("results/2*/invocation.json")
    assert json.loads(invocation.read_text())["command"] == ["assay", "run", "dus_remat", "--"]
    again = project.assay(*words, "--assay-resume=results/latest", path=tmp_path / "venv")
    assert again.exit_code == 0, again.output
    assert "resumed: kept" in again.output


RULE = """
schema = 1
[[feature]]
id = "mine.compiles"
name = "Compiles"
promise = "It compiles."
suite = "dus_remat"
elsewhere = "nowhere else"
[[feature.requirements]]
level = 1
targets = ["cpu*"]
workloads = ["stack-executed"]
variants = ["plain"]
claims.compiles = ["negative-does-not-trace"]
"""


@pytest.mark.exhaustive
def test_a_wheel_qualifies_a_target_in_an_empty_folder(tmp_path: Path, unpacked: Path) -> None:
    project = Project(tmp_path, {"rules.toml": RULE})
    words = ("--rules", "rules.toml", "--allow-looser-rules")
    ended = project.assay("qualify", "--target", "cpu:8", *words, path=unpacked)
    assert ended.exit_code == 0, ended.output
    assert list(tmp_path.glob("results/2*/qualification.json"))


def test_a_bisection_finds_the_suites_of_assay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = subject_of("suites.dus_remat.workloads:stack/plain").search_path
    assert found == (str(tmp_path), str(ROOT))
    assert subject_of("mine.workloads:stack/plain").search_path == (str(tmp_path),)
    monkeypatch.chdir(ROOT)
    assert subject_of("suites.dus_remat.workloads:stack/plain").search_path == (str(ROOT),)


def test_without_suites_the_command_says_so(tmp_path: Path, wheel: zipfile.ZipFile) -> None:
    bare = tmp_path / "bare"
    wheel.extractall(bare, [name for name in wheel.namelist() if not name.startswith(SHIPPED)])
    ended = Project(tmp_path, {}).assay("run", path=bare)
    assert ended.exit_code == 2, ended.output
    assert "Assay was installed without them" in ended.output


WITHOUT_FLAX = """
import importlib.metadata as metadata
import sys

sys.modules["flax"] = None

def version(name, known=metadata.version):
    if name == "flax":
        raise metadata.PackageNotFoundError(name)
    return known(name)

metadata.version = version
"""


@pytest.mark.parametrize(
    "words", [("run",), ("run", "scan_offload"), ("qualify", "--target", "cpu:8")]
)
def test_without_the_extra_the_suites_of_a_wheel_name_it(
    tmp_path: Path, unpacked: Path, words: tuple[str, ...]
) -> None:
    shutil.copytree(unpacked, tmp_path / "venv")
    (tmp_path / "venv/sitecustomize.py").write_text(WITHOUT_FLAX)
    ended = Project(tmp_path, {}).assay(*words, path=tmp_path / "venv")
    assert ended.exit_code == 2, ended.output
    assert "assay: flax is not installed; needed by the programs" in ended.output
    assert "do this: pip install " in ended.output


def test_misuse_of_a_wheel_does_not_name_the_extra(tmp_path: Path, unpacked: Path) -> None:
    shutil.copytree(unpacked, tmp_path / "venv")
    (tmp_path / "venv/sitecustomize.py").write_text(WITHOUT_FLAX)
    words = ("run", "dus_remat", "--", "--assay-level=slow")
    ended = Project(tmp_path, {}).assay(*words, path=tmp_path / "venv")
    assert ended.exit_code == 2, ended.output
    assert "got --assay-level=slow, wanted quick" in ended.output
    assert "is not installed" not in ended.output


def test_an_unknown_suite_of_a_wheel_is_misuse(tmp_path: Path, unpacked: Path) -> None:
    ended = Project(tmp_path, {}).assay("run", "dus_remta", path=unpacked)
    assert ended.exit_code == 2, ended.output
    assert "write dus_remat" in ended.output
