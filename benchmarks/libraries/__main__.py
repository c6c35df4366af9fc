"""memsafe on programs of other libraries: ``python -m benchmarks.libraries``.

Each program of an installed library runs as written, and by memsafe within a half, a quarter and an
eighth of its memory, in turns in one process. Exits with 1 if a value is wrong, a program exceeds
its budget, memsafe raises anything but BudgetError, or no program ran. Prints the text of each
refusal. Assay does not require the libraries: ``pip install blackjax dm-haiku distrax e3nn-jax
evosax jraph lineax netket`` installs them.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import jax  # noqa: TID251 — what is measured here is JAX itself.
import numpy as np
from rich.box import MARKDOWN  # noqa: TID251 — a benchmark is a door of its own.
from rich.console import Console  # noqa: TID251
from rich.table import Table  # noqa: TID251

from benchmarks.experts import measured
from benchmarks.experts.measured import Way, in_turns, machine, way
from benchmarks.libraries.programs import PROGRAMS, Program
from memsafe import BudgetError  # noqa: TID251 — it is measured here.

SHARES: Final = (2, 4, 8)
DIFFERENCE_AT_MOST: Final = 2.0**-10
"""Maximum difference over the largest value, for single precision.

The flow's own rounding is half of this.
"""

NOTHING: Final = 1e-6
"""Results below this count as rounding: the derivative of a bias before a softmax is zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A program by memsafe within a share of its memory.

    ``found`` is the compiled way, or the text of a refusal or a failure. ``setup_s`` is the time
    from the function to its executable, to the refusal or to the failure. ``off`` is the largest
    difference from the values as written, by `difference`.
    """

    found: Way | str
    setup_s: float
    is_good: bool
    off: float = 0.0


def main() -> int:
    """Prints a table; 1 if a value is wrong, a budget is exceeded, or memsafe fails."""
    arguments = _parser().parse_args()
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 170)
    table = Table("program", "MB", "s", "setup s", box=MARKDOWN)
    for share in SHARES:
        table.add_column(f"1/{share}: MB, time over plain, setup s", justify="right")
    good = []
    for name in PROGRAMS:
        if arguments.only in name:
            console.print(f"{name} …", style="dim")
            try:
                program = PROGRAMS[name]()
            except ImportError as error:
                console.print(f"not run: {error}", markup=False)
                continue
            good.append(_compared(console, table, name, program, arguments.turns))
    console.print(table)
    console.print(machine())
    console.print("PASS" if good and all(good) else "FAIL")
    return 0 if good and all(good) else 1


def _compared(console: Console, table: Table, name: str, program: Program, turns: int) -> bool:
    function, values = program
    plain = way("plain", function, values, None)
    truth = jax.device_get(plain.run())
    tried = [within(plain.nbytes // share, function, values, truth) for share in SHARES]
    ways = [plain, *(each.found for each in tried if isinstance(each.found, Way))]
    seconds = in_turns(ways, turns)
    times = {id(way): one / seconds[0] for way, one in zip(ways, seconds, strict=True)}
    cells = []
    for share, each in zip(SHARES, tried, strict=True):
        if isinstance(each.found, str):
            console.print(f"1/{share}: {each.found}", markup=False, soft_wrap=True)
            cells.append(f"{'refused' if each.is_good else 'FAILED'}, {each.setup_s:.0f}")
        else:
            one = each.found
            console.print(f"1/{share}: difference {each.off:.0e}")
            cells.append(f"{one.nbytes / 1e6:.0f}, {times[id(one)]:.2f}, {each.setup_s:.0f}")
    table.add_row(
        name, f"{plain.nbytes / 1e6:.0f}", f"{seconds[0]:.2f}", f"{plain.setup_s:.1f}", *cells
    )
    return all(each.is_good for each in tried)


def within(budget: int, function: Callable[..., Any], values: Any, truth: Any) -> Tried:
    """``function`` by memsafe within ``budget`` bytes, its results compared with ``truth``."""
    start = time.perf_counter()
    try:
        found = measured.within(budget, function, values, truth)
    except BudgetError as error:
        return Tried(found=str(error), setup_s=time.perf_counter() - start, is_good=True)
    except Exception as error:  # noqa: BLE001 — a failure is what is looked for.
        failure = f"{type(error).__name__}: {error}"
        return Tried(found=failure, setup_s=time.perf_counter() - start, is_good=False)
    off = difference(found.run(), truth)
    is_good = off <= DIFFERENCE_AT_MOST and found.nbytes <= budget
    return Tried(found=found, setup_s=found.setup_s, is_good=is_good, off=off)


def difference(results: Any, truth: Any) -> float:
    """The largest difference of any floating-point result, over its largest value or `NOTHING`."""
    pairs = [
        (np.asarray(ours), np.asarray(theirs))
        for ours, theirs in zip(results, truth, strict=True)
        if np.issubdtype(theirs.dtype, np.floating)
    ]
    shares = [np.max(np.abs(a - b)) / max(float(np.max(np.abs(b))), NOTHING) for a, b in pairs]
    return float(np.max(shares))  # NaN if any is.


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=3, help="runs of each way, in turns")
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
