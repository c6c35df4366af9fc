"""The difference of two step graphs, in one line: operations, shapes, order, parameters."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Final

from assay.model.evidence import (
    StepCollective,
    StepGraph,
    StepOperation,
    StepOutput,
    StepParameter,
)
from assay.model.module import Shape

Dimensions = Sequence[int]
"""The lengths of an array's sides."""

_TOLD_AT_MOST: Final = 3


def numbers(found: Iterable[int]) -> str:
    """Numbers in order, runs of them as ranges: ``1, 827–852``."""
    runs: list[list[int]] = []
    for number in sorted(found):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return few([str(first) if first == last else f"{first}–{last}" for first, last in runs])


def shaped(shapes: Counter[Shape], named: Mapping[str, Dimensions]) -> str:
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
    told = [f"gradients of {few(gradients)}"] if gradients else []
    told += [few(others)] if others else []
    return " and ".join(told)


def few(words: Sequence[str], between: str = ", ") -> str:
    """The first few words, and the number of further ones."""
    rest = len(words) - _TOLD_AT_MOST
    if rest <= 1:  # to say that there is one more takes the room of saying it
        return between.join(words)
    return between.join((*words[:_TOLD_AT_MOST], f"{rest} more"))


def _of_shape(shape: Shape, named: Mapping[str, Dimensions]) -> list[str]:
    """The parameters of an array's shape; if there are none, those that it may hold flattened."""
    same = [name for name, each in named.items() if tuple(each) == shape.dimensions]
    if same or len(shape.dimensions) != 1:
        return same
    return [name for name, each in named.items() if prod(each) == shape.dimensions[0]]


def _any_of(names: Sequence[str]) -> str:
    """One name for several: what they share, if they differ in numbers only."""
    alike = {re.sub(r"\d+", "*", name) for name in names}
    return alike.pop() if len(alike) == 1 else f"{names[0]} or {len(names) - 1} alike"


_SMALL: Final = 2
"""Operands of a collective that is small enough to name what it takes."""


def of_contents(
    before: StepGraph, after: StepGraph, named: Mapping[str, Dimensions]
) -> Iterator[str]:
    """The differences, most important first; at least one."""
    found = [
        *_of_arrays("output", _shapes(before.outputs), _shapes(after.outputs), named),
        *_of_collectives(before, after, named),
        *_of_arrays("parameter", _shapes(before.parameters), _shapes(after.parameters), named),
        *_of_donations(before, after),
        *_of_operations(before, after),
    ]
    yield from found or _of_values(before, after)


def _shapes(arrays: Iterable[StepOutput | StepParameter]) -> Counter[Shape]:
    return Counter(each.shape for each in arrays)


def _of_arrays(
    noun: str, before: Counter[Shape], after: Counter[Shape], named: Mapping[str, Dimensions]
) -> Iterator[str]:
    for found, more in ((after - before, "more"), (before - after, "fewer")):
        if found:
            nouns = noun if found.total() == 1 else f"{noun}s"
            yield f"{found.total()} {more} {nouns}, shaped like {shaped(found, named)}"


def _of_donations(before: StepGraph, after: StepGraph) -> Iterator[str]:
    """Parameters given away, where it is not only that there are more parameters."""
    kept, given = (sum(each.donated for each in graph.parameters) for graph in (before, after))
    if kept != given and len(before.parameters) == len(after.parameters):
        yield f"{given} parameters donated in place of {kept}"


def _of_collectives(
    before: StepGraph, after: StepGraph, named: Mapping[str, Dimensions]
) -> Iterator[str]:
    """Collectives gained and lost, by what each of them takes."""
    ours, theirs = (Counter(map(_kind, graph.collectives)) for graph in (before, after))
    lost, gained = ours - theirs, theirs - ours
    for opcode in sorted({opcode for opcode, _, _ in (*lost, *gained)}):
        old, new = (
            [each for each in kinds.elements() if each[0] == opcode] for kinds in (lost, gained)
        )
        yield _regrouped(opcode, old, new, named)


_Kind = tuple[str, tuple[Shape, ...], str]


def _kind(collective: StepCollective) -> _Kind:
    return (
        collective.opcode,
        tuple(sorted(collective.shapes, key=str)),
        collective.attributes,
    )


def _regrouped(
    opcode: str, old: list[_Kind], new: list[_Kind], named: Mapping[str, Dimensions]
) -> str:
    if not old or not new:
        more, groups = ("more", new) if new else ("fewer", old)
        return f"{len(groups)} {more} {opcode} of {_sizes(groups, named)}"
    if Counter(each[:2] for each in old) == Counter(each[:2] for each in new):
        return f"{opcode} of {_sizes(new, named)} with other attributes"
    told = f"{opcode} of {_sizes(old, named)} became {_sizes(new, named)}"
    ours, theirs = (Counter(shape for each in kinds for shape in each[1]) for kinds in (old, new))
    for found, more in ((theirs - ours, "more"), (ours - theirs, "fewer")):
        if found:
            told += f", {found.total()} {more}: {shaped(found, named)}"
    return told


def _sizes(groups: list[_Kind], named: Mapping[str, Dimensions]) -> str:
    """How many operands each has, the largest first; of small ones, what they are."""
    ordered = sorted(groups, key=lambda each: -len(each[1]))
    words = [
        f"{len(shapes)} ({shaped(Counter(shapes), named)})"
        if len(shapes) <= _SMALL
        else str(len(shapes))
        for _, shapes, _ in ordered
    ]
    return few(words, " + ")


