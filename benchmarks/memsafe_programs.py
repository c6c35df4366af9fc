"""Whether memsafe is right on random programs: ``python -m benchmarks.memsafe_programs``.

Each number from ``--seed`` on is a program (`tests.memsafe.random_programs.numbered`): some of what
memsafe knows, in some order, differentiated or not, on 1 to 4 devices, with some budget. Its
results in double precision must be plain jit's to 1e-9 of the largest entry, integers and truth
values exactly, and what is compiled must keep the budget, unless memsafe refuses it. Where plain
jit itself is wrong (it makes a value twice, with two roundings, so that none equals the maximum),
memsafe is held against the operations one by one, and the program is counted. Exits with 1 where a
program is wrong, over its budget or breaks memsafe, and where less than a tenth of all were split.
Ctrl-C ends it early: what was run is counted, and ``--seed`` goes on from there.
"""

import argparse
import contextlib
import sys
import time
from collections import Counter
from typing import Final

import jax  # noqa: TID251 — its caches of thousands of programs are cleared here.
from rich.console import Console  # noqa: TID251 — a benchmark is a door of its own.

from tests.memsafe.random_programs import Program, numbered, outcome_of

_SPLIT_AT_LEAST: Final = 0.1
_DEVICES: Final = 4
_PROGRAMS_BETWEEN_CLEARINGS: Final = 50
_KINDS: Final = (
    "programs",
    "split",
    "budget errors",
    "plain jit wrong",
    "wrong values",
    "over budget",
    "crashes",
)


def main() -> int:
    """Prints what became of the programs, each fault as it is met; 1 if there is any."""
    arguments = _parser().parse_args()
    console = Console(file=sys.stdout, soft_wrap=True, highlight=False, markup=False)
    jax.config.update("jax_num_cpu_devices", _DEVICES)
    begun, counts = time.perf_counter(), Counter[str]()
    with contextlib.suppress(KeyboardInterrupt):
        for seed in range(arguments.seed, arguments.seed + arguments.count):
            counts.update(_counted(console, numbered(seed)))
            if seed % _PROGRAMS_BETWEEN_CLEARINGS == 0:
                jax.clear_caches()
    for kind in _KINDS:
        console.print(f"{kind}: {counts[kind]}")
    console.print(f"seconds: {time.perf_counter() - begun:.0f}")
    faults = counts["wrong values"] + counts["over budget"] + counts["crashes"]
    good = not faults and counts["split"] >= _SPLIT_AT_LEAST * counts["programs"]
    whole = counts["programs"] == arguments.count
    console.print("FAIL" if not good else "PASS" if whole else "PASS so far, ended early")
    return 0 if good and whole else 1


def _counted(console: Console, program: Program) -> list[str]:
    """What became of a program, as kinds to count."""
    try:
        outcome = outcome_of(program)
    except Exception as error:  # noqa: BLE001 — a crash is what is looked for.
        console.print(f"{type(error).__name__}: {error}\n  {program}")
        return ["programs", "crashes"]
    for fault in outcome.faults:
        console.print(f"{fault}\n  {program}")
    if outcome.plain_is_wrong:
        console.print(f"plain jit is wrong, memsafe is not\n  {program}")
    wrong = any(not fault.startswith("over budget") for fault in outcome.faults)
    over = any(fault.startswith("over budget") for fault in outcome.faults)
    flags = (True, outcome.split, outcome.refused, outcome.plain_is_wrong, wrong, over)
    return [kind for kind, holds in zip(_KINDS, flags, strict=False) if holds]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=2000, help="programs")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first")
    return parser


if __name__ == "__main__":
    sys.exit(main())
