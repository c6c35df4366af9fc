"""A run is in the database whole, once, and as it was written; or not at all, with the reason."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event, text

from assay.model.history import HistoryError, SeriesName, Trend
from assay.model.installation import install_command
from assay.model.verdict import Invocation, Outcome, Record
from assay.store import history, records
from assay.store.history import database_url, opened
from assay.store.history_tables import METADATA, NEWEST, VERSION_TABLE
from assay.store.records import RecordsError
from tests.store.test_records import RECORD

RUN = "20261102T021500-00aa"
NAME = SeriesName("suite", "stack", "offload", "host-bytes", "gpu-h100:8")


def write(folder: Path, *seen: Record, torn: bytes = b"", run: str = RUN) -> Path:
    """A run's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = (records.line_of(replace(record, run=run)) for record in seen)
    (folder / records.FILE_NAME).write_bytes(b"".join(lines) + torn)
    return folder


def everything(database: str) -> tuple[Trend, ...]:
    with opened(database) as known:
        return known.trends(lambda _: True)


def add(database: str, folder: Path) -> tuple[int, int, int]:
    with opened(database) as known:
        return known.add(folder)[1:]


def variants(*names: str) -> list[Record]:
    return [replace(RECORD, variant=name) for name in names]


def test_a_run_comes_back_as_it_was(database: str, tmp_path: Path) -> None:
    failed = replace(
        RECORD, variant="other", verdict=Outcome.FAILED, measured=2.5, limit=None, toolchain={}
    )
    assert add(database, write(tmp_path / "run", RECORD, failed)) == (2, 2, 0)
    one, two = everything(database)
    assert (one.name, one.unit) == (NAME, RECORD.unit)
    (sample,), (other,) = one.samples, two.samples
    assert sample.run == RUN
    assert sample.at == datetime(2026, 11, 2, 2, 15, tzinfo=UTC)
    assert (sample.verdict, sample.measured, sample.limit) == (Outcome.PASSED, 2**40, 2**40)
    assert (sample.toolchain, sample.reason) == (RECORD.toolchain, "")
    assert (other.verdict, other.measured, other.limit) == (Outcome.FAILED, 2.5, None)
    assert (other.toolchain, other.reason) == ({}, RECORD.reason)


def test_a_run_keeps_the_commit_that_it_tested(database: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "run", RECORD)
    records.write_invocation(folder, Invocation(environment={"commit": "abc-dirty"}))
    add(database, folder)
    add(database, write(tmp_path / "other", RECORD, run="20261126T021500-ab10"))
    (trend,) = everything(database)
    assert [each.commit for each in trend.samples] == ["abc-dirty", ""]


def test_a_text_that_postgresql_cannot_hold_is_added(database: str, tmp_path: Path) -> None:
    odd = replace(RECORD, verdict=Outcome.FAILED, reason="a\0b", toolchain={"jax": "\0"})
    add(database, write(tmp_path / "run", odd))
    ((sample,),) = (trend.samples for trend in everything(database))
    assert (sample.reason, sample.toolchain) == ("a\N{REPLACEMENT CHARACTER}b", {"jax": "\0"})


def test_the_same_run_twice_changes_nothing(database: str, tmp_path: Path) -> None:
    run = write(tmp_path / "run", *variants("one", "two"))
    assert add(database, run) == (2, 2, 0)
    before = everything(database)
    assert add(database, run) == (0, 2, 0)
    assert everything(database) == before


def test_a_torn_line_is_left_out_and_added_when_whole(database: str, tmp_path: Path) -> None:
    torn = records.line_of(replace(RECORD, variant="two"))[:-9]
    run = write(tmp_path / "run", *variants("one"), torn=torn)
    assert add(database, run) == (1, 1, len(torn))
    assert add(database, write(run, *variants("one", "two", "three"))) == (2, 3, 0)
    assert [trend.name.variant for trend in everything(database)] == ["one", "three", "two"]


@pytest.mark.parametrize("seen", [("other", "two"), ("one",)], ids=["other", "fewer"])
def test_another_run_of_that_name_is_refused(
    database: str, tmp_path: Path, seen: tuple[str, ...]
) -> None:
    add(database, write(tmp_path / "run", *variants("one", "two")))
    before = everything(database)
    with pytest.raises(HistoryError, match="of which other verdicts were added before"):
        add(database, write(tmp_path / "again", *variants(*seen)))
    assert everything(database) == before


