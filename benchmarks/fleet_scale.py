"""What a fleet costs at scale: ``python -m benchmarks.fleet_scale [--run RUN] [--quick]``.

Prints the tables of docs/scaling.md:

1. Compilations: seconds of a program by target, from the evidence of a run (``--run``).
2. Scheduler: the ledger of ``assay fleet`` drives simulated machines in virtual time. They compile
   for as long as the programs of table 1 did. What it costs is its processor time for each item.
3. Driver: processor time of the real command for each item, with Ray, from two runs of empty tests.
4. Cost: 1,000 programs × 12 targets × 40 toolchains on N machines.
"""

import argparse
import heapq
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, quantiles
from typing import Final

from assay.fleet.ledger import Group, Ledger
from assay.fleet.messages import Ended, Message, Place, Started
from assay.model.units import Unit
from assay.model.verdict import RECORD_SCHEMA, Outcome, Record
from assay.store import evidence, records

PROGRAMS: Final = 1_000
TARGETS: Final = 12
TOOLCHAINS: Final = 40
VARIANTS: Final = 8
"""Compilations of a group: the variants of a workload on one target (the suites have 8.3)."""
WORKERS: Final = 8
"""Workers of a machine."""
START_SECONDS: Final = 20.0
"""A worker's session and its compilers, once for each toolchain (docs/scaling.md)."""
INSTALL_SECONDS: Final = 60.0
"""The environment of a toolchain, once for each machine."""
MACHINES: Final = (1, 10, 100, 1_000)
_SEED: Final = 21


@dataclass(slots=True)
class Simulated:
    """Workers in virtual time: each runs its groups one after another."""

    count: int
    seconds: Callable[[str], float]
    now: float = 0.0
    busy: float = 0.0
    _idle: deque[int] = field(default_factory=deque)
    _queue: deque[tuple[int, Group]] = field(default_factory=deque)
    _events: list[tuple[float, int, int, Message | None]] = field(default_factory=list)
    _order: int = 0
    _handles: int = 0
    _workers: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._idle.extend(range(self.count))

    def capacity(self) -> int:
        """How many workers there are."""
        return self.count

    def submit(self, group: Group) -> int:
        """Queue the group."""
        self._handles += 1
        self._queue.append((self._handles, group))
        self._start()
        return self._handles

    def _start(self) -> None:
        while self._idle and self._queue:
            worker, (handle, group) = self._idle.popleft(), self._queue.popleft()
            self._workers[handle] = worker
            name = f"machine-{worker // WORKERS}"
            self._push(self.now, handle, Started(place=Place(name=name, id=name)))
            at = self.now
            for item in group.items:
                lasts = self.seconds(item)
                at += lasts
                self.busy += lasts
                self._push(at, handle, Ended(item=item, reports=b"[]"))
            self._push(at, handle, None)

    def _push(self, at: float, handle: int, message: Message | None) -> None:
        self._order += 1
        heapq.heappush(self._events, (at, self._order, handle, message))

    def receive(
        self, handles: Collection[int], seconds: float
    ) -> Iterator[tuple[int, Message | None]]:
        """All messages of the next moment."""
        first = True
        while self._events and (first or self._events[0][0] <= self.now):
            self.now, _, handle, message = heapq.heappop(self._events)
            first = False
            if message is None:
                self._idle.append(self._workers.pop(handle))
                self._start()
            yield handle, message


def measured(run: Path) -> dict[str, list[float]]:
    """Seconds to trace, lower, compile and read each program that compiled, by target."""
    found: dict[str, list[float]] = defaultdict(list)
    for each in evidence.load_all(run):
        if each.memory is not None and not each.cached:
            spent = each.seconds
            found[each.target].append(spent.trace + spent.lower + spent.compile + spent.read)
    return dict(found)


def simulate(workers: int, items: int, samples: Sequence[float]) -> tuple[float, float, float]:
    """Virtual seconds, the share of them that workers are busy, and processor seconds per item."""
    chance = random.Random(_SEED)  # noqa: S311 -- a simulation.
    simulated = Simulated(workers, lambda _: chance.choice(samples))
    count = 0

    def report(message: Message, _place: Place | None, _following: str) -> None:
        nonlocal count
        count += isinstance(message, Ended)

    ledger = Ledger(report=report, lose=lambda *_: None, give_up=lambda *_: None)
    names = [f"i{number}" for number in range(items)]
    groups = [
        Group(items=tuple(names[start : start + VARIANTS])) for start in range(0, items, VARIANTS)
    ]
    start = time.process_time()
    ledger.run(groups, simulated)
    spent = time.process_time() - start
    assert count == items
    return simulated.now, simulated.busy / (simulated.now * workers), spent / items


_DRIVER: Final = """
import resource, sys
from assay.cli import app
try:
    app()
finally:
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(f"\\nprocessor {used.ru_utime + used.ru_stime:.3f} {used.ru_maxrss / 1024:.0f}")
"""


