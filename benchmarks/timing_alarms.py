"""``python -m benchmarks.timing_alarms``: how often a comparison of times is wrong.

Each comparison is Assay's own (``claims.TimeRatio``, turns in one process), of two programs that
are compiled for it. They differ by the turns of a loop: by none, 5 %, and 2, 10 and 100 times.
``--neighbours 2`` keeps two cores busy meanwhile. Ends with 1 where a rate misses ``WANTED``. What
it found is in docs/timing-evaluation.md.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from scipy.stats import beta

from assay.claims.times import AtMost
from assay.frameworks.timing import Runner, take_turns
from assay.model.timing import Change, Sensitivity

TURNS: Final = 1000
WIDTH: Final = 64
SLOWDOWNS: Final = (1.0, 1.05, 2.0, 10.0, 100.0)
SLOWDOWNS_OF_A_GPU: Final = (1.0, 1.02, 1.05, 1.1)
WANTED: Final = 0.95
_QUESTION: Final = AtMost(limit=1.0, sensitivity=Sensitivity(least=0.02, seen=0.05))
_BUSY: Final = "import time\nend = time.time() + {}\nwhile time.time() < end: sum(range(10000))"


@dataclass(slots=True)
class Row:
    """What became of the comparisons with one slowdown: slower, not slower, undecided; seconds."""

    slower: int = 0
    kept: int = 0
    undecided: int = 0
    seconds: list[float] = field(default_factory=list)

    def add(self, change: Change, seconds: float) -> None:
        """Count one comparison."""
        self.slower += change is Change.SLOWER
        self.kept += change in (Change.SAME, Change.FASTER)
        self.undecided += change is Change.TOO_NOISY
        self.seconds.append(seconds)


def _program(factor: float) -> Runner:
    """A loop of so many times the turns, compiled anew."""
    import jax  # noqa: TID251 - the programs are written in it
    import jax.numpy as jnp  # noqa: TID251

    matrix = jnp.full((WIDTH, WIDTH), 0.1, jnp.float32)

    def loop(matrix: Any, turns: Any) -> Any:
        return jax.lax.fori_loop(0, turns, lambda _, y: jnp.tanh(y @ y) * 0.1, matrix)

    turns = jnp.asarray(round(TURNS * factor))
    compiled = jax.jit(loop).lower(matrix, turns).compile()

    def run(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            jax.block_until_ready(compiled(matrix, turns))
        return time.perf_counter() - start

    return Runner(run=run)


def compare(factor: float) -> tuple[Change, float]:
    """The verdict on a program of so many times the work, and the seconds that it took."""
    runners = (_program(1.0), _program(factor))
    start = time.perf_counter()
    take_turns(runners, _QUESTION.turns("one"), most_seconds=30.0)
    seconds = time.perf_counter() - start
    return _QUESTION.ratio(runners[0].samples, runners[1].samples).change, seconds


@contextmanager
def _neighbours(count: int, seconds: float) -> Iterator[None]:
    command = [sys.executable, "-c", _BUSY.format(seconds)]
    processes = [subprocess.Popen(command) for _ in range(count)]  # noqa: S603 - its own words
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _bound(count: int, of: int) -> float:
    """The upper end of Clopper and Pearson's 95 % interval."""
    return 1.0 if count == of else float(beta.ppf(0.975, count + 1, of - count))


def _counts(rows: dict[float, Row]) -> str:
    """The counts so far: slower, not slower and undecided of each slowdown."""
    return "  ".join(
        f"{factor:g}: {row.slower} {row.kept} {row.undecided}" for factor, row in rows.items()
    )


def _lines(rows: dict[float, Row]) -> Iterator[str]:
    yield "| Second program | compared | slower | not slower | undecided | seconds: median, most |"
    yield "|---|---|---|---|---|---|"
    for factor, row in rows.items():
        of = len(row.seconds)
        name = "the same" if factor == 1 else f"{factor:g} times the work"
        bound = f" (95 % bound {_bound(row.slower, of):.1%})" if factor == 1 else ""
        yield (
            f"| {name} | {of} | {row.slower}{bound} | {row.kept} | {row.undecided} "
            f"| {median(row.seconds):.2f}, {max(row.seconds):.2f} |"
        )


def _missed(rows: dict[float, Row]) -> Iterator[str]:
    for factor, row in rows.items():
        of = len(row.seconds)
        if factor == 1 and row.slower:
            yield f"{row.slower} false alarms in {of}"
        if factor >= 1 + _QUESTION.sensitivity.seen and row.slower < WANTED * of:
            yield f"{factor:g} times: {row.slower} of {of} found, wanted {WANTED:.0%}"


def main() -> int:
    """Measure, print the table, and say what misses."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--comparisons", type=int, default=200, help="of a program with itself")
    parser.add_argument("--neighbours", type=int, default=0, help="busy processes beside it")
    parser.add_argument("--seconds", type=float, default=400.0, help="begin no round after this")
    parser.add_argument("--platform", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = options.platform
    slowdowns = SLOWDOWNS if options.platform == "cpu" else SLOWDOWNS_OF_A_GPU
    rows = {factor: Row() for factor in slowdowns}
    chance, end = random.Random(0), time.monotonic() + options.seconds  # noqa: S311 - an order
    loads = []
    with _neighbours(options.neighbours, options.seconds + 60):
        while len(rows[1.0].seconds) < options.comparisons and time.monotonic() < end:
            for factor in chance.sample((1.0, *slowdowns), len(slowdowns) + 1):
                rows[factor].add(*compare(factor))
            loads.append(os.getloadavg()[0])
            sys.stderr.write(f"{_counts(rows)}\n")
    sys.stdout.write(f"load average {min(loads):.1f} to {max(loads):.1f}\n\n")
    missed = list(_missed(rows))
    sys.stdout.write("\n".join((*_lines(rows), "", *missed, "FAIL" if missed else "PASS")) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
