"""What uv refuses is told in its words, shortened, with what to do about it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from assay.toolchains.environments import CannotMake, Environment, Uv, find_uv
from assay.toolchains.recipe import Recipe
from assay.toolchains.releases import Release

PYTHON = ".".join(map(str, sys.version_info[:2]))
RECIPE = Recipe(pins={"jax": "0.10.99"}, requirements=("jax==0.10.99",))
# As uv 0.13.9 said them.
NO_VERSION = (
    "Using Python 3.12.1 environment at: e1\nerror: No solution found when resolving dependencies\n"
    "  cause: Because there is no version of jax==0.10.99 and you require jax==0.10.99, we can "
    "conclude that your requirements are unsatisfiable.\n"
)
NO_WHEEL = (
    "error: No solution found when resolving dependencies\n  cause: Because torch-xla==2.5.0 has "
    "no wheels with a matching Python ABI tag (e.g., `cp312`) and you require torch-xla==2.5.0, we "
    "can conclude that your requirements are unsatisfiable.\n"
)
OTHER_PYTHON = (
    "error: No solution found when resolving dependencies\n  cause: Because the current Python "
    "version (3.11.7) does not satisfy Python>=3.12 and jax==0.12.0.1 depends on Python>=3.12, we "
    "can conclude that jax==0.12.0.1 cannot be used.\n"
)
NO_NETWORK = (
    "error: Request failed after 3 retries in 10.1s\n  cause: Failed to fetch: "
    "http://127.0.0.1:9/simple/jax/\n  cause: error sending request for url\n"
)


def says(folder: Path, words: str, releases: str = "") -> Uv:
    """A uv that refuses in these words, and lists ``releases``, as pip does."""
    command = folder / "uv"
    (folder / "words").write_text(words)
    (folder / "releases").write_text(releases)
    command.write_text(
        f'#!/bin/sh\ncase "$*" in *"index versions"*) cat {folder}/releases; exit 0;; esac\n'
        f"cat {folder}/words >&2; exit 1\n"
    )
    command.chmod(0o755)
    return Uv(command=str(command))


@pytest.mark.parametrize(
    ("words", "reason", "remedy"),
    [
        (NO_VERSION, "there is no jax 0.10.99: error: No solution", "ask for another"),
        (NO_WHEEL, f"no wheel for Python {PYTHON}", "--python"),
        (
            OTHER_PYTHON,
            "jax==0.12.0.1 needs Python >=3.12, not 3.11.7",
            "uv python install 3.12",
        ),
        (NO_NETWORK, "no package index can be reached", "UV_INDEX_URL"),
        ("error: something new\n", "uv finds no such environment: error: something new", "version"),
    ],
)
def test_a_refused_installation_says_why(
    tmp_path: Path, words: str, reason: str, remedy: str
) -> None:
    with pytest.raises(CannotMake) as refused:
        says(tmp_path, words).install(Path("python"), RECIPE)
    assert reason in refused.value.reason
    assert remedy in refused.value.remedy


def test_a_version_that_does_not_exist_names_some_that_do(tmp_path: Path) -> None:
    uv = says(tmp_path, NO_VERSION, 'a warning\n{"versions": ["0.12.0", "0.10.2"]}')
    with pytest.raises(CannotMake, match=r"one that exists, such as 0\.10\.2, 0\.12\.0"):
        uv.install(Path("python"), RECIPE)


def test_a_python_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotMake, match=r"there is no Python 3\.9 here.*uv python install 3\.9"):
        says(tmp_path, "error: No interpreter found\n").venv(tmp_path / "made", "3.9")


def test_long_words_are_cut(tmp_path: Path) -> None:
    with pytest.raises(CannotMake) as refused:
        says(tmp_path, "error: " + "x" * 10_000).install(Path("python"), RECIPE)
    assert len(refused.value.reason) < 500


def test_a_missing_uv_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(CannotMake, match="pip install uv"):
        find_uv(str(tmp_path))


def test_a_uv_beside_the_interpreter_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside").mkdir()
    says(tmp_path / "beside", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "beside" / "python"))
    assert find_uv(str(tmp_path)).command == str(tmp_path / "beside" / "uv")


def test_each_python_is_tried_and_the_first_refusal_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(recipe: Recipe) -> Environment:
        tried.append(recipe.python)
        raise CannotMake(f"refused {len(tried)}")

    tried: list[str] = []
    (tmp_path / "versions/3.13.0/bin").mkdir(parents=True)
    (tmp_path / "versions/3.13.0/bin/python").touch()
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("assay.toolchains.releases.environment", refuse)
    monkeypatch.setattr(sys, "version_info", (3, 11, 7))
    with pytest.raises(CannotMake, match="refused 1"):
        Release(component="jax", version="0.10.2", platform="cpu").environment()
    assert tried == ["", "3.12", str(tmp_path / "versions/3.13.0/bin/python")]