def driven(tests: int) -> tuple[float, float]:
    """Processor seconds and MiB of the driver of a real fleet that runs so many empty tests."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "pytest.ini").write_text("[pytest]\n")
        for number in range(tests // VARIANTS):
            body = "".join(f"def test_{each}():\n    pass\n" for each in range(VARIANTS))
            (folder / f"test_{number:05}.py").write_text(body)
        options = ["fleet", "--memory", "0", ".", "--", "-q", "-p", "no:cacheprovider"]
        ended = subprocess.run(  # noqa: S603 -- this interpreter, and arguments from here.
            [sys.executable, "-c", _DRIVER, *options],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if f"{tests} passed" not in ended.stdout:
            raise RuntimeError(ended.stdout[-2000:] + ended.stderr[-2000:])
        processor, mib = map(float, ended.stdout.rsplit("processor", 1)[1].split())
    return processor, mib


def stored(count: int = 500) -> float:
    """Wall seconds until a verdict is on disk, from so many."""
    record = Record(
        schema=RECORD_SCHEMA,
        run="20261125T100000-0000",
        suite="scan_offload",
        workload="scan_stack",
        variant="offload-hidden",
        claim="host-bytes",
        target="gpu-h100:8",
        toolchain={"jax": "0.12.0.1", "jaxlib": "0.12.0.1"},
        verdict=Outcome.PASSED,
        measured=1,
        limit=1,
        unit=Unit.BYTES,
        baseline=None,
        reason="host memory: 16.0 GiB, expected = 16.0 GiB (the stack)",
        advice="",
        upstream="",
        seconds=0.25,
    )
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        start = time.perf_counter()
        for _ in range(count):
            records.append(Path(folder), record)
        return (time.perf_counter() - start) / count


def cost(machines: int, compile_seconds: float, driver_seconds: float, busy: float) -> list[str]:
    """A row of the table of costs: one run for each toolchain, one after another."""
    items = PROGRAMS * TARGETS
    workers = machines * WORKERS
    work = items * compile_seconds / workers / busy
    one = INSTALL_SECONDS + START_SECONDS + work
    head = items * driver_seconds
    lasts = TOOLCHAINS * max(one, head)
    return [
        f"{machines:,}",
        f"{lasts / 3600:,.1f} h",
        f"{TOOLCHAINS * (INSTALL_SECONDS + START_SECONDS) / lasts:.0%}",
        f"{TOOLCHAINS * head / lasts:.0%}",
    ]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print Markdown."""
    print("|", " | ".join(heads), "|")  # noqa: T201
    print("|", " | ".join("---" for _ in heads), "|")  # noqa: T201
    for row in rows:
        print("|", " | ".join(row), "|")  # noqa: T201
    print()  # noqa: T201


def main(arguments: Sequence[str]) -> int:
    """Measure, and print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, help="the folder of a run without cache")
    parser.add_argument("--quick", action="store_true", help="fewer items, no real fleet")
    asked = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f}, {time.strftime('%Y-%m-%d')}\n")  # noqa: T201

    found = measured(asked.run) if asked.run else {"assumed": [0.5, 1.0, 4.0]}
    rows = [
        [name, str(len(each)), *(f"{value:.2f}" for value in (mean(each), *_quartiles(each)))]
        for name, each in sorted(found.items())
    ]
    table(("target", "programs", "mean s", "lower quartile", "median", "upper quartile"), rows)
    samples = [seconds for each in found.values() for seconds in each]

    per_worker = 12 if asked.quick else 60
    busy: dict[int, float] = {}
    rows = []
    for machines in MACHINES:
        workers = machines * WORKERS
        lasts, share, overhead = simulate(workers, workers * per_worker, samples)
        busy[machines] = simulate(workers, PROGRAMS * TARGETS, samples)[1]
        rows.append(
            [
                f"{machines:,}",
                f"{workers * per_worker:,}",
                f"{lasts:,.0f} s",
                f"{share:.1%}",
                f"{overhead * 1e6:.1f} µs",
            ]
        )
    table(("machines", "items", "lasts", "workers busy", "scheduler, per item"), rows)

    driver = 0.01
    if not asked.quick:
        few, many = 200, 2_200
        (base, _), (whole, mib) = driven(few), driven(many)
        messages, disk = (whole - base) / (many - few), stored()
        driver = messages + disk
        row = [f"{base:.1f} s", f"{whole:.1f} s", f"{messages * 1e3:.2f} ms"]
        rows = [[*row, f"{disk * 1e3:.2f} ms", f"{mib:.0f} MiB"]]
        heads = (f"{few} items", f"{many:,} items", "messages, per item", "record on disk")
        table((*heads, "memory"), rows)

    each = mean(samples)
    rows = [cost(machines, each, driver, busy[machines]) for machines in MACHINES]
    table(("machines", "480,000 compilations", "installing and starting", "head node busy"), rows)
    limit = each / driver
    print(f"The head node is busy at {limit:,.0f} workers: {limit / WORKERS:,.0f} machines.")  # noqa: T201
    return 0


def _quartiles(values: Sequence[float]) -> Sequence[float]:
    return quantiles(values, n=4)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
