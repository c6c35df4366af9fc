"""Reruns on released wheels, with the real uv: where there is one, and an index that answers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from assay.model.rerun import Rerun, Side
from assay.model.timing import Change
from assay.toolchains.environments import CannotMake, environment
from assay.toolchains.recipe import recipe
from assay.toolchains.side_by_side import Against, rerun
from tests.toolchains import programs
from tests.toolchains.index import OTHER, skip_without_index

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module", autouse=True)
def index() -> None:
    skip_without_index()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for the module, of a gigabyte: an environment is made once in it."""
    folder = tmp_path_factory.mktemp("cache")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


def run(version: str, most_seconds: float) -> Rerun:
    workload = programs.workload(programs.same)
    against = Against(baseline=version, most_seconds=most_seconds)
    return rerun(workload, workload.variants[0], "cpu", against)


def test_a_released_toolchain_runs_beside_the_present_one() -> None:
    seen = run(OTHER, 40.0)
    assert seen.failure is None
    assert seen.unavailable is None
    assert seen.old is not None
    assert seen.new is not None
    assert seen.old.versions["jax"] == seen.old.versions["jaxlib"] == OTHER
    assert seen.new.versions["jax"] == jax.__version__
    assert seen.pairs
    assert seen.compile_seconds(Side.OLD)


def test_a_toolchain_beside_itself_is_not_called_slower_or_faster() -> None:
    seen = run(jax.__version__, 100.0)
    assert seen.old is not None
    assert seen.new is not None
    assert seen.old.versions == seen.new.versions
    assert seen.ratio is not None
    assert seen.ratio.change in (Change.SAME, Change.TOO_NOISY)


def test_a_version_that_does_not_exist_names_its_neighbours() -> None:
    with pytest.raises(CannotMake) as refused:
        environment(recipe("0.10.99"))
    assert "there is no jax 0.10.99" in refused.value.reason
    assert "0.10.2, 0.11.0" in refused.value.remedy


def test_no_network_is_told_as_such(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    with pytest.raises(CannotMake, match="no package index can be reached"):
        environment(recipe("0.11.0" if OTHER == "0.10.2" else "0.10.2"))


def test_a_package_that_is_gone_from_the_environment_is_put_back() -> None:
    made = environment(recipe(OTHER))
    lost = next(made.folder.glob("lib/*/site-packages/jax/__init__.py"))
    # uv's own cache holds the same file, so it is taken away and not written over.
    lost.unlink()
    assert environment(recipe(OTHER)) == made
    assert lost.exists()
    assert os.access(made.interpreter, os.X_OK)
