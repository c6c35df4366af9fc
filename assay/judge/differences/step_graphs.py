"""The difference of two step graphs, in one line: operations, shapes, order, parameters."""

import re
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import prod
from typing import Final, TypeVar

from assay.model.evidence import StepCollective, StepGraph, StepOutput, StepParameter
from assay.model.module import Shape

Names = Mapping[str, Sequence[int]]
"""The framework's parameters by name, with their dimensions."""

_T = TypeVar("_T")
_Key = tuple[str, ...]
_Collective = tuple[str, tuple[Shape, ...], str]
"""Opcode, sorted shapes and attributes: what makes two collectives equal."""

_LENGTH_AT_MOST: Final = 200
_AND_MORE: Final = "; and 99 more"
_LISTED_AT_MOST: Final = 3
_SMALL: Final = 2
"""The most operands of a collective for which the line names them."""

_SAME: Final = "the same graph"


def difference_of_steps(before: StepGraph, after: StepGraph, named: Names | None = None) -> str:
    """How the step after differs from the one before, most important first; never empty.

    Begins with "the same graph" if and only if the two share their canonical fingerprint. Then the
    differences in order and in duplicate constants follow. ``named`` gives the dimensions of the
    framework's parameters; arrays of these shapes are described by the parameters' names.
    """
    if before.canonical != after.canonical:
        return _line(list(_of_contents(before, after, named or {})))
    if before.raw == after.raw:
        return _SAME
    orders = list(_of_orders(before, after))
    return f"{_SAME}: {_line(orders)}" if orders else f"{_SAME}, packed or ordered in another way"


def _line(parts: Sequence[str]) -> str:
    """The first parts that fit into a line; the first one is always written."""
    line = parts[0]
    for written, part in enumerate(parts[1:], start=1):
        if len(line) + len(part) + len(_AND_MORE) > _LENGTH_AT_MOST:
            return f"{line}; and {len(parts) - written} more"
        line = f"{line}; {part}"
    return line


def _of_orders(before: StepGraph, after: StepGraph) -> Iterator[str]:
    """What differs between two ways to write one graph."""
    if parameters := _moved(before.parameters, after.parameters):
        yield f"parameters {_ranges(parameters)} permuted"
    if outputs := _moved(before.outputs, after.outputs):
        yield f"outputs {_ranges(outputs)} permuted"
    permuted = _new(
        before.collectives, after.collectives, lambda each: (each.colour, each.operands)
    )
    if len(permuted) == 1:
        yield f"operands of the {permuted[0].opcode} of {len(permuted[0].operands)} permuted"
    elif permuted:
        yield f"operands of {len(permuted)} coalesced collectives permuted"
    if duplicates := after.duplicate_constants - before.duplicate_constants:
        noun = "duplicate constant" if abs(duplicates) == 1 else "duplicate constants"
        yield f"{abs(duplicates)} {noun} {'more' if duplicates > 0 else 'fewer'}"


def _moved(
    before: Sequence[StepParameter | StepOutput], after: Sequence[StepParameter | StepOutput]
) -> list[int]:
    """The indices at which the parameter or output differs from the one before."""
    pairs = enumerate(zip(before, after, strict=True))
    return [place for place, (old, new) in pairs if old.colour != new.colour]


def _new(before: Iterable[_T], after: Iterable[_T], key: Callable[[_T], Hashable]) -> list[_T]:
    """Those of ``after`` that match none of ``before`` by key; each matches one at most."""
    known, new = Counter(map(key, before)), []
    for each in after:
        if known[key(each)]:
            known[key(each)] -= 1
        else:
            new.append(each)
    return new


def _of_contents(before: StepGraph, after: StepGraph, named: Names) -> Iterator[str]:
    """The differences, most important first; at least one."""
    found = [
        *_of_arrays("output", before.outputs, after.outputs, named),
        *_of_collectives(before, after, named),
        *_of_arrays("parameter", before.parameters, after.parameters, named),
        *_of_donations(before, after),
        *_of_operations(before, after),
    ]
    yield from found or [_of_values(before, after)]


def _of_arrays(
    noun: str,
    before: Iterable[StepOutput | StepParameter],
    after: Iterable[StepOutput | StepParameter],
    named: Names,
) -> Iterator[str]:
    shapes = (Counter(each.shape for each in arrays) for arrays in (before, after))
    for found, number in _surplus(*shapes):
        nouns = noun if found.total() == 1 else f"{noun}s"
        yield f"{number} {nouns}, shaped like {_shaped(found, named)}"


def _surplus(before: Counter[_T], after: Counter[_T]) -> Iterator[tuple[Counter[_T], str]]:
    """What was gained and what was lost, each with its number in words; neither is empty."""
    for found, more in ((after - before, "more"), (before - after, "fewer")):
        if found:
            yield found, f"{found.total()} {more}"


def _of_donations(before: StepGraph, after: StepGraph) -> Iterator[str]:
    """The number of donated parameters, where not the number of parameters explains it."""
    was, now = (sum(each.donated for each in graph.parameters) for graph in (before, after))
    if was != now and len(before.parameters) == len(after.parameters):
        yield f"{now} parameters donated in place of {was}"


def _of_collectives(before: StepGraph, after: StepGraph, named: Names) -> Iterator[str]:
    """Collectives gained and lost, by what each of them takes."""
    ours, theirs = (Counter(map(_collective, graph.collectives)) for graph in (before, after))
    lost, gained = list((ours - theirs).elements()), list((theirs - ours).elements())
    for opcode in sorted({each[0] for each in (*lost, *gained)}):
        old, new = ([each for each in found if each[0] == opcode] for found in (lost, gained))
        yield _regrouped(opcode, old, new, named)