@pytest.mark.parametrize(
    ("content", "fault", "words"),
    [
        (b'{"schema": 2}\n', RecordsError, ":1: got a line that is no record"),
        (b'{"schema": 9}\n', RecordsError, "got record schema 9, wanted 2"),
        (b'{"schema": 2', HistoryError, "with no whole line"),
        (
            records.line_of(RECORD) + records.line_of(replace(RECORD, run="a")),
            HistoryError,
            "with runs a, run",
        ),
    ],
)
def test_a_file_that_is_no_run_adds_nothing(
    database: str, tmp_path: Path, content: bytes, fault: type[Exception], words: str
) -> None:
    run = write(tmp_path / "run")
    (run / records.FILE_NAME).write_bytes(content)
    with pytest.raises(fault, match=words):
        add(database, run)
    assert everything(database) == ()


def test_runs_are_in_the_order_in_which_they_started(database: str, tmp_path: Path) -> None:
    for day in (3, 1, 2):
        run = f"2026110{day}T021500-00aa"
        add(database, write(tmp_path / run, replace(RECORD, measured=day), run=run))
    ((*samples,),) = (trend.samples for trend in everything(database))
    assert [sample.measured for sample in samples] == [1, 2, 3]


def test_a_run_without_a_date_has_that_of_its_file(database: str, tmp_path: Path) -> None:
    add(database, write(tmp_path / "run", RECORD, run="mine"))
    ((sample,),) = (trend.samples for trend in everything(database))
    assert abs(datetime.now(UTC) - sample.at).total_seconds() < 600


