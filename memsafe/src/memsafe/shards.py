"""Dimensions of values that are divided over devices, as far as the arguments' shardings tell.

An ordinary loop over such a dimension would fetch its slices from the other devices, so memsafe
makes none. `over_devices.py` has loops that do not. Each device holds only its part of a value.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from jax import lax
from jax.extend.core import Literal
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from memsafe.jax_internals import aval_of, bind, scan_operands
from memsafe.placement import mesh_axes
from memsafe.programs import nbytes, retraced, with_sub_jaxprs
from memsafe.rules import unshifted_factors_of
from memsafe.sub_jaxprs import as_closed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn, Var

    from memsafe.factors import Axis, Factor
    from memsafe.programs import Replacement

__all__ = [
    "Part",
    "Parts",
    "as_read",
    "body_parts",
    "divisions",
    "free_in_loops",
    "gathered",
    "input_parts",
    "padded_first",
    "propagated",
]


class Part(NamedTuple):
    """A dimension of an array that is divided over devices.

    Attributes:
        dim: The dimension.
        devices: Number of devices that it is divided over.
        axes: The mesh axes of these devices. They divide no other dimension.
        is_asked: Whether a `with_sharding_constraint`, here or earlier, asks for this division.
    """

    dim: int
    devices: int
    axes: tuple[Any, ...]
    is_asked: bool = False


_PLACED = frozenset(("sharding_constraint", "device_put"))
"""Primitives that say where their result lies."""

Parts = tuple[Part, ...]
"""The divided dimensions of one array."""


def input_parts(sharding: Any, shape: tuple[int, ...]) -> Parts:
    """The divided dimensions of an argument of `shape`; empty if none is divided."""
    if sharding is None:
        return ()
    if not isinstance(sharding, NamedSharding):
        pairs = enumerate(zip(shape, sharding.shard_shape(shape), strict=True))
        divided = ((dim, whole, part) for dim, (whole, part) in pairs if part and whole > part)
        return tuple(Part(dim, whole // part, (dim,)) for dim, whole, part in divided)
    along = ((dim, mesh_axes(sharding, dim)) for dim in range(len(sharding.spec)))
    mesh = sharding.mesh
    return tuple(
        Part(dim, math.prod(mesh.shape[name] for name in axes), axes) for dim, axes in along if axes
    )


def divisions(
    equation: JaxprEqn, factors: Sequence[Factor], known: Mapping[Var, Parts]
) -> list[Part | None]:
    """How each factor is divided over devices.

    The same devices divide only one factor: one that the program asks for, else that of the
    largest operand, so that the fewest bytes move, else that of a result. If a sum is divided,
    its results count as moved too.
    """
    wishes = [_wish(equation, factor, known) for factor in factors]
    results = sum(map(nbytes, equation.outvars))

    def rank(at: int) -> tuple[bool, bool, int]:
        is_asked, operand, _ = wishes[at]
        moved = results if factors[at].merge is not None else 0
        return is_asked, operand > 0, operand - moved

    order = sorted(range(len(factors)), key=rank, reverse=True)
    found: list[Part | None] = [None] * len(factors)
    taken: set[Any] = set()
    for at in order:
        part = wishes[at][2]
        if part is not None and taken.isdisjoint(part.axes):
            found[at] = part
            taken.update(part.axes)
    return found


def _wish(
    equation: JaxprEqn, factor: Factor, known: Mapping[Var, Parts]
) -> tuple[bool, int, Part | None]:
    """The division of `factor`: whether it is asked for, bytes of the largest operand, the part."""
    best: tuple[bool, int, Part | None] = (False, -1, None)
    for atom, axis in zip(equation.invars, factor.operands, strict=True):
        part = _along(atom, axis, known)
        if part is not None and (part.is_asked, nbytes(atom)) > best[:2]:
            best = part.is_asked, nbytes(atom), part
    for atom, axis in zip(equation.outvars, factor.results, strict=True):
        part = _along(atom, axis, known)
        if part is not None and best[2] is None:
            best = False, 0, part
    return best


def _along(atom: Var | Literal, axis: Axis | None, known: Mapping[Var, Parts]) -> Part | None:
    if axis is None or isinstance(atom, Literal):
        return None
    return next((part for part in known.get(atom, ()) if part.dim == axis.dim), None)


def propagated(
    equation: JaxprEqn, factors: Sequence[Factor], known: Mapping[Var, Parts]
) -> dict[Var, Parts]:
    """The divided dimensions of the results of `equation`, if each stays where its operands are.

    This also holds if a sum is divided over the same devices: each device then adds its own part.
    """
    if equation.primitive.name == "sharding_constraint":
        (result,), sharding = equation.outvars, equation.params["sharding"]
        parts = input_parts(sharding, aval_of(result).shape)
        return {result: tuple(part._replace(is_asked=True) for part in parts)}
    if equation.primitive.name == "scan":
        return _of_scan(equation, known)
    if equation.primitive.name == "device_put":
        return dict(_put(equation, known))
    found: dict[Var, list[Part]] = {}
    kept = [factor for factor in factors if factor.merge is None]
    for factor, part in zip(kept, divisions(equation, kept, known), strict=True):
        for value, axis in zip(equation.outvars, factor.results, strict=True):
            if axis is not None and part is not None:
                found.setdefault(value, []).append(part._replace(dim=axis.dim))
    return {value: tuple(sorted(parts)) for value, parts in found.items()}


def as_read(
    equations: Sequence[JaxprEqn], factors: Sequence[Sequence[Factor]], known: Mapping[Var, Parts]
) -> dict[Var, Parts]:
    """`known`, and the division of each other value that all its readers divide alike.

    Examples are gradients of weights whose optimiser's state is divided, and zeros that a divided
    value is added to. Compilers propagate shardings from results to operands too.
    """
    found = dict(known)
    wished: dict[Var, list[Parts]] = {}
    for equation, along in zip(reversed(equations), reversed(factors), strict=True):
        is_fixed = equation.primitive.name in _PLACED
        for value in equation.outvars:
            wishes = wished.get(value, [()])
            if not found.get(value) and not is_fixed and len(set(wishes)) == 1 and wishes[0]:
                found[value] = wishes[0]
        for value, parts in _wished(equation, along, found).items():
            wished.setdefault(value, []).append(parts)
    return found


def _wished(
    equation: JaxprEqn, factors: Sequence[Factor], known: Mapping[Var, Parts]
) -> dict[Var, Parts]:
    """How an equation divides each value that it reads and that is not divided in `known`."""
    read = [atom for atom in equation.invars if not isinstance(atom, Literal)]
    found: dict[Var, list[Part]] = {value: [] for value in read if not known.get(value)}
    if equation.primitive.name == "scan":
        constants, carried = scan_operands(equation)
        begun, left = equation.invars[constants:], equation.outvars[:carried]
        for atom, result in zip(begun, left, strict=False):
            if not isinstance(atom, Literal) and atom in found:
                found[atom] += [part._replace(is_asked=False) for part in known.get(result, ())]
    for factor, part in zip(factors, divisions(equation, factors, known), strict=True):
        for atom, axis in zip(equation.invars, factor.operands, strict=True):
            if part is not None and axis is not None and atom in found:
                found[atom].append(part._replace(dim=axis.dim, is_asked=False))
    return {value: tuple(sorted(set(parts))) for value, parts in found.items()}


def _of_scan(equation: JaxprEqn, known: Mapping[Var, Parts]) -> dict[Var, Parts]:
    """The divided dimensions of the results of a scan, as its body leaves them."""
    left = _left_by(equation, body_parts(equation, known))
    _, carried = scan_operands(equation)
    rows = [tuple(one._replace(dim=one.dim + 1) for one in each) for each in left[carried:]]
    return dict(zip(equation.outvars, (*left[:carried], *rows), strict=True))


def _put(equation: JaxprEqn, known: Mapping[Var, Parts]) -> Iterator[tuple[Var, Parts]]:
    """How results of a `device_put` lie: as its sharding asks; as before if only memory changes."""
    places = zip(equation.invars, equation.outvars, equation.params["devices"], strict=True)
    for atom, result, asked in places:
        before = () if isinstance(atom, Literal) else known.get(atom, ())
        is_asked = isinstance(asked, Sharding)
        yield result, input_parts(asked, aval_of(result).shape) if is_asked else before


def _left_by(scan: JaxprEqn, parts: Iterable[Parts]) -> list[Parts]:
    """How the results of one step of a scan lie, if its operands lie as in `parts`."""
    jaxpr = as_closed(scan.params["jaxpr"]).jaxpr
    inside = dict(zip(jaxpr.invars, parts, strict=True))
    for each in jaxpr.eqns:
        factors = unshifted_factors_of(each) if _reads_divided(each, inside) else ()
        inside.update(propagated(each, factors, inside))
    return [() if isinstance(a, Literal) else inside.get(a, ()) for a in jaxpr.outvars]


def _reads_divided(equation: JaxprEqn, known: Mapping[Var, Parts]) -> bool:
    return any(not isinstance(each, Literal) and known.get(each) for each in equation.invars)


def gathered(closed: ClosedJaxpr, shardings: Sequence[Any] | None) -> ClosedJaxpr:
    """`closed`, with operands first made whole if their devices divide another factor.

    An example is one side of the differences between all points, if the same devices divide both
    sides. Otherwise every slice of a loop along that dimension is fetched from another device.
    """
    meshes = {each.mesh for each in shardings or () if isinstance(each, NamedSharding)}
    if len(meshes) != 1:
        return closed
    (mesh,) = meshes
    jaxpr = closed.jaxpr
    known: dict[Var, Parts] = {
        value: input_parts(sharding, aval_of(value).shape)
        for value, sharding in zip(jaxpr.invars, shardings or (), strict=True)
    }
    replace: dict[int, Replacement] = {}
    for index, equation in enumerate(jaxpr.eqns):
        factors = unshifted_factors_of(equation) if _reads_divided(equation, known) else ()
        whole = _displaced(equation, factors, known)
        if whole and _lie_on(mesh, equation, whole, known):
            replace[index] = _on_whole(equation, whole, known, mesh)
        known.update(propagated(equation, factors, known))
    return retraced(closed, replace) if replace else closed


def padded_first(closed: ClosedJaxpr) -> ClosedJaxpr:
    """`closed`, where a pad between elements that also crops becomes a pad and a slice.

    XLA's partitioner ends the process at an operation that does both, if it divides that dimension
    (jax 0.10.2 and 0.12.0.1, 2026-11-28).
    """
    body = with_sub_jaxprs(closed, padded_first)
    pads = {at: partial(_padded, each) for at, each in enumerate(body.jaxpr.eqns) if _crops(each)}
    return retraced(body, pads) if pads else body


def _crops(equation: JaxprEqn) -> bool:
    config = equation.params["padding_config"] if equation.primitive.name == "pad" else ()
    return any(between and min(low, high) < 0 for low, high, between in config)


def _padded(equation: JaxprEqn, read: Callable[[Any], Array]) -> list[Array]:
    config = equation.params["padding_config"]
    more = [(max(low, 0), max(high, 0), between) for low, high, between in config]
    operand, value = map(read, equation.invars)
    whole = lax.pad(operand, value, more)
    starts = [max(-low, 0) for low, *_ in config]
    ends = [size - max(-high, 0) for size, (_, high, _) in zip(whole.shape, config, strict=True)]
    return [lax.slice(whole, starts, ends)]


def free_in_loops(closed: ClosedJaxpr) -> ClosedJaxpr:
    """`closed`, where constraints in loops and branches leave divided dimensions to the compiler.

    A loop that is computed for each device has the devices as a dimension of their own. The
    values that the loop reads divide it along that dimension.
    """
    return with_sub_jaxprs(closed, _free)


def _free(body: ClosedJaxpr) -> ClosedJaxpr:
    body = with_sub_jaxprs(body, _free)
    pairs = enumerate(body.jaxpr.eqns)
    named = {at: each for at, each in pairs if each.primitive.name == "sharding_constraint"}
    freed = {at: partial(_freed, each) for at, each in named.items()}
    return retraced(body, freed) if freed else body


def _freed(equation: JaxprEqn, read: Callable[[Var | Literal], Array]) -> list[Array]:
    sharding, value = equation.params["sharding"], read(equation.invars[0])
    if not isinstance(sharding, NamedSharding):
        return bind(equation, [value])
    free = PartitionSpec.UNCONSTRAINED
    spec = PartitionSpec(*(None if names in (None, ()) else free for names in sharding.spec))
    return [lax.with_sharding_constraint(value, NamedSharding(sharding.mesh, spec))]


def _lie_on(mesh: Any, equation: JaxprEqn, at: Iterable[int], known: Mapping[Var, Parts]) -> bool:
    """Whether operands `at` are divided along axes of `mesh`; constraints may name another mesh."""
    parts = (part for each in at for part in known[equation.invars[each]])  # type: ignore[index]  # No literal is divided.
    return all(set(part.axes) <= set(mesh.axis_names) for part in parts)


def _displaced(
    equation: JaxprEqn, factors: Sequence[Factor], known: Mapping[Var, Parts]
) -> dict[int, set[int]]:
    """Dimensions of operands, by position, whose devices divide another factor."""
    found: dict[int, set[int]] = {}
    for factor, part in zip(factors, divisions(equation, factors, known), strict=True):
        for at, (atom, axis) in enumerate(zip(equation.invars, factor.operands, strict=True)):
            if part is None and axis is not None and _along(atom, axis, known) is not None:
                found.setdefault(at, set()).add(axis.dim)
    return found


def _on_whole(
    equation: JaxprEqn, whole: dict[int, set[int]], known: Mapping[Var, Parts], mesh: Any
) -> Replacement:
    """`equation` with these dimensions of its operands whole on each device."""

    def spec(parts: Iterable[Part], dims: set[int], count: int) -> PartitionSpec:
        kept = {part.dim: part.axes for part in parts if part.dim not in dims}
        return PartitionSpec(*(kept.get(dim) for dim in range(count)))

    def replacement(read: Any) -> list[Array]:
        operands = [read(atom) for atom in equation.invars]
        for at, dims in whole.items():
            parts = known[equation.invars[at]]  # type: ignore[index]  # No literal is divided.
            place = NamedSharding(mesh, spec(parts, dims, operands[at].ndim))
            operands[at] = lax.with_sharding_constraint(operands[at], place)
        return bind(equation, operands)

    return replacement


def _devices(parts: Parts) -> int:
    return math.prod(part.devices for part in parts)


def body_parts(equation: JaxprEqn, known: Mapping[Var, Parts]) -> tuple[Parts, ...]:
    """The divided dimensions of each argument of the program that `equation` runs."""
    parts = [() if isinstance(a, Literal) else known.get(a, ()) for a in equation.invars]
    match equation.primitive.name:
        case "scan":
            fixed = sum(scan_operands(equation))
            rows = [
                tuple(one._replace(dim=one.dim - 1) for one in each if one.dim)
                for each in parts[fixed:]
            ]
            constants, carried = scan_operands(equation)
            given = (*parts[:fixed], *rows)
            pairs = zip(given[constants:fixed], _left_by(equation, given)[:carried], strict=True)
            # A carried value lies as before or after a step, whichever has more devices.
            carry = [max(pair, key=_devices) for pair in pairs]
            return (*given[:constants], *carry, *rows)
        case "while":
            return tuple(parts[equation.params["cond_nconsts"] :])
        case "cond":
            return tuple(parts[1:])
        case _:
            return ()
