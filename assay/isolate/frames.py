"""Frames: what the observer's two sides send each other, a 4-byte length and a payload."""

import select
import signal
import struct
from typing import IO

import msgspec

from assay.model.evidence import Evidence

READY = b"ready"
_LENGTH = struct.Struct("<I")


class Answer(msgspec.Struct, frozen=True):
    """What the child says of a request: the evidence, or how it came to none.

    ``crash`` is a traceback of Assay's own; ``died`` is what ended the process that the program
    ran in, where that was not the child itself.
    """

    evidence: Evidence | None = None
    crash: str = ""
    died: str = ""


def write(stream: IO[bytes], payload: bytes) -> None:
    """Send one frame."""
    stream.write(_LENGTH.pack(len(payload)) + payload)
    stream.flush()


def read(stream: IO[bytes], timeout_seconds: float | None) -> bytes:
    """The next frame.

    Raises:
        TimeoutError: nothing came in that time.
        EOFError: the other side is gone.
    """
    if timeout_seconds is not None:
        ready, _, _ = select.select([stream], [], [], timeout_seconds)
        if not ready:
            raise TimeoutError
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    return _exactly(stream, length)


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = stream.read(count - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def how_it_ended(code: int) -> str:
    """``SIGABRT``, or ``exit status 3``, of a process's exit code as ``subprocess`` gives it."""
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"
