"""The command ``assay doctor``: each thing that can be missing is found, with what fixes it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from assay.cli import checkups, main
from assay.cli.checkups import Checkup, State
from assay.model import installation
from assay.targets import presence
from tests.plugin.project import Project

HIDES_LIBTPU = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "libtpu":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden())
"""
CPU = ("doctor", "--target", "cpu:8")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, {})


def only(found: object) -> Checkup:
    """The one result of a check."""
    (one,) = found if not isinstance(found, Checkup) else [found]  # type: ignore[attr-defined]
    assert isinstance(one, Checkup)
    return one


def test_a_machine_that_can_run_the_suites_ends_with_0(project: Project) -> None:
    ended = project.assay(*CPU)
    assert ended.exit_code == 0, ended.output
    assert "can be checked here, and the suites can run (exit 0)." in ended.output
    assert "compiles for cpu:8" in ended.output
    assert "ok       pytest" in ended.output
    assert not ended.changed


@pytest.mark.exhaustive
def test_doctor_compiles_for_every_target(project: Project) -> None:
    ended = project.assay("doctor", "--json")
    assert ended.exit_code == 0, ended.output
    found = json.loads(ended.output)
    states = {each["name"]: each["state"] for each in found["checks"]}
    assert found["works"]
    assert {states[f"compiler {kind}"] for kind in ("cpu", "gpu", "tpu")} == {"ok"}


def test_a_missing_compiler_ends_with_1_and_its_command(project: Project, tmp_path: Path) -> None:
    project.write({"hidden/sitecustomize.py": HIDES_LIBTPU})
    ended = project.assay("doctor", "--target", "tpu-v5e:2x4", path=tmp_path / "hidden")
    assert ended.exit_code == 1, ended.output
    assert "missing  compiler tpu" in ended.output
    assert "fix: pip install libtpu\n" in ended.output
    assert "Not everything works here (exit 1): compiler tpu." in ended.output


def test_a_folder_that_cannot_be_written_ends_with_1(project: Project) -> None:
    ended = project.assay(*CPU, "--results-dir", "/proc/results", "--json")
    assert ended.exit_code == 1, ended.output
    found = json.loads(ended.output)
    (missing,) = [each for each in found["checks"] if each["state"] == "missing"]
    assert missing["name"] == "results"
    assert "/proc cannot be written to" in missing["found"]
    assert missing["fix"].startswith("pytest --assay-results-dir=")
    assert not found["works"]


