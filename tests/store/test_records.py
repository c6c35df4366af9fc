"""A verdict on disk is there whole, or its line is named as damaged."""

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.units import Unit
from assay.model.verdict import RECORD_SCHEMA, BaselineNumber, Outcome, Record
from assay.store import records
from assay.store.records import RecordsError, append, load

RECORD = Record(
    schema=RECORD_SCHEMA,
    run="run",
    suite="suite",
    workload="stack",
    variant="offload",
    claim="host-bytes",
    target="gpu-h100:8",
    toolchain={"jaxlib": "0.10.2"},
    verdict=Outcome.PASSED,
    measured=2**40,
    limit=2**40,
    unit=Unit.BYTES,
    baseline=None,
    reason="two\nlines, ≥ and \r in them",
    advice="",
    upstream="",
    seconds=0.5,
)

text = st.text(st.characters(codec="utf-8"))
numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
)
toolchains = st.dictionaries(text, text, max_size=3)
record_values = st.builds(
    Record,
    schema=st.just(RECORD_SCHEMA),
    run=text,
    suite=text,
    workload=text,
    variant=text,
    claim=text,
    target=text,
    toolchain=toolchains,
    verdict=st.sampled_from(Outcome),
    measured=st.none() | numbers,
    limit=st.none() | numbers,
    unit=st.sampled_from(Unit),
    baseline=st.none() | st.builds(BaselineNumber, value=numbers, toolchain=toolchains),
    reason=text,
    advice=text,
    upstream=text,
    seconds=st.floats(0, 1e9),
)


@given(st.lists(record_values, max_size=4))
def test_records_come_back_as_they_were_and_in_order(written: list[Record]) -> None:
    with TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / records.FILE_NAME).touch()
        for record in written:
            append(directory, record)
        assert load(directory) == tuple(written)
        assert load(directory / records.FILE_NAME) == tuple(written)
        assert (directory / records.FILE_NAME).read_bytes().count(b"\n") == len(written)


@pytest.fixture
def three(tmp_path: Path) -> Path:
    for variant in ("one", "two", "three"):
        append(tmp_path, replace(RECORD, variant=variant))
    return tmp_path / records.FILE_NAME


def damage(file: Path, line: int, content: bytes) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    lines[line - 1] = content + b"\n"
    file.write_bytes(b"".join(lines))


def test_a_line_is_on_disk_as_soon_as_it_is_appended(tmp_path: Path) -> None:
    append(tmp_path, RECORD)
    assert load(tmp_path) == (RECORD,)
    append(tmp_path, RECORD)
    assert load(tmp_path) == (RECORD, RECORD)


def test_a_line_holds_the_fixed_words_of_the_enums(tmp_path: Path) -> None:
    append(tmp_path, replace(RECORD, verdict=Outcome.KNOWN_DEFECT))
    line = json.loads((tmp_path / records.FILE_NAME).read_bytes())
    assert (line["verdict"], line["unit"], line["schema"]) == ("known-defect", "bytes", 2)


def test_every_torn_last_line_is_dropped(three: Path) -> None:
    data = three.read_bytes()
    last = data.rindex(b"\n", 0, len(data) - 1) + 1
    for length in range(last, len(data)):
        three.write_bytes(data[:length])
        assert [record.variant for record in load(three)] == ["one", "two"]


def test_a_damaged_line_is_named_by_file_and_number(three: Path) -> None:
    damage(three, 2, b'{"schema": 1, "run"')
    with pytest.raises(RecordsError, match=rf"^{three}:2: got a line that is no record"):
        load(three)


@pytest.mark.parametrize("content", [b"", b"null", b"\xff\xfe", b'{"schema": 2}', b"[1]"])
def test_whatever_is_no_record_is_damage(three: Path, content: bytes) -> None:
    damage(three, 3, content)
    with pytest.raises(RecordsError, match=":3:"):
        load(three)


def test_a_foreign_verdict_word_is_damage(three: Path) -> None:
    damage(three, 1, three.read_bytes().splitlines()[0].replace(b'"passed"', b'"kept"'))
    with pytest.raises(RecordsError, match=r":1:.*kept"):
        load(three)


def test_another_schema_is_refused_with_both_numbers(tmp_path: Path) -> None:
    append(tmp_path, RECORD)
    append(tmp_path, replace(RECORD, schema=RECORD_SCHEMA + 1))
    with pytest.raises(RecordsError, match=rf":2: got record schema {RECORD_SCHEMA + 1}, wanted"):
        load(tmp_path)


def test_records_of_schema_1_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / records.FILE_NAME).write_bytes(b'{"schema": 1, "run": "r"}\n')
    with pytest.raises(RecordsError, match=r":1: got record schema 1, wanted 2; run pytest suites"):
        load(tmp_path)


@pytest.mark.parametrize("missing", ["", "records.jsonl", "no-such-run"])
def test_a_missing_file_is_named_and_what_to_do(tmp_path: Path, missing: str) -> None:
    with pytest.raises(RecordsError, match=r"got no readable .*run pytest suites first"):
        load(tmp_path / missing)


def test_a_run_that_reached_nothing_has_no_records(tmp_path: Path) -> None:
    (tmp_path / records.FILE_NAME).touch()
    assert load(tmp_path) == ()


def test_reading_back_finds_a_verdict_that_is_missing_or_stands_twice(tmp_path: Path) -> None:
    append(tmp_path, RECORD)
    records.check(tmp_path, [RECORD])
    for reached in ([], [RECORD, RECORD], [replace(RECORD, measured=1)]):
        with pytest.raises(RecordsError, match="holds 1 verdicts, and not the"):
            records.check(tmp_path, reached)


def test_a_line_that_is_no_text_is_named(tmp_path: Path) -> None:
    line = records.line_of(RECORD).replace(b"host-bytes", b"host-\xffbytes")
    (tmp_path / records.FILE_NAME).write_bytes(line)
    with pytest.raises(RecordsError, match=r"records\.jsonl:1: got a line that is no record"):
        load(tmp_path)


def test_a_link_in_a_runs_folder_is_not_written_through(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_bytes(records.line_of(RECORD) + b"torn")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / records.FILE_NAME).symlink_to(own)
    with pytest.raises(OSError, match="symbolic links"):
        append(tmp_path / "run", RECORD)
    with pytest.raises(RecordsError, match="cannot be written"):
        records.recover(tmp_path / "run")
    assert own.read_bytes().endswith(b"torn")
