"""How a stage ended that raised: a failure of the program, or a part that is missing here."""

import re

from assay.frameworks.framework import Unsupported
from assay.model.blame import is_ours, message_of, users_line
from assay.model.evidence import Failure, FailureKind, Unavailable
from assay.model.target import TargetUnavailable
from assay.targets.jax_internals import InternalsMoved
from assay.targets.presence import recognise

_MESSAGE_CHARACTERS = 400
_SIZE = r"([0-9.]+)([KMGT]?)i?B?"
# libtpu's two wordings (0.0.51): a little over the device's memory, and far over it.
_OUT_OF_MEMORY = (
    re.compile(rf"Used {_SIZE} of {_SIZE} hbm", re.IGNORECASE),
    re.compile(rf"\({_SIZE}\) exceeds available HBM \({_SIZE}\)", re.IGNORECASE),
)
# A kernel that asks for more on-chip memory than there is compiles on no device, however large.
_ON_CHIP = re.compile(r"space[= ](vmem|smem|cmem|sflag)|shared memory", re.IGNORECASE)
_STEP = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def classified(kind: FailureKind, error: Exception) -> Failure | Unavailable:
    """What the exception of a stage says of the program: it failed, or it cannot be tried here.

    Raises the exception itself if Assay is at fault: in its own code, or in its adapter to jaxlib.
    """
    text = str(error) or repr(error)
    if isinstance(error, Unsupported):
        return Unavailable(reason=text)
    if isinstance(error, TargetUnavailable):
        why = error.availability
        return Unavailable(reason=why.reason, remedy=why.remedy)
    if isinstance(error, InternalsMoved) or is_ours(error):
        raise error
    # A missing part of an installation is no fault of the compiler.
    fault = recognise(error) if kind is FailureKind.COMPILER else None
    if fault is not None:
        return Unavailable(reason=fault.reason, remedy=fault.remedy)
    message, line = shortened(message_of(error)), users_line(error)
    out_of_memory = "RESOURCE_EXHAUSTED" in text and not _ON_CHIP.search(text)
    if kind is not FailureKind.COMPILER or not out_of_memory:
        return Failure(kind=kind, message=message, line=line)
    sizes = next(filter(None, (wording.search(text) for wording in _OUT_OF_MEMORY)), None)
    return Failure(
        kind=FailureKind.OUT_OF_MEMORY,
        message=message,
        needed_bytes=_bytes(sizes[1], sizes[2]) if sizes else None,
        capacity_bytes=_bytes(sizes[3], sizes[4]) if sizes else None,
    )


def _bytes(number: str, step: str) -> int:
    return round(float(number) * 1024.0 ** _STEP[step.upper()])


def shortened(text: str) -> str:
    """The text on one line of at most 400 characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _MESSAGE_CHARACTERS else flat[: _MESSAGE_CHARACTERS - 1] + "…"
