"""What the pages say to type exists: tox's environments, and the flags of the nightly."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from configparser import RawConfigParser
from itertools import product
from pathlib import Path

import pytest

from tests.plugin.project import PREAMBLE, Project

ROOT = Path(__file__).parents[1]
WHERE = ("*.md", "docs/**/*.md", "suites/**/*.md", "memsafe/**/*.md", "assay/**/*.py", ".ci/*")

NAMED = re.compile(r"\btox (?:run )?-e (?P<names>[\w-]+(?:,[\w-]+)*)")
CHOICE = re.compile(r"\{([^}]*)\}")
REFERENCE = re.compile(r"\{\[(\w+)\](\w+)\}")


def tox_ini() -> RawConfigParser:
    """tox.ini as it is written."""
    parser = RawConfigParser()
    assert parser.read(ROOT / "tox.ini")
    return parser


def expanded(name: str) -> Iterator[str]:
    """The environments that a section's name stands for: ``{gpu,tpu}`` for two."""
    pieces = [piece.split(",") for piece in CHOICE.split(name)]
    yield from ("".join(chosen) for chosen in product(*pieces))


def environments() -> set[str]:
    """Every environment of tox.ini."""
    sections = [name.removeprefix("testenv:") for name in tox_ini() if name.startswith("testenv:")]
    return {name for section in sections for name in expanded(section)}


def named(text: str) -> set[str]:
    """The environments that a text says to run."""
    return {name for found in NAMED.finditer(text) for name in found["names"].split(",")}


def pages() -> list[Path]:
    """Every file that may tell somebody what to run."""
    return sorted({path for pattern in WHERE for path in ROOT.glob(pattern) if path.is_file()})


def absent(text: str) -> set[str]:
    """The environments that a text says to run and tox.ini does not have."""
    return named(text) - environments()


def nightly() -> list[str]:
    """The nightly's arguments to pytest, without what a person adds."""
    parser = tox_ini()
    written = parser["testenv:nightly"]["commands"].replace("{posargs}", "")
    program, *arguments = shlex.split(
        REFERENCE.sub(lambda found: parser[found[1]][found[2]], written)
    )
    assert program == "pytest"
    return arguments


def test_every_environment_that_a_page_names_exists() -> None:
    wrong = {str(page.relative_to(ROOT)): absent(page.read_text()) for page in pages()}
    assert {page: names for page, names in wrong.items() if names} == {}


def test_the_pages_do_name_environments() -> None:
    seen = set().union(*(named(page.read_text()) for page in pages()))
    assert {"local", "tests", "nightly", "lint", "types", "torch_xla", "gpu", "tpu"} <= seen


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`tox -e nightly`", set()),
        ("`tox run -e lint,types,tests,local`", set()),
        ("tox run -e torch_xla, or pip install it", set()),
        ("run `tox run -e nigthly -- --assay-target cpu`", {"nigthly"}),
        ("`tox -e lint,style`", {"style"}),
        (".venv/bin/tox run -e weekly", {"weekly"}),
    ],
)
def test_an_environment_that_does_not_exist_is_seen(text: str, wrong: set[str]) -> None:
    assert absent(text) == wrong


def test_a_section_for_two_environments_stands_for_both() -> None:
    assert set(expanded("{gpu,tpu}")) == {"gpu", "tpu"}
    assert set(expanded("a-{b,c}-{d,e}")) == {"a-b-d", "a-b-e", "a-c-d", "a-c-e"}


SUITE = (
    PREAMBLE
    + """
FULL = (Scope(level=Level.FULL, targets=("*",)),)
W = workload(variant("double", double), scopes=FULL)
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))
"""
)
FAILED = SUITE.replace('variant("double", double)', 'variant("double", mismatched)')


def run_nightly(root: Path, suite: str, *more: str) -> tuple[Project, int, str]:
    """The nightly's own command line on a project whose one suite is judged at full level."""
    project = Project(root, {"suites/test_small.py": suite})
    ended = project.pytest(*nightly(), *more)
    return project, ended.exit_code, ended.output


@pytest.mark.parametrize(("suite", "code"), [(SUITE, 0), (FAILED, 1)], ids=["passed", "failed"])
def test_the_nightly_judges_the_full_level_and_ends_by_the_fixed_codes(
    tmp_path: Path, suite: str, code: int
) -> None:
    project, ended, output = run_nightly(tmp_path, suite)
    assert ended == code, output
    latest = project.root / "results/latest"
    assert {"records.jsonl", "report.html", "summary.md", "junit.xml"} <= {
        path.name for path in latest.iterdir()
    }


def test_a_level_given_by_hand_takes_the_place_of_the_nightlys_own(tmp_path: Path) -> None:
    project, _, output = run_nightly(tmp_path, SUITE, "--assay-level", "quick")
    assert not (project.root / "results/latest").exists(), output


def test_the_nightly_with_an_unknown_target_is_misuse(tmp_path: Path) -> None:
    _, ended, output = run_nightly(tmp_path, SUITE, "--assay-target", "gpu-h10")
    assert ended == 2, output
    assert "write gpu-h100" in output


def test_a_flag_that_nobody_knows_would_be_seen(tmp_path: Path) -> None:
    _, ended, output = run_nightly(tmp_path, SUITE, "--levle", "full")
    assert ended == pytest.ExitCode.USAGE_ERROR, output
