"""Frames: what the observer's two sides send each other, a 4-byte length and a payload."""

import os
import select
import signal
import struct
from dataclasses import dataclass
from typing import IO

import cloudpickle
import msgspec

from assay.model.evidence import Evidence
from assay.model.timing import TimedPair, Times

READY = b"ready"
_LENGTH = struct.Struct("<I")
_MOST_AT_ONCE = 2**20


class Answer(msgspec.Struct, frozen=True):
    """What the child says of a request: the evidence or the times, or how it came to none.

    ``crash`` is a traceback of Assay's own; ``died`` is what ended the process that the program
    ran in, where that was not the child itself. Times that are not ``final`` are what is known of
    them so far: more answers to the same request follow.
    """

    evidence: Evidence | None = None
    crash: str = ""
    died: str = ""
    times: Times | None = None
    final: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesRequest:
    """A request for times; each arm travels as it would by itself, the question by itself."""

    reference: bytes | None
    judged: bytes
    turns: bytes
    most_seconds: float

    def pair(self) -> TimedPair:
        """What was asked for, in the process that it was sent to."""
        workload, judged, target = cloudpickle.loads(self.judged)
        return TimedPair(
            workload=workload,
            reference=cloudpickle.loads(self.reference)[1] if self.reference else None,
            judged=judged,
            target=target,
            turns=cloudpickle.loads(self.turns),
            most_seconds=self.most_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthRequest:
    """A request for times of a growing loop; its arm travels as it would by itself."""

    program: bytes
    most_seconds: float


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
        # Past the stream's own buffer: a frame that waited there would not be seen by select.
        part = os.read(stream.fileno(), min(count - len(data), _MOST_AT_ONCE))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def how_it_ended(code: int) -> str:
    """``SIGABRT``, or ``exit status 3``, of a process's exit code as ``subprocess`` gives it."""
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"
