"""The difference of two step graphs, in one line."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from assay.judge.differences.graph_labels import Dimensions, numbers
from assay.judge.differences.step_contents import of_contents
from assay.model.step_graph import StepCollective, StepGraph, StepOutput, StepParameter

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
