"""Predicted peak of the memory of a program, or of a slice of it, before it is compiled.

Values that compilers fuse away take no memory and keep their sources alive instead. The model is
rough on purpose; `memsafe.search` corrects it by the memory that the compiler reports.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from jax.extend.core import Literal

from memsafe.costs import (
    fuses_with_consumer,
    fuses_with_operands,
    gives_its_operands,
    updates_in_place,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from jax.extend.core import JaxprEqn, Var

__all__ = ["Peak", "Unit", "Usage", "equation_unit", "stored", "usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One step of the memory model: an equation, or a loop.

    Attributes:
        reads: The values it reads, each once.
        makes: The values it makes.
        absorbs: Whether it computes its pointwise operands itself.
        absorbed: Whether its result may be computed inside what uses it.
        in_place: Whether a result may take an operand's memory.
        same: Operands that share their memory with a result, each with that result.
        held: Bytes that a library holds while the unit runs.
    """

    reads: tuple[Var, ...]
    makes: tuple[Var, ...]
    absorbs: bool = False
    absorbed: bool = False
    in_place: bool = False
    same: tuple[tuple[Var, Var], ...] = ()
    held: float = 0.0


class Peak(NamedTuple):
    """The most memory in use at once: its bytes, and the index of the unit that reaches it.

    The index is -1 if nothing is ever alive.
    """

    nbytes: float
    unit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The memory in use while each unit runs.

    Attributes:
        during: For each unit, the bytes of the values alive then.
        spans: The first and the last unit during which each value is alive.
    """

    during: list[float]
    spans: dict[Var, list[int]] = field(repr=False)

    def peak(self, transient: Iterable[float] = ()) -> Peak:
        """The peak; `transient` gives the extra bytes that each unit needs only while it runs."""
        found = Peak(0.0, -1)
        for index, (alive, more) in enumerate(zip_longest(self.during, transient, fillvalue=0.0)):
            if alive + more > found.nbytes:
                found = Peak(alive + more, index)
        return found

    def live(self, unit: int, size: Callable[[Var], float]) -> tuple[Var, ...]:
        """The values alive during `unit`, largest first."""
        found = [value for value, (born, dead) in self.spans.items() if born <= unit <= dead]
        return tuple(sorted(found, key=size, reverse=True))


def equation_unit(equation: JaxprEqn) -> Unit:
    """One equation, computed whole."""
    return Unit(
        reads=tuple(dict.fromkeys(v for v in equation.invars if not isinstance(v, Literal))),
        makes=tuple(equation.outvars),
        absorbs=fuses_with_operands(equation),
        absorbed=fuses_with_consumer(equation),
        in_place=updates_in_place(equation),
        same=_same(equation) if gives_its_operands(equation) else (),
    )


def _same(equation: JaxprEqn) -> tuple[tuple[Var, Var], ...]:
    pairs = zip(equation.invars, equation.outvars, strict=True)
    return tuple((operand, result) for operand, result in pairs if not isinstance(operand, Literal))


def usage(units: Sequence[Unit], size: Callable[[Var], float], kept: Collection[Var]) -> Usage:
    """The memory in use during each of `units` in order; `kept` values stay to the end.

    Values that no unit makes (arguments) are not counted.
    """
    found = stored(units, size, kept)
    last = _last_uses(units, found, kept)
    dying: list[list[Var]] = [[] for _ in units]
    for value, index in last.items():
        if value in found and index < len(units):
            dying[index].append(value)
    return _swept(units, size, found, dying)


def stored(units: Sequence[Unit], size: Callable[[Var], float], kept: Collection[Var]) -> set[Var]:
    """The values that have memory of their own."""
    readers = Counter(chain.from_iterable(unit.reads for unit in units))
    read_whole = {value for unit in units if not unit.absorbs for value in unit.reads}
    found: set[Var] = set()
    sources: dict[Var, float] = {}
    for unit in units:
        borrowed = {result for _, result in unit.same}
        made = [value for value in unit.makes if value not in borrowed]
        if not unit.absorbed:
            found.update(made)
            continue
        behind = sum(sources[v] if v in sources else size(v) for v in unit.reads)
        for value in made:
            is_absorbed = value not in kept and value not in read_whole
            if is_absorbed and (readers[value] <= 1 or behind < size(value)):
                sources[value] = behind
            else:
                found.add(value)
    return found


def _last_uses(units: Sequence[Unit], stored: set[Var], kept: Collection[Var]) -> dict[Var, int]:
    """The last unit that needs each value; sources of absorbed values live as long as those do."""
    last: dict[Var, int] = dict.fromkeys(kept, len(units))
    for index in range(len(units) - 1, -1, -1):
        unit = units[index]
        until = index
        for value in unit.makes:
            if value not in stored and not unit.same:
                until = max(until, last.get(value, index))
        for value in unit.makes:
            last.setdefault(value, index)
        for value, result in unit.same:
            last[value] = max(last.get(value, -1), last[result])
        for value in unit.reads:
            last[value] = max(last.get(value, -1), until)
    return last


def _swept(
    units: Sequence[Unit],
    size: Callable[[Var], float],
    stored: set[Var],
    dying: list[list[Var]],
) -> Usage:
    """The memory in use during each unit."""
    during: list[float] = []
    spans: dict[Var, list[int]] = {}
    alive: dict[Var, float] = {}
    total = 0.0
    for index, unit in enumerate(units):
        for value in unit.makes:
            if value in stored:
                alive[value] = size(value)
                spans[value] = [index, len(units)]
                total += alive[value]
        reused = _reused(unit, dying[index], alive) if unit.in_place and dying[index] else 0.0
        during.append(total - reused + unit.held)
        for value in dying[index]:
            total -= alive.pop(value, 0.0)
            spans.get(value, [0, 0])[1] = index
    return Usage(during=during, spans=spans)


def _reused(unit: Unit, dying: list[Var], alive: dict[Var, float]) -> float:
    """Bytes of results that take the memory of values that die in this unit."""
    made = sum(alive.get(value, 0.0) for value in unit.makes)
    freed = sum(alive.get(value, 0.0) for value in dying if value not in unit.makes)
    return min(made, freed)
