"""Units and quantities: two numbers are compared only when they count the same thing."""

import re
from dataclasses import dataclass
from enum import Enum
from numbers import Real

from assay.model.blame import WrongType, WrongValue

_BINARY_STEP = 1024
_DECIMAL_STEP = 1000
_SIZE = re.compile(
    r"(?P<number>\d+(\.\d+)?)\s*((?P<step>[KMGTP])(iB|(?P<decimal>B)|i)?|B)?", re.IGNORECASE
)
_BINARY_STEPS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Unit(Enum):
    """What a number counts; a claim names one and may be judged on no other."""

    BYTES = "bytes"
    COUNT = "count"
    SECONDS = "seconds"
    RATIO = "ratio"


class UnitError(WrongType):
    """Two quantities of different units met, or a number came without one."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its unit; ``str`` gives what a person reads (``16.0 GiB``)."""

    value: int | float
    unit: Unit

    def __post_init__(self) -> None:
        """Reject what is no number with a unit."""
        value: object = self.value
        unit: object = self.unit
        if not isinstance(value, Real) or not isinstance(unit, Unit):
            raise WrongType(
                f"got Quantity({self.value!r}, {self.unit!r}), wanted a number and a Unit; write "
                "Quantity(4096, Unit.BYTES)"
            )

    def __str__(self) -> str:
        return format_quantity(self.value, self.unit)


def same_unit(left: Quantity, right: Quantity) -> Unit:
    """The unit both share.

    Raises:
        UnitError: they count different things.
    """
    if left.unit is not right.unit:
        raise UnitError(
            f"got {left.value} {left.unit.value} against {right.value} {right.unit.value}, "
            "wanted two quantities of one unit; "
            "name the same unit in the claim and in its limit"
        )
    return left.unit


def format_quantity(value: float, unit: Unit, *, decimals: int = 4) -> str:
    """A number as a person reads it, bytes in binary steps with so many decimals at most."""
    if unit is Unit.BYTES:
        return format_bytes(value, decimals=decimals)
    if unit is Unit.SECONDS:
        return f"{value:.3g} s"
    if unit is Unit.RATIO:
        return f"{value:.3g}"
    return f"{value:,}"


def parse_bytes(size: int | str) -> int:
    """The bytes of ``4096``, ``"4096"``, ``"1.5GiB"`` or ``"1 MB"`` (binary and decimal steps).

    Raises:
        WrongType: it is no whole number and no text.
        WrongValue: the text is no size, or the size is negative.
    """
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise WrongType(f"got {size!r}, {type(size).__name__}, wanted bytes; write 4096 or '1MiB'")
    found = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if (isinstance(size, str) and found is None) or (isinstance(size, int) and size < 0):
        raise WrongValue(f"got {size!r}, wanted a size in bytes; write 4096, '1MiB' or '1.5 GB'")
    if found is None:
        return int(size)
    step = _DECIMAL_STEP if found["decimal"] else _BINARY_STEP
    power = "BKMGTP".index((found["step"] or "B").upper())
    return round(float(found["number"]) * float(step) ** power)


def format_bytes(value: float, *, decimals: int = 4) -> str:
    """Bytes in the largest binary step that keeps the number at 1 or more."""
    magnitude = abs(value)
    step = 0
    while magnitude >= _BINARY_STEP and step < len(_BINARY_STEPS) - 1:
        magnitude /= _BINARY_STEP
        step += 1
    if step == 0:
        return f"{value:,.0f} B"
    scaled = value / _BINARY_STEP**step
    text = f"{scaled:.{decimals}f}".rstrip("0")
    return (
        f"{text}0 {_BINARY_STEPS[step]}" if text.endswith(".") else f"{text} {_BINARY_STEPS[step]}"
    )