def _of_operations(before: StepGraph, after: StepGraph) -> Iterator[str]:
    """Operations gained and lost, then those of which as many are there but not the same."""
    change = _change(before, after, lambda each: (each.opcode,))
    ordered = sorted(change, key=lambda opcode: (-abs(change[opcode]), opcode))
    if ordered:
        yield few([f"{_more(change[opcode])} {opcode[0]}" for opcode in ordered])
    reshaped = _change(before, after, lambda each: (each.opcode, str(each.shape)))
    for (opcode,), count in _gained(reshaped, 1, told=change).items():
        yield f"{count} {opcode} of another shape"
    changed = _change(before, after, lambda each: (each.opcode, str(each.shape), each.attributes))
    for (opcode, shape), count in _gained(changed, 2, told={*change, *reshaped}).items():
        other = "another value" if opcode == "constant" else "other attributes"
        yield f"{count} {opcode} {shape} of {other}"


_Key = tuple[str, ...]


def _change(
    before: StepGraph, after: StepGraph, key: Callable[[StepOperation], _Key]
) -> Counter[_Key]:
    """How many more operations of each kind the second graph has; kinds that differ alone."""
    change: Counter[_Key] = Counter()
    for sign, graph in ((-1, before), (1, after)):
        for each in graph.operations:
            change[key(each)] += sign * each.count
    return Counter({kind: count for kind, count in change.items() if count})


def _gained(change: Counter[_Key], length: int, *, told: Collection[_Key]) -> Counter[_Key]:
    """The gains, by the first words of each kind, without those already listed."""
    gained: Counter[_Key] = Counter()
    for kind, count in change.items():
        if count > 0 and not any(kind[:k] in told for k in range(1, length + 1)):
            gained[kind[:length]] += count
    return gained


def _more(change: int) -> str:
    return f"{abs(change)} {'more' if change > 0 else 'fewer'}"


def _of_values(before: StepGraph, after: StepGraph) -> Iterator[str]:
    """Of two graphs of the same parts, the outputs that are computed from other operands."""
    known = Counter((each.shape, each.value) for each in before.outputs)
    others = []
    for each in after.outputs:
        if known[each.shape, each.value]:
            known[each.shape, each.value] -= 1
        else:
            others.append(each)
    if not others:
        yield "the same operations, joined or ordered in another way"
        return
    noun = "output" if len(others) == 1 else "outputs"
    shapes = few(sorted({str(each.shape) for each in others}))
    indices = numbers(each.index for each in others)
    yield f"the same operations, but {noun} {indices} ({shapes}) computed from other operands"


_LENGTH_AT_MOST: Final = 200
_AND_MORE: Final = "; and 99 more"
_SAME: Final = "the same graph"


def difference_of_steps(
    before: StepGraph, after: StepGraph, named: Mapping[str, Dimensions] | None = None
) -> str:
    """How the step after differs from the one before, most important first; never empty.

    Begins with "the same graph" if and only if the two share their canonical fingerprint; what
    follows are the orders that chance chose otherwise. ``named`` gives the dimensions of the
    framework's parameters, by which arrays of their shapes are called.
    """
    if before.canonical != after.canonical:
        return _line(list(of_contents(before, after, named or {})))
    if before.raw == after.raw:
        return _SAME
    told = list(_of_orders(before, after))
    return f"{_SAME}: {_line(told)}" if told else f"{_SAME}, packed or ordered in another way"


def _line(parts: Sequence[str]) -> str:
    """The first parts that fit into a line; one always does."""
    line = parts[0]
    for told, part in enumerate(parts[1:], start=1):
        if len(line) + len(part) + len(_AND_MORE) > _LENGTH_AT_MOST:
            return f"{line}; and {len(parts) - told} more"
        line = f"{line}; {part}"
    return line


def _of_orders(before: StepGraph, after: StepGraph) -> Iterator[str]:
    """What differs between two ways to write one graph."""
    parameters = _moved(before.parameters, after.parameters)
    if parameters:
        yield f"parameters {numbers(parameters)} permuted"
    outputs = _moved(before.outputs, after.outputs)
    if outputs:
        yield f"outputs {numbers(outputs)} permuted"
    permuted = _permuted(before.collectives, after.collectives)
    if len(permuted) == 1:
        yield f"operands of the {permuted[0].opcode} of {len(permuted[0].operands)} permuted"
    elif permuted:
        yield f"operands of {len(permuted)} coalesced collectives permuted"
    duplicates = after.duplicate_constants - before.duplicate_constants
    if duplicates:
        noun = "duplicate constant" if abs(duplicates) == 1 else "duplicate constants"
        yield f"{abs(duplicates)} {noun} {'more' if duplicates > 0 else 'fewer'}"


def _moved(
    before: Sequence[StepParameter | StepOutput], after: Sequence[StepParameter | StepOutput]
) -> list[int]:
    """The places in which another one stands than before."""
    pairs = enumerate(zip(before, after, strict=True))
    return [place for place, (old, new) in pairs if old.colour != new.colour]


def _permuted(
    before: Sequence[StepCollective], after: Sequence[StepCollective]
) -> list[StepCollective]:
    """The collectives whose operands stand in an order that none of their like had before."""
    orders: Counter[tuple[str, tuple[str, ...]]] = Counter(
        (each.colour, each.operands) for each in before
    )
    permuted = []
    for each in after:
        key = each.colour, each.operands
        if orders[key]:
            orders[key] -= 1
        else:
            permuted.append(each)
    return permuted
