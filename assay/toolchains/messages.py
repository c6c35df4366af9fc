"""What a rerun's two sides tell each other, one frame a message."""

from typing import Final

import msgspec

from assay.model.evidence import Failure, Toolchain
from assay.model.target import Unavailable
from assay.model.timing import Machine

_SAMPLE: Final = b"sample "


def sample_request(runs: int) -> bytes:
    """Asks for one sample, the mean of so many runs."""
    return _SAMPLE + str(runs).encode()


def runs_asked_for(request: bytes) -> int | None:
    """The runs of a request for a sample; None for any other request."""
    return int(request[len(_SAMPLE) :]) if request.startswith(_SAMPLE) else None


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A program that is compiled and warm: what it took, in seconds, and on what.

    ``runs_per_sample`` are as many as last long enough, ``most_runs`` as many as there may be.
    """

    toolchain: Toolchain
    python: str
    machine: Machine
    trace: float | None
    compile: float | None
    first: float
    runs_per_sample: int
    most_runs: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a child says: one of these.

    ``unsupported`` is what no toolchain could do here; ``crash`` is a traceback of Assay's own.
    """

    prepared: Prepared | None = None
    seconds: float | None = None
    failure: Failure | None = None
    unavailable: Unavailable | None = None
    unsupported: Unavailable | None = None
    crash: str = ""


def encoded(answer: Answer) -> bytes:
    """The answer as one frame."""
    return msgspec.msgpack.encode(answer)


def decoded(frame: bytes) -> Answer:
    """The answer of a frame."""
    return msgspec.msgpack.decode(frame, type=Answer)
