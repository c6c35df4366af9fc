"""Time of memsafe over an expert's version at equal memory: ``python -m benchmarks.experts``.

Each program runs as the user wrote it (plain), in each way that an expert writes it to save memory,
and by memsafe. The budget of memsafe is the memory of each of these ways. All runs take turns in
one process. A way counts if it saves more than 5 % of the plain program's memory, and no other such
way takes both less memory and less time. ``KeOps`` is also timed if ``pykeops`` is installed.
equinox's checkpointed loop is one of the ways if ``equinox`` is installed.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from math import exp, inf, log, nan
from typing import Any, Final

import jax  # noqa: TID251 — what is measured here is JAX itself.
from rich.box import MARKDOWN  # noqa: TID251 — a benchmark is a door of its own.
from rich.console import Console  # noqa: TID251
from rich.table import Table  # noqa: TID251

from benchmarks.experts.cases import CASES, Case
from benchmarks.experts.measured import (
    Refused,
    Way,
    in_turns,
    machine,
    way,
    within_or_refused,
)

GEOMEAN_AT_MOST: Final = 1.0
WORST_AT_MOST: Final = 1.3
DIFFERENCE_AT_MOST: Final = 1e-4
"""Maximum difference over the largest value, for single precision: long sums change their order."""

_SAVES: Final = 0.95
"""A way saves memory if it takes less than this share of the plain program's memory."""

_COLUMNS: Final = (
    *("MB", "s", "over plain"),
    *("memsafe MB", "s", "over plain", "over expert", "setup over plain", "differences"),
)
"""Columns of the expert's version, then of memsafe's.

"differences" are those of memsafe and of the expert from the plain program's results.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A way of the expert, and memsafe within the memory of that way; times in seconds."""

    expert: Way
    expert_s: float
    safe: Way | Refused
    safe_s: float = inf

    @property
    def ratio(self) -> float:
        """The time of memsafe over the time of the expert's way."""
        return self.safe_s / self.expert_s

    @property
    def differences(self) -> tuple[float, ...]:
        """The differences of the expert's way and of memsafe from the plain program's results."""
        safe = () if isinstance(self.safe, Refused) else (self.safe.difference,)
        return (self.expert.difference, *safe)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A program and its points. ``timed_only`` maps KeOps' versions to their seconds."""

    plain: Way
    plain_s: float
    points: tuple[Point, ...]
    timed_only: Mapping[str, float]

    @property
    def counted(self) -> tuple[Point, ...]:
        """The points that save memory, but not those that another betters in memory and time."""
        most = _SAVES * self.plain.nbytes
        saving = [each for each in self.points if each.expert.nbytes < most]
        return tuple(
            each
            for each in saving
            if not any(
                other.expert.nbytes < each.expert.nbytes and other.expert_s < each.expert_s
                for other in saving
            )
        )


def main() -> int:
    """Prints a table; 1 if memsafe is too slow, refuses a budget that counts, or is wrong."""
    arguments = _parser().parse_args()
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 170)
    found = []
    for case in CASES:
        if arguments.only in case.name:
            console.print(f"{case.name} …", style="dim")
            found.append((case, compared(case, arguments.turns)))
    if not found:
        known = ", ".join(case.name for case in CASES)
        console.print(f"got --only={arguments.only}; wanted a part of one of these names: {known}")
        return 2
    console.print(_table(found))
    console.print(machine())
    return verdict(console, [each for _, each in found])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=5, help="runs of each way, in turns")
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    return parser


