"""Units and quantities: only numbers of one unit are compared."""

import re
from dataclasses import dataclass
from enum import Enum
from numbers import Real

from assay.model.blame import WrongType, WrongValue

_STEP = 1024
_STEPS = "BKMGTP"
_SIZE = re.compile(
    r"(?P<number>\d+(\.\d+)?)\s*((?P<step>[KMGTP])(iB|(?P<decimal>B)|i)?|B)?", re.IGNORECASE
)


class Unit(Enum):
    """The unit of a claim's measurement and limit."""

    BYTES = "bytes"
    COUNT = "count"
    SECONDS = "seconds"
    RATIO = "ratio"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its unit; ``str`` gives what a person reads (``16.0 GiB``)."""

    value: int | float
    unit: Unit

    def __post_init__(self) -> None:
        parts = ((self.value, Real), (self.unit, Unit))
        if not all(isinstance(part, kind) for part, kind in parts):
            raise WrongType(
                f"got Quantity({self.value!r}, {self.unit!r}), wanted a number and a Unit; write "
                "Quantity(4096, Unit.BYTES)"
            )

    def __str__(self) -> str:
        return format_quantity(self.value, self.unit)


def format_quantity(value: float, unit: Unit, *, decimals: int = 4) -> str:
    """A number in its unit; bytes in binary steps with at most ``decimals`` decimals."""
    if unit is Unit.BYTES:
        return format_bytes(value, decimals=decimals)
    if unit is Unit.SECONDS:
        return f"{three_digits(value)} s"
    if unit is Unit.RATIO:
        return three_digits(value)
    return f"{int(value) if float(value).is_integer() else value:,}"


def three_digits(value: float) -> str:
    """The number with 3 significant digits, without an exponent where it is large."""
    text = f"{value:.3g}"
    return f"{float(text):,.0f}" if "e+" in text else text


def parse_bytes(size: int | str) -> int:
    """The bytes of ``4096``, ``"4096"``, ``"1.5GiB"`` or ``"1 MB"`` (binary and decimal steps).

    Raises WrongType or WrongValue for anything else.
    """
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise WrongType(f"got {size!r}, {type(size).__name__}, wanted bytes; write 4096 or '1MiB'")
    found = _SIZE.fullmatch(str(size).strip())
    if found is None:
        raise WrongValue(f"got {size!r}, wanted a size in bytes; write 4096, '1MiB' or '1.5 GB'")
    if isinstance(size, int):
        return size
    step = 1000.0 if found["decimal"] else 1024.0
    return round(float(found["number"]) * step ** _STEPS.index((found["step"] or "B").upper()))


def format_bytes(value: float, *, decimals: int = 4) -> str:
    """Bytes in the largest binary step that keeps the number at 1 or more."""
    step = max((each for each in range(1, len(_STEPS)) if abs(value) >= _STEP**each), default=0)
    if step == 0:
        return f"{value:,.0f} B"
    text = f"{value / _STEP**step:.{decimals}f}".rstrip("0")
    return f"{text}0 {_STEPS[step]}iB" if text.endswith(".") else f"{text} {_STEPS[step]}iB"
