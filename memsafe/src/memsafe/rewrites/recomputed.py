"""Values of the forward pass, computed again just before the backward pass reads them.

The equations up to the program's peak are cut into segments. Each segment leaves about the same
number of bytes for the backward pass. A segment keeps only the values that later segments read.
When the backward pass reaches a segment, it recomputes the other values that it reads, from the
values before the segment. This is what `jax.checkpoint` around each block does (Chen et al. 2016,
"Training deep nets with sublinear memory cost", section 3), with blocks found in the program. The
last segment is kept, because the backward pass begins with it.

A segment may have parts. The backward pass then computes the segment once for its last part, and
keeps the values that the other parts start from. It computes each other part once more, one at a
time. Segments of four parts compute up to 7/4 of the forward pass again, and hold a quarter of a
segment at once (Griewank and Walther 2000, "Revolve", algorithm 799, with two levels).
Alternatively, products are kept, and only values that follow in few operations are computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal, Var

from memsafe.budget import as_text
from memsafe.costs import fuses_with_consumer, fuses_with_operands
from memsafe.graph import variables
from memsafe.jax_internals import as_written, bind
from memsafe.mapped_axes import barrier, varying_axes
from memsafe.memory import equation_unit, usage
from memsafe.programs import flattened, nbytes, traced_like, zero_after
from memsafe.rewrites.rewritten import Rewritten
from memsafe.sub_jaxprs import draws_anew
from memsafe.ties import compares_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

__all__ = ["recomputed"]

_NEVER = frozenset({"after_all", "create_token", "ffi_call", "pure_callback", "rng_uniform"})
"""Primitives whose second call may give other values."""

_WINDOW = 0.5
"""Maximum distance of a cut from its place, as a share of a segment's bytes, to keep less."""


