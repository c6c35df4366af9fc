"""The variants: the user's program, ``memsafe`` of it, and versions by hand or with a library."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from assay import Growth, Program, Role, SizedVariant, Variant
from suites.tensor_splitting.problems import Function, Problem

PLAIN, MEMSAFE, INSIDE, BY_HAND = "plain", "memsafe", "memsafe-inside", "lax-map"
Write = Callable[[Problem, Sequence[Any]], Function]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A problem with its budget; if ``executed``, the programs also run on the problem's values.

    ``beside`` maps variants whose kernels take other arguments to problems of their own.
    """

    problem: Callable[[], Problem]
    budget_bytes: int
    executed: bool = False
    beside: Mapping[str, Callable[[], Problem]] = field(default_factory=dict)


def variants_of(tried: Tried) -> tuple[Variant, ...]:
    """The variants of a problem.

    The reference of all others is ``plain``, whose own reference is the problem's first way.
    """
    ways = tried.problem().ways
    own = (
        Variant(
            name=PLAIN,
            role=Role.DEFECT,
            reference=next(iter(ways)),
            program=partial(program, tried, plainly),
        ),
        Variant(
            name=MEMSAFE,
            role=Role.REMEDY,
            reference=PLAIN,
            program=partial(program, tried, partial(safely, tried.budget_bytes)),
        ),
    )
    others = tuple(
        Variant(
            name=name,
            role=Role.REMEDY if name in (BY_HAND, INSIDE) else Role.POLICY,
            reference=PLAIN,
            program=partial(program, tried, partial(by, name)),
        )
        for name in ways
        if name not in tried.beside
    )
    beside = tuple(
        Variant(
            name=name,
            role=Role.POLICY,
            reference=PLAIN,
            program=partial(program, replace(tried, problem=problem), plainly),
        )
        for name, problem in tried.beside.items()
    )
    return (*own, *others, *beside)


def plainly(problem: Problem, _devices: Sequence[Any]) -> Function:
    """The user's program, unchanged."""
    return problem.plain


def by(name: str, problem: Problem, _devices: Sequence[Any]) -> Function:
    """The problem's program of the variant ``name``."""
    return problem.ways[name]


def safely(budget_bytes: int, problem: Problem, devices: Sequence[Any]) -> Function:
    """The user's program, passed to memsafe with the budget."""
    from memsafe import memsafe

    return memsafe(problem.plain, budget=budget_bytes, device=devices[0])


def program(tried: Tried, write: Write, devices: Sequence[Any]) -> Program:
    """The program that ``write`` makes of the problem for these devices."""
    problem = tried.problem()
    function = write(problem, devices)
    return Program(
        function=function,
        arguments=problem.arguments,
        in_shardings=problem.shardings(devices),
        values=problem.values if tried.executed else None,
        observe=function,
        context=partial(problem.on, devices),
    )


def growing_variants(
    sizes: Sequence[int], tried: Callable[[int], Tried]
) -> tuple[SizedVariant, ...]:
    """The plain program and memsafe's at each size; memsafe's has the budget of that size."""
    written = ((f"negative-{PLAIN}", Role.NEGATIVE_CONTROL, plainly), (MEMSAFE, Role.REMEDY, None))
    return tuple(
        variant
        for name, role, write in written
        for variant in SizedVariant.at(
            sizes, name=name, role=role, program=partial(_at, tried, write)
        )
    )


def planning_variants(
    lengths: tuple[int, ...], tried: Callable[[int], Tried]
) -> tuple[Variant, ...]:
    """Variants that plan a program of each length once, and once per layer (negative control)."""
    variants = (
        (MEMSAFE, Role.REMEDY, lambda _length: 1),
        ("negative-planned-for-each-layer", Role.NEGATIVE_CONTROL, lambda length: length),
    )
    return tuple(
        Variant(name=name, role=role, program=partial(_planning, lengths, tried, plans))
        for name, role, plans in variants
    )


def _planning(
    lengths: tuple[int, ...],
    tried: Callable[[int], Tried],
    plans: Callable[[int], int],
    devices: Sequence[Any],
) -> Program:
    def of_length(length: int) -> tuple[Function, Callable[[], tuple[Any, ...]]]:
        here = tried(length)
        problem = here.problem()
        planned = partial(_planned, plans(length), here.budget_bytes, problem, devices)
        return planned, lambda: problem.arguments

    return Program(growth=Growth(lengths=lengths, build=of_length, traced=True))


def _planned(
    times: int, budget_bytes: int, problem: Problem, devices: Sequence[Any], *arguments: Any
) -> Any:
    """Run memsafe ``times`` times inside `shard_map`, where it plans but does not compile."""
    mesh, whole = Mesh(np.array(devices[:1]), ("device",)), PartitionSpec()
    for _ in range(times):
        safe = safely(budget_bytes, problem, devices)
        results = jax.shard_map(safe, mesh=mesh, in_specs=whole, out_specs=whole)(*arguments)
    return results


def _at(
    tried: Callable[[int], Tried], write: Write | None, size: int, devices: Sequence[Any]
) -> Program:
    here = tried(size)
    return program(here, write or partial(safely, here.budget_bytes), devices)
