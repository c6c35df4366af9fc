"""Labels for numbers and shapes in a line about two step graphs."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Final

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
    """The first few words, and how many there are besides."""
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
