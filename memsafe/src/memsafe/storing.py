"""Makes a compiler store values that it would otherwise compute again in each of their readers.

XLA for CPUs computes pointwise values inside of what reads them. In a chain of stencils each value
is read at several shifts, so that the work grows with a power of the chain's length: the gradient
of four steps of a heat equation took 3 times its time in slices (128³ points, 2 cores, jax 0.10.2,
2026-11-26). Barriers do not help, because XLA drops them before. A call that is not inlined helps.

On every platform, a value that is computed twice may be rounded in two ways: a product and a sum at
once or not, or with more bits than the type has. Then no element equals its maximum, and the
derivative of the maximum is lost (jax-ml/jax#40564). Compilers for GPUs and TPUs keep barriers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import Primitive
from jax.interpreters import mlir

if TYPE_CHECKING:
    from jax import Array

__all__ = ["NAME", "stored"]

NAME = "memsafe_stored"

_STORED = Primitive(NAME)
_STORED.def_impl(lambda value, **_: value)
_STORED.def_abstract_eval(lambda value, **_: value)


def stored(value: Array, *, everywhere: bool = False) -> Array:
    """`value`, which compilers for CPUs compute once; with `everywhere`, all compilers do."""
    made: Array = _STORED.bind(value, everywhere=everywhere)
    return made


def _kept(value: Array, *, everywhere: bool) -> Array:
    return lax.optimization_barrier(value) if everywhere else value


def _called(value: Array, **_: bool) -> Array:
    made: Array
    with set_xla_metadata(inlineable="false"):
        made = jax.jit(lax.optimization_barrier)(value)
    return made


mlir.register_lowering(_STORED, mlir.lower_fun(_kept, multiple_results=False))
mlir.register_lowering(_STORED, mlir.lower_fun(_called, multiple_results=False), platform="cpu")
