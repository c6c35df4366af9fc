"""memsafe and torch's ``activation_memory_budget``: ``python -m benchmarks.peers.training CURVES``.

``CURVES`` is a file with the output of ``python -m benchmarks.peers.torch_curves``, which requires
torch. The same networks, with the gradients of their weights, are compiled for a GPU; no GPU is
needed. They are compiled as written, and by memsafe within shares of their temporaries as written.
A second table has, for each budget of torch, the plan of memsafe with the fewest products that
takes no more bytes than torch has alive at once. Exits with 1 if there is no such plan, or if the
plan does more products than torch.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import jax  # noqa: TID251 — what memsafe is given is written in JAX.
from rich.box import MARKDOWN  # noqa: TID251 — a benchmark is a door of its own.
from rich.console import Console  # noqa: TID251
from rich.table import Table  # noqa: TID251

from benchmarks.peers import jax_networks
from benchmarks.peers.fitted import (
    TARGET,
    Compiled,
    Program,
    Refused,
    device_of,
    within,
    written,
)
from benchmarks.peers.sizes import NETWORKS

SHARES: Final = (0.9, 0.75, 0.5, 0.25, 0.1)
"""Shares of the temporaries as written. None is 0: temporaries count all that lies in memory."""
EQUAL: Final = 1.005
"""Products up to this ratio count as equal: a sum over slices adds rounding of counts."""

TorchPoint = dict[str, float]


def main() -> int:
    """Prints two tables; 1 if memsafe does more products in the memory that torch takes."""
    asked = _parser().parse_args()
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160)
    try:
        told = json.loads(asked.curves.read_text())
        curves = {name: told["curves"][name] for name in NETWORKS if asked.only in name}
    except (OSError, ValueError, KeyError, TypeError) as error:
        console.print(f"got {asked.curves}, which cannot be read: {error!r}", markup=False)
        console.print("wanted what python -m benchmarks.peers.torch_curves prints, in a file")
        return 2
    if not curves:
        console.print(f"got --only {asked.only}; wanted a part of one of {', '.join(NETWORKS)}")
        return 2
    points = Table(
        *("network", "share", "memsafe: MB", "products", "operations", "predicted time"),
        box=MARKDOWN,
    )
    beside = Table(
        *("network", "budget", "torch: saved MB", "alive MB", "products"),
        *("memsafe: MB", "products"),
        box=MARKDOWN,
    )
    good = []
    for name, theirs in curves.items():
        console.print(f"{name} …", style="dim")
        good.append(_compared(name, theirs, points, beside))
    console.print(points)
    console.print(beside)
    console.print(f"jax {jax.__version__} for {TARGET}, torch {told['torch']}")
    console.print("PASS" if all(good) else "FAIL")
    return 0 if all(good) else 1


def _compared(name: str, theirs: Sequence[TorchPoint], points: Table, beside: Table) -> bool:
    loss = jax_networks.LOSSES[name]
    program = Program(
        run=jax.value_and_grad(loss),
        arguments=jax_networks.arguments(NETWORKS[name]()),
        device=device_of(TARGET),
    )
    plain = written(program)
    own = plain.nbytes - plain.temp_bytes
    ours = [plain]
    for share in (1.0, *SHARES):
        found = plain if share == 1.0 else within(program, own + share * plain.temp_bytes)
        points.add_row(name, f"{share:g}", *_cells(found, plain, own))
        if isinstance(found, Compiled):
            ours.append(found)
    most = max(point["products"] for point in theirs if point["budget"] == 1.0)
    good = True
    for point in theirs:
        best = cheapest(ours, point["live_bytes"])
        good &= is_on_or_below(best, point)
        cells = (point["saved_bytes"] / 1e6, point["live_bytes"] / 1e6)
        beside.add_row(
            name,
            f"{point['budget']:g}",
            *(f"{cell:,.0f}" for cell in cells),
            f"{point['products'] / most:.3f} ×",
            *(("–", "–") if best is None else _cells(best, plain, own)[:2]),
        )
    return good


def _cells(found: Compiled | Refused, plain: Compiled, own: float) -> tuple[str, str, str, str]:
    if isinstance(found, Refused):
        least = f"refused: {(found.nbytes - own) / 1e6:,.0f}"
        slow = "–" if found.slowdown is None else f"{found.slowdown:.1f} ×, too slow"
        return least, "–", "–", slow
    products = f"{found.products / plain.products:.3f} ×"
    taken = f"{found.operations:.3f} ×", f"{found.slowdown:.2f} ×"
    return f"{found.temp_bytes / 1e6:,.0f}", products, *taken


def cheapest(points: Sequence[Compiled], nbytes: float) -> Compiled | None:
    """The point with the fewest products, then bytes, of those within ``nbytes`` of temporaries."""
    fitting = [each for each in points if each.temp_bytes <= nbytes]
    return min(fitting, key=lambda each: (each.products, each.temp_bytes), default=None)


def is_on_or_below(best: Compiled | None, point: TorchPoint) -> bool:
    """Whether ``best`` exists, and takes no more bytes and does no more products than torch."""
    if best is None:
        return False
    return best.temp_bytes <= point["live_bytes"] and best.products <= EQUAL * point["products"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("curves", type=Path, help="JSON of benchmarks.peers.torch_curves")
    parser.add_argument("--only", default="", help="networks whose name has this in it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
