"""The arms: the user's program, ``memsafe`` of it, and the same by hand or with a library."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from assay import Arm, Growth, Program, Role
from suites.tensor_splitting.problems import Function, Problem

PLAIN, MEMSAFE, BY_HAND = "plain", "memsafe", "lax-map"
Write = Callable[[Problem, Sequence[Any]], Function]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Problems of some rows, to time plain on ``rows`` beside an arm on an eighth more.

    Both are of nearly one size: on twice as many rows, a cache that holds no more of them would
    count as the arm's fault.
    """

    rows: int
    of: Callable[[int], Problem]

    @property
    def lengths(self) -> tuple[int, int]:
        """Plain's rows and the arm's."""
        return self.rows, self.rows + self.rows // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A problem as its workload tries it: for its memory, its values where ``executed``, its time.

    ``beside`` are arms whose kernels take other arguments than the problem's, as problems of their
    own.
    """

    problem: Callable[[], Problem]
    budget_bytes: int
    executed: bool = False
    timed: Timed | None = None
    beside: Mapping[str, Callable[[], Problem]] = field(default_factory=dict)


def arms_of(tried: Tried) -> tuple[Arm, ...]:
    """The arms of a problem; all are compared with ``plain``, and that with the loop by hand."""
    own = (
        Arm(
            name=PLAIN,
            role=Role.DEFECT,
            reference=BY_HAND,
            program=partial(program, tried, plainly),
        ),
        Arm(
            name=MEMSAFE,
            role=Role.REMEDY,
            reference=PLAIN,
            program=partial(program, tried, partial(safely, tried.budget_bytes)),
        ),
    )
    others = tuple(
        Arm(
            name=name,
            role=Role.REMEDY if name == BY_HAND else Role.POLICY,
            reference=PLAIN,
            program=partial(program, tried, partial(by, name)),
        )
        for name in tried.problem().ways
        if name not in tried.beside
    )
    beside = tuple(
        Arm(
            name=name,
            role=Role.POLICY,
            reference=PLAIN,
            program=partial(program, replace(tried, problem=problem), plainly),
        )
        for name, problem in tried.beside.items()
    )
    return (*own, *others, *beside)


def plainly(problem: Problem, _devices: Sequence[Any]) -> Function:
    """As the user wrote it."""
    return problem.plain


def by(name: str, problem: Problem, _devices: Sequence[Any]) -> Function:
    """As that arm writes it."""
    return problem.ways[name]


def safely(budget_bytes: int, problem: Problem, devices: Sequence[Any]) -> Function:
    """As the user wrote it, split until it fits the budget."""
    from memsafe import memsafe

    return memsafe(problem.plain, budget=budget_bytes, device=devices[0])


def program(tried: Tried, write: Write, devices: Sequence[Any]) -> Program:
    """The problem written one way, for one device; what is timed is not compiled once more."""
    problem = tried.problem()
    function = write(problem, devices)
    return Program(
        function=None if tried.timed else function,
        arguments=problem.arguments,
        in_shardings=SingleDeviceSharding(devices[0]),
        values=problem.values if tried.executed else None,
        observe=function,
        growth=_beside_plain(tried.timed, write, devices) if tried.timed else None,
        context=partial(jax.enable_x64, problem.is_double),
    )


def _beside_plain(timed: Timed, write: Write, devices: Sequence[Any]) -> Growth:
    """The program as the user wrote it, and the arm on a few more rows."""

    def build(rows: int) -> tuple[Function, Callable[[], tuple[Any, ...]]]:
        problem = timed.of(rows)
        return (plainly if rows == timed.rows else write)(problem, devices), problem.values

    return Growth(lengths=timed.lengths, build=build)
