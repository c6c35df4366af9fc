"""How long reading a large module takes, and how much memory: ``python -m benchmarks.hlo_reading``.

Reading runs on one thread and waits for nothing, so its processor time is its wall time on an
idle machine. The ratio is that of processor times, which a busy neighbour disturbs least.
"""

import gc
import multiprocessing
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from assay.hlo.summary import read
from assay.model.summary import ModuleSummary
from benchmarks.large_module import FEW_LOOPS, MANY_LOOPS, large_module

INSTRUCTIONS: Final = 38_894
SECONDS_AT_MOST: Final = 0.5
TIMES_AT_MOST: Final = 12.0
INSTRUCTIONS_FOR_MEMORY: Final = 1_000_000
KB_PER_INSTRUCTION_AT_MOST: Final = 4.0
_READINGS: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Times of some readings of one module, in seconds."""

    summary: ModuleSummary
    wall: tuple[float, ...]
    processor: tuple[float, ...]


def measure(data: bytes, readings: int = _READINGS) -> Reading:
    """Reads a module some times."""
    wall, processor = [], []
    for _ in range(readings):
        gc.collect()  # what an earlier reading left is no part of this one
        wall_start, processor_start = time.perf_counter(), time.process_time()
        summary = read(data)
        processor.append(time.process_time() - processor_start)
        wall.append(time.perf_counter() - wall_start)
    return Reading(summary=summary, wall=tuple(wall), processor=tuple(processor))


def peak_kb(data: bytes) -> float:
    """What reading adds to the peak of resident memory, in a process of its own."""
    # A forked child, and one that was forked and then executed, starts from its parent's peak in
    # getrusage; VmHWM is the peak of the child's own memory.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_added_kb, (data,))


def _added_kb(data: bytes) -> float:
    before = _peak_resident_kb()
    read(data)
    return _peak_resident_kb() - before


def _peak_resident_kb() -> float:
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return float(line.split()[1]) * 1.024


def _table(say: Callable[[str], object], title: str, per_loop: int) -> list[bool]:
    """Prints the two modules with so many instructions per loop; says what was passed."""
    readings = []
    for instructions in (INSTRUCTIONS, 10 * INSTRUCTIONS):
        data = large_module(instructions, per_loop)
        reading = measure(data)
        readings.append(reading)
        found = reading.summary.instructions
        say(
            f"{title:10} {found:>12,} {min(reading.wall):>8.3f} {median(reading.wall):>8.3f} "
            f"{min(reading.processor):>8.3f} {peak_kb(data) / found:>8.2f}\n"
        )
    small, large = readings
    seconds, times = min(small.wall), min(large.processor) / min(small.processor)
    return [
        _verdict(
            say, f"{title}: {seconds:.3f} s", f"{SECONDS_AT_MOST} s", seconds, SECONDS_AT_MOST
        ),
        _verdict(say, f"{title}: {times:.1f} times", f"{TIMES_AT_MOST}", times, TIMES_AT_MOST),
    ]


def _verdict(
    say: Callable[[str], object], got: str, limit: str, number: float, at_most: float
) -> bool:
    passed = number <= at_most
    say(f"{'PASS' if passed else 'FAIL'}  {got}, at most {limit}\n")
    return passed


def main() -> int:
    """Prints the table and the verdicts; 1 if a limit is passed over."""
    say = sys.stdout.write
    say(f"{'':10} {'instructions':>12} {'min s':>8} {'median s':>8} {'cpu s':>8} {'kB each':>8}\n")
    passed = _table(say, "few loops", FEW_LOOPS) + _table(say, "many loops", MANY_LOOPS)
    data = large_module(INSTRUCTIONS_FOR_MEMORY, MANY_LOOPS)
    each = peak_kb(data) / INSTRUCTIONS_FOR_MEMORY
    got = f"{INSTRUCTIONS_FOR_MEMORY:,} instructions: {each:.2f} kB each"
    passed.append(_verdict(say, got, "4 kB", each, KB_PER_INSTRUCTION_AT_MOST))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
