"""memsafe is a distribution of its own: jax and numpy, its package, its README and its licence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.installed import REPOSITORY, files, install

PROJECT = REPOSITORY / "memsafe"


@pytest.fixture(scope="module")
def memsafe_wheel(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    return install(PROJECT, tmp_path_factory.mktemp("memsafe"))


@pytest.fixture(scope="module")
def assay_wheel(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    return install(REPOSITORY, tmp_path_factory.mktemp("assay"))


def resolvable(requirements: Iterable[str], name: str) -> list[str]:
    """The requirements of this name that an installer would look up in an index or download."""
    wanted = [each for each in map(Requirement, requirements) if each.name == name]
    return [str(each) for each in wanted if not (each.url or "").startswith("file:///")]


def loaded_by(program: str, *path: Path) -> set[str]:
    """Top-level names of the modules that a program loads in a fresh interpreter."""
    program += "; import sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


def test_memsafe_requires_jax_and_numpy_alone(memsafe_wheel: Distribution) -> None:
    required = [Requirement(text) for text in memsafe_wheel.requires or ()]
    assert {each.name for each in required} == {"jax", "numpy"}
    assert not any(each.marker or each.extras or each.url for each in required)


def test_memsafe_supports_the_jax_versions_that_assay_does(
    memsafe_wheel: Distribution, assay_wheel: Distribution
) -> None:
    def shared(wheel: Distribution) -> set[str]:
        found = [Requirement(text) for text in wheel.requires or ()]
        return {str(each) for each in found if each.name in {"jax", "numpy"}}

    assert shared(memsafe_wheel) == shared(assay_wheel)
    assert memsafe_wheel.metadata["Requires-Python"] == assay_wheel.metadata["Requires-Python"]


def test_memsafes_wheel_is_its_package_and_its_licence(memsafe_wheel: Distribution) -> None:
    source = PROJECT / "src"
    package = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "memsafe/py.typed" in package
    info = f"memsafe-{memsafe_wheel.version}.dist-info"
    described = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE")}
    assert files(memsafe_wheel) == package | described


def test_memsafes_page_is_its_own_readme(memsafe_wheel: Distribution) -> None:
    readme = (PROJECT / "README.md").read_text()
    assert memsafe_wheel.metadata.get_payload() == readme
    assert len(readme.splitlines()) <= 200


def test_both_distributions_have_the_same_licence() -> None:
    assert (PROJECT / "LICENSE").read_bytes() == (REPOSITORY / "LICENSE").read_bytes()


def test_assays_wheel_holds_nothing_of_memsafe(assay_wheel: Distribution) -> None:
    scripts = "../../bin/"
    assert {
        name.partition("/")[0] for name in files(assay_wheel) if not name.startswith(scripts)
    } == {"assay", f"assay_xla-{assay_wheel.version}.dist-info"}


def test_an_index_is_asked_for_memsafe_by_the_suites_alone(assay_wheel: Distribution) -> None:
    (looked_up,) = resolvable(assay_wheel.requires or [], "memsafe")
    assert str(Requirement(looked_up).marker) == 'extra == "suites"'
    groups = tomllib.loads((REPOSITORY / "pyproject.toml").read_text()).get("dependency-groups", {})
    assert resolvable((text for group in groups.values() for text in group), "memsafe") == []


@pytest.mark.parametrize(
    "requirement",
    ["memsafe", "memsafe>=0.1; extra == 'suites'", "memsafe @ https://example.org/memsafe.whl"],
)
def test_the_control_a_requirement_that_is_looked_up_is_seen(requirement: str) -> None:
    assert resolvable(["jax>=0.10", requirement], "memsafe") == [str(Requirement(requirement))]


def test_memsafe_loads_nothing_that_jax_does_not(memsafe_wheel: Distribution) -> None:
    folder = Path(str(memsafe_wheel.locate_file("")))
    by_jax = loaded_by("import jax, jax.extend, jax.experimental.pallas, jax.scipy.special")
    assert loaded_by("import memsafe", folder) - by_jax - {"memsafe"} == set()


def test_the_control_a_module_that_jax_does_not_load_is_seen(tmp_path: Path) -> None:
    (tmp_path / "memsafe.py").write_text("import rich")
    assert "rich" in loaded_by("import memsafe", tmp_path) - loaded_by("import jax")
