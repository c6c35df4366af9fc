"""The tables of a history database, and their migrations."""

from typing import Final

from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    Double,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    select,
)

from assay.model.history import HistoryError

# Every name has a prefix, because a team's database can hold tables of others.
METADATA: Final = MetaData()
VERSION_TABLE: Final = "assay_schema"
NEWEST: Final = "0002"
"""The migration that gives the tables below."""

RUNS: Final = Table(
    "assay_runs",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("started_at", DateTime, nullable=False),  # UTC
    # What was added of the run's file: its whole lines, their bytes, and SHA-256 of these bytes.
    Column("lines", Integer, nullable=False),
    Column("nbytes", Integer, nullable=False),
    Column("digest", String(64), nullable=False),
    # What the run tested, as ``git describe --dirty`` names it; null if it is not known.
    Column("commit", Text),
)
SERIES: Final = Table(
    "assay_series",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("suite", Text, nullable=False),
    Column("workload", Text, nullable=False),
    Column("variant", Text, nullable=False),
    Column("claim", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("unit", String(16), nullable=False),
)
TOOLCHAINS: Final = Table(
    "assay_toolchains",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("versions", Text, nullable=False),  # a JSON object
)
REASONS: Final = Table(
    "assay_reasons",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("reason", Text, nullable=False),
)
VERDICTS: Final = Table(
    "assay_verdicts",
    METADATA,
    # In this order: SQLite stores the samples of a series side by side.
    Column("series_id", ForeignKey(SERIES.c.id), primary_key=True),
    Column("run_id", ForeignKey(RUNS.c.id), primary_key=True),
    Column("line", Integer, primary_key=True),
    Column("verdict", String(16), nullable=False),
    Column("measured", Double),
    Column("limit", Double),
    Column("toolchain_id", ForeignKey(TOOLCHAINS.c.id), nullable=False),
    Column("reason_id", ForeignKey(REASONS.c.id)),
    sqlite_with_rowid=False,
)


def version_of(connection: Connection) -> str:
    """The migration that the database is at, empty if it has no tables of Assay."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return ""
    version = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32)))
    return str(connection.execute(select(version.c.version_num)).scalar_one_or_none() or "")


def migrate(connection: Connection) -> None:
    """Bring the tables to ``NEWEST`` inside the connection's transaction.

    Raises HistoryError if a newer version of Assay made the tables.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "assay.store:migrations")
    known = {each.revision for each in ScriptDirectory.from_config(config).walk_revisions()}
    if (version := version_of(connection)) and version not in known:
        raise HistoryError(
            f"got a database of schema {version}, wanted {NEWEST} or older: a newer Assay wrote "
            "it; update Assay, or name another database"
        )
    command.upgrade(config, "head")
