"""What bounded memory costs in time on the CPU: ``python -m benchmarks.tensor_splitting``.

Each problem is run as the user wrote it, by ``memsafe``, by hand, by a library, and by KeOps where
KeOps can, all in turns in one process. Printed are medians over the plain program's, with the
temporaries that XLA's own analysis counts, and compile time (planning included) over the plain
program's. KeOps compiles its kernels with a C++ compiler when it first meets them; where it is not
installed, it is left out, and that is said.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from math import exp, log
from statistics import median
from typing import Any, Final

import jax  # noqa: TID251 — what is measured here is JAX itself.
import numpy as np
from rich.console import Console  # noqa: TID251 — a benchmark is a door of its own.
from rich.table import Table  # noqa: TID251

from suites.tensor_splitting.kernels import by_differences
from suites.tensor_splitting.neighbours import NEIGHBOURS, l2
from suites.tensor_splitting.sized import Build, encoder, gradients, kernel, nearest, regression
from suites.tensor_splitting.variants import BY_HAND, MEMSAFE, PLAIN

GEOMEAN_AT_MOST: Final = 1.0
WORST_AT_MOST: Final = 1.25
_MEGABYTE: Final = 10**6
_DISTANCES: Final = "memsafe, distances"
_KEOPS: Final = "KeOps"
_WITH_DISTANCES: Final = ("redundant", "chains", "reshapes", "distances")

Run = Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A problem, the room that memsafe is given beside arguments and results, and other ways."""

    name: str
    problem: Build
    room_bytes: int
    ways: tuple[str, ...] = (BY_HAND,)
    keops: Callable[..., Any] | None = None
    has_distances: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to run a case, compiled: ``temp_bytes`` and ``difference`` as far as they are known.

    ``difference`` is the largest of any result, over the plain program's largest value. ``setup_s``
    is the time from the function to its executable, planning and all; ``compile_s`` the processor
    time to compile the program that runs, the least of three.
    """

    name: str
    run: Run
    setup_s: float | None = None
    compile_s: float | None = None
    temp_bytes: int | None = None
    difference: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A way and the times of its runs."""

    way: Way
    seconds: tuple[float, ...]


def main() -> int:
    """Prints a table; 1 if memsafe is slower than the plain programs by more than the limits."""
    arguments = _parser().parse_args()
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    table = _table()
    if not _has_keops():
        console.print("KeOps is not installed, so it is left out; do: pip install pykeops")
    ratios = []
    for case in _CASES:
        if arguments.only not in case.name:
            continue
        timed = _in_turns(list(_ways(case)), arguments.turns)
        ratios.append(_add(table, case, timed))
    console.print(table)
    return _verdict(console, ratios)


def keops_products(x: Any, y: Any, v: Any) -> Any:
    """The kernel's product by KeOps."""
    return (-_squared_distances(x, y) / 2).exp() @ v


def keops_neighbours(queries: Any, points: Any) -> Any:
    """The nearest points by KeOps."""
    return _squared_distances(queries, points).argKmin(NEIGHBOURS, dim=1)


def _squared_distances(x: Any, y: Any) -> Any:
    from pykeops.numpy import LazyTensor

    return ((LazyTensor(x[:, None, :]) - LazyTensor(y[None, :, :])) ** 2).sum(-1)


_SINGLE: Final = {"dtype": np.float32}
_BOUND: Final = regression(100_000, 500, **_SINGLE)
_ENCODER: Final = encoder(1, 2_048)
_ATTENTIONS: Final = (BY_HAND, "checkpoint", "dot-product-attention")
_CASES: Final = (
    Case(
        name="kernel MVP, N 20,000",
        problem=kernel(20_000, by_differences, rows=800),
        room_bytes=64 * _MEGABYTE,
        keops=keops_products,
    ),
    Case(
        name="kNN, 1,000 of 100,000 × 100",
        problem=nearest(100_000, l2, queries=1_000, rows=100),
        room_bytes=64 * _MEGABYTE,
        keops=keops_neighbours,
    ),
    Case(name="SGPR, M 500", problem=_BOUND, room_bytes=64 * _MEGABYTE),
    Case(
        name="SGPR gradient, M 500",
        problem=gradients(_BOUND, 0, squared=False),
        room_bytes=256 * _MEGABYTE,
    ),
    Case(
        name="encoder, S 2,048",
        problem=_ENCODER,
        room_bytes=64 * _MEGABYTE,
        ways=_ATTENTIONS,
        has_distances=False,
    ),
    Case(
        name="encoder gradient, S 2,048",
        problem=gradients(_ENCODER, 0),
        room_bytes=256 * _MEGABYTE,
        ways=_ATTENTIONS,
        has_distances=False,
    ),
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=5, help="runs of each way, in turns")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    return parser


