"""``assay history``: runs go in, and a claim comes out with its changes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from assay.model.verdict import Invocation, Outcome
from assay.store import records
from assay.store.history import opened
from tests.plugin.project import Project
from tests.store.test_records import RECORD

NIGHTS = 6


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Nights of two variants; one of them doubles with the fourth night's toolchain."""
    project = Project(tmp_path_factory.mktemp("team"), {})
    for night in range(NIGHTS):
        run = f"2026110{night + 1}T021500-00aa"
        folder = project.root / "results" / run
        folder.mkdir(parents=True)
        is_late = night >= 3
        for variant, size in (("constant", 1), ("grown", 2 if is_late else 1)):
            record = replace(
                RECORD,
                run=run,
                variant=variant,
                measured=size * 2**30,
                verdict=Outcome.FAILED if size == 2 else Outcome.PASSED,
                toolchain={"jax": "0.12.1" if is_late else "0.12.0"},
            )
            records.append(folder, record)
            records.append(folder, replace(record, claim="compiles", measured=None))
        records.write_invocation(folder, Invocation())
    records.point_latest(project.root / "results" / run)
    return project


@pytest.fixture(scope="module")
def database(project: Project) -> str:
    """A database with all of these nights."""
    path = str(project.root / "team.db")
    ended = project.assay("history", "--db", path, "--add", "results")
    assert (ended.exit_code, ended.output.count(": 4 verdicts added\n")) == (0, NIGHTS)
    return path


def test_a_claim_shows_when_it_changed_and_with_what(project: Project, database: str) -> None:
    ended = project.assay("history", "host-bytes", "--db", database)
    assert ended.exit_code == 0
    assert "▁▁▁███" in ended.output
    assert "2026-11-04  1.0 GiB → 2.0 GiB (+100 %), passed → FAILED" in ended.output
    assert "jax 0.12.0 → 0.12.1" in ended.output
    assert "2 series of 6 runs: 1 with changes" in ended.output


@pytest.mark.parametrize(
    ("arguments", "variants"),
    [
        (["host-bytes"], ["constant", "grown"]),
        (["host-*", "--target", "gpu-*"], ["constant", "grown"]),
        (["suite/stack/grown/host-bytes"], ["grown"]),
        (["*/*/gr*/host-bytes", "--target", "gpu-h100:8"], ["grown"]),
    ],
)
def test_patterns_select_series(
    project: Project, database: str, arguments: list[str], variants: list[str]
) -> None:
    ended = project.assay("history", *arguments, "--json", "--db", database)
    assert ended.exit_code == 0
    series = json.loads(ended.output)["series"]
    assert [each["variant"] for each in series] == variants
    assert [len(each["samples"]) for each in series] == [NIGHTS] * len(variants)


def test_a_run_is_added_once(project: Project, database: str) -> None:
    ended = project.assay("history", "--add", "results/latest", "--db", database)
    assert ended.exit_code == 0
    assert ": nothing to add, 4 verdicts were added before" in ended.output


def test_without_a_url_the_database_is_in_the_users_data_folder(project: Project) -> None:
    ended = project.assay("history", "compiles", "--add", "results/latest")
    assert ended.exit_code == 0
    assert (project.root / ".local/share/assay/history.db").is_file()
    assert "2 series of 1 run: 0 with changes" in ended.output


def test_a_damaged_run_is_named_and_the_others_are_added(project: Project) -> None:
    bad = project.root / "mixed" / "bad"
    bad.mkdir(parents=True)
    (bad / records.FILE_NAME).write_bytes(b"{}\n")
    good = bad.with_name("good")
    good.mkdir()
    records.append(good, RECORD)
    ended = project.assay("history", "--add", "mixed", "--db", "mixed.db")
    assert ended.exit_code == 2
    assert "bad/records.jsonl:1: got a line that is no record" in ended.output
    assert "run: 1 verdict added" in ended.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "got no CLAIM, wanted one"),
        (("temp-bytes",), "got temp-bytes, which matches no series, wanted one of compiles, host-"),
        (
            ("host-bytes", "--target", "gpu-h1"),
            "for host-bytes, which matches no series, wanted one of gpu-h100:8; write gpu-h100:8",
        ),
        (("host-byte", "--target", "gpu-h1"), "got host-byte, which matches no series, wanted one"),
        (("stack/host-bytes",), "wanted a claim, or suite/workload/variant/claim"),
        (("--add", "absent"), "got no readable absent"),
        (("--add", "empty"), "got --add empty without a run"),
    ],
)
def test_misuse_ends_with_2_and_a_line(
    project: Project, database: str, arguments: tuple[str, ...], words: str
) -> None:
    (project.root / "empty").mkdir(exist_ok=True)
    ended = project.assay("history", *arguments, "--db", database)
    assert ended.exit_code == 2
    assert words in ended.output
    assert "Traceback" not in ended.output


def test_a_database_without_runs_is_named(project: Project) -> None:
    with opened(str(project.root / "new.db")):
        pass
    ended = project.assay("history", "host-bytes", "--db", "new.db")
    assert ended.exit_code == 2
    words = f"got {project.root}/new.db without runs, wanted some; add a run with --add results/"
    assert words in ended.output


@pytest.mark.parametrize(
    "command", [("history", "host-bytes"), ("report", "results/latest", "--html", "absent.html")]
)
def test_reading_a_history_does_not_make_it(project: Project, command: tuple[str, ...]) -> None:
    ended = project.assay(*command, "--db", "absent/x.db")
    assert ended.exit_code == 2
    assert f"got no history database {project.root}/absent/x.db, wanted one" in ended.output
    assert "assay history --add results/latest --db absent/x.db" in ended.output
    assert not ended.changed
    assert not (project.root / "absent").exists()


def test_a_page_shows_the_history_of_its_run(project: Project, database: str) -> None:
    page = project.root / "page.html"
    ended = project.assay("report", "results/latest", "--html", str(page), "--db", database)
    assert ended.exit_code == 0
    assert "1.0 GiB → 2.0 GiB (+100 %), passed → FAILED; jax 0.12.0 → 0.12.1" in page.read_text()
    project.assay("report", "results/latest", "--html", str(page))
    assert 'id="history"' not in page.read_text()
