"""Baselines: a missing or unused one fails, updating is explicit, bytes are stable."""

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

LATER = (Scope(level=Level.QUICK, targets=("*",), variants=("grown",)),
         Scope(level=Level.FULL, targets=("gpu*",)))
W = workload(variant("grown", grown), variant("later", double), scopes=LATER)
test_memory = Check(claim=claims.BaselineTempBytes(), workloads=(W,))
"""
)
FILE = "baselines/cpu-8/mine.json"
ADVICE = f"or remove small/gone/temp-bytes from {FILE}; --assay-update-baselines=all"


def _edited(text: bytes, *, measured: int, entries: dict[str, int]) -> str:
    """The file with another number for the one entry there is, and with more entries."""
    file = msgspec.json.decode(text)
    ((key, (entry,)),) = file["baselines"].items()
    file["baselines"] = {
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
        self.baseline = file.read_bytes()
        self.again = project.pytest("--assay-update-baselines=all")
        self.stored_again = file.read_bytes()
        entries = {"small/gone/temp-bytes": 3, "small/later/temp-bytes": 4}
        project.write({FILE: _edited(self.baseline, measured=1, entries=entries)})
        self.edited = project.pytest("-n", "1")
        self.all = project.pytest("--assay-update-baselines=all")
        self.stored_at_last = file.read_bytes()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(tmp_path_factory.mktemp("baselines"))


def _verdict(ended: Ended, claim: str = "temp-bytes", variant: str = "grown") -> str:
    return ended.record(variant, claim).verdict.value


def test_a_missing_number_fails_with_the_command_that_stores_it(story: Story) -> None:
    assert (story.missing.exit_code, _verdict(story.missing)) == (1, "failed")
    assert "do: store it with --assay-update-baselines=new" in story.missing.output
    assert FILE not in story.missing.changed


def test_new_stores_a_missing_number(story: Story) -> None:
    assert (story.new.exit_code, _verdict(story.new)) == (0, "passed")
    assert FILE in story.new.changed


def test_the_files_of_what_was_stored_are_told(story: Story) -> None:
    told = "baseline updated, commit it: "
    assert told not in story.missing.output
    assert FILE in story.new.output.partition(told)[2].replace("\n", "")


def test_storing_twice_gives_the_same_bytes(story: Story) -> None:
    assert (story.again.exit_code, _verdict(story.again)) == (0, "passed")
    assert story.stored_again == story.baseline


def test_another_number_fails_and_both_are_told(story: Story) -> None:
    record = story.edited.record("grown", "temp-bytes")
    assert (story.edited.exit_code, record.verdict.value, record.limit) == (1, "failed", 1)
    assert f"  measured: {record.measured} B" in story.edited.output
    assert "  limit: 1 B (1)" in story.edited.output


def test_an_unused_baseline_fails_with_its_advice(story: Story) -> None:
    record = story.edited.record("gone", "temp-bytes.unused")
    assert (record.suite, record.workload, record.target) == ("mine", "small", "cpu:8")
    assert (record.verdict.value, record.measured, record.limit) == ("failed", 1, 0)
    assert "baselines[mine/small/gone/temp-bytes@cpu:8]" in story.edited.output
    assert ADVICE in " ".join(story.edited.output.split())


def test_a_number_of_another_level_and_target_is_not_unused(story: Story) -> None:
    assert "later" not in {record.variant for record in story.edited.records}
    assert b"small/later/temp-bytes" in story.stored_at_last


def test_all_replaces_numbers_and_removes_unused_baselines(story: Story) -> None:
    assert (story.all.exit_code, _verdict(story.all)) == (0, "passed")
    last, first = (
        msgspec.json.decode(text)["baselines"] for text in (story.stored_at_last, story.baseline)
    )
    assert last.pop("small/later/temp-bytes")
    assert last == first


OTHER = SUITE.replace("workload(variant", 'workload(name="other", *(variant').replace(
    "scopes=LATER)", "), scopes=LATER)"
)


@pytest.fixture(scope="module")
def with_unused(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A suite of two files; besides both files' numbers there is one of a renamed claim."""
    entries = {f"{name}/temp-bytes": [] for name in ("small/grown", "other/grown")}
    entries["small/grown/old-name"] = []
    file = {"schema": 1, "suite": "mine", "target": "cpu:8", "baselines": entries}
    gone = {**file, "suite": "elsewhere", "baselines": {"x/y/z": []}}
    return Project(
        tmp_path_factory.mktemp("unused"),
        {
            "suite/test_memory.py": SUITE,
            "suite/test_other.py": OTHER,
            FILE: msgspec.json.encode(file).decode(),
            "baselines/cpu-8/elsewhere.json": msgspec.json.encode(gone).decode(),
        },
    )


def _unused_baselines(project: Project, *arguments: str) -> list[str]:
    ended = project.pytest("--collect-only", "-q", *arguments)
    lines = [line for line in ended.output.splitlines() if "baselines[" in line]
    return [line.partition("::")[2] for line in lines]


@pytest.mark.parametrize(
    ("arguments", "unused"),
    [
        ((), ["baselines[mine/small/grown/old-name@cpu:8]"]),
        (("suite", "-k", "other"), []),
        (("suite/test_memory.py",), []),
        (("suite", "--ignore=suite/test_other.py"), []),
        (("suite", "--ignore-glob=*_other.py"), []),
    ],
)
def test_unused_baselines_are_told_only_where_the_whole_suite_is_collected(
    with_unused: Project, arguments: tuple[str, ...], unused: list[str]
) -> None:
    assert _unused_baselines(with_unused, *arguments) == unused