def compared(case: Case, turns: int) -> Compared:
    """The times of each way of a case, and of memsafe within the memory of each way."""
    problem = case.problem()
    with jax.enable_x64(problem.is_double):
        values = jax.device_put(problem.values())
        plain = way("plain", problem.plain, values, None)
        truth = jax.device_get(plain.run())
        names = case.ways or tuple(problem.ways)
        experts = [way(name, problem.ways[name], values, truth) for name in names]
        safe = [within_or_refused(each.nbytes, problem.plain, values, truth) for each in experts]
    given = case.timed_only.items()
    timed_only = [
        each for name, other in given for each in _by_keops(name, other, problem.values())
    ]
    runs = [plain, *experts, *(each for each in safe if isinstance(each, Way)), *timed_only]
    seconds = {id(one): time for one, time in zip(runs, in_turns(runs, turns), strict=True)}
    points = tuple(
        Point(expert=each, expert_s=seconds[id(each)], safe=one, safe_s=seconds.get(id(one), inf))
        for each, one in zip(experts, safe, strict=True)
    )
    others = {each.name: seconds[id(each)] for each in timed_only}
    return Compared(plain=plain, plain_s=seconds[id(plain)], points=points, timed_only=others)


def _by_keops(name: str, function: Callable[..., Any], values: Any) -> Iterator[Way]:
    """The KeOps version of a program, which XLA does not compile; none without ``pykeops``."""
    if find_spec("pykeops"):
        run = partial(function, *values)
        run()  # compiles, unless an earlier process has
        start = time.perf_counter()
        run()
        call_s = time.perf_counter() - start
        # Only its time is compared.
        yield Way(name=name, run=run, nbytes=0, setup_s=nan, call_s=call_s, difference=nan)


def _table(found: Sequence[tuple[Case, Compared]]) -> Table:
    table = Table(box=MARKDOWN)
    table.add_column("program")
    table.add_column("way")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for case, one in found:
        table.add_row(case.name, "plain", _mb(one.plain.nbytes), f"{one.plain_s:.3f}", "1.00")
        for point in one.points:
            name = point.expert.name if point in one.counted else f"({point.expert.name})"
            table.add_row("", name, *_cells(one, point))
        for name, seconds in one.timed_only.items():
            table.add_row("", f"({name})", "", f"{seconds:.3f}", f"{seconds / one.plain_s:.2f}")
    return table


def _cells(one: Compared, point: Point) -> tuple[str, ...]:
    expert, safe = point.expert, point.safe
    of_expert = (
        _mb(expert.nbytes),
        f"{point.expert_s:.3f}",
        f"{point.expert_s / one.plain_s:.2f}",
    )
    if isinstance(safe, Refused):
        return (*of_expert, "refused", "", "", "", "", f"least {_mb(safe.smallest)} MB")
    return (
        *of_expert,
        _mb(safe.nbytes),
        f"{point.safe_s:.3f}",
        f"{point.safe_s / one.plain_s:.2f}",
        f"{point.ratio:.2f}",
        f"{safe.setup_s / one.plain.setup_s:.1f}",
        f"{safe.difference:.0e}, {expert.difference:.0e}",
    )


def _mb(nbytes: float) -> str:
    return f"{nbytes / 1e6:,.1f}"


def verdict(console: Console, found: Sequence[Compared]) -> int:
    """Prints whether memsafe keeps the limits; 1 if not."""
    ratios = [[point.ratio for point in one.counted] for one in found]
    means = [_geomean(each) for each in ratios if each]
    fitting = [each for each in means if each < inf]
    worst = max((max(each) for each in ratios if each), default=inf)
    points = [point for one in found for point in one.points]
    refused = sum(isinstance(point.safe, Refused) for one in found for point in one.counted)
    differences = [each for point in points for each in point.differences]
    largest = max(differences, default=nan)
    right = all(each <= DIFFERENCE_AT_MOST for each in differences)  # A NaN is not.
    geomean = _geomean(fitting) if fitting else inf
    kept = geomean <= GEOMEAN_AT_MOST and worst <= WORST_AT_MOST and right
    console.print(
        f"{'PASS' if kept else 'FAIL'}  memsafe over the expert, {len(means)} programs: geomean "
        f"{geomean:.2f}, at most {GEOMEAN_AT_MOST}, of {len(fitting)} without a refusal; worst "
        f"{worst:.2f}, at most {WORST_AT_MOST}; {refused} refused; largest difference "
        f"{largest:.0e}, at most {DIFFERENCE_AT_MOST:.0e}"
    )
    return 0 if kept else 1


def _geomean(ratios: Sequence[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))


if __name__ == "__main__":
    sys.exit(main())
