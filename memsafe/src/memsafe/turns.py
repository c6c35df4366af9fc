"""Runs convolutions one after another, because a CPU's library lays out every window of each.

XLA's client for CPUs runs independent equations side by side. The gradient of a ResNet of 12
convolutions takes 83 MB, and its libraries up to 277 MB. If each convolution waits for the one
before, the libraries take 23 MB, and the gradient takes 0.9 times the time (16 images of
32 × 32 × 32, f32, 2 cores, jax 0.10.2, 2026-11-28).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import Primitive
from jax.interpreters import mlir

from memsafe.jax_internals import aval_of
from memsafe.programs import zero_after

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

__all__ = ["Turns", "held_during"]


def held_during(equation: JaxprEqn) -> int:
    """The most bytes that a library may hold while a convolution runs; 0 for other equations.

    Counts every window and copies of all arrays, as `libraries` does for a compiled module.
    """
    if equation.primitive.name != "conv_general_dilated":
        return 0
    arrays = image, kernel, made = *map(aval_of, equation.invars), aval_of(equation.outvars[0])
    numbers = equation.params["dimension_numbers"]
    batch, _, *space = numbers.out_spec
    positions = math.prod(made.shape[each] for each in (batch, *space))
    window = math.prod(kernel.shape[each] for each in numbers.rhs_spec[2:])
    windows = positions * window * image.shape[numbers.lhs_spec[1]] * image.dtype.itemsize
    return int(windows + sum(each.size * each.dtype.itemsize for each in arrays))


class Turns:
    """Makes equations begin one after another.

    Attributes:
        waiting: The indices of these equations.
        after: A zero that is available once the last one has ended; 0 itself before the first.
    """

    def __init__(self, waiting: Collection[int]) -> None:
        self.waiting = waiting
        self.after: Any = np.int32(0)

    def begun(self, equation: int, operands: Sequence[Array]) -> list[Array]:
        """The operands of `equation`; the first is available only when its turn comes."""
        if equation not in self.waiting or isinstance(self.after, np.int32):
            return [*operands]
        first, *others = operands
        return [_WAITING.bind(first, self.after), *others]

    def ended(self, equation: int, results: Iterable[Array]) -> None:
        """Lets the next equation begin once `results` are available."""
        if equation in self.waiting:
            self.after = zero_after(results)


_WAITING = Primitive("memsafe_waiting")
_WAITING.def_impl(lambda value, _: value)
_WAITING.def_abstract_eval(lambda value, _: value)


def _called(value: Array, after: Array) -> Array:
    """`value`, from a call that is not inlined, because XLA for CPUs drops barriers."""
    made: Array
    with set_xla_metadata(inlineable="false"):
        made, _ = jax.jit(lambda *each: lax.optimization_barrier(each))(value, after)
    return made


mlir.register_lowering(_WAITING, mlir.lower_fun(_called, multiple_results=False))