def test_pytest_without_the_plugin_ends_with_1(tmp_path: Path) -> None:
    project = Project(tmp_path, {}, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    ended = project.assay(*CPU)
    assert ended.exit_code == 1, ended.output
    assert "pytest starts without the plugin assay" in ended.output
    assert "fix: unset PYTEST_DISABLE_PLUGIN_AUTOLOAD" in ended.output


def test_pytest_that_does_not_start_is_missing(project: Project) -> None:
    project.write({"pytest.ini": "[pytest]\naddopts = --no-such-option\n"})
    ended = project.assay(*CPU)
    assert ended.exit_code == 1, ended.output
    assert "pytest does not start in this folder" in ended.output


def test_an_unknown_target_is_misuse(project: Project) -> None:
    ended = project.assay("doctor", "--target", "gpu-h10")
    assert ended.exit_code == 2, ended.output
    assert "write gpu-h100:8" in ended.output


def test_a_fault_of_a_check_is_a_fault_of_assay(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(checkups, "checkups", broken)
    monkeypatch.setattr(sys, "argv", ["assay", "doctor"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3


@pytest.mark.parametrize(
    ("version", "state", "words"),
    [
        ("3.10.14", State.MISSING, "3.10.14 is not supported, wanted >=3.11"),
        ("3.11.7", State.OK, "3.11.7"),
        ("3.99.0", State.NOTE, "3.99.0 is not tested; tested are 3.11, 3.12, 3.13"),
    ],
)
def test_python_is_supported_and_tested(version: str, state: State, words: str) -> None:
    found = checkups.python(version)
    assert (found.state, found.found) == (state, words)
    assert found.fix == ("" if state is State.OK else "uv venv --python 3.13")


def installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Let these packages be installed in these versions; empty for one that is not installed."""
    real = checkups.installed_version

    def version(package: str) -> str:
        return versions.get(package.replace("-", "_"), real(package))

    monkeypatch.setattr(checkups, "installed_version", version)


@pytest.mark.parametrize(
    ("package", "version", "words", "fix"),
    [
        ("jax", "0.9.0", "jax 0.9.0 is not supported, wanted >=0.10.2", "pip install 'jax>=0.10"),
        ("jaxlib", "0.9.0", "jaxlib 0.9.0 is not supported", "pip install 'jaxlib<="),
        ("scipy", "", "scipy is not installed", "pip install 'scipy>=1.1"),
        ("assay_xla", "", "no distribution assay-xla is installed", "pip install -e /"),
    ],
)
def test_a_wrong_package_is_missing_with_its_command(
    monkeypatch: pytest.MonkeyPatch, package: str, version: str, words: str, fix: str
) -> None:
    installed(monkeypatch, **{package: version})
    missing = [each for each in checkups.packages() if each.state is State.MISSING]
    assert any(words in each.found and fix in each.fix for each in missing), missing


def suites() -> Checkup:
    """What the check of the extra of the suites finds."""
    return only([each for each in checkups.extras() if each.name == checkups.SUITES])


ORIGINS = {
    '{"url": "file:///a%20b", "dir_info": {"editable": true}}': (
        "pip install -e '/a b/memsafe' -e '/a b[suites]'"
    ),
    '{"url": "file:///a", "dir_info": {}}': "pip install /a/memsafe '/a[suites]'",
    '{"url": "file:///a.whl", "archive_info": {}}': "pip install 'assay-xla[suites]'",
    None: "pip install 'assay-xla[suites]'",
}
"""The direct_url.json that an installer writes, and the command that adds an extra."""


@pytest.mark.parametrize("origin", ORIGINS)
def test_an_extra_is_installed_from_where_assay_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, origin: str | None
) -> None:
    class Installed:
        read_text = staticmethod(lambda _name: origin)

    installed(monkeypatch, flax="")
    monkeypatch.setattr(installation, "distribution", lambda _name: Installed)
    monkeypatch.setattr(installation, "HERE", tmp_path)
    monkeypatch.setattr(Path, "is_file", lambda path: path.parts[1] in {"a", "a b"})
    assert suites().found == (
        "flax is not installed; needed by the programs of the suites: assay run, assay qualify"
    )
    assert suites().fix == ORIGINS[origin]


def test_without_the_extra_of_the_suites_own_programs_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(monkeypatch, flax="")
    found = [suites(), Checkup(name="python", state=State.OK, found="3.11.7")]
    monkeypatch.setattr(checkups, "checkups", lambda *_: found)
    monkeypatch.setattr(sys, "argv", ["assay", "doctor"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "checked here (exit 0). The suites need: extra suites." in capsys.readouterr().out


def test_a_gpu_plugin_of_another_release_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = checkups.installed_version("jaxlib")
    installed(monkeypatch, jax_cuda13_plugin="0.8.0", jax_cuda13_pjrt=real)
    (missing,) = [each for each in checkups.packages() if each.state is State.MISSING]
    assert missing.found.startswith(
        f"jax-cuda13-plugin 0.8.0, wanted the version of jaxlib, {real}"
    )
    assert missing.fix == f"pip install jax-cuda13-plugin=={real}"


def test_a_missing_gpu_plugin_is_installed_as_jaxlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_GPU_PLUGINS", ("no_such_plugin",))
    real = checkups.installed_version("jaxlib")
    found = only(checkups.compilers(["gpu-h100:8"]))
    assert (found.state, found.found) == (State.MISSING, presence.NO_GPU_PLUGIN.reason)
    assert found.fix == f"pip install jax-cuda13-plugin=={real} jax-cuda13-pjrt=={real}"


def test_a_compiler_that_ends_its_process_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    found = only(checkups.compilers(["cpu:8"]))
    assert (found.state, found.fix) == (State.MISSING, "assay targets cpu:8 --check")
    assert found.found.startswith("the compiler ended its process (1)")


def test_a_device_without_a_backend_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"why": "CUDA_ERROR", "fix": "pip install driver", "devices": []}
    monkeypatch.setattr(checkups, "missing_device", lambda kind: None if kind == "gpu" else NONE)
    monkeypatch.setattr(checkups, "_checked", lambda _: [row])
    gpu, tpu = checkups.devices()
    assert (gpu.state, gpu.found, gpu.fix) == (State.MISSING, "CUDA_ERROR", "pip install driver")
    assert (tpu.state, tpu.fix) == (State.OPTIONAL, "")


NONE = presence.missing_device("tpu") or presence.NO_LIBTPU


def test_a_device_is_named_with_its_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n")
    monkeypatch.setattr(checkups, "_DRIVER", version)
    row = {"why": "", "fix": "", "devices": ["NVIDIA H100", "NVIDIA H100"]}
    monkeypatch.setattr(checkups, "missing_device", lambda kind: None if kind == "gpu" else NONE)
    monkeypatch.setattr(checkups, "_checked", lambda _: [row])
    gpu, _ = checkups.devices()
    assert (gpu.state, gpu.found) == (State.OK, "2 x NVIDIA H100, driver 550.54.15")


def test_a_variable_that_changes_results_is_noted() -> None:
    found = only(checkups.environment({"XLA_FLAGS": "--xla_x=1", "HOME": "/root", "JAX_X": ""}))
    assert (found.state, found.fix) == (State.NOTE, "unset XLA_FLAGS")
    assert found.found == "XLA_FLAGS=--xla_x=1 changes results"
    assert only(checkups.environment({"HOME": "/root"})).state is State.OK


def test_a_platform_without_a_device_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "missing_device", lambda kind: NONE if kind == "tpu" else None)
    found = only(checkups.environment({"JAX_PLATFORMS": "tpu,cpu"}))
    assert (found.state, found.fix) == (State.MISSING, "unset JAX_PLATFORMS")
    assert only(checkups.environment({"JAX_PLATFORMS": "cpu"})).state is State.NOTE


def test_too_little_memory_or_disk_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkups, "machine_bytes", lambda: 2**30)
    assert checkups.memory().state is State.NOTE
    monkeypatch.setitem(checkups.__dict__, "shutil", FullDisk)
    assert checkups.disk().fix == "assay cache --clear"


class FullDisk:
    """A disk with 1 KiB free."""

    free = 1024

    @classmethod
    def disk_usage(cls, _: Path) -> type[FullDisk]:
        return cls


def test_a_cache_that_cannot_be_written_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/cache")
    found = checkups.disk()
    assert (found.state, found.fix[:22]) == (State.NOTE, "export XDG_CACHE_HOME=")


def test_no_uv_is_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    found = checkups.uv()
    assert (found.state, found.fix) == (State.OPTIONAL, "pip install uv")
