"""An environment is made once, whole or not at all, and holds what was asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.toolchains.environments import (
    CannotMake,
    Environments,
    WrongVersions,
    environment,
)
from assay.toolchains.recipe import recipe
from tests.toolchains.fake_uv import FakeUv

RECIPE = recipe("0.10.2")
MAKE = (
    "from assay.toolchains.environments import environment\n"
    "from assay.toolchains.recipe import recipe\n"
    "print(environment(recipe('0.10.2')).folder)\n"
)


def make_elsewhere(**variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MAKE],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )


def test_an_environment_is_made_once(fake_uv: FakeUv) -> None:
    first, second = environment(RECIPE), environment(RECIPE)
    assert first == second
    assert first.versions["jax"] == "0.10.2"
    assert fake_uv.calls == ["venv", "pip"]
    assert fake_uv.environments == [first.folder]
    assert fake_uv.hidden == []


def test_other_versions_than_were_asked_for_are_an_error_that_names_both(
    fake_uv: FakeUv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_UV_VERSION", "0.10.1")
    with pytest.raises(WrongVersions, match=r"got jax 0\.10\.1, wanted 0\.10\.2"):
        environment(RECIPE)
    assert fake_uv.environments == []


@pytest.mark.usefixtures("fake_uv")
def test_a_package_that_was_changed_later_is_an_error_that_names_both() -> None:
    packages = next(environment(RECIPE).folder.glob("lib/*/site-packages"))
    metadata = packages / "jax-0.10.2.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 0.10.2", "Version: 0.10.9"))
    with pytest.raises(
        WrongVersions, match=r"got jax 0\.10\.9, wanted 0\.10\.2 in .*; delete that environment"
    ):
        environment(RECIPE)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "gone",
    [
        "lib/*/site-packages/jax.py",
        "lib/*/site-packages/jax-0.10.2.dist-info",
        "bin/python",
        "lib",
        "assay-installed.json",
    ],
)
def test_a_damaged_environment_is_made_anew(fake_uv: FakeUv, gone: str) -> None:
    first = environment(RECIPE)
    lost = next(first.folder.glob(gone))
    lost.rename(first.folder / "lost")
    second = environment(RECIPE)
    assert second == first
    assert lost.exists()
    assert fake_uv.calls == ["venv", "pip"] * 2
    assert fake_uv.hidden == []


@pytest.mark.usefixtures("fake_uv")
def test_a_truncated_file_is_damage() -> None:
    module = next(environment(RECIPE).folder.glob("lib/*/site-packages/jax.py"))
    module.write_text("")
    environment(RECIPE)
    assert module.read_text() != ""


def test_two_processes_that_ask_at_once_share_one_build(fake_uv: FakeUv) -> None:
    both = [make_elsewhere(), make_elsewhere()]
    folders = {process.communicate(timeout=60)[0].strip() for process in both}
    assert folders == {str(fake_uv.environments[0])}
    assert fake_uv.calls == ["venv", "pip"]


def test_a_build_that_is_killed_leaves_nothing_that_is_taken_for_ready(
    fake_uv: FakeUv, tmp_path: Path
) -> None:
    asleep = tmp_path / "asleep"
    builder = make_elsewhere(FAKE_UV_SLEEP=str(asleep))
    end = time.monotonic() + 60
    while not asleep.exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    os.killpg(builder.pid, signal.SIGKILL)
    builder.communicate()
    assert fake_uv.environments == []
    assert len(fake_uv.hidden) == 1
    made = environment(RECIPE)
    assert fake_uv.environments == [made.folder]
    assert fake_uv.hidden == []


@pytest.mark.usefixtures("fake_uv")
def test_a_cache_that_cannot_be_written_says_so_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CannotMake, match=r"cannot be stored in .*; set XDG_CACHE_HOME"):
        environment(RECIPE)


def test_what_was_refused_is_asked_for_once_and_what_is_there_is_looked_at_each_time(
    fake_uv: FakeUv, monkeypatch: pytest.MonkeyPatch
) -> None:
    environments, refused = Environments(), recipe("0.10.3")
    monkeypatch.setenv("FAKE_UV_REFUSES", "jax==0.10.3")
    for _ in range(2):
        with pytest.raises(CannotMake, match="failed to fetch jax"):
            environments(refused)
    assert fake_uv.calls == ["venv", "pip"]
    made = environments(RECIPE)
    assert environments(RECIPE) == made
    (made.folder / "assay-installed.json").unlink()
    assert environments(RECIPE) == made
    assert fake_uv.calls == 3 * ["venv", "pip"]
    with pytest.raises(CannotMake):
        Environments()(refused)
    assert fake_uv.calls == 4 * ["venv", "pip"]


@pytest.mark.usefixtures("fake_uv")
def test_an_environment_that_is_there_is_used_without_writing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = environment(RECIPE)

    def refuse(*_: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr("assay.toolchains.environments.FileLock", refuse)
    assert environment(RECIPE) == made
    with pytest.raises(CannotMake, match="read-only"):
        environment(recipe("0.10.3"))
