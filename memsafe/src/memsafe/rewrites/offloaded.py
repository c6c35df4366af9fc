"""Values that loops keep for derivatives, in host memory between the two loops of a pair.

Each step of the first loop sends its row to the host, and the same step of the second one fetches
it, so that the device holds a few rows at a time. The transfers need not wait for the steps, but on
an H200 kernels hid none of them (docs/device.md). Names and policies of `jax.checkpoint` ask for
the same, but for values that autodiff may not keep (openxla/xla#17541). This rewrite moves the
values that are kept, whatever their names.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax
from jax import lax

from memsafe.budget import as_text
from memsafe.jax_internals import aval_of
from memsafe.programs import evaluate, retraced, with_sub_jaxprs
from memsafe.rewrites.loop_pairs import Scan, loop_pairs
from memsafe.rewrites.rewritten import Rewritten, noted
from memsafe.sub_jaxprs import sub_jaxprs_of

if TYPE_CHECKING:
    from jax import Array
    from jax.extend.core import ClosedJaxpr

    from memsafe.programs import Read, Replacement
    from memsafe.rewrites.loop_pairs import Pair

__all__ = ["offloaded"]

_LEAST = 2**20
"""Minimum bytes kept by a pair of loops to move: fewer fill neither a link nor a device."""

_STEPS = 4
"""Minimum steps of a loop whose rows are moved: with fewer, the device holds as many in flight."""


def offloaded(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with host memory for the values that its outermost pairs of loops keep."""
    notes: list[str] = []
    program = _with_moves(closed, notes)
    moved = _sent_bytes(program) - _sent_bytes(closed)
    return Rewritten(program=program, notes=tuple(notes), moved=moved)


def _with_moves(closed: ClosedJaxpr, notes: list[str]) -> ClosedJaxpr:
    pairs = [pair for pair in loop_pairs(closed) if pair.steps >= _STEPS and pair.nbytes >= _LEAST]
    if not pairs:
        return with_sub_jaxprs(closed, partial(_with_moves, notes=notes))
    sent: dict[int, set[int]] = {}
    fetched: dict[int, set[int]] = {}
    for pair in pairs:
        sent.setdefault(pair.forward, set()).update(pair.kept)
        fetched.setdefault(pair.backward, set()).update(*pair.kept.values())
        notes.append(_noted(pair))
    equations = closed.jaxpr.eqns
    loops: dict[int, Replacement] = {}
    for index in sent.keys() | fetched.keys():
        at = partial(_moved, sent.get(index, set()), fetched.get(index, set()))
        loops[index] = partial(at, Scan(equations[index]))
    return retraced(closed, loops)


def _sent_bytes(closed: ClosedJaxpr) -> int:
    """Bytes that a program sends to the host in all steps; without a length, loops count once."""
    found = 0
    for equation in closed.jaxpr.eqns:
        inner = sum(map(_sent_bytes, sub_jaxprs_of(equation).values()))
        found += equation.params.get("length", 1) * inner
        if equation.primitive.name == "device_put":
            avals = map(aval_of, equation.outvars)
            there = [each for each in avals if each.memory_space is jax.memory.Space.Host]
            found += sum(each.size * each.dtype.itemsize for each in there)
    return found


def _noted(pair: Pair) -> str:
    kept = f"{as_text(pair.nbytes)} that {pair.steps} steps of a scan keep for its gradient"
    return noted(pair.equations[0], f"{kept} wait in host memory")


def _moved(sent: set[int], fetched: set[int], scan: Scan, read: Read) -> list[Array]:
    """The results of a loop that sends some of its stacks to the host and fetches some rows."""
    operands = [read(atom) for atom in scan.operands]
    constants = operands[: scan.constants]
    params = scan.equation.params

    def step(carry: list[Array], rows: list[Array]) -> tuple[list[Array], list[Array]]:
        here = [
            jax.device_put(row, jax.memory.Space.Device) if at in fetched else row
            for at, row in enumerate(rows)
        ]
        results = evaluate(scan.body, [*constants, *carry, *here])
        made = [
            jax.device_put(row, jax.memory.Space.Host) if at in sent else row
            for at, row in enumerate(results[scan.carries :])
        ]
        return results[: scan.carries], made

    # Compilers move the whole stack in each step of an unrolled loop, or refuse it.
    carry, stacks = lax.scan(
        step,
        operands[scan.constants : scan.before],
        operands[scan.before :],
        length=params["length"],
        reverse=params["reverse"],
    )
    return [*carry, *stacks]
