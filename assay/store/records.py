"""A run's ``records.jsonl``, one verdict per line; its invocation; the link ``latest``."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import msgspec

from assay.model.verdict import RECORD_SCHEMA, USUAL, Ending, Invocation, Outcome, Record
from assay.store.files import decode_json, read_file, write_whole

FILE_NAME = "records.jsonl"
LATEST = "latest"
INVOCATION = "invocation.json"


def write_invocation(directory: Path, invocation: Invocation) -> Path:
    """Write the run's command and how the run ended; returns the path."""
    path = directory / INVOCATION
    write_whole(path, msgspec.json.encode(invocation))
    return path


def invocation_of(directory: Path) -> Invocation:
    """What ``write_invocation`` wrote; ``USUAL`` without the file.

    Raises RecordsError for a damaged file: it says whether the run is whole.
    """
    file = directory / INVOCATION
    try:
        return decode_json(read_file(file), Invocation)
    except FileNotFoundError:
        return USUAL
    except (OSError, msgspec.MsgspecError) as error:
        raise RecordsError(
            f"got {file} that cannot be read ({error}), wanted how the run ended; restore the "
            f"file, or remove it to read {FILE_NAME} alone"
        ) from None


def point_latest(directory: Path) -> None:
    """Point the link ``latest``, next to the run's folder, to that folder."""
    link = directory.parent / LATEST
    fresh = directory.parent / f".{LATEST}-{directory.name}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(directory.name)
    fresh.replace(link)


class RecordsError(ValueError):
    """A records file that cannot be read."""


class _Schema(msgspec.Struct):
    """The field that every line has in every schema."""

    schema: int


def line_of(record: Record) -> bytes:
    """The line of a record."""
    return msgspec.json.encode(record) + b"\n"


def append(directory: Path, record: Record) -> None:
    """Add one line and flush it to disk, so that a killed run keeps its verdicts.

    A line that cannot be written whole is not written: what a full disk took of it is removed.
    """
    with _opened(directory / FILE_NAME, os.O_APPEND | os.O_CREAT) as file:
        end, rest = file.tell(), memoryview(line_of(record))
        try:
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                os.truncate(file.fileno(), end)
            raise


def _opened(file: Path, flags: int) -> FileIO:
    """The file, to be changed; never what a link of that name points to."""
    handle = os.open(file, os.O_WRONLY | os.O_NOFOLLOW | flags, 0o644)
    return os.fdopen(handle, "ab", buffering=0)


class Lines(NamedTuple):
    """A records file: its whole lines, and the last one if a killed run did not finish it."""

    file: Path
    whole: bytes
    torn: bytes


def read(path: Path) -> Lines:
    """The lines of a run's folder or file. Raises RecordsError if it cannot be read."""
    file = path / FILE_NAME if path.is_dir() else path
    try:
        data = read_file(file)
    except OSError as error:
        raise RecordsError(
            f"got no readable {file} ({error.strerror}), wanted a run's {FILE_NAME}; "
            "name a folder under results/, or run pytest suites first"
        ) from None
    end = data.rfind(b"\n") + 1
    return Lines(file, data[:end], data[end:])


def recover(directory: Path) -> bool:
    """Remove a last line that a killed run did not finish. Returns whether there was one.

    Raises RecordsError for a missing file, or one that cannot be written.
    """
    lines = read(directory)
    try:
        with _opened(lines.file, 0) as file:
            file.truncate(len(lines.whole))
    except OSError as error:
        raise RecordsError(
            f"got {lines.file} that cannot be written ({error.strerror}), wanted the records of "
            "an interrupted run; make them writable"
        ) from None
    return bool(lines.torn)


def drop_errors(directory: Path) -> None:
    """Remove the records with verdict ``error``. The other lines keep their bytes."""
    lines = read(directory)
    pairs = zip(lines.whole.splitlines(keepends=True), decode(lines), strict=True)
    kept = b"".join(line for line, record in pairs if record.verdict is not Outcome.ERROR)
    if kept != lines.whole:
        write_whole(lines.file, kept)


def load(path: Path) -> tuple[Record, ...]:
    """The records of a run's folder or file, in the order of the verdicts.

    Leaves out a last line that a killed run did not finish. Raises RecordsError for a missing file,
    a damaged line or another schema.
    """
    return decode(read(path))


def decode(lines: Lines) -> tuple[Record, ...]:
    """The records of the whole lines. Raises RecordsError for a damaged one or another schema."""
    return tuple(_decode(lines.file, lines.whole))


def _decode(file: Path, lines: bytes) -> Iterator[Record]:
    for number, line in enumerate(lines.splitlines(), start=1):
        try:
            has: _Schema = decode_json(line, _Schema)
            schema = has.schema
            if schema != RECORD_SCHEMA:
                raise RecordsError(
                    f"{file}:{number}: got record schema {schema}, wanted {RECORD_SCHEMA}; "
                    "run pytest suites again, or read the file with the Assay version that wrote it"
                )
            yield decode_json(line, Record)
        except msgspec.MsgspecError as error:
            raise RecordsError(
                f"{file}:{number}: got a line that is no record ({error}), "
                "wanted one JSON object a line; restore the file or run again"
            ) from None


def check_count(file: Path, seen: Sequence[Record], ending: Ending) -> None:
    """Raise RecordsError unless a file that was read back holds as many records as its run."""
    if not ending.matches(seen):
        raise RecordsError(
            f"got {file} with {len(seen)} of {ending.verdicts} verdicts, wanted what the run "
            "reached; restore the file or run again"
        )


def check_whole(lines: Lines, seen: Sequence[Record], ending: Ending) -> None:
    """Raise RecordsError unless the file holds what its run reached, and no unfinished line."""
    check_count(lines.file, seen, ending)
    if lines.torn:
        raise RecordsError(
            f"got {lines.file} whose last line is not finished and was left out, wanted whole "
            "lines; restore the file, or continue the run with --assay-resume"
        )


def check(directory: Path, reached: Sequence[Record]) -> None:
    """Raise RecordsError unless the file holds the run's records, each once."""
    written = load(directory)
    if written != tuple(reached):
        raise RecordsError(
            f"{FILE_NAME} holds {len(written)} verdicts, and not the {len(reached)} that the run "
            "reached; run again"
        )
