"""The database of a team's runs: SQLite in a file, or PostgreSQL on a server."""

import hashlib
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec
from sqlalchemy import (
    Connection,
    Engine,
    Table,
    create_engine,
    event,
    exists,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError

from assay.model.history import Added, HistoryError, Sample, SeriesName, Trend
from assay.model.installation import install_command
from assay.model.units import Unit
from assay.model.verdict import Outcome, Record
from assay.store import records
from assay.store.history_tables import (
    NEWEST,
    REASONS,
    RUNS,
    SERIES,
    TOOLCHAINS,
    VERDICTS,
    migrate,
    version_of,
)

DEFAULT: Final = "default"
"""Stands for the database of ``$ASSAY_HISTORY``, or else for a file in the user's data folder."""
_VARIABLE: Final = "ASSAY_HISTORY"
_DRIVERS: Final = MappingProxyType(
    {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg"}
)
_WRITES: Final = "assay_writes"
_LOCK: Final = 0x61737361  # "assa": the advisory lock of PostgreSQL for those who write
_WAIT_SECONDS: Final = 60.0  # for other writers; adding a run takes less than a second
_MOST_IN_A_QUERY: Final = 500  # values; SQLite before 3.32 takes 999
_RUNS_ON_PAGE: Final = 60
_STARTED: Final = "%Y%m%dT%H%M%S"
"""The head of a run's name (``assay.plugin.run_name``)."""


def database_url(text: str) -> URL:
    """The URL of a database: of a path, of ``sqlite:///…`` or ``postgresql://…``, of ``DEFAULT``.

    Raises HistoryError for any other text.
    """
    if text in ("", DEFAULT):
        home = Path(os.environ.get("XDG_DATA_HOME", ""))
        home = home if home.is_absolute() else Path.home() / ".local/share"
        text = os.environ.get(_VARIABLE) or str(home / "assay/history.db")
    if "://" not in text:
        return URL.create(_DRIVERS["sqlite"], database=str(Path(text).expanduser().absolute()))
    try:
        url = make_url(text)
    except ArgumentError:
        url = URL.create("")
    backend = url.get_backend_name()
    has_place = url.database and not (url.host and backend == "sqlite")
    if backend not in _DRIVERS or not has_place:
        raise HistoryError(
            f"got a database URL that starts with {text.partition('://')[0]}://, wanted a path, "
            "sqlite:///PATH or postgresql://USER@HOST/NAME"
        )
    return url.set(drivername=_DRIVERS[backend])


@contextmanager
def opened(text: str, *, to_read: bool = False) -> Iterator["History"]:
    """The database, with its tables made or brought up to date.

    With ``to_read``, a file must exist. Raises HistoryError if the database cannot be used, now or
    while it is open.
    """
    url = database_url(text)
    is_file = url.get_backend_name() == "sqlite"
    place = str(url.database if is_file else url)  # without a password
    if to_read and is_file and not Path(place).exists():
        option = "" if text in ("", DEFAULT) else f" --db {shlex.quote(text)}"
        raise HistoryError(
            f"got no history database {place}, wanted one that exists; name another with --db, or "
            f"make this one: assay history --add results/latest{option}"
        )
    engine = _engine(url)
    try:
        with _reading(engine) as connection:
            is_newest = version_of(connection) == NEWEST
        if not is_newest:
            with _writing(engine) as connection:
                migrate(connection)  # which does nothing if another process was faster
        yield History(engine, place)
    except IntegrityError:  # A fault of Assay, not of the database.
        raise
    except DBAPIError as error:
        why = " ".join(str(error.orig).split())
        raise HistoryError(
            f"got a history database that cannot be used ({url}: {why}), wanted one that can be "
            "read and written; name another, or repair this one"
        ) from error
    finally:
        engine.dispose()


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "postgresql":
        try:
            return create_engine(url, connect_args={"connect_timeout": round(_WAIT_SECONDS)})
        except ImportError:
            raise HistoryError(
                "got a PostgreSQL database without its driver, wanted psycopg; "
                f"{install_command('postgresql')}"
            ) from None
    try:
        Path(url.database or "").parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HistoryError(f"got no folder for {url.database}: {error.strerror}") from None
    arguments: dict[str, Any] = {"timeout": _WAIT_SECONDS, "isolation_level": None}
    engine = create_engine(url, connect_args=arguments)
    # Python's module would begin a transaction before some statements only.
    event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _writing(engine: Engine) -> Iterator[Connection]:
    """A transaction of which there is one at a time, also among processes and machines."""
    with engine.execution_options(**{_WRITES: True}).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        yield connection


@contextmanager
def _reading(engine: Engine) -> Iterator[Connection]:
    """A transaction in which all queries see the same runs.

    Raises HistoryError for what Assay did not write.
    """
    with engine.connect() as connection:
        if connection.dialect.name == "postgresql":  # SQLite does so anyway.
            connection.execution_options(isolation_level="REPEATABLE READ")
        try:
            yield connection
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise HistoryError(
                f"got a history database that holds what Assay did not write ({error}), wanted one "
                "of Assay's own; name another, or restore this one"
            ) from error


class History:
    """An open database (``opened``)."""

    def __init__(self, engine: Engine, place: str) -> None:
        self._engine = engine
        self.place: Final = place
        """Its file, or its URL without the password."""

    def add(self, run: Path) -> Added:
        """Add the whole lines of a run's folder or records file, all of them or none.

        Lines that were added before are not added again. A run that has not ended can be added, and
        the rest of it later.

        Raises:
            RecordsError: the file cannot be read, or holds more or fewer verdicts than its run.
            HistoryError: it holds no whole line, or several runs, or another run of this name.
        """
        lines = records.read(run)
        seen = records.decode(lines)
        names = sorted({each.run for each in seen})
        if len(names) != 1:
            held = f"runs {', '.join(names)}" if names else "no whole line"
            raise HistoryError(f"got {lines.file} with {held}, wanted the verdicts of one run")
        name = names[0]
        invocation = records.invocation_of(lines.file.parent)
        records.check_count(lines.file, seen, invocation.ending)
        commit = invocation.environment.get("commit")
        with _writing(self._engine) as connection:
            run_id, known = _run(connection, name, lines, commit)
            if new := seen[known:]:
                _add_verdicts(connection, run_id, known, new)
                extent = {
                    "lines": len(seen),
                    "nbytes": len(lines.whole),
                    "digest": _digest(lines.whole),
                }
                connection.execute(update(RUNS).where(RUNS.c.id == run_id).values(extent))
        return Added(name, len(new), len(seen), len(lines.torn))

    def series(self) -> dict[int, tuple[SeriesName, Unit]]:
        """Every series by its id."""
        with _reading(self._engine) as connection:
            return {
                row.id: (
                    SeriesName(row.suite, row.workload, row.variant, row.claim, row.target),
                    Unit(row.unit),
                )
                for row in connection.execute(select(SERIES))
            }

    def trends(self, wanted: Callable[[SeriesName], bool]) -> tuple[Trend, ...]:
        """The trends of the wanted series, by name, each in the order in which its runs started."""
        return self._trends(wanted, None)

    def trends_of(self, seen: Iterable[Record]) -> tuple[Trend, ...]:
        """The trends of the records' series over the newest runs, as the page of a run shows."""
        return self._trends({SeriesName.of(each) for each in seen}.__contains__, _RUNS_ON_PAGE)

    def _trends(
        self, wanted: Callable[[SeriesName], bool], newest: int | None
    ) -> tuple[Trend, ...]:
        series = {key: found for key, found in self.series().items() if wanted(found[0])}
        with _reading(self._engine) as connection:
            samples = _samples(connection, list(series), newest)
        return tuple(
            Trend(name=name, unit=unit, samples=tuple(samples[key]))
            for key, (name, unit) in sorted(series.items(), key=lambda item: item[1][0])
            if samples[key]
        )


def _run(
    connection: Connection, name: str, lines: records.Lines, commit: str | None
) -> tuple[int, int]:
    """The id of the run, and how many of its lines were added before."""
    row = connection.execute(select(RUNS).where(RUNS.c.name == name)).one_or_none()
    if row is None:
        values = {"name": name, "started_at": _started(name, lines.file)}
        values |= {"lines": 0, "nbytes": 0, "digest": _digest(b""), "commit": commit}
        return connection.execute(insert(RUNS).values(values).returning(RUNS.c.id)).scalar_one(), 0
    if len(lines.whole) < row.nbytes or _digest(lines.whole[: row.nbytes]) != row.digest:
        raise HistoryError(
            f"got {lines.file} of run {name}, of which other verdicts were added before, wanted "
            "the file that they come from; nothing was changed"
        )
    return row.id, row.lines


def _started(name: str, file: Path) -> datetime:
    """When the run started: by its name, or else when its file was last written. In UTC."""
    head = name.partition("-")[0]
    try:
        return datetime.strptime(head, _STARTED)  # noqa: DTZ007 -- The column has no time zone.
    except ValueError:
        return datetime.fromtimestamp(file.stat().st_mtime, UTC).replace(tzinfo=None)


def _add_verdicts(connection: Connection, run_id: int, known: int, new: Sequence[Record]) -> None:
    series, toolchains, reasons = (
        [part(each) for each in new] for part in (_series, _toolchain, _reason)
    )
    series_ids = _ids(connection, SERIES, series)
    toolchain_ids = _ids(connection, TOOLCHAINS, toolchains)
    reason_ids = _ids(connection, REASONS, filter(any, reasons))
    rows = [
        {
            "series_id": series_ids[series[index]],
            "run_id": run_id,
            "line": known + index,
            "verdict": each.verdict.value,
            "measured": each.measured,
            "limit": each.limit,
            "toolchain_id": toolchain_ids[toolchains[index]],
            "reason_id": reason_ids.get(reasons[index]),
        }
        for index, each in enumerate(new)
    ]
    connection.execute(insert(VERDICTS), rows)


def _series(record: Record) -> tuple[str, ...]:
    return tuple(map(_stored, (*SeriesName.of(record), record.unit.value)))


def _toolchain(record: Record) -> tuple[str, ...]:
    return (msgspec.json.encode(record.toolchain, order="sorted").decode(),)


def _reason(record: Record) -> tuple[str, ...]:
    return (_stored("" if record.verdict is Outcome.PASSED else record.reason),)


def _stored(text: str) -> str:
    """The text as PostgreSQL can hold it."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _ids(
    connection: Connection, table: Table, rows: Iterable[tuple[str, ...]]
) -> dict[tuple[str, ...], int]:
    """The id of each row of a table of texts. Rows that are missing are added."""
    wanted = {_digest("\0".join(row).encode()): row for row in rows}
    known = _known_ids(connection, table, wanted)
    columns = [column.name for column in table.columns][2:]
    missing = [
        {"digest": digest, **dict(zip(columns, row, strict=True))}
        for digest, row in wanted.items()
        if digest not in known
    ]
    if missing:
        connection.execute(insert(table), missing)
        known = _known_ids(connection, table, wanted)
    return {row: known[digest] for digest, row in wanted.items()}


def _known_ids(connection: Connection, table: Table, digests: Collection[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for some in _parts(list(digests)):
        query = select(table.c.digest, table.c.id).where(table.c.digest.in_(some))
        found |= {row.digest: row.id for row in connection.execute(query)}
    return found


def _parts(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The values in parts that one query takes."""
    for start in range(0, len(values), _MOST_IN_A_QUERY):
        yield values[start : start + _MOST_IN_A_QUERY]


def _runs(
    connection: Connection, series: Sequence[int], newest: int | None
) -> dict[int, tuple[str, datetime, str]]:
    """Name, start and commit of each run in order, or of the ``newest`` that judged a series.

    With ``newest``, only the first ``_MOST_IN_A_QUERY`` series choose the runs.
    """
    query = select(RUNS.c.id, RUNS.c.name, RUNS.c.started_at, RUNS.c.commit)
    if newest is not None:
        mine = VERDICTS.c.series_id.in_(series[:_MOST_IN_A_QUERY])
        query = query.where(exists().where(mine, VERDICTS.c.run_id == RUNS.c.id))
    query = query.order_by(RUNS.c.started_at.desc(), RUNS.c.name.desc()).limit(newest)
    rows = reversed(connection.execute(query).all())
    return {
        key: (name, started.replace(tzinfo=UTC), commit or "")
        for key, name, started, commit in rows
    }


def _samples(
    connection: Connection, series: Sequence[int], newest: int | None
) -> dict[int, list[Sample]]:
    """The samples of each series in the order of the runs, and of their lines."""
    runs = _runs(connection, series, newest)
    order = {run: place for place, run in enumerate(runs)}
    found: list[Any] = []
    for some in _parts(series):
        query = (
            select(VERDICTS).where(VERDICTS.c.series_id.in_(some)).order_by(*VERDICTS.primary_key)
        )
        if newest is not None:
            query = query.where(VERDICTS.c.run_id.in_(list(runs)))
        found += connection.execute(query.order_by(*VERDICTS.primary_key)).all()
    found.sort(key=lambda row: order[row[1]])  # Their lines are in order: that of the key.
    reasons = _texts(connection, REASONS, {row[7] for row in found} - {None})
    toolchains = {
        key: MappingProxyType(msgspec.json.decode(text, type=dict[str, str]))
        for key, text in _texts(connection, TOOLCHAINS, {row[6] for row in found}).items()
    }
    outcomes = {each.value: each for each in Outcome}
    samples: dict[int, list[Sample]] = {key: [] for key in series}
    for key, run, _, verdict, measured, limit, toolchain, reason in found:
        name, at, commit = runs[run]
        says = outcomes[verdict], measured, limit, reasons.get(reason, ""), toolchains[toolchain]
        samples[key].append(Sample(name, at, *says, commit))
    return samples


def _texts(connection: Connection, table: Table, ids: Collection[int]) -> Mapping[int, str]:
    found: dict[int, str] = {}
    for some in _parts(sorted(ids)):
        query = select(table.c[0], table.c[2]).where(table.c[0].in_(some))
        found |= {row[0]: row[1] for row in connection.execute(query)}
    return found
