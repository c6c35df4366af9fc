"""What is alive at once: the peak of a program, or of a slice of it, before any compiler saw it.

Values that compilers fuse away take no memory and keep their sources alive instead. The model is
rough on purpose; `memsafe.fit` corrects it by what the compiler says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jax.extend.core import Literal

from memsafe.costs import fuses_with_consumer, fuses_with_operands, updates_in_place

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from jax.extend.core import JaxprEqn, Var

__all__ = ["Peak", "Unit", "equation_unit", "peak", "repeated"]


@dataclass(slots=True, kw_only=True)
class Unit:
    """What is computed at once: an equation, or a loop.

    Attributes:
        reads: The values it reads.
        makes: The values it makes.
        transient: Bytes that it needs only while it runs.
        absorbs: It computes pointwise operands itself.
        absorbed: Its result may be computed inside what uses it.
        in_place: A result may take an operand's memory.
    """

    reads: tuple[Var, ...]
    makes: tuple[Var, ...]
    transient: float = 0
    absorbs: bool = False
    absorbed: bool = False
    in_place: bool = False


@dataclass(slots=True, kw_only=True)
class Peak:
    """The most that is alive at once.

    Attributes:
        nbytes: Its bytes.
        unit: The unit during which it is reached, or -1 where nothing is computed.
        live: The values alive then, largest first.
        during: For each unit, the bytes alive while it runs, without its transient ones.
        spans: The first and the last unit during which each value is alive.
    """

    nbytes: float = 0
    unit: int = -1
    live: tuple[Var, ...] = ()
    during: list[float] = field(default_factory=list)
    spans: dict[Var, list[int]] = field(default_factory=dict, repr=False)


def equation_unit(equation: JaxprEqn, transient: float = 0) -> Unit:
    """One equation, computed whole."""
    return Unit(
        reads=tuple(v for v in equation.invars if not isinstance(v, Literal)),
        makes=tuple(equation.outvars),
        transient=transient,
        absorbs=fuses_with_operands(equation),
        absorbed=fuses_with_consumer(equation),
        in_place=updates_in_place(equation),
    )


def peak(units: Sequence[Unit], size: Callable[[Var], float], kept: Collection[Var]) -> Peak:
    """The peak over `units` in order; `kept` values stay to the end.

    Values that no unit makes (arguments) are not counted.
    """
    stored = _stored(units, size, kept)
    last = _last_uses(units, stored, kept)
    dying: list[list[Var]] = [[] for _ in units]
    for value, index in last.items():
        if value in stored and index < len(units):
            dying[index].append(value)
    return repeated(_swept(units, size, stored, dying), units, size)


def repeated(known: Peak, units: Sequence[Unit], size: Callable[[Var], float]) -> Peak:
    """The peak over the units of `known`, of which nothing but the transient bytes has changed."""
    found = Peak(during=known.during, spans=known.spans)
    for index, (unit, alive) in enumerate(zip(units, known.during, strict=True)):
        if alive + unit.transient > found.nbytes:
            found.nbytes, found.unit = alive + unit.transient, index
    live = [value for value, (born, dead) in found.spans.items() if born <= found.unit <= dead]
    found.live = tuple(sorted(live, key=size, reverse=True))
    return found


def _stored(units: Sequence[Unit], size: Callable[[Var], float], kept: Collection[Var]) -> set[Var]:
    """The values that have memory of their own."""
    users: dict[Var, list[Unit]] = {}
    for unit in units:
        for value in set(unit.reads):
            users.setdefault(value, []).append(unit)
    stored: set[Var] = set()
    sources: dict[Var, float] = {}
    for unit in units:
        behind = 0.0
        if unit.absorbed:
            behind = sum(sources.get(v, size(v)) for v in set(unit.reads))
        for value in unit.makes:
            using = users.get(value, [])
            absorbed = (
                unit.absorbed
                and value not in kept
                and all(user.absorbs for user in using)
                and (len(using) <= 1 or behind < size(value))
            )
            if absorbed:
                sources[value] = behind
            else:
                stored.add(value)
    return stored


def _last_uses(units: Sequence[Unit], stored: set[Var], kept: Collection[Var]) -> dict[Var, int]:
    """The unit after which each value is dead, sources of absorbed values living on in them."""
    last: dict[Var, int] = dict.fromkeys(kept, len(units))
    for index in range(len(units) - 1, -1, -1):
        unit = units[index]
        until = index
        for value in unit.makes:
            if value not in stored:
                until = max(until, last.get(value, index))
        for value in unit.makes:
            last.setdefault(value, index)
        for value in unit.reads:
            last[value] = max(last.get(value, -1), until)
    return last


def _swept(
    units: Sequence[Unit],
    size: Callable[[Var], float],
    stored: set[Var],
    dying: list[list[Var]],
) -> Peak:
    """What is alive during each unit."""
    found = Peak()
    alive: dict[Var, float] = {}
    total = 0.0
    for index, unit in enumerate(units):
        for value in unit.makes:
            if value in stored:
                alive[value] = size(value)
                found.spans[value] = [index, len(units)]
                total += alive[value]
        reused = _reused(unit, dying[index], alive) if unit.in_place else 0.0
        found.during.append(total - reused)
        for value in dying[index]:
            total -= alive.pop(value, 0.0)
            found.spans.get(value, [0, 0])[1] = index
    return found


def _reused(unit: Unit, dying: list[Var], alive: dict[Var, float]) -> float:
    """Bytes of results that lie where operands did that die here."""
    made = sum(alive.get(value, 0.0) for value in unit.makes)
    freed = sum(alive.get(value, 0.0) for value in dying if value not in unit.makes)
    return min(made, freed)