def _ways(case: Case) -> Iterator[Way]:
    """All ways of a case, each compiled and run once."""
    from memsafe import memsafe  # noqa: TID251 — it is measured here.

    problem = case.problem()
    values = jax.device_put(problem.values())
    budget = problem.least_bytes + case.room_bytes
    safe = partial(memsafe, problem.plain, budget=budget, device=jax.devices()[0])
    functions: dict[str, Callable[..., Any]] = {PLAIN: problem.plain, MEMSAFE: safe()}
    if case.has_distances:
        functions[_DISTANCES] = safe(rewrites=_WITH_DISTANCES)
    functions |= {name: problem.ways[name] for name in case.ways}
    truth = None
    for name, function in functions.items():
        way = _compiled(name, function, values)
        results = jax.device_get(way.run())
        truth = results if truth is None else truth
        yield replace(way, difference=_difference(results, truth))
    if case.keops is not None and _has_keops():
        yield _with_keops(case.keops, problem.values())


def _compiled(name: str, function: Callable[..., Any], values: tuple[Any, ...]) -> Way:
    start = time.perf_counter()
    compiled = jax.jit(function).lower(*values).compile()
    seconds = time.perf_counter() - start
    memory: Any = compiled.memory_analysis()
    return Way(
        name=name,
        run=lambda: jax.block_until_ready(compiled(*values)),
        setup_s=seconds,
        compile_s=min(_compile_seconds(function, values) for _ in range(3)),
        temp_bytes=memory.temp_size_in_bytes,
    )


def _compile_seconds(function: Callable[..., Any], values: tuple[Any, ...]) -> float:
    # A function of its own each time: what is jitted again is not compiled again.
    lowered = jax.jit(partial(function)).lower(*values)
    start = time.process_time()
    lowered.compile()
    return time.process_time() - start


def _has_keops() -> bool:
    return find_spec("pykeops") is not None


def _with_keops(function: Callable[..., Any], values: tuple[Any, ...]) -> Way:
    run = partial(function, *values)
    run()  # compiles, unless an earlier process has
    return Way(name=_KEOPS, run=run)


def _difference(results: Any, truth: Any) -> float:
    pairs = zip(jax.tree.leaves(results), jax.tree.leaves(truth), strict=True)
    gaps = [
        float(np.max(np.abs(ours - theirs)) / np.max(np.abs(theirs)))
        for ours, theirs in pairs
        if np.issubdtype(theirs.dtype, np.floating)
    ]
    return max(gaps)


def _in_turns(ways: Sequence[Way], turns: int) -> list[Timed]:
    seconds: dict[str, list[float]] = {way.name: [] for way in ways}
    for _ in range(turns):
        for way in ways:
            start = time.perf_counter()
            way.run()
            seconds[way.name].append(time.perf_counter() - start)
    return [Timed(way=way, seconds=tuple(seconds[way.name])) for way in ways]


def _table() -> Table:
    table = Table(title="CPU, medians; ratios are over the plain program's", title_justify="left")
    table.add_column("problem")
    table.add_column("way")
    for column in ("time", "time ratio", "temp MB", "setup ratio", "compile ratio", "difference"):
        table.add_column(column, justify="right")
    return table


def _add(table: Table, case: Case, timed: Sequence[Timed]) -> float:
    """Adds the case's rows; the time ratio of memsafe without any leave to change rounding."""
    plain = timed[0]
    base = median(plain.seconds)
    ratios = {each.way.name: median(each.seconds) / base for each in timed}
    for each in timed:
        way = each.way
        table.add_row(
            case.name if each is plain else "",
            way.name,
            f"{median(each.seconds):.3f} s",
            f"{ratios[way.name]:.2f}",
            "" if way.temp_bytes is None else f"{way.temp_bytes / _MEGABYTE:,.1f}",
            _over(way.setup_s, plain.way.setup_s),
            _over(way.compile_s, plain.way.compile_s),
            "" if way.difference is None else f"{way.difference:.1e}",
            end_section=each is timed[-1],
        )
    return ratios[MEMSAFE]


def _over(seconds: float | None, plain_s: float | None) -> str:
    return "" if seconds is None or plain_s is None else f"{seconds / plain_s:.1f}"


def _verdict(console: Console, ratios: Sequence[float]) -> int:
    if not ratios:
        console.print("no case has that in its name")
        return 1
    geomean, worst = exp(sum(map(log, ratios)) / len(ratios)), max(ratios)
    kept = geomean <= GEOMEAN_AT_MOST and worst <= WORST_AT_MOST
    console.print(
        f"{'PASS' if kept else 'FAIL'}  memsafe over plain: geomean {geomean:.2f}, at most "
        f"{GEOMEAN_AT_MOST}; worst {worst:.2f}, at most {WORST_AT_MOST}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