def _collective(collective: StepCollective) -> _Collective:
    shapes = tuple(sorted(collective.shapes, key=str))
    return collective.opcode, shapes, collective.attributes


def _regrouped(
    opcode: str, old: Sequence[_Collective], new: Sequence[_Collective], named: Names
) -> str:
    if not old or not new:
        more, groups = ("more", new) if new else ("fewer", old)
        return f"{len(groups)} {more} {opcode} of {_sizes(groups, named)}"
    if Counter(each[:2] for each in old) == Counter(each[:2] for each in new):
        return f"{opcode} of {_sizes(new, named)} with other attributes"
    shapes = (Counter(shape for each in groups for shape in each[1]) for groups in (old, new))
    moved = [f", {number}: {_shaped(found, named)}" for found, number in _surplus(*shapes)]
    return f"{opcode} of {_sizes(old, named)} became {_sizes(new, named)}{''.join(moved)}"


def _sizes(groups: Iterable[_Collective], named: Names) -> str:
    """How many operands each has, the largest first; of small ones, what they are."""
    ordered = sorted((shapes for _, shapes, _ in groups), key=len, reverse=True)
    words = [
        f"{len(shapes)} ({_shaped(Counter(shapes), named)})"
        if len(shapes) <= _SMALL
        else str(len(shapes))
        for shapes in ordered
    ]
    return _few(words, " + ")


def _of_operations(before: StepGraph, after: StepGraph) -> Iterator[str]:
    """Operations gained and lost; then those of equal number but another shape or attribute."""
    opcodes, shapes, attributes = (_change(before, after, length) for length in (1, 2, 3))
    ordered = sorted(opcodes, key=lambda key: (-abs(opcodes[key]), key))
    if ordered:
        words = [
            f"{abs(opcodes[key])} {'more' if opcodes[key] > 0 else 'fewer'} {key[0]}"
            for key in ordered
        ]
        yield _few(words)
    for (opcode,), count in _gained(shapes, 1, but=opcodes).items():
        yield f"{count} {opcode} of another shape"
    for (opcode, shape), count in _gained(attributes, 2, but={**opcodes, **shapes}).items():
        other = "another value" if opcode == "constant" else "other attributes"
        yield f"{count} {opcode} {shape} of {other}"


def _change(before: StepGraph, after: StepGraph, length: int) -> Mapping[_Key, int]:
    """How many more operations the second graph has, by opcode, shape and attributes.

    The key is the first ``length`` of the three. Kinds of equal number are left out.
    """
    change = Counter[_Key]()
    for sign, graph in ((-1, before), (1, after)):
        for each in graph.operations:
            key = each.opcode, str(each.shape), each.attributes
            change[key[:length]] += sign * each.count
    return {key: count for key, count in change.items() if count}


def _gained(change: Mapping[_Key, int], length: int, *, but: Container[_Key]) -> Counter[_Key]:
    """The gains, by the first words of their keys; without keys that begin with one of ``but``."""
    gained = Counter[_Key]()
    for key, count in change.items():
        if count > 0 and not any(key[:k] in but for k in range(1, length + 1)):
            gained[key[:length]] += count
    return gained


def _of_values(before: StepGraph, after: StepGraph) -> str:
    """Of two graphs of the same parts, the outputs that are computed from other operands."""
    others = _new(before.outputs, after.outputs, lambda each: (each.shape, each.value))
    if not others:
        return "the same operations, joined or ordered in another way"
    noun = "output" if len(others) == 1 else "outputs"
    shapes = _few(sorted({str(each.shape) for each in others}))
    indices = _ranges(each.index for each in others)
    return f"the same operations, but {noun} {indices} ({shapes}) computed from other operands"


def _shaped(shapes: Counter[Shape], named: Names) -> str:
    """What the arrays are shaped like: gradients of named parameters, else their shapes alone."""
    gradients, others = [], []
    for shape, count in sorted(shapes.items(), key=lambda item: (-item[1], str(item[0]))):
        names = _of_shape(shape, named)
        if names and len(names) <= count:
            gradients += names
        elif names:
            gradients.append(_any_of(names))
        else:
            others.append(f"{shape} ({count})" if count > 1 else str(shape))
    words = [f"gradients of {_few(gradients)}"] if gradients else []
    return " and ".join([*words, _few(others)] if others else words)


def _of_shape(shape: Shape, named: Names) -> list[str]:
    """The parameters of an array's shape; if there are none, those that it may hold flattened."""
    same = [name for name, each in named.items() if tuple(each) == shape.dimensions]
    if same or len(shape.dimensions) != 1:
        return same
    return [name for name, each in named.items() if prod(each) == shape.dimensions[0]]


def _any_of(names: Sequence[str]) -> str:
    """One name for several: what they share, if they differ in numbers only."""
    patterns = {re.sub(r"\d+", "*", name) for name in names}
    return patterns.pop() if len(patterns) == 1 else f"{names[0]} or {len(names) - 1} alike"


def _ranges(found: Iterable[int]) -> str:
    """Numbers in order, runs of them as ranges: ``1, 827–852``."""
    runs = groupby(enumerate(sorted(found)), key=lambda pair: pair[1] - pair[0])
    bounds = [[number for _, number in run] for _, run in runs]
    return _few([str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in bounds])


def _few(words: Sequence[str], between: str = ", ") -> str:
    """The first few words, and the number of further ones."""
    rest = len(words) - _LISTED_AT_MOST
    if rest <= 1:  # one word more takes no more room than its count
        return between.join(words)
    return between.join((*words[:_LISTED_AT_MOST], f"{rest} more"))
