"""A file of HLO may come from anybody: what it does to its reader is a sentence, and no crash."""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

import pytest

from assay.frameworks.hlo import recognise
from assay.hlo.schema import wrap
from assay.isolate import ObservationError, Reading, hlo_reader, read_hlo_file
from assay.isolate.child import Child
from assay.isolate.memory import MemoryExceeded, MemoryLimit
from assay.model.blame import WrongValue
from tests.hlo.conftest import proto_of
from tests.hlo.programs import entry

FINE = entry("x = f32[4] parameter(0)", "ROOT y = f32[4] negate(x)")
DEADLY = entry("ROOT x = token[4] parameter(0)")
"""XLA's parser ends the process by a failed check (jaxlib 0.10.2 to 0.12)."""


def read(path: Path, seconds: float = 300.0) -> Reading:
    return read_hlo_file(path, ["cpu"], as_is=True, compile_it=False, seconds=seconds)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "module"


def test_a_module_is_read_in_another_process(file: Path) -> None:
    file.write_text(FINE)
    reading = read(file)
    assert reading.summaries["cpu"].instructions == 2
    assert not reading.scheduled


def test_text_on_which_xla_aborts_is_refused_with_its_words(file: Path) -> None:
    file.write_text(DEADLY)
    with pytest.raises(WrongValue, match=r"XLA's own parser aborts .*SIGABRT.*Check failed"):
        read(file)


def test_a_pipe_a_device_and_a_folder_are_refused_at_once(file: Path) -> None:
    os.mkfifo(file)
    for path, why in ((file, "not a regular file"), (Path("/dev/zero"), "not a regular file")):
        with pytest.raises(WrongValue, match=why):
            read(path)
    with pytest.raises(WrongValue, match="Is a directory"):
        read(file.parent)


def test_a_module_that_is_not_read_in_time_is_refused(file: Path) -> None:
    file.write_text(FINE)
    with pytest.raises(WrongValue, match="not read within 0 s"):
        read(file, seconds=0.0)


def test_a_gzip_bomb_is_refused_by_its_size() -> None:
    bomb = gzip.compress(b"\n" * (1 << 21))
    with pytest.raises(ValueError, match=r"more than 1\.0 MiB after decompression"):
        recognise(bomb, "bomb", 1 << 20)


def test_a_file_that_takes_too_much_memory_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_bytes(wrap(proto_of(FINE)))
    monkeypatch.setattr(hlo_reader, "Child", Greedy)
    with pytest.raises(WrongValue, match=r"takes too much memory to read \(its processes used"):
        read(file)


class Greedy(Child):
    """A process that holds too much as soon as it works."""

    def receive(self, timeout_seconds: float) -> bytes:
        raise MemoryExceeded(2, MemoryLimit(nbytes=1))


def test_a_fault_of_assay_in_the_process_is_no_misuse(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(FINE)
    monkeypatch.setattr(hlo_reader, "_COMMAND", (sys.executable, "-c", FAILS))
    with pytest.raises(ObservationError, match="the reader failed"):
        read(file)


FAILS = """
from assay.isolate import hlo_reader
hlo_reader.read_hlo = lambda *_, **__: {}["no such"]
hlo_reader.serve()
"""
