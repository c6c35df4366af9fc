"""How long reading a large module takes, and how much memory: ``python -m benchmarks.hlo_reading``.

Reading is all of `assay.hlo.summary.read`, every analysis together. It runs on one thread and
waits for nothing, so its processor time is its wall time on an idle machine. The ratio is that of
processor times, which a busy neighbour disturbs least. The real module is compiled here, for the
CPU; the others are synthetic.
"""

import gc
import multiprocessing
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from assay.hlo.summary import read
from assay.model.summary import ModuleSummary
from benchmarks.against_xprof import NotMeasured, compare
from benchmarks.large_module import FEW_LOOPS, MANY_LOOPS, large_module
from benchmarks.unrolled_model import compiled

INSTRUCTIONS: Final = 38_894
SECONDS_AT_MOST: Final = 1.0
"""For so many instructions; of a module of more or fewer, in proportion."""

TIMES_XPROF_AT_MOST: Final = 3.0
SMALL_AND_LARGE: Final = (100_000, 1_000_000)
TIMES_PER_INSTRUCTION_AT_MOST: Final = 1.25
KB_PER_INSTRUCTION_AT_MOST: Final = 4.0
_READINGS: Final = 7
_LONG_READINGS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Times of some readings of one module, in seconds."""

    summary: ModuleSummary
    wall: tuple[float, ...]
    processor: tuple[float, ...]

    @property
    def processor_per_instruction(self) -> float:
        """Seconds of the processor for each instruction, in the best reading."""
        return min(self.processor) / self.summary.instructions


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One module in the forms in which it can be read."""

    name: str
    text: str
    proto: bytes
    buffer_assignment: bytes = b""


def measure(data: bytes, buffer_assignment: bytes = b"", readings: int = _READINGS) -> Reading:
    """Reads a module some times."""
    wall, processor = [], []
    for _ in range(readings):
        gc.collect()  # what an earlier reading left is no part of this one
        wall_start, processor_start = time.perf_counter(), time.process_time()
        summary = read(data, buffer_assignment)
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
    before = _resident_kb("VmRSS")  # not the peak: handing over the bytes takes some for a while
    read(data)
    return _resident_kb("VmHWM") - before


def _resident_kb(which: str) -> float:
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith(which))
    return float(line.split()[1]) * 1.024


def inputs() -> tuple[Input, ...]:
    """Two synthetic modules and a real one, of about as many instructions."""
    from jaxlib import _hlo  # type: ignore[attr-defined]  # noqa: TID251

    found = []
    for name, per_loop in (("few loops", FEW_LOOPS), ("many loops", MANY_LOOPS)):
        proto = large_module(INSTRUCTIONS, per_loop)
        text = str(_hlo.HloModule.from_serialized_hlo_module_proto(proto).to_string())
        found.append(Input(name=name, text=text, proto=proto))
    real = compiled()
    assigned = real.buffer_assignment
    found.append(Input(name="real", text=real.text, proto=real.proto, buffer_assignment=assigned))
    return tuple(found)


def time_all(each: Input) -> bool:
    """Prints how long one module takes, and whether that is within the limit."""
    reading = measure(each.proto, each.buffer_assignment)
    found, seconds = reading.summary.instructions, min(reading.wall)
    _row(each.name, reading)
    limit = SECONDS_AT_MOST * found / INSTRUCTIONS
    return _verdict(f"{each.name}: {seconds:.3f} s", seconds, limit, f"{limit:.3f} s")


def time_beside_xprof(each: Input) -> bool:
    """Prints how long one module takes here and in xprof, in turns."""
    try:
        found = compare(each.text, each.proto, each.buffer_assignment)
    except NotMeasured as reason:
        sys.stdout.write(f"FAIL  {each.name}: {reason}\n")
        return False
    got = (
        f"{each.name}: text {found.text_seconds:.3f} s, proto {found.proto_seconds:.3f} s; "
        f"xprof {found.xprof_seconds:.3f} s ({found.xprof_lazy_seconds:.3f} s before its query): "
        f"{found.times:.2f} times xprof"
    )
    return _verdict(got, found.times, TIMES_XPROF_AT_MOST, f"{TIMES_XPROF_AT_MOST}")


def time_growth(name: str, per_loop: int) -> bool:
    """Prints how the time and the memory of an instruction grow with the module."""
    costs = []
    for instructions in SMALL_AND_LARGE:
        data = large_module(instructions, per_loop)
        reading = measure(data, readings=_LONG_READINGS)
        each = peak_kb(data) / reading.summary.instructions
        _row(name, reading, f"{each:>8.2f}")
        costs.append(reading.processor_per_instruction)
    times = costs[1] / costs[0]
    grew = _verdict(
        f"{name}: {times:.2f} times the time an instruction", times, TIMES_PER_INSTRUCTION_AT_MOST
    )
    return (
        _verdict(f"{name}: {each:.2f} kB an instruction", each, KB_PER_INSTRUCTION_AT_MOST) & grew
    )


def _row(name: str, reading: Reading, memory: str = "") -> None:
    sys.stdout.write(
        f"{name:10} {reading.summary.instructions:>12,} {min(reading.wall):>8.3f} "
        f"{median(reading.wall):>8.3f} {min(reading.processor):>8.3f} {memory}\n"
    )


def _verdict(got: str, number: float, at_most: float, limit: str = "") -> bool:
    passed = number <= at_most
    sys.stdout.write(f"{'PASS' if passed else 'FAIL'}  {got}, at most {limit or at_most}\n")
    return passed


def main() -> int:
    """Prints the table and the verdicts; 1 if a limit is passed over, or not measured."""
    modules = inputs()
    sys.stdout.write(
        f"{'':10} {'instructions':>12} {'min s':>8} {'median s':>8} {'cpu s':>8} {'kB each':>8}\n"
    )
    passed = [time_all(each) for each in modules]
    passed += [time_beside_xprof(each) for each in modules]
    passed += [time_growth("few loops", FEW_LOOPS), time_growth("many loops", MANY_LOOPS)]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
