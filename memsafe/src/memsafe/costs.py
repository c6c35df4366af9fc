"""Costs of equations, and which ones a compiler fuses: rough, and corrected by compiling.

Only comparisons between plans of one program use these numbers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from jax.extend.core import Var

from memsafe import storing
from memsafe.jax_internals import aval_of
from memsafe.programs import nbytes
from memsafe.rules import counting, elementwise, reductions, rolls, shapes
from memsafe.sub_jaxprs import sub_jaxprs_of

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from jax.extend.core import JaxprEqn

__all__ = [
    "SOLVE_CALL",
    "elementwise_work",
    "fuses_with_consumer",
    "fuses_with_operands",
    "gives_its_operands",
    "traffic",
    "updates_in_place",
    "work",
]

SOLVE_CALL = 3e8
"""The fixed cost of each solve that a loop calls once per step, in operations.

It was measured on a CPU only, and counts on a GPU and a TPU as well.
On a CPU the library's threads and XLA's wait for each other: a solve with a matrix of 256 × 256 in
a loop takes 4.0, 5.0 and 16.2 ms for 200, 400 and 1,000 columns, and 0.8, 1.4 and 3.6 ms if the
library has one thread. XLA does 8·10¹⁰ operations of products in a second (double precision,
2 cores, jax 0.10.2, 2026-11-26).
"""

_ELEMENT = 4.0
"""Cost of one element read or written, in operations of a matrix product."""

_SERIAL = 8.0
"""Cost of one operation of a solve or a factorisation, because it waits for the one before."""

_COMPARED = 200.0
"""Cost of a sort for each element and each doubling of the elements, in operations.

A CPU takes 350 ns for each of 9 million elements. In the time of one doubling, passes that count
elements do 850 operations (2 cores, jax 0.10.2, 2026-11-25). A GPU's radix sort should take less:
it is not measured.
"""

_FACTORISATIONS = frozenset(("cholesky", "lu", "qr", "eigh", "svd"))
_BARRIERS = frozenset(("optimization_barrier", storing.NAME))
_POINTWISE = (
    frozenset((*elementwise.RULES, *shapes.RULES, *rolls.RULES, "dynamic_slice")) - _BARRIERS
)
_READERS = frozenset((*_POINTWISE, *reductions.RULES, *counting.RULES, "argmax", "argmin"))
_IN_PLACE = frozenset(
    (*elementwise.RULES, "dynamic_update_slice", "scan", "while", "scatter", "scatter-add")
)


def fuses_with_consumer(equation: JaxprEqn) -> bool:
    """Whether compilers compute the results of `equation` inside what uses them."""
    return equation.primitive.name in _POINTWISE


def fuses_with_operands(equation: JaxprEqn) -> bool:
    """Whether compilers compute pointwise operands of `equation` inside it."""
    return equation.primitive.name in _READERS


def updates_in_place(equation: JaxprEqn) -> bool:
    """Whether a result may take the memory of an operand that nobody uses later."""
    return equation.primitive.name in _IN_PLACE


def gives_its_operands(equation: JaxprEqn) -> bool:
    """Whether the results are the operands themselves, in the same memory."""
    return equation.primitive.name in _BARRIERS


def work(equation: JaxprEqn) -> float:
    """Operations of one equation: of products, and of reading and writing elements.

    Operations of the programs that the equation runs are not counted.
    """
    return _products(equation) + elementwise_work(equation)


def elementwise_work(equation: JaxprEqn) -> float:
    """The part of `work` that reads and writes elements."""
    return _ELEMENT * _touched(equation)


def traffic(equation: JaxprEqn, fused: AbstractSet[Var]) -> float:
    """Bytes that the equation reads and writes in memory, without those of `fused` values."""
    if gives_its_operands(equation) or sub_jaxprs_of(equation):
        return 0.0
    part = _part_touched(equation)
    if part is not None:
        return float(nbytes(part) * (1 + fused.isdisjoint(equation.outvars)))
    atoms = {atom for atom in (*equation.invars, *equation.outvars) if isinstance(atom, Var)}
    return float(sum(nbytes(atom) for atom in atoms if atom not in fused))


def _touched(equation: JaxprEqn) -> int:
    """Number of elements read or written; only those of the slice if one is cut out or put in."""
    if gives_its_operands(equation):
        return 0
    part = _part_touched(equation)
    if part is not None:
        return 2 * _elements(part)
    return sum(_elements(atom) for atom in (*equation.invars, *equation.outvars))


def _part_touched(equation: JaxprEqn) -> Any:
    """The slice that an equation cuts from an array or puts into one; None for any other."""
    match equation.primitive.name:
        case "dynamic_slice":
            return equation.outvars[0]
        case "dynamic_update_slice":
            return equation.invars[1]
        case _:
            return None


def _elements(atom: Any) -> int:
    return int(getattr(atom.aval, "size", 0))


def _doublings(sort: JaxprEqn) -> float:
    length: int = aval_of(sort.invars[0]).shape[sort.params["dimension"]]
    return math.log2(max(length, 1))


def _products(equation: JaxprEqn) -> float:  # noqa: PLR0911 — a table of primitives
    name, operands, results = equation.primitive.name, equation.invars, equation.outvars
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape: tuple[int, ...] = aval_of(operands[0]).shape
        inner: int = math.prod(shape[dim] for dim in contracted)
        return 2.0 * _elements(results[0]) * inner
    if name == "triangular_solve":
        return _SERIAL * _elements(results[0]) * float(aval_of(operands[0]).shape[-1])
    if name == "conv_general_dilated":
        kernel = aval_of(operands[1])
        out_features: int = kernel.shape[equation.params["dimension_numbers"].rhs_spec[0]]
        return 2.0 * _elements(results[0]) * int(kernel.size) / max(out_features, 1)
    if name == "sort":
        return _COMPARED * _elements(operands[0]) * _doublings(equation)
    if name in counting.RULES:
        return float(_elements(operands[0]) * _elements(operands[1]))
    if name in _FACTORISATIONS:
        return _SERIAL * _elements(operands[0]) * float(aval_of(operands[0]).shape[-1])
    return 0.0
