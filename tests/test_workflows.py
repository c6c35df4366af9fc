"""Workflows, ours and those to copy: sound by actionlint and ShellCheck, every action pinned."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
EXAMPLES = ROOT / "docs/workflows"
FILES = {
    file.relative_to(folder).as_posix(): file
    for folder in (GITHUB, EXAMPLES.parent)
    for file in sorted(folder.rglob("*.yml"))
}
FLEET = "docs/workflows/fleet"
SCRIPTS = (".ci/run", "docs/workflows/assay.sbatch", f"{FLEET}/assay-fleet.sbatch")

USES = re.compile(r"^\s*(?:- )?uses:\s*(?P<action>\S+)(?P<rest>.*)$", re.MULTILINE)
HELD = re.compile(r"@[0-9a-f]{40}$")
VERSION = re.compile(r" # v\d+\.\d+\.\d+$")

needs_linters = pytest.mark.skipif(
    # Inside tox they are installed; if they were not, these tests would have to fail.
    not (shutil.which("actionlint") and shutil.which("shellcheck"))
    and "TOX_ENV_NAME" not in os.environ,
    reason="no actionlint or shellcheck on PATH; run `tox run -e tests`",
)


def loose(text: str) -> Iterator[str]:
    """The actions of a workflow that a commit with its version does not hold."""
    for found in USES.finditer(text):
        action, rest = found["action"], found["rest"]
        if not action.startswith("./") and not (HELD.search(action) and VERSION.search(rest)):
            yield action


def checked(root: Path, changes: Mapping[str, tuple[str, str]]) -> tuple[int, str]:
    """Exit code and words of actionlint on a copy of the workflows, each (old, new) applied."""
    shutil.copytree(GITHUB, root / ".github")
    for file in EXAMPLES.glob("*.yml"):
        shutil.copy(file, root / ".github/workflows")
    (root / ".git").mkdir()  # How actionlint knows where a project begins.
    for name, (old, new) in changes.items():
        file = root / ".github" / name
        text = file.read_text()
        assert text.count(old) == 1, f"got {text.count(old)} of {old!r} in {name}, wanted one"
        file.write_text(text.replace(old, new))
    ended = subprocess.run(
        ["actionlint", "-no-color"], cwd=root, capture_output=True, text=True, check=False
    )
    return ended.returncode, ended.stdout + ended.stderr


@needs_linters
def test_actionlint_finds_nothing_in_our_workflows(tmp_path: Path) -> None:
    assert checked(tmp_path, {}) == (0, "")


@needs_linters
@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        (
            "workflows/ci.yml",
            "    runs-on: ubuntu-24.04\n    timeout-minutes: 90\n",
            "",
            '"runs-on" section is missing',
        ),
        (
            "workflows/ci.yml",
            "${{ matrix.python }}\n    runs-on",
            "${{ matrix.pyton }}\n    runs-on",
            '"pyton" is not defined',
        ),
        ("workflows/ci.yml", "contents: read", "contents: reed", '"reed" is invalid'),
        ("workflows/nightly.yml", "17 2 * * *", "17 26 * * *", "invalid CRON format"),
        ("workflows/assay.yml", "needs: judge", "needs: juge", 'needs job "juge"'),
        ("workflows/assay.yml", 'venv "$RUNNER_TEMP/assay"', "venv $RUNNER_TEMP/assay", "SC2086"),
        (
            "workflows/nightly.yml",
            "environment: gpu",
            "environmnt: gpu",
            '"environmnt" is not defined',
        ),
        ("workflows/release.yml", "needs: attest", "needs: atest", 'needs job "atest"'),
        ("workflows/release.yml", "attestations: write", "attestation: write", '"attestation"'),
        ("workflows/suites.yml", '"$ENVIRONMENT" --notest', "$ENVIRONMENT --notest", "SC2086"),
        (
            "actions/python/action.yml",
            "  python:\n    description",
            "  version:\n    description",
            'input "python" is not defined',
        ),
    ],
)
def test_actionlint_refuses_a_broken_workflow(
    tmp_path: Path, file: str, old: str, new: str, words: str
) -> None:
    code, output = checked(tmp_path, {file: (old, new)})
    assert code == 1, output
    assert words in output


@needs_linters
@pytest.mark.parametrize("script", SCRIPTS)
def test_shellcheck_finds_nothing_in_a_script_and_a_fault_if_there_is_one(
    tmp_path: Path, script: str
) -> None:
    def complaints(text: str) -> str:
        copy = tmp_path / "script"
        copy.write_text(text)
        checked = ["shellcheck", "--format=gcc", copy]
        return subprocess.run(checked, capture_output=True, text=True, check=False).stdout

    text = (ROOT / script).read_text()
    assert complaints(text) == ""
    assert "SC2086" in complaints(text + "\nls $1\n")


def test_there_are_a_nightly_and_a_ci_workflow() -> None:
    assert {"workflows/nightly.yml", "workflows/ci.yml", "workflows/assay.yml"} <= set(FILES)


@pytest.mark.parametrize("file", FILES)
def test_every_action_is_held_to_a_commit_with_its_version(file: str) -> None:
    assert list(loose(FILES[file].read_text())) == []


COMMIT = "0" * 40


@pytest.mark.parametrize(
    "line",
    [
        "      - uses: actions/checkout@v7",
        "        uses: actions/checkout@v7.0.1 # v7.0.1",
        f"      - uses: actions/checkout@{COMMIT}",
        f"      - uses: actions/checkout@{COMMIT[:7]} # v7.0.1",
        "      - uses: actions/checkout",
    ],
    ids=["tag", "version", "commit-alone", "short-commit", "nothing"],
)
def test_an_action_that_its_owner_could_move_is_seen(line: str) -> None:
    held = f"      - uses: actions/cache@{COMMIT} # v5.0.5"
    assert len(list(loose(f"{held}\n{line}\n{held}\n"))) == 1


WRITES = re.compile(r"^ +[\w-]+: write\b", re.MULTILINE)


def test_only_a_release_and_the_site_may_write() -> None:
    writing = {file.name for file in GITHUB.rglob("*.yml") if WRITES.search(file.read_text())}
    assert writing == {"docs.yml", "release.yml"}


def test_each_hook_has_the_version_of_tox() -> None:
    pinned = set(re.findall(r"^    (\S+==\S+)$", (ROOT / "tox.ini").read_text(), re.MULTILINE))
    hooks = re.findall(r"\[(\S+==\S+)\]", (ROOT / ".pre-commit-config.yaml").read_text())
    assert len(hooks) == 3
    assert set(hooks) <= pinned


def test_every_hook_comes_from_an_index() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"repo: (\S+)", text) == ["local"]
    assert "http" not in text


GIVES_SECRETS = re.compile(r"\bsecrets\s*[.:\[]|\bpull_request_target\b")


@pytest.mark.parametrize("file", FILES)
def test_no_workflow_is_given_a_secret(file: str) -> None:
    assert not GIVES_SECRETS.search(FILES[file].read_text())


@pytest.mark.parametrize(
    "line",
    [
        "          TOKEN: ${{ secrets.TOKEN }}",
        "          TOKEN: ${{ secrets['TOKEN'] }}",
        "    secrets: inherit",
        "on: [pull_request_target]",
    ],
)
def test_a_secret_given_is_seen(line: str) -> None:
    text = (GITHUB / "workflows/ci.yml").read_text()
    assert GIVES_SECRETS.search(f"{text}\n{line}\n")
