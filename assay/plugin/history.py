"""A run adds itself to a history database at its end."""

from collections.abc import Sequence
from pathlib import Path

from assay.model.history import HistoryError, Trend
from assay.model.verdict import Record


def check_database(url: str) -> None:
    """Raise HistoryError if the database cannot be used, before the run has measured anything."""
    from assay.store.history import opened

    with opened(url):
        pass


def add_run(url: str, directory: Path, seen: Sequence[Record]) -> tuple[Trend, ...]:
    """Add the run; returns the trends of its series with their changes.

    Raises HistoryError if the database cannot be used any more. It then holds nothing of the run.
    """
    from assay.stats.trends import with_changes
    from assay.store.history import opened

    try:
        with opened(url) as database:
            database.add(directory)
            return with_changes(database.trends_of(seen))
    except HistoryError as error:
        raise HistoryError(f"{error}; then add the run: assay history --add {directory}") from error
