"""``records.jsonl``: one verdict a line, on disk as soon as it is reached."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from assay.model.verdict import RECORD_SCHEMA, Record

FILE_NAME = "records.jsonl"


class RecordsError(ValueError):
    """A records file that cannot be read."""


class _Schema(msgspec.Struct):
    """What every line says of itself, whatever its other fields are."""

    schema: int


def append(directory: Path, record: Record) -> None:
    """Add one line and force it out, so that a killed run keeps what it reached."""
    with (directory / FILE_NAME).open("ab") as file:
        file.write(msgspec.json.encode(record) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def load(path: Path) -> tuple[Record, ...]:
    """The records of a run's folder or file, in the order in which they were reached.

    A last line without its newline is one that a killed run did not finish; it is left out.

    Raises:
        RecordsError: no such file, a damaged line, or another schema.
    """
    file = path / FILE_NAME if path.is_dir() else path
    try:
        data = file.read_bytes()
    except OSError as error:
        raise RecordsError(
            f"got no readable {file} ({error.strerror}), wanted a run's {FILE_NAME}; "
            "name a folder under results/, or run pytest suites first"
        ) from None
    return tuple(_decode(file, data))


def check(directory: Path, reached: Sequence[Record]) -> None:
    """Read back what ``append`` wrote.

    Raises:
        RecordsError: the file does not hold these records, each once.
    """
    written = load(directory)
    if written != tuple(reached):
        raise RecordsError(
            f"{FILE_NAME} holds {len(written)} verdicts, and not the {len(reached)} that the run "
            "reached; run again"
        )


def _decode(file: Path, data: bytes) -> Iterator[Record]:
    complete = data[: data.rfind(b"\n") + 1]
    for number, line in enumerate(complete.splitlines(), start=1):
        try:
            schema = msgspec.json.decode(line, type=_Schema).schema
            if schema != RECORD_SCHEMA:
                raise RecordsError(
                    f"{file}:{number}: got record schema {schema}, wanted {RECORD_SCHEMA}; "
                    "run pytest suites again, or read the file with the Assay version that wrote it"
                )
            record = msgspec.json.decode(line, type=Record)
        except msgspec.MsgspecError as error:
            raise RecordsError(
                f"{file}:{number}: got a line that is no record ({error}), "
                "wanted one JSON object a line; restore the file or run again"
            ) from None
        yield record
