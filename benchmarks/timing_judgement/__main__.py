"""``python -m benchmarks.timing_judgement``: measures raw runs, then judges them by every rule.

Runs are appended to a file, so that it may be stopped and gone on with; ``--seconds 0`` judges what
is there. See docs/timing.md for what it found.
"""

import argparse
import datetime as dt
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.timing_judgement.comparisons import AS_USED, Cell, cells
from benchmarks.timing_judgement.evidence import measured_work, noise_by_load, spreads
from benchmarks.timing_judgement.program import SIZES
from benchmarks.timing_judgement.runs import Run, collect, read
from benchmarks.timing_judgement.table import decided, lines, ours

_FILE: Final = Path("results/timing_judgement/runs.jsonl")
_QUICK_SECONDS: Final = 1.0  # Every visit that was begun is finished.

FALSE_ALARMS_AT_MOST: Final = 0.01
NOISY_AT_MOST: Final = 0.20
FOUND_AT_LEAST: Final = {5: 0.90, 10: 0.99}


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; 1 if Assay's own rates miss what is asked of them."""
    options = _parser().parse_args(arguments)
    try:
        if options.quick:
            collect(options.file, seconds=_QUICK_SECONDS, seed=options.seed, programs=["small"])
        else:
            collect(
                options.file,
                seconds=options.seconds,
                seed=options.seed,
                load=options.load,
                programs=options.programs,
            )
    except KeyboardInterrupt:
        sys.stderr.write(f"stopped; what was measured is in {options.file}\n")
    runs = read(options.file)
    if not runs:
        sys.stderr.write(f"got no runs in {options.file}, wanted some; give --seconds\n")
        return 2
    found = list(cells(runs))
    missed = [reason for cell in found for reason in misses(cell)] + too_noisy(found)
    parts = [
        _conditions(runs),
        measured_work(runs),
        spreads(runs),
        noise_by_load(runs),
        lines(found),
        missed,
    ]
    sys.stdout.write("\n".join(line for part in parts for line in (*part, "")))
    sys.stdout.write("FAIL\n" if missed else "PASS\n")
    return 1 if missed else 0


def misses(cell: Cell) -> list[str]:
    """What of a cell is not as asked: false alarms, or slowdowns that were not found."""
    rate = ours(cell)
    if cell.row == AS_USED or not rate.of:
        return []
    what = f"{cell.row}, {cell.program}, {cell.added} % added: {rate}"
    if cell.added == 0 and rate.share > FALSE_ALARMS_AT_MOST:
        return [f"{what}, wanted at most {FALSE_ALARMS_AT_MOST:.0%} false alarms"]
    least = FOUND_AT_LEAST.get(cell.added, 0.0)
    return [f"{what}, wanted at least {least:.0%} found"] if rate.share < least else []


def too_noisy(found: Sequence[Cell]) -> list[str]:
    """The rows and programs of which Assay says too often that it is too noisy to say."""
    shares: dict[tuple[str, str], list[bool]] = {}
    for cell in found:
        if cell.row != AS_USED:
            noisy = shares.setdefault((cell.row, cell.program), [])
            noisy += [not decided(each) for each in cell.comparisons if not each.refused]
    return [
        f"{row}, {program}: {sum(noisy)}/{len(noisy)} too noisy, wanted at most {NOISY_AT_MOST:.0%}"
        for (row, program), noisy in shares.items()
        if sum(noisy) > NOISY_AT_MOST * len(noisy)
    ]


def _conditions(runs: Sequence[Run]) -> list[str]:
    loads = sorted(run.load for run in runs)
    dates = [
        f"{dt.datetime.fromtimestamp(at, tz=dt.UTC):%Y-%m-%d %H:%M}"
        for at in (runs[0].at, runs[-1].at)
    ]
    visits = {run.visit for run in runs}
    return [
        (
            f"{dates[0]} to {dates[1]} UTC, {len(visits)} visits of two fresh processes; "
            f"{', '.join(sorted({run.jax for run in runs}))}; {processor()}, {os.cpu_count()} cores"
        ),
        (
            f"load average {loads[0]:.1f} to {loads[-1]:.1f}, half of the time above "
            f"{loads[len(loads) // 2]:.1f}; bursts of this tool's own in "
            f"{sum(run.bursts for run in runs) / len(runs):.0%} of the runs"
        ),
    ]


def processor() -> str:
    """The processor's name, as Linux tells it."""
    file = Path("/proc/cpuinfo")
    lines_ = file.read_text().splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines_ if line.startswith("model name")]
    return names[0] if names else "unknown processor"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=1200.0, help="how long to measure")
    parser.add_argument("--file", type=Path, default=_FILE, help="where the raw runs are kept")
    parser.add_argument("--seed", type=int, default=0, help="of the order of comparisons")
    parser.add_argument(
        "--load",
        type=float,
        default=3.0 * (os.cpu_count() or 1),
        help="begin no visit while the machine's load average is above this",
    )
    parser.add_argument(
        "--programs", nargs="+", choices=list(SIZES), default=list(SIZES), help="which to time"
    )
    parser.add_argument("--quick", action="store_true", help="one visit to the small program")
    return parser


if __name__ == "__main__":
    sys.exit(main())
