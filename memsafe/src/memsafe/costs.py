"""What an equation costs, and which ones a compiler fuses: rough, and corrected by compiling.

Only comparisons between plans of one program use these numbers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from memsafe import storing
from memsafe.jax_internals import aval_of
from memsafe.rules import counting, elementwise, reductions, rolls, shapes
from memsafe.sub_jaxprs import sub_jaxprs_of

if TYPE_CHECKING:
    from jax.extend.core import JaxprEqn

__all__ = [
    "HOST_BYTE",
    "LOOP_STEP",
    "SOLVE_CALL",
    "elementwise_work",
    "fuses_with_consumer",
    "fuses_with_operands",
    "gives_its_operands",
    "loop_steps",
    "updates_in_place",
    "work",
]

LOOP_STEP = 5e6
"""What one step of a loop costs beside its work: about 5 µs at 10¹² operations a second."""

SOLVE_CALL = 3e8
"""The fixed cost of each solve that a loop calls once per step, in operations.

It was measured on a CPU only, and counts on a GPU and a TPU as well.
On a CPU the library's threads and XLA's wait for each other: a solve with a matrix of 256 × 256 in
a loop takes 4.0, 5.0 and 16.2 ms for 200, 400 and 1,000 columns, and 0.8, 1.4 and 3.6 ms if the
library has one thread. XLA does 8·10¹⁰ operations of products in a second (double precision,
2 cores, jax 0.10.2, 2026-11-26).
"""

HOST_BYTE = 4.3e3
"""Operations in the time of one byte that goes to the host's memory or comes back.

An H200's link (PCIe 5.0 × 16) moves 55.3 · 10⁹ bytes a second each way. In that time a step of
suite scan_offload's program does 240 · 10¹² operations, and products alone (TF32) 362 · 10¹². Of
two plans for it, 1.66 and 1.97 times the time were predicted, and 1.58 and 1.87 measured (jax
0.11.2, 2026-11-26, docs/device.md).
"""

_ELEMENT = 4.0
"""What one element read or written costs, in operations of a matrix product."""

_SERIAL = 8.0
"""What an operation of a solve or a factorisation costs, for it waits for the one before."""

_COMPARED = 200.0
"""What a sort costs for each element and each doubling of the elements, in operations.

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
    """Operations of one equation, of matrix products and of touching elements."""
    return _products(equation) + elementwise_work(equation)


def elementwise_work(equation: JaxprEqn) -> float:
    """The part of it that is of touching elements."""
    return _ELEMENT * _touched(equation)


def loop_steps(equation: JaxprEqn) -> float:
    """The steps of the scans that an equation runs; how often a `while` turns is not known."""
    inner = sum(
        loop_steps(each) for body in sub_jaxprs_of(equation).values() for each in body.jaxpr.eqns
    )
    return float(equation.params.get("length", 1)) * (inner + (equation.primitive.name == "scan"))


def _touched(equation: JaxprEqn) -> int:
    """The elements read or written; of an array that a slice is cut from or put into, as many."""
    name = equation.primitive.name
    if gives_its_operands(equation):
        return 0
    if name == "dynamic_slice":
        return 2 * _elements(equation.outvars[0])
    if name == "dynamic_update_slice":
        return 2 * _elements(equation.invars[1])
    return sum(_elements(atom) for atom in (*equation.invars, *equation.outvars))


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
    return float(equation.params.get("length", 1)) * sum(
        work(inner) for body in sub_jaxprs_of(equation).values() for inner in body.jaxpr.eqns
    )
