"""A plan as a function: whole equations as they were, and a loop for each region."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal

from memsafe.factors import Piece
from memsafe.jax_internals import aval_of, under_named_axes
from memsafe.mapped_axes import barrier, varying_axes, varying_like
from memsafe.merges import reduced
from memsafe.plan import Loop, Plan, Whole
from memsafe.programs import flattened, signature_of, zero_after
from memsafe.slice_body import sliced_results
from memsafe.storing import stored
from memsafe.sub_jaxprs import rebuilt
from memsafe.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Sequence

    from jax import Array
    from jax.extend.core import ClosedJaxpr, Var

    from memsafe.graph import Graph

__all__ = ["emitted", "step_signature", "traced_step"]


def emitted(plan: Plan, *, is_part: bool = False) -> Callable[..., list[Array]]:
    """The program of `plan`: same arguments, same results, computed as planned.

    No layout is set for arguments if it is part of another program (`is_part`), because they are
    not the compiler's arguments then. Random keys have no layout.
    """
    graph = plan.graph
    is_copied = graph.model.copies_transposed and not is_part
    arguments = graph.closed.jaxpr.invars if is_copied else ()
    row_major = (
        each for each in arguments if not jnp.issubdtype(aval_of(each).dtype, jax.dtypes.extended)
    )
    return partial(_run, plan, frozenset(row_major))


def _step_function(
    graph: Graph, loop: Loop, row_major: Collection[Var] = (), *, in_turn: bool = True
) -> Callable[..., list[Array]]:
    """One step of `loop`: `(start, counted, *inputs)` → what its slice adds to each result."""

    def step(start: Array, counted: Array, *inputs: Array) -> list[Array]:
        counted_here = None if loop.divides else counted
        size = loop.region.size
        piece = Piece(start=start, length=loop.length, counted=counted_here, size=size)
        turns = Turns(graph.in_turn if in_turn else ())
        return sliced_results(graph, loop.region, loop.leaving, piece, inputs, turns, row_major)

    return step


def _run(plan: Plan, row_major: Collection[Var], *arguments: Array) -> list[Array]:
    jaxpr = plan.graph.closed.jaxpr
    values: dict[Var, Array] = dict(zip(jaxpr.constvars, plan.graph.closed.consts, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Var | Literal) -> Array:
        return atom.val if isinstance(atom, Literal) else values[atom]

    turns = Turns(plan.graph.in_turn)
    for step in plan.steps:
        if isinstance(step, Loop):
            made = dict(_loop(plan.graph, step, read, turns, row_major))
            turns.after = zero_after(made.values())
            values.update(made)
        else:
            values.update(_whole(plan.graph, step, read, turns))
    return [read(atom) for atom in jaxpr.outvars]


def _whole(
    graph: Graph, whole: Whole, read: Callable[[Var | Literal], Array], turns: Turns
) -> Iterator[tuple[Var, Array]]:
    """The results of an equation that is computed whole."""
    equation = graph.equations[whole.equation]
    operands = turns.begun(whole.equation, [read(atom) for atom in equation.invars])
    if whole.sub_jaxprs:
        parts = whole.sub_jaxprs.items()
        programs = {name: emitted(plan, is_part=True) for name, plan in parts}
        results = rebuilt(equation, operands, programs)
    else:
        results = reduced(equation, operands)
    turns.ended(whole.equation, results)
    for value, result in zip(equation.outvars, results, strict=True):
        yield value, stored(result, everywhere=True) if value in graph.stored else result


def _loop(
    graph: Graph,
    loop: Loop,
    read: Callable[[Var | Literal], Array],
    turns: Turns,
    row_major: Collection[Var],
) -> Iterator[tuple[Var, Array]]:
    """The results that leave a loop, once it has run."""
    if loop.count == 1 and not loop.inner:
        return _at_once(graph, loop, read, turns)
    inputs = [read(value) for value in loop.region.inputs(graph)]
    inner = loop.inner
    step = emitted(inner, is_part=True) if inner else _step_function(graph, loop, row_major)
    stepped = partial(_stepped, graph, loop, step, inputs)
    begun = _begun(graph, loop, turns.after)
    if under_named_axes():
        begun = _as_varying(stepped, begun, _begun(graph, loop, np.int32(0)))
    carry = lax.fori_loop(0, loop.count, stepped, begun)
    return _finished(graph, loop, carry, read)


def _at_once(
    graph: Graph, loop: Loop, read: Callable[[Var | Literal], Array], turns: Turns
) -> Iterator[tuple[Var, Array]]:
    """The results of a loop that has only one slice: each of its equations is computed whole.

    Without the barrier, XLA for GPUs merges equal products of two such loops and keeps the result,
    which was to be computed again. XLA for CPUs drops barriers.
    """
    inputs = loop.region.inputs(graph)
    held = barrier([*map(read, inputs), jnp.asarray(turns.after)])
    values = dict(zip(inputs, held, strict=False))

    def read_here(atom: Var | Literal) -> Array:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for index in sorted(loop.region.factors):
        values.update(_whole(graph, Whole(equation=index), read_here, turns))
    return ((value, values[value]) for _, leaving in loop.leaving for value in leaving)


def _as_varying(
    stepped: Callable[..., list[Array]], begun: list[Array], alone: list[Array]
) -> list[Array]:
    """The first carry of a loop, varying over the same mapped axes as the carry after a step.

    A value that is whole on all devices cannot wait for a loop whose results vary. Its start is
    taken from `alone`, which waits for no loop.
    """
    after = jax.eval_shape(partial(stepped, np.int32(0)), alone)
    return [
        varying_like(one if varying_axes(one) <= varying_axes(made) else other, made)
        for one, other, made in zip(begun, alone, after, strict=True)
    ]


def _stepped(
    graph: Graph,
    loop: Loop,
    step: Callable[..., list[Array]],
    inputs: Sequence[Array],
    turn: Array,
    carry: list[Array],
) -> list[Array]:
    wished = lax.convert_element_type(turn, np.int32) * np.int32(loop.length)
    start = wished if loop.divides else lax.min(wished, np.int32(loop.region.size - loop.length))
    return _added(graph, loop, carry, turn, start, step(start, wished - start, *inputs))


def _begun(graph: Graph, loop: Loop, after: Any) -> list[Array]:
    carry: list[Array] = []
    for index, values in loop.leaving:
        merge = loop.region.factors[index].merge
        if merge is not None:
            carry += [_later(each, after) for each in merge.start(graph.equations[index])]
        else:
            avals = [aval_of(value) for value in values]
            zeros = [lax.convert_element_type(after, aval.dtype) for aval in avals]
            carry += [jnp.full(aval.shape, z) for aval, z in zip(avals, zeros, strict=True)]
    return carry


def _later(start: Array, after: Any) -> Array:
    """`start`, available only once the zero `after` is; zeros in `start` keep their sign."""
    if not jnp.issubdtype(start.dtype, jnp.number):
        return start
    return start - lax.convert_element_type(after, start.dtype)


def _added(
    graph: Graph, loop: Loop, carry: list[Array], turn: Array, start: Array, parts: list[Array]
) -> list[Array]:
    """The carry after one more slice: stacked where the result carries the axis, else merged."""
    done: list[Array] = []
    for index, values in loop.leaving:
        merge = loop.region.factors[index].merge
        many = len(values) if merge is None else len(merge.state_avals(graph.equations[index]))
        state, part = carry[len(done) : len(done) + many], parts[len(done) : len(done) + many]
        if merge is not None:
            done += merge.combine(tuple(state), tuple(part), first=turn == 0)
            continue
        piece = Piece(start=start, length=loop.length)
        for value, old, new in zip(values, state, part, strict=True):
            done.append(piece.put(old, new, loop.region.axes[value]))
    return done


def _finished(
    graph: Graph, loop: Loop, carry: list[Array], read: Callable[[Var | Literal], Array]
) -> Iterator[tuple[Var, Array]]:
    at = 0
    for index, values in loop.leaving:
        factor, equation = loop.region.factors[index], graph.equations[index]
        if factor.merge is None:
            yield from zip(values, carry[at : at + len(values)], strict=True)
            at += len(values)
            continue
        many = len(factor.merge.state_avals(equation))
        whole = [
            read(atom) if axis is None else None
            for atom, axis in zip(equation.invars, factor.operands, strict=True)
        ]
        results = factor.merge.finish(equation, tuple(carry[at : at + many]), whole)
        at += many
        yield from zip(equation.outvars, results, strict=True)


def step_signature(graph: Graph, loop: Loop) -> Hashable:
    """A key that is equal for loops whose steps are the same program."""
    region, indices = loop.region, sorted(loop.region.factors)
    equations = [graph.equations[index] for index in indices]
    leaving = [value for _, values in loop.leaving for value in values]
    return (
        signature_of(region.inputs(graph), equations, leaving),
        tuple(region.versions(index) for index in indices),
        region.size,
        loop.length,
    )


def traced_step(graph: Graph, loop: Loop) -> ClosedJaxpr:
    """One step of `loop` as a program of its start, the number of counted indices, and inputs."""
    number = jax.ShapeDtypeStruct((), "int32")
    inputs = [value.aval for value in loop.region.inputs(graph)]
    return flattened(
        jax.make_jaxpr(_step_function(graph, loop, in_turn=False))(number, number, *inputs)
    )