def test_a_page_gets_the_newest_runs_of_its_series_alone(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_RUNS_ON_PAGE", 2)
    other = replace(RECORD, suite="other")
    for day in range(1, 6):
        run = f"2026110{day}T021500-00aa"
        seen = replace(RECORD if day < 5 else other, measured=day)
        add(database, write(tmp_path / run, seen, run=run))
    with opened(database) as known:
        (trend,) = known.trends_of([RECORD])
        assert known.trends_of([replace(RECORD, suite="absent")]) == ()
    assert [sample.measured for sample in trend.samples] == [3, 4]


DIES = """
import os, sys
from pathlib import Path
from assay.store import history
real = history._add_verdicts
def stand_in(*arguments):
    real(*arguments)
    os._exit(7)
history._add_verdicts = stand_in
with history.opened(sys.argv[1]) as known:
    known.add(Path(sys.argv[2]))
"""


def test_a_process_that_dies_while_it_adds_leaves_nothing(database: str, tmp_path: Path) -> None:
    run = write(tmp_path / "run", RECORD)
    ended = subprocess.run([sys.executable, "-c", DIES, database, run], check=False)
    assert ended.returncode == 7
    assert everything(database) == ()
    assert add(database, run) == (1, 1, 0)


def test_a_fault_while_it_adds_leaves_what_was_there(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(database, write(tmp_path / "run", RECORD))
    before = everything(database)

    def stand_in(*_: object) -> dict[object, int]:
        raise OSError("full")

    monkeypatch.setattr(history, "_ids", stand_in)
    with pytest.raises(OSError, match="full"):
        add(database, write(tmp_path / "next", RECORD, run="20261103T021500-00aa"))
    assert everything(database) == before


ADDS_AT_ONCE = """
import sys, time
from pathlib import Path
from assay.store.history import opened
while not Path(sys.argv[3]).exists():
    time.sleep(0.001)
with opened(sys.argv[1]) as known:
    print(known.add(Path(sys.argv[2])).new)
"""


def test_processes_that_migrate_and_add_at_once_add_it_once(database: str, tmp_path: Path) -> None:
    run, go = write(tmp_path / "run", *variants("one", "two", "three")), tmp_path / "go"
    command = [sys.executable, "-c", ADDS_AT_ONCE, database, str(run), str(go)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    go.touch()
    outputs = [each.communicate(timeout=120)[0].strip() for each in started]
    assert [each.returncode for each in started] == [0] * 4
    assert sorted(outputs) == ["0", "0", "0", "3"]
    assert len(everything(database)) == 3


def test_the_migrations_give_the_tables_of_the_code(database: str) -> None:
    with opened(database) as known, known._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert context.get_current_revision() == NEWEST
        assert compare_metadata(context, METADATA) == []
    config = Config()
    config.set_main_option("script_location", "assay.store:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [NEWEST]


def execute(database: str, statement: str) -> None:
    with opened(database) as known, known._engine.begin() as connection:
        connection.execute(text(statement))


def test_a_database_of_an_older_version_keeps_its_runs(database: str, tmp_path: Path) -> None:
    add(database, write(tmp_path / "run", RECORD))
    execute(database, 'ALTER TABLE assay_runs DROP COLUMN "commit"')
    engine = history._engine(database_url(database))
    with engine.begin() as connection:  # The statement before would have been migrated back.
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0001'"))
    engine.dispose()
    (trend,) = everything(database)
    assert [(each.run, each.commit) for each in trend.samples] == [(RUN, "")]


def test_a_database_of_a_newer_version_is_refused_as_it_is(database: str, tmp_path: Path) -> None:
    add(database, write(tmp_path / "run", RECORD))
    execute(database, f"UPDATE {VERSION_TABLE} SET version_num = '9001'")
    with pytest.raises(HistoryError, match=f"schema 9001, wanted {NEWEST} or older.*update Assay"):
        everything(database)
    with pytest.raises(HistoryError, match="schema 9001"):
        add(database, write(tmp_path / "next", RECORD, run="next"))


def test_a_migration_that_fails_leaves_no_table(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = history.migrate

    def stand_in(connection: object) -> None:
        real(connection)  # type: ignore[arg-type]
        raise OSError("killed")

    monkeypatch.setattr(history, "migrate", stand_in)
    with pytest.raises(OSError, match="killed"):
        everything(database)
    monkeypatch.undo()
    assert everything(database) == ()


def test_a_question_searches_and_never_reads_a_whole_table(tmp_path: Path) -> None:
    database = str(tmp_path / "history.db")
    add(database, write(tmp_path / "run", RECORD))
    with opened(database) as known:
        asked: list[tuple[str, tuple[object, ...]]] = []

        def note(*arguments: object) -> None:
            asked.append(arguments[2:4])  # type: ignore[arg-type]

        event.listen(known._engine, "before_cursor_execute", note)
        known.trends(lambda _: True)
        known.trends_of([RECORD])
        event.remove(known._engine, "before_cursor_execute", note)
        plans: list[str] = []
        with known._engine.connect() as connection:
            for statement, values in asked:
                if "assay_verdicts" in statement:
                    rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
                    plans += [row.detail for row in rows if "assay_verdicts" in row.detail]
    assert len(plans) == 3
    assert all(plan.startswith("SEARCH assay_verdicts USING PRIMARY KEY") for plan in plans), plans


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("/data/h.db", "sqlite+pysqlite:////data/h.db"),
        ("sqlite:////data/h.db", "sqlite+pysqlite:////data/h.db"),
        ("postgresql://me@host/name", "postgresql+psycopg://me@host/name"),
        ("postgresql://me:secret@host/name", "postgresql+psycopg://me:***@host/name"),
        ("default", "sqlite+pysqlite:////data/assay/history.db"),
        ("", "sqlite+pysqlite:////data/assay/history.db"),
    ],
)
def test_a_path_or_a_url_names_a_database(
    monkeypatch: pytest.MonkeyPatch, given: str, url: str
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    monkeypatch.delenv("ASSAY_HISTORY", raising=False)
    assert str(database_url(given)) == url


def test_a_team_sets_its_database_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_HISTORY", "postgresql://host/team")
    assert str(database_url("default")) == "postgresql+psycopg://host/team"
    assert database_url("/mine.db").database == "/mine.db"


@pytest.mark.parametrize(
    "given", ["mysql://me:secret@host/name", "://", "sqlite://history.db", "sqlite://"]
)
def test_another_database_is_refused_without_its_password(given: str) -> None:
    words = r"got a database URL that starts with .*wanted a path"
    with pytest.raises(HistoryError, match=words) as refused:
        database_url(given)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda path: path.write_bytes(b"no database" * 100), "file is not a database"),
        (lambda path: path.mkdir(), "unable to open database file"),
    ],
    ids=["other file", "folder"],
)
def test_a_file_that_is_no_database_is_named(
    tmp_path: Path, prepare: Callable[[Path], None], words: str
) -> None:
    path = tmp_path / "history.db"
    prepare(path)
    with pytest.raises(HistoryError, match=f"{path}: .*{words}"):
        everything(str(path))


def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"cannot be used .*connection"):
        everything(f"postgresql://me@/name?host={tmp_path}")


def test_without_its_driver_postgresql_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(HistoryError, match=re.escape(install_command("postgresql"))):
        everything("postgresql://me@host/name")
