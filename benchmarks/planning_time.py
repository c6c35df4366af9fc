"""Processor time of memsafe's planning: ``python -m benchmarks.planning_time``.

Gradients of encoders of 1 to 16 layers and of sparse Gaussian process regression are traced at
sizes that need splitting and planned for a GPU. Nothing is compiled. The time is processor time:
the least of three plans, for the slowest of three budgets. Exits with 1 if a program takes more
than a second for 1,000 equations.
"""

import sys
import time
from typing import Final

import jax  # noqa: TID251 — the programs are traced here.
from jax.extend.core import ClosedJaxpr  # noqa: TID251 — what is planned.
from rich.console import Console  # noqa: TID251 — a benchmark is a door of its own.

from assay.stats.scaling import fitted_exponent
from memsafe.planner import Planner  # noqa: TID251 — what is timed.
from memsafe.programs import flattened  # noqa: TID251 — as memsafe does first.
from suites.tensor_splitting.problems import Problem
from suites.tensor_splitting.sized import encoder, gradients, regression

_LAYERS: Final = (1, 2, 4, 8, 16)
_BUDGETS: Final = (16e9, 8e9, 4e9)
_SECONDS_PER_1000: Final = 1.0
_PLANS: Final = 3


def main() -> int:
    """Prints equations and seconds of each program, and how encoders' grow; 1 if one is slow."""
    console = Console(file=sys.stdout, soft_wrap=True, highlight=False, markup=False)
    named = {f"encoder, {n} layers": _traced(_encoder(n)) for n in _LAYERS}
    sizes = [len(program.jaxpr.eqns) for program in named.values()]
    named["encoder, 4 layers, 65,536 long"] = _traced(_encoder(4, length=65_536))
    named["SGPR"] = _traced(gradients(regression(434_874, 1_000), 0, squared=False)())
    seconds, slow = [], False
    for name, program in named.items():
        equations, taken = len(program.jaxpr.eqns), _planning_seconds(program)
        per_1000 = 1000 * taken / equations
        console.print(f"{name}: {equations} equations, {taken:.2f} s, {per_1000:.2f} s per 1,000")
        seconds.append(taken)
        slow = slow or per_1000 > _SECONDS_PER_1000
    found = fitted_exponent(sizes, seconds[: len(sizes)])
    console.print(f"encoders: equations ** {found.value:.2f} ({found.low:.2f} to {found.high:.2f})")
    console.print("FAIL" if slow else "PASS")
    return 1 if slow else 0


def _encoder(layers: int, length: int = 16_384) -> Problem:
    return gradients(encoder(8, length, layers=layers), 0)()


def _traced(problem: Problem) -> ClosedJaxpr:
    with jax.enable_x64(problem.is_double):
        return flattened(jax.make_jaxpr(problem.plain)(*problem.arguments))


def _planning_seconds(program: ClosedJaxpr) -> float:
    """The seconds of a plan for the slowest budget."""
    return max(_least_seconds(program, budget) for budget in _BUDGETS)


def _least_seconds(program: ClosedJaxpr, budget: float) -> float:
    """The least seconds of several plans, each by a new planner. The first also warms caches."""
    taken = []
    for _ in range(_PLANS):
        begun = time.process_time()
        Planner(slice_bytes=128e6).plan(program, budget)
        taken.append(time.process_time() - begun)
    return min(taken)


if __name__ == "__main__":
    sys.exit(main())