def recomputed(
    closed: ClosedJaxpr,
    segments: int,
    parts: int = 1,
    *,
    products: bool = False,
    hidden: bool = False,
    size: Callable[[Var], float] = nbytes,
    most: float = float("inf"),
) -> Rewritten:
    """`closed` with values for its backward pass computed again, except those of the last segment.

    Each segment has `parts` parts. `size` gives the bytes of a value on one device. Values of more
    than `most` bytes are assumed to be computed in slices: no equation waits for a whole one, and
    none counts as kept. With `products`, only pointwise results and reductions are computed again;
    products, convolutions, loops and the like are kept.

    `hidden` is for compilers that look behind barriers and merge repeated computations, such as XLA
    for CPUs in jax 0.10. The recomputation then starts from values minus a zero unknown to them.
    """
    found = _Forward.of(closed, size, most, products=products)
    again = found.segments(segments, parts)
    if not again:
        return Rewritten(program=closed, notes=())

    def run(*arguments: Array) -> list[Array]:
        return _evaluated(closed, arguments, again, found, hidden=hidden)

    left = sum(size(value) for value in {value for each in again for value in each.dropped})
    ways = f"{len(again) + 1} segments" if parts == 1 else f"{segments} segments of {parts} parts"
    kept = ", products kept" if products else ""
    note = f"{as_text(left)} for the gradient computed again, in {ways}{kept}"
    return Rewritten(program=flattened(traced_like(run, closed)), notes=(note,), products=products)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Again:
    """Values that are computed again together.

    Attributes:
        reader: The equation before which they are computed: the first that reads any of them, or
            an earlier one where less is alive.
        dropped: The values, which are not kept until then.
        equations: The equations that make them, by index.
    """

    reader: int
    dropped: tuple[Var, ...]
    equations: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forward:
    """The equations up to the peak of a program, and what they leave for those after it.

    Attributes:
        equations: All equations of the program.
        definition: The equation that makes each value.
        peak: The last equation of the forward pass.
        readers: For each value made up to the peak, the first equation after it that reads it.
        live: For each equation up to the peak, the bytes made by then that later equations up to
            the peak read.
        last: The last equation that reads each value; for a result, the number of equations.
        cheap: The equations whose values come pointwise from much smaller ones, such as a mask.
        size: The bytes of a value on one device.
        most: The bytes of the largest value that is ever whole.
        products: Whether only pointwise results and reductions are computed again.
    """

    equations: Sequence[JaxprEqn]
    definition: dict[Var, int]
    peak: int
    readers: dict[Var, int]
    live: list[float]
    last: dict[Var, int]
    cheap: frozenset[int]
    size: Callable[[Var], float]
    most: float
    products: bool

    @classmethod
    def of(
        cls, closed: ClosedJaxpr, size: Callable[[Var], float], most: float, *, products: bool
    ) -> _Forward:
        """The forward pass of a program."""
        equations = closed.jaxpr.eqns
        definition = {value: at for at, each in enumerate(equations) for value in each.outvars}
        kept = {atom for atom in closed.jaxpr.outvars if isinstance(atom, Var)}

        def whole(value: Var) -> float:
            return nbytes_of if (nbytes_of := size(value)) <= most else 0

        during = usage([equation_unit(each) for each in equations], whole, kept).during
        peak = max(range(len(during)), key=during.__getitem__, default=-1)
        readers: dict[Var, int] = {}
        change = [0.0] * (peak + 2)
        last: dict[Var, int] = {}
        for at, equation in enumerate(equations):
            for value in variables(equation):
                made = definition.get(value, peak + 1)
                if made <= peak < at:
                    readers.setdefault(value, at)
                    if compares_numbers(equation):
                        kept.add(value)
                elif made <= peak:
                    last[value] = at
        for value, at in last.items():
            change[definition[value]] += whole(value)
            change[at] -= whole(value)
        readers = {value: at for value, at in readers.items() if value not in kept}
        return cls(
            equations=equations,
            definition=definition,
            peak=peak,
            readers=readers,
            live=list(accumulate(change[: peak + 1])),
            last=_last_reads(closed),
            cheap=_cheap(equations, size),
            size=size,
            most=most,
            products=products,
        )

    def is_whole(self, value: Var) -> bool:
        """Whether the whole of a value is ever in memory."""
        return self.size(value) <= self.most

    def segments(self, count: int, parts: int = 1) -> list[_Again]:
        """The values computed again, if there are `count` segments of `parts` parts.

        The last part of the last segment is kept. For the other parts of that segment, the forward
        pass keeps the values that they start from.
        """
        pieces = list(pairwise([0, *self._cuts(count * parts)]))
        own = max(len(pieces) - parts + 1, 0)
        whole = [pieces[max(end - parts, 0) : end] for end in range(own, 0, -parts)]
        found: list[_Again] = []
        kept: set[Var] = set()
        earliest = self.peak + 1
        for segment in (*([piece] for piece in reversed(pieces[own:])), *whole):
            for end, dropped, equations in self._parts(segment, kept):
                readers = [self.readers[value] for value in dropped if value in self.readers]
                if readers:
                    latest = min(readers)
                    earliest = self._place(end, min(earliest, latest), latest)
                if dropped:
                    found.append(_Again(reader=earliest, dropped=dropped, equations=equations))
        return found

    def _parts(
        self, segment: Sequence[tuple[int, int]], kept: set[Var]
    ) -> list[tuple[int, tuple[Var, ...], tuple[int, ...]]]:
        """The end, the dropped values and their equations of each part; the last part comes first.

        Adds the values that the segment starts from to `kept`. Values within the segment that the
        other parts start from are computed with the last part.
        """
        *others, (first, end) = segment
        start = others[0][0] if others else first
        within: set[Var] = set()
        found = []
        for at, stop in reversed(others):
            dropped = self._left(at, stop, kept | within)
            needed, sources = self._needed(dropped, at, kept | within)
            within |= {value for value in sources - kept if self._is_within(value, start)}
            kept |= sources - within
            found.append((stop, dropped, needed))
        between = sorted(within, key=self.definition.__getitem__)
        dropped = (*self._left(first, end, kept), *between)
        needed, sources = self._needed(dropped, start, kept)
        kept |= sources
        return [(end, dropped, needed), *found]

    def _is_within(self, value: Var, first: int) -> bool:
        """Whether a segment that begins with `first` can compute a value again."""
        made = self.definition.get(value)
        return made is not None and not self._is_source(made, first)

    def _left(self, first: int, end: int, kept: set[Var]) -> tuple[Var, ...]:
        """Results of these equations that the backward pass reads, except kept and cheap ones."""
        return tuple(
            value
            for value in self.readers
            if first <= self.definition[value] < end
            and value not in kept
            and self._is_to_drop(self.definition[value])
        )

    def _place(self, end: int, earliest: int, latest: int) -> int:
        """The last equation of a range at which the fewest bytes made since `end` are alive."""
        change = dict.fromkeys(range(earliest, latest + 1), 0.0)
        for index in range(end, latest):
            for value in self.equations[index].outvars:
                last = self.last.get(value, -1)
                if last >= earliest:
                    change[max(index + 1, earliest)] += self.size(value)
                    if last < latest:
                        change[last + 1] -= self.size(value)
        alive = dict(zip(change, accumulate(change.values()), strict=True))
        return min(alive, key=lambda at: (alive[at], -at))

    def _cuts(self, count: int) -> list[int]:
        """Ends of segments but the last, which leave about equal bytes, where little is live."""
        left = [0.0] * (self.peak + 1)
        for value in filter(self.is_whole, self.readers):
            if not self._is_fixed(self.definition[value]):
                left[self.definition[value]] += self.size(value)
        one = max(sum(left) / count, 1.0)
        total = 0.0
        best: dict[int, tuple[float, int]] = {}
        for at, nbytes_left in enumerate(left):
            total += nbytes_left
            place = round(total / one)
            if 0 < place < count and abs(total / one - place) <= _WINDOW:
                best[place] = min(best.get(place, (self.live[at], at)), (self.live[at], at))
        return sorted({at + 1 for _, at in best.values()})

    def _needed(
        self, dropped: Sequence[Var], first: int, kept: set[Var]
    ) -> tuple[tuple[int, ...], set[Var]]:
        """The equations that compute `dropped` again, and the values that they start from."""
        needed: set[int] = set()
        sources: set[Var] = set()
        waiting = [self.definition[value] for value in dropped]
        while waiting:
            at = waiting.pop()
            if at in needed:
                continue
            needed.add(at)
            for value in variables(self.equations[at]):
                made = self.definition.get(value)
                if made is None or value in kept or self._is_source(made, first):
                    sources.add(value)
                else:
                    waiting.append(made)
        return tuple(sorted(needed)), sources

    def _is_to_drop(self, index: int) -> bool:
        """Whether an equation's results are dropped. Cheap ones need no memory of their own."""
        return index not in self.cheap and not self._is_fixed(index)

    def _is_source(self, index: int, first: int) -> bool:
        """Whether a segment that begins with `first` reads kept results of an equation."""
        return self._is_fixed(index) or (index < first and index not in self.cheap)

    def _is_fixed(self, index: int) -> bool:
        """Whether an equation is computed only once."""
        equation = self.equations[index]
        is_product = self.products and not fuses_with_operands(equation)
        is_fixed = equation.primitive.name in _NEVER or draws_anew(equation)
        return bool(equation.effects) or is_product or is_fixed or compares_numbers(equation)


