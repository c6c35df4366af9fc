"""memsafe and the range that AutoChunk reports: ``python -m benchmarks.peers.autochunk``.

Zhao et al., 2024 (arXiv 2401.10652) report over 80 % less activation memory at a loss of speed
within 10 %, and 3.2 to 11.7 times the length, on an A100 of 80 GB. Here, the forward passes of the
same kinds of network are compiled for a GPU; no GPU is needed. The first table has the temporaries
as written, and by memsafe in 20 % of them, if possible within 1.1 times the time by prediction. The
second table has the greatest length that fits 80 GB. Exits with 1 if memsafe finds no plan for a
fifth of the temporaries within 1.1 times the time, or if memsafe's length is less than 3.2 times
the length as written.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Final

import jax  # noqa: TID251 — what memsafe is given is written in JAX.
from rich.box import MARKDOWN  # noqa: TID251 — a benchmark is a door of its own.
from rich.console import Console  # noqa: TID251
from rich.table import Table  # noqa: TID251

from benchmarks.peers.fitted import (
    TARGET,
    Compiled,
    Program,
    Refused,
    device_of,
    within,
    written,
)
from benchmarks.peers.inference import NETWORKS, Network

SHARE: Final = 0.2
SLOWDOWN: Final = 1.1
LONGER: Final = 3.2
ROOM: Final = 80e9
FINENESS: Final = 2
"""Number of halvings of the exponent after the doublings: the last step is 2 ** 0.25."""
MULTIPLE: Final = 8
"""Lengths are multiples of this, because a U-Net of four levels halves its rows three times."""


def main() -> int:
    """Prints the tables; 1 if memsafe is below the range."""
    asked = _parser().parse_args()
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160)
    names = [name for name in NETWORKS if asked.only in name]
    if not names:
        console.print(f"got --only {asked.only}; wanted a part of one of {', '.join(NETWORKS)}")
        return 2
    good: list[bool] = []
    if asked.table in ("memory", "both"):
        good.append(_memory(console, names))
    if asked.table in ("length", "both"):
        good.append(_length(console, names, asked.most))
    console.print(f"jax {jax.__version__} for {TARGET}")
    console.print("PASS" if all(good) else "FAIL")
    return 0 if all(good) else 1


def _memory(console: Console, names: list[str]) -> bool:
    heads = ("network", "length", "as written: MB", "in 20 %: MB", "operations", "predicted time")
    table, good = Table(*heads, box=MARKDOWN), True
    for name in names:
        network = NETWORKS[name]
        console.print(f"{name}: memory …", style="dim")
        program = _program(network, network.length)
        plain = written(program)
        budget = plain.nbytes - (1 - SHARE) * plain.temp_bytes
        found = within(program, budget, SLOWDOWN)
        good &= isinstance(found, Compiled)
        if isinstance(found, Refused):
            found = within(program, budget)
        plainly = f"{network.length:,} {network.unit}", f"{plain.temp_bytes / 1e6:,.0f}"
        table.add_row(name, *plainly, *_cells(found, plain))
    console.print(table)
    return good


def _cells(found: Compiled | Refused, plain: Compiled) -> tuple[str, str, str]:
    if isinstance(found, Refused):
        slow = "–" if found.slowdown is None else f"{found.slowdown:.2f} ×"
        return f"refused: {(found.nbytes - plain.nbytes + plain.temp_bytes) / 1e6:,.0f}", "–", slow
    sizes = f"{found.temp_bytes / 1e6:,.0f}"
    return sizes, f"{found.operations:.2f} ×", f"{found.slowdown:.2f} ×"


def _length(console: Console, names: list[str], most: int) -> bool:
    heads = ("network", "as written", "memsafe", "ratio", "predicted time there")
    table, good = Table(*heads, box=MARKDOWN), True
    for name in names:
        network = NETWORKS[name]
        console.print(f"{name}: length …", style="dim")
        slowdowns: dict[int, float] = {}

        def fits_plainly(length: int, network: Network = network) -> bool:
            is_good = written(_program(network, length)).nbytes <= ROOM
            console.print(f"as written, {length:,}: {'fits' if is_good else 'too large'}")
            return is_good

        def fits_safely(
            length: int, network: Network = network, slowdowns: dict[int, float] = slowdowns
        ) -> bool:
            found = within(_program(network, length), ROOM)
            if isinstance(found, Compiled):
                slowdowns[length] = found.slowdown
            is_good = isinstance(found, Compiled)
            console.print(f"memsafe, {length:,}: {'fits' if is_good else 'refused'}")
            return is_good

        plain = longest(fits_plainly, network.length, sys.maxsize)
        safe = longest(fits_safely, plain, most * plain)
        good &= safe >= LONGER * plain
        least = "≥ " if safe >= most * plain else ""
        ratio = f"{least}{safe / max(plain, 1):.1f} ×"
        slowdown = f"{slowdowns[safe]:.2f} ×" if safe in slowdowns else "–"
        table.add_row(name, f"{plain:,} {network.unit}", f"{safe:,}", ratio, slowdown)
    console.print(table)
    return good


def longest(fits: Callable[[int], bool], start: int, most: int) -> int:
    """The greatest length found that fits, from ``start`` to ``most``; 0 if ``start`` does not.

    The search doubles ``start``, then halves the step. Lengths between two doublings are rounded
    down to multiples of `MULTIPLE`.
    """
    if not fits(start):
        return 0
    found, power = start, 1.0
    while 2 * found <= most and fits(2 * found):
        found *= 2
    for _ in range(FINENESS):
        power /= 2
        tried = int(found * 2**power) // MULTIPLE * MULTIPLE
        if found < tried <= most and fits(tried):
            found = tried
    return found


def _program(network: Network, length: int) -> Program:
    return Program(run=network.run, arguments=network.arguments(length), device=device_of(TARGET))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="networks whose name has this in it")
    parser.add_argument(
        "--most", type=int, default=32, help="times the length as written, and nothing longer"
    )
    parser.add_argument("--table", choices=("memory", "length", "both"), default="both")
    return parser


if __name__ == "__main__":
    sys.exit(main())
