"""Accepted numbers: a missing or orphaned one fails, updating is explicit, bytes are stable."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.plugin.project import PREAMBLE, Ended, Project

SUITE = (
    PREAMBLE
    + """
def grown(devices):
    return Program(function=lambda x: jnp.sort(x)[::-1] * 2, arguments=(X,))

LATER = (Scope(level=Level.QUICK, targets=("*",), arms=("grown",)),
         Scope(level=Level.FULL, targets=("gpu*",)))
W = workload(arm("grown", grown), arm("later", double), scopes=LATER)
test_memory = Check(claim=claims.AcceptedTempBytes(), workloads=(W,))
"""
)
FILE = "baselines/cpu-8/mine.json"
ADVICE = "remove the number with --assay-update-baselines=all"


def _edited(text: bytes, *, measured: int, entries: dict[str, int]) -> str:
    """The file with another number for the one entry there is, and with more entries."""
    file = msgspec.json.decode(text)
    ((key, (entry,)),) = file["accepted"].items()
    file["accepted"] = {
        key: [{**entry, "value": measured}],
        **{name: [{**entry, "value": value}] for name, value in entries.items()},
    }
    return msgspec.json.encode(file).decode()


class Story:
    """What happens to one project's numbers, run by run."""

    def __init__(self, root: Path) -> None:
        project = Project(root, {"suite/test_memory.py": SUITE})
        file = root / FILE
        self.missing = project.pytest()
        self.new = project.pytest("--assay-update-baselines=new")
        self.accepted = file.read_bytes()
        self.again = project.pytest("--assay-update-baselines=all")
        self.accepted_again = file.read_bytes()
        entries = {"small/gone/temp-bytes": 3, "small/later/temp-bytes": 4}
        project.write({FILE: _edited(self.accepted, measured=1, entries=entries)})
        self.edited = project.pytest("-n", "1")
        self.all = project.pytest("--assay-update-baselines=all")
        self.accepted_at_last = file.read_bytes()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(tmp_path_factory.mktemp("baselines"))


def _verdict(ended: Ended, claim: str = "temp-bytes", arm: str = "grown") -> str:
    return ended.record(arm, claim).verdict.value


def test_a_missing_number_fails_with_the_command_that_accepts_it(story: Story) -> None:
    assert (story.missing.exit_code, _verdict(story.missing)) == (1, "broken")
    assert "do: accept it with --assay-update-baselines=new" in story.missing.output
    assert FILE not in story.missing.changed


def test_new_accepts_a_missing_number(story: Story) -> None:
    assert (story.new.exit_code, _verdict(story.new)) == (0, "kept")
    assert FILE in story.new.changed


def test_the_files_of_what_was_accepted_are_told(story: Story) -> None:
    told = "accepted, to be committed: "
    assert told not in story.missing.output
    assert FILE in story.new.output.partition(told)[2].replace("\n", "")


def test_accepting_twice_gives_the_same_bytes(story: Story) -> None:
    assert (story.again.exit_code, _verdict(story.again)) == (0, "kept")
    assert story.accepted_again == story.accepted


def test_another_number_is_broken_and_both_are_told(story: Story) -> None:
    record = story.edited.record("grown", "temp-bytes")
    assert (story.edited.exit_code, record.verdict.value, record.limit) == (1, "broken", 1)
    assert f"  measured: {record.measured} B" in story.edited.output
    assert "  limit: 1 B (1)" in story.edited.output


def test_an_orphaned_number_fails_with_its_advice(story: Story) -> None:
    record = story.edited.record("gone", "temp-bytes.orphaned")
    assert (record.suite, record.workload, record.target) == ("mine", "small", "cpu:8")
    assert (record.verdict.value, record.measured, record.limit) == ("broken", 1, 0)
    assert "baselines[mine/small/gone/temp-bytes@cpu:8]" in story.edited.output
    assert ADVICE in story.edited.output


def test_a_number_of_another_level_and_target_is_no_orphan(story: Story) -> None:
    assert "later" not in {record.arm for record in story.edited.records}
    assert b"small/later/temp-bytes" in story.accepted_at_last


def test_all_replaces_numbers_and_removes_orphans(story: Story) -> None:
    assert (story.all.exit_code, _verdict(story.all)) == (0, "kept")
    last, first = (
        msgspec.json.decode(text)["accepted"] for text in (story.accepted_at_last, story.accepted)
    )
    assert last.pop("small/later/temp-bytes")
    assert last == first


OTHER = SUITE.replace("workload(arm", 'workload(name="other", *(arm').replace(
    "scopes=LATER)", "), scopes=LATER)"
)


@pytest.fixture(scope="module")
def orphaned(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A suite of two files; besides both files' numbers there is one of a renamed claim."""
    entries = {f"{name}/temp-bytes": [] for name in ("small/grown", "other/grown")}
    entries["small/grown/old-name"] = []
    file = {"schema": 1, "suite": "mine", "target": "cpu:8", "accepted": entries}
    gone = {**file, "suite": "elsewhere", "accepted": {"x/y/z": []}}
    return Project(
        tmp_path_factory.mktemp("orphaned"),
        {
            "suite/test_memory.py": SUITE,
            "suite/test_other.py": OTHER,
            FILE: msgspec.json.encode(file).decode(),
            "baselines/cpu-8/elsewhere.json": msgspec.json.encode(gone).decode(),
        },
    )


def _orphans(project: Project, *arguments: str) -> list[str]:
    ended = project.pytest("--collect-only", "-q", *arguments)
    lines = [line for line in ended.output.splitlines() if "baselines[" in line]
    return [line.partition("::")[2] for line in lines]


@pytest.mark.parametrize(
    ("arguments", "orphans"),
    [
        ((), ["baselines[mine/small/grown/old-name@cpu:8]"]),
        (("suite", "-k", "other"), []),
        (("suite/test_memory.py",), []),
        (("suite", "--ignore=suite/test_other.py"), []),
        (("suite", "--ignore-glob=*_other.py"), []),
    ],
)
def test_orphans_are_told_only_where_the_whole_suite_is_collected(
    orphaned: Project, arguments: tuple[str, ...], orphans: list[str]
) -> None:
    assert _orphans(orphaned, *arguments) == orphans
