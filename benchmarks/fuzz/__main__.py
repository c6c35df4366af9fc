"""``python -m benchmarks.fuzz [READER…]``: mutated inputs for every reader of Assay.

Exits with 1 on a finding. Each finding is minimised and written to ``tests/fuzz/findings/READER``,
which the tests replay. On Python 3.12 and newer, the mutations are guided by the lines that they
reach.
"""

import argparse
import platform
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

from benchmarks.fuzz.engine import Campaign, Reader, campaign

MODULES: Final = ("benchmarks.fuzz.hlo", "benchmarks.fuzz.files")
FINDINGS: Final = Path(__file__).parents[2] / "tests" / "fuzz" / "findings"


def readers() -> dict[str, tuple[str, Reader]]:
    """Every reader by its name, with the place of its value."""
    from importlib import import_module

    return {
        value.name: (f"{module}:{name}", value)
        for module in MODULES
        for name, value in vars(import_module(module)).items()
        if isinstance(value, Reader)
    }


def main() -> int:
    """Run the campaign, and print a line for each reader."""
    known = readers()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="*", metavar="READER", help=", ".join(known))
    parser.add_argument("--inputs", type=int, default=100_000, help="of all readers together")
    parser.add_argument("--seed", type=int, default=0, help="other mutations")
    parser.add_argument("--workers", type=int, default=2, help="readers at a time")
    options = parser.parse_args()
    chosen = options.readers or list(known)
    if unknown := sorted(set(chosen) - known.keys()):
        parser.error(f"got {', '.join(unknown)}; wanted some of {', '.join(known)}")
    whole = sum(known[name][1].share for name in chosen)
    asked = [
        (known[name][0], round(options.inputs * known[name][1].share / whole)) for name in chosen
    ]
    guided = "guided by lines" if hasattr(sys, "monitoring") else "not guided: Python 3.12 is"
    print(f"Python {platform.python_version()}, {guided}; seed {options.seed}")
    start = time.monotonic()
    with ProcessPoolExecutor(options.workers) as pool:
        done = list(map(_show, pool.map(partial(_campaign, seed=options.seed), asked)))
    inputs, faults = (sum(each) for each in zip(*done, strict=True))
    result = "FAIL" if faults else "PASS"
    spent = time.monotonic() - start
    print(f"{result}  {faults} of {inputs:,} inputs crash, hang or are misread; {spent:.0f} s")
    return 1 if faults else 0


def _campaign(asked: tuple[str, int], seed: int) -> Campaign:
    done = campaign(*asked, seed)
    for data in done.smallest.values():
        place = FINDINGS / done.reader / sha256(data).hexdigest()[:12]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return done


def _show(done: Campaign) -> tuple[int, int]:
    kinds = ", ".join(
        f"{done.outcomes[kind]:,} {kind}" for kind in ("accepted", "refused", "fault")
    )
    print(
        f"{done.reader:12} {done.inputs:7,} inputs: {kinds}; {done.seeds} seeds; slowest "
        f"{done.slowest_seconds:.2f} s",
        flush=True,
    )
    for fault, count in done.faults.most_common():
        print(f"{'':12} {count:7,} × {fault}")
    return done.inputs, done.faults.total()


if __name__ == "__main__":
    sys.exit(main())
