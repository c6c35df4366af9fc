"""The ranks whose sorted elements an equation reads, or at whose places it adds numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, Var
from jax.lax import GatherScatterMode

from memsafe.programs import shape_of
from memsafe.rewrites.definitions import size_of, type_of
from memsafe.rules.windows import widened

if TYPE_CHECKING:
    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.programs import Read
    from memsafe.rewrites.definitions import Definitions

    Atom = Var | Literal

__all__ = ["Ranks", "ranks_read", "ranks_written"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Places in a sorted array.

    Attributes:
        size: The number of elements of the array.
        count: The number of places.
        start: The variable that holds the places, or the first of them; None if they are constant.
        steps: Offsets that are added to the first place; if `start` is None, the places themselves.
        drops: Whether places outside of the array are dropped; otherwise they are clamped to it.
    """

    size: int
    count: int
    start: Any = None
    steps: tuple[int, ...] = ()
    drops: bool = False

    @property
    def atoms(self) -> tuple[Var, ...]:
        """The variables that the places depend on."""
        return (self.start,) if isinstance(self.start, Var) else ()

    def numbers(self, read: Read) -> Array:
        """The places, clamped to the array."""
        return jnp.clip(self._asked(read), 0, self.size - 1)

    def given(self, elements: Array, equation: JaxprEqn, read: Read) -> Array:
        """The result of `equation`, which reads these `elements`."""
        (result,) = equation.outvars
        if self.drops:
            fill = equation.params.get("fill_value")
            fill = _fill(elements.dtype) if fill is None else fill
            elements = jnp.where(self._inside(read), elements, jnp.asarray(fill, elements.dtype))
        return elements.reshape(shape_of(result))

    def taken(self, numbers: Array, read: Read) -> Array:
        """The `numbers` that an equation adds at the places; 0 for each place that is dropped."""
        flat = numbers.reshape(self.count)
        return jnp.where(self._inside(read), flat, 0) if self.drops else flat

    def _asked(self, read: Read) -> Array:
        if self.start is None:
            return jnp.asarray(self.steps, jnp.int32)
        start = widened(jnp.asarray(read(self.start)).ravel())
        if self.steps:  # Consecutive places: the first is clamped so that all stay in the array.
            start = jnp.clip(start, 0, self.size - self.count)
            return start + np.asarray(self.steps, start.dtype)
        return start

    def _inside(self, read: Read) -> Array:
        asked = self._asked(read)
        return (asked >= 0) & (asked < self.size)


def _fill(kind: Any) -> Any:
    """The value that JAX reads beyond an array's ends by default."""
    if jnp.issubdtype(kind, jnp.inexact):
        return np.nan
    return np.iinfo(kind).min if jnp.issubdtype(kind, jnp.signedinteger) else np.iinfo(kind).max


def ranks_read(equation: JaxprEqn, array: Var) -> Ranks | None:
    """The places of `array` that `equation` reads, or None where it does something else."""
    if equation.invars[0] is not array or array in equation.invars[1:]:
        return None
    params, size = equation.params, size_of(array)
    match equation.primitive.name:
        case "slice":
            steps = params["strides"] or (1,)
            bounds = (params["start_indices"][0], params["limit_indices"][0], steps[0])
            known = range(*map(int, bounds))
            return Ranks(size=size, count=len(known), steps=tuple(known)) if known else None
        case "dynamic_slice":
            return _from(size, equation.invars[1], int(params["slice_sizes"][0]))
        case "gather":
            is_of_elements = tuple(params["slice_sizes"]) == (1,)
            return _by_indices(size, equation.invars[1], params) if is_of_elements else None
        case _:
            return None


def _from(size: int, start: Atom, count: int) -> Ranks:
    if isinstance(start, Literal):
        first = min(max(int(start.val), 0), size - count)
        return Ranks(size=size, count=count, steps=tuple(range(first, first + count)))
    return Ranks(size=size, count=count, start=start, steps=tuple(range(count)))


def _by_indices(size: int, indices: Atom, params: Any) -> Ranks | None:
    count = size_of(indices)
    if count == 0 or shape_of(indices)[-1:] != (1,) or isinstance(indices, Literal):
        return None
    drops = params["mode"] == GatherScatterMode.FILL_OR_DROP
    return Ranks(size=size, count=count, start=indices, drops=drops)


def ranks_written(
    equation: JaxprEqn, places: Var, definitions: Definitions
) -> list[tuple[Ranks, Atom]] | None:
    """The ranks and numbers that `equation` adds at the sorted `places`, or None.

    The equation must add an array to zeros. The array must be a sum of arrays that are zero except
    at a few ranks. The result is None for any other equation.
    """
    if equation.primitive.name != "scatter-add" or len(equation.invars) != len("0iu"):
        return None
    zeros, indices, updates = equation.invars
    if (
        indices is not places
        or not _is_zero(zeros, definitions)
        or len(shape_of(zeros)) != 1
        or shape_of(indices) != (*shape_of(zeros), 1)
        or shape_of(updates) != shape_of(zeros)
    ):
        return None
    return _few(updates, definitions)


def _few(updates: Atom, definitions: Definitions) -> list[tuple[Ranks, Atom]] | None:
    """The ranks at which an array may differ from zero, and its numbers there, or None."""
    equation = definitions.equation(updates)
    if equation is None:
        return None
    size, operands = size_of(updates), equation.invars
    match equation.primitive.name:
        case "add" | "add_any":
            parts = [_few(atom, definitions) for atom in operands]
            known = [part for part in parts if part is not None]
            return [pair for part in known for pair in part] if len(known) == len(parts) else None
        case "scatter-add" if _is_zero(operands[0], definitions):
            numbers = operands[2]
            is_of_elements = size_of(numbers) == size_of(operands[1])
            ranks = _by_indices(size, operands[1], equation.params) if is_of_elements else None
        case "dynamic_update_slice" if _is_zero(operands[0], definitions):
            numbers = operands[1]
            ranks = _from(size, operands[2], size_of(numbers))
        case "pad" if _is_zero(operands[1], definitions):
            numbers = operands[0]
            ((low, _, between),) = equation.params["padding_config"]
            steps = tuple(low + each * (1 + between) for each in range(size_of(numbers)))
            is_inside = bool(steps) and steps[0] >= 0 and steps[-1] < size
            ranks = Ranks(size=size, count=len(steps), steps=steps) if is_inside else None
        case _:
            return None
    return None if ranks is None else [(ranks, numbers)]


def _is_zero(atom: Atom, definitions: Definitions) -> bool:
    number = definitions.uniform(atom)
    return number is not None and type_of(atom) is not None and not np.any(np.asarray(number.val))
