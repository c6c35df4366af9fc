"""Frames: one time limit covers a whole frame, and an answer holds any text of a program."""

from __future__ import annotations

import os
import pickle
import struct
import threading
import time
from collections.abc import Iterator
from typing import IO

import msgspec
import pytest

from assay.isolate.child import read, write
from assay.isolate.messages import Answer, encoded, pickled
from assay.model.evidence import Evidence, Failure, FailureKind, Tensor, Toolchain
from assay.model.workload import Program, Role, SizedVariant, Variant, Workload

ODD = "\udcff"
"""A lone surrogate: what Python makes of a byte in a file name that is no UTF-8."""


@pytest.fixture
def pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as mine, os.fdopen(writing, "wb", buffering=0) as theirs:
        yield mine, theirs


def test_a_frame_that_trickles_is_given_up_in_time(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    mine, theirs = pipe
    over = threading.Event()

    def trickle() -> None:
        theirs.write(struct.pack("<I", 1000))
        while not over.wait(0.02):
            theirs.write(b"x")

    writer = threading.Thread(target=trickle)
    writer.start()
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        read(mine, 0.2)
    assert time.monotonic() - start < 2
    over.set()
    writer.join()


def test_a_whole_frame_is_read(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    mine, theirs = pipe
    write(theirs, b"whole")
    assert read(mine, 1) == b"whole"


def test_an_answer_holds_text_that_utf_8_cannot() -> None:
    evidence = Evidence(
        workload=ODD,
        variant="variant",
        target="cpu",
        toolchain=Toolchain(versions={"jax": "0"}),
        failure=Failure(kind=FailureKind.EXECUTION, message=f"no file {ODD}"),
        values=(Tensor(path=ODD, dtype="uint8", shape=(2,), data=b"\xff\x00"),),
    )
    seen = msgspec.msgpack.decode(encoded(Answer(evidence=evidence)), type=Answer).evidence
    assert seen is not None
    assert seen.failure == Failure(kind=FailureKind.EXECUTION, message="no file \\udcff")
    assert seen.values == (Tensor(path="\\udcff", dtype="uint8", shape=(2,), data=b"\xff\x00"),)


def test_a_function_sent_to_a_child_keeps_its_file() -> None:
    def program(_: object) -> Program:
        return Program(function=lambda: 0, arguments=())

    variant = Variant(name="variant", role=Role.CONTROL, program=program)
    workload = Workload(suite="suite", name="workload", variants=(variant,))
    (_, sent, _) = pickle.loads(pickled(workload, variant, "cpu"))
    assert sent.program.__code__.co_filename == __file__
    assert sent.program(None).function.__code__.co_filename == __file__


def test_a_sized_program_sent_to_a_child_keeps_its_size() -> None:
    def program(_: object) -> Program:
        return Program(function=lambda: 0, arguments=())

    variant = SizedVariant(
        name="variant", role=Role.CONTROL, program=program, size=7, family=("b",)
    )
    workload = Workload(suite="suite", name="workload", variants=(variant,))
    (_, sent, _) = pickle.loads(pickled(workload, variant, "cpu"))
    assert sent.size == 7
