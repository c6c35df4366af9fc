"""What an exception in a stage means: the program failed, or a part is missing here."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from assay.frameworks.framework import Unsupported
from assay.model.blame import is_ours, message_of, users_line
from assay.model.evidence import Failure, FailureKind
from assay.model.target import TargetUnavailable, Unavailable
from assay.targets.jax_internals import InternalsMoved
from assay.targets.presence import recognise

_MESSAGE_CHARACTERS = 400
_SIZE = r"([0-9.]+)([KMGT]?)i?B?"
# libtpu's two wordings (0.0.51): a little over the device's memory, and far over it. The third is
# that of a live GPU's allocator (jaxlib 0.11.2), which tells no capacity.
_OUT_OF_MEMORY = re.compile(
    rf"Used {_SIZE} of {_SIZE} hbm|\({_SIZE}\) exceeds available HBM \({_SIZE}\)"
    rf"|trying to allocate {_SIZE} with",
    re.IGNORECASE,
)
# A kernel that asks for more on-chip memory than there is compiles on no device, however large.
_ON_CHIP = re.compile(r"space[= ](vmem|smem|cmem|sflag)|shared memory", re.IGNORECASE)
_EXPONENT = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class Ended(Exception):
    """A stage did not succeed. ``variant`` names whose, where two programs are measured."""

    def __init__(self, end: Failure | Unavailable, variant: str = "") -> None:
        super().__init__(str(end))
        self.end = end
        self.variant = variant


@contextmanager
def stage(kind: FailureKind, variant: str = "") -> Iterator[None]:
    """Raise ``Ended`` for all that a program, a compiler or a target raises in this stage."""
    try:
        yield
    # A program or a compiler may raise any exception. It is recorded as evidence.
    except Exception as error:
        raise Ended(classified(kind, error), variant) from error


def classified(kind: FailureKind, error: Exception) -> Failure | Unavailable:
    """What the exception of a stage says of the program: it failed, or it cannot be tried here.

    Raises the exception itself if Assay is at fault: in its own code, or in its adapter to jaxlib.
    """
    text = str(error) or repr(error)
    if isinstance(error, Unsupported):
        return Unavailable(reason=text)
    if isinstance(error, TargetUnavailable):
        return error.why
    if isinstance(error, InternalsMoved) or is_ours(error):
        raise error
    message = shortened(message_of(error))
    failure = Failure(kind=kind, message=message, line=users_line(error))
    return of_compiler(failure, text) if kind is FailureKind.COMPILER else failure


def of_compiler(failure: Failure, text: str) -> Failure | Unavailable:
    """What a compiler's error says: a part is missing, memory is exceeded, or ``failure``."""
    # A missing part of an installation is no fault of the compiler.
    if fault := recognise(text):
        return fault
    if "RESOURCE_EXHAUSTED" in text and not _ON_CHIP.search(text):
        return _out_of_memory(text, failure.message)
    return failure


def _out_of_memory(text: str, message: str) -> Failure:
    """The failure with the needed bytes and the capacity, if the text names them."""
    found = _OUT_OF_MEMORY.search(text)
    numbers = [each for each in found.groups() if each is not None] if found else []
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    sizes = [round(float(number) * 1024.0 ** _EXPONENT[unit.upper()]) for number, unit in pairs]
    needed, capacity = (*sizes, None, None)[:2]
    return Failure(
        kind=FailureKind.OUT_OF_MEMORY,
        message=message,
        needed_bytes=needed,
        capacity_bytes=capacity,
    )


def shortened(text: str) -> str:
    """The text on one line of at most 400 characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _MESSAGE_CHARACTERS else flat[: _MESSAGE_CHARACTERS - 1] + "…"
