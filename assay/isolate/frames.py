"""Frames between the two sides of a child process: a 4-byte length and a payload, on pipes."""

import os
import select
import signal
import struct
import threading
import time
from dataclasses import dataclass
from typing import IO, Any

import cloudpickle
import msgspec

from assay.model.blame import encodable
from assay.model.evidence import Evidence, Failure, FailureKind
from assay.model.timing import TimedPair, Times


def own_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """The streams of requests and of answers, taken off standard input and output.

    From here on this process ends once nobody can ask any more.
    """
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # What a program reads or prints must reach neither the requests nor the answers.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    end_with_parent(requests)
    return requests, answers


def end_with_parent(requests: IO[bytes]) -> None:
    """End this process once nobody can ask any more, even in the middle of a program."""

    def wait() -> None:
        hangup = select.poll()
        hangup.register(requests.fileno(), 0)
        hangup.poll()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


READY = b"ready"
_LENGTH = struct.Struct("<I")
_MOST_AT_ONCE = 2**20


class Answer(msgspec.Struct, frozen=True):
    """What the child says of a request: the evidence or the times, or how it came to none.

    ``crash`` says where Assay itself failed, and ``trace`` is the traceback; ``failure`` is that of
    a program that could not be loaded; ``died`` is what ended the process that the program ran in,
    where that was not the child itself. More answers to the same request follow one that is not
    ``final``: it holds the times so far, or names the stage that begins, by the failure that would
    be its own (None is Assay's own work), with the evidence so far where that is worth keeping.
    """

    evidence: Evidence | None = None
    failure: Failure | None = None
    stage: FailureKind | None = None
    crash: str = ""
    trace: str = ""
    died: str = ""
    times: Times | None = None
    final: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesRequest:
    """A request for times; each variant travels as it would by itself, the question by itself."""

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
    """A request for times of a growing loop; its variant travels as it would by itself."""

    program: bytes
    most_seconds: float


def encoded(answer: Answer) -> bytes:
    """The answer as a payload; text that UTF-8 cannot hold, such as a file's odd name, is escaped.

    Programs may name their values, files and errors with any text that Python can hold.
    """
    try:
        return msgspec.msgpack.encode(answer)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(answer, builtin_types=(bytes,))
        return msgspec.msgpack.encode(_encodable(plain))


def decoded(payload: bytes) -> Answer:
    """The answer that a payload holds."""
    return msgspec.msgpack.decode(payload, type=Answer)


def _encodable(plain: Any) -> Any:
    if isinstance(plain, str):
        return encodable(plain)
    if isinstance(plain, dict):
        return {_encodable(key): _encodable(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_encodable(value) for value in plain]
    return plain


def write(stream: IO[bytes], payload: bytes) -> None:
    """Send one frame."""
    stream.write(_LENGTH.pack(len(payload)) + payload)
    stream.flush()


def read(stream: IO[bytes], timeout_seconds: float | None) -> bytes:
    """The next frame.

    Raises:
        TimeoutError: the whole frame did not come in that time.
        EOFError: the other side is gone.
    """
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size, deadline))
    return _exactly(stream, length, deadline)


def _exactly(stream: IO[bytes], count: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        if deadline is not None:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([stream], [], [], left)[0]:
                raise TimeoutError
        # Past the stream's own buffer: a frame that waited there would not be seen by select.
        part = os.read(stream.fileno(), min(count - len(data), _MOST_AT_ONCE))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def how_it_ended(code: int) -> str:
    """``SIGABRT``, or ``exit status 3``, of a process's exit code as ``subprocess`` gives it."""
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"