def _cheap(equations: Sequence[JaxprEqn], size: Callable[[Var], float]) -> frozenset[int]:
    """Equations whose values come pointwise from much less: not worth keeping, nor waiting for."""
    found: set[int] = set()
    sources: dict[Var, float] = {}
    for index, equation in enumerate(equations):
        behind = sum(sources.get(value, size(value)) for value in set(variables(equation)))
        if fuses_with_consumer(equation) and 8 * behind <= sum(map(size, equation.outvars)):
            found.add(index)
            sources.update(dict.fromkeys(equation.outvars, behind))
    return frozenset(found)


def _evaluated(
    closed: ClosedJaxpr,
    arguments: Sequence[Array],
    again: Sequence[_Again],
    forward: _Forward,
    *,
    hidden: bool,
) -> list[Array]:
    """The outputs of a program that computes values again where `again` says.

    Each recomputation waits for the values that the backward pass has made by then and reads later.
    """
    jaxpr = closed.jaxpr
    values: dict[Var, Array] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))
    made: list[Var] = []
    for index, equation in enumerate(jaxpr.eqns):
        if due := [each for each in again if each.reader == index]:
            alive = [v for v in made if forward.last[v] >= index and forward.is_whole(v)]
            made = []
            for each in due:
                _compute_again(forward, each, values, alive, hidden=hidden)
        _compute(equation, values)
        if index > forward.peak:
            made += [value for value in equation.outvars if value in forward.last]
    return [atom.val if isinstance(atom, Literal) else values[atom] for atom in jaxpr.outvars]


def _last_reads(closed: ClosedJaxpr) -> dict[Var, int]:
    """The last equation that reads each value; for a result, the number of equations."""
    jaxpr = closed.jaxpr
    last = {value: at for at, equation in enumerate(jaxpr.eqns) for value in variables(equation)}
    results = (atom for atom in jaxpr.outvars if isinstance(atom, Var))
    return last | dict.fromkeys(results, len(jaxpr.eqns))


def _compute_again(
    forward: _Forward,
    again: _Again,
    values: dict[Var, Array],
    late: Sequence[Var],
    *,
    hidden: bool,
) -> None:
    """Compute dropped values from the values before the segment, after all `late` values.

    The backward pass made the `late` values from later segments. Without this order, a compiler may
    begin early and leave other work to the end, such as the gradients of weights, whose operands
    then stay in memory.
    """
    equations, indices = forward.equations, set(again.equations)
    own = {value for index in indices for value in equations[index].outvars}
    sources = list(dict.fromkeys(v for at in again.equations for v in variables(equations[at])))
    sources = [value for value in sources if value not in own and forward.is_whole(value)]
    tied = list(dict.fromkeys((*sources, *late)))
    local = dict(values)
    held = barrier([values[value] for value in tied])
    local.update(zip(tied, held, strict=True))
    values.update({value: local[value] for value in late})
    if hidden:
        zeros = [zero_after([local[value]]) for value in late]
        local.update({source: _less(local[source], zeros) for source in sources})
    for index in again.equations:
        _compute(equations[index], local)
    values.update({value: local[value] for value in again.dropped})


def _less(value: Array, zeros: Sequence[Array]) -> Array:
    """`value` minus the zeros that vary over no further mapped axes; the same bits, also for −0."""
    if not jnp.issubdtype(value.dtype, jnp.number):
        return value
    zero = sum(each for each in zeros if varying_axes(each) <= varying_axes(value))
    return value - lax.convert_element_type(zero, value.dtype)


def _compute(equation: JaxprEqn, values: dict[Var, Array]) -> None:
    operands = [atom.val if isinstance(atom, Literal) else values[atom] for atom in equation.invars]
    with as_written(equation):
        values.update(zip(equation.outvars, bind(equation, operands), strict=True))
