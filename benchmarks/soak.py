"""``python -m benchmarks.soak``: 24 hours of work for one worker, its child, records and cache.

Drives as many tiny programs as a worker judges in 24 hours of a nightly run, in one pytest run with
``-n 1``. Samples the memory, open files and threads of pytest, of the worker and of the child, and
the size of the cache. Ends with 1 if one of them grows, or if the planted leak is not found.
"""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from scipy.stats import theilslopes

from assay.isolate.memory import held_bytes_of
from assay.store.compile_cache import MOST_PROGRAM_BYTES

# docs/nightly.md: 1,755 programs in 65 minutes with 2 workers, so 4.44 s each for one worker.
SECONDS_OF_A_PROGRAM: Final = 65 * 60 * 2 / 1755
ITEMS_OF_24_HOURS: Final = round(24 * 3600 / SECONDS_OF_A_PROGRAM)
# Bytes per program. pytest keeps a report of each test: with 8,000 empty tests, pytest 9 and xdist
# grow by 6.4 KB per test, the worker by 3.8 KB. The child keeps nothing.
MOST_GROWTH_BYTES: Final = {"pytest": 10_000, "worker": 8_000, "child": 1_000}
LEAK_BYTES: Final = 32 * 1024
_LEAK_ITEMS: Final = 1500
_PROGRAMS_OF_A_WORKLOAD: Final = 10
_WARM_SHARE: Final = 0.2
_BLOCKS: Final = 40
_CONFIDENCE: Final = 0.99
_SAMPLE_SECONDS: Final = 1.0
_FILLER_BYTES: Final = 2**20
_MIB: Final = 2**20
ROLES: Final = ("pytest", "worker", "child")

SUITE: Final = """
import sys
import jax, jax.numpy as jnp
from assay import Check, Program, Role, Variant, Workload, claims

LEAK_BYTES = {leak}

def program(number):
    def build(devices):
        if LEAK_BYTES:
            # Globals of this file are sent by value; only a module of the child's own keeps them.
            kept = vars(sys).setdefault("kept", [])
            kept.append((bytearray(LEAK_BYTES), open("/dev/null") if number % 8 == 0 else None))
        return Program(
            function=lambda x: x * number,
            arguments=(jax.ShapeDtypeStruct((8 + number % 64,), jnp.float32),),
        )
    return build

def variant(number):
    return Variant(name=f"v{{number}}", role=Role.CONTROL, program=program(number))

def workload(first):
    numbers = range(first, min(first + {width}, {items}))
    return Workload(suite="soak", name=f"w{{first}}", variants=tuple(map(variant, numbers)))

WORKLOADS = tuple(map(workload, range(0, {items}, {width})))
test_compiles = Check(claim=claims.Compiles(), workloads=WORKLOADS)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One process after so many programs: the memory that it holds, its open files and threads."""

    items: int
    held_bytes: int
    files: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The growth of a number in 24 hours: Theil-Sen slope with the bounds of its confidence."""

    first: float
    last: float
    growth: float
    low: float
    high: float


@dataclass(slots=True, kw_only=True)
class Soaked:
    """All samples of a run, its exit code, seconds, and the largest size of its cache."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    exit_code: int = 0
    seconds: float = 0.0
    cache_bytes: int = 0
    records: int = 0
    interrupted: bool = False


def soak(folder: Path, items: int, *, most_seconds: float, leak_bytes: int = 0) -> Soaked:
    """Judge so many programs in one run, and look at its processes once a second.

    After ``most_seconds`` the run is interrupted, as by Ctrl-C.
    """
    text = SUITE.format(leak=leak_bytes, items=items, width=_PROGRAMS_OF_A_WORKLOAD)
    (folder / "test_soak.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    cache = folder / "cache" / "assay" / "compiled"
    _fill(cache)
    found = Soaked(samples={role: [] for role in ROLES})
    start = time.monotonic()
    with (folder / "output").open("wb") as output:
        run = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-n", "1", "--assay-target", "cpu"],
            cwd=folder,
            env=_environment(folder),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        while run.poll() is None:
            _look(run.pid, folder, found)
            time.sleep(_SAMPLE_SECONDS)
            if time.monotonic() - start > most_seconds and not found.interrupted:
                found.interrupted = True
                run.send_signal(signal.SIGINT)
            if len(found.samples["child"]) % 10 == 0:
                found.cache_bytes = max(found.cache_bytes, _size(cache))
    found.exit_code, found.seconds = run.returncode, time.monotonic() - start
    found.records = _records(folder)
    return found


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: each for name, each in os.environ.items() if name not in {"CI", "ASSAY_NO_CACHE"}}
    root = str(Path(__file__).parents[1])
    return {**kept, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": root}


def _fill(cache: Path) -> None:
    """Fill the cache almost to its bound with old files that hold nothing."""
    cache.mkdir(parents=True)
    # Until the first program evicts, 16 may be added.
    for number in range(MOST_PROGRAM_BYTES // _FILLER_BYTES - 1):
        path = cache / f"filler-{number}"
        path.touch()
        os.truncate(path, _FILLER_BYTES)
        os.utime(path, (1, number))


def _size(folder: Path) -> int:
    total = 0
    for entry in os.scandir(folder):
        try:
            total += entry.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _records(folder: Path) -> int:
    files = list((folder / "results").glob("2*/records.jsonl"))
    return files[0].read_bytes().count(b"\n") if files else 0


def _look(controller: int, folder: Path, found: Soaked) -> None:
    items = _records(folder)
    if not items:
        return
    for role, pid in _processes(controller):
        try:
            sample = Sample(
                items=items,
                held_bytes=held_bytes_of(str(pid)),
                files=_count(f"/proc/{pid}/fd"),
                threads=_count(f"/proc/{pid}/task"),
            )
        except OSError:
            continue
        found.samples[role].append(sample)


def _processes(controller: int) -> Iterator[tuple[str, int]]:
    """pytest, its worker, and the worker's child."""
    yield "pytest", controller
    pids = [each.name for each in Path("/proc").iterdir() if each.name.isdigit()]
    parents = {int(each): _parent(each) for each in pids}
    for worker in (pid for pid, parent in parents.items() if parent == controller):
        yield "worker", worker
        for child in (pid for pid, parent in parents.items() if parent == worker):
            yield "child", child


def _count(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())


def _parent(pid: str) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def trend(samples: Sequence[Sample], name: str) -> Trend:
    """The growth in 24 hours after the warm-up, from the medians of blocks of samples."""
    last = samples[-1].items
    steady = [each for each in samples if each.items >= last * _WARM_SHARE]
    size = max(1, len(steady) // _BLOCKS)
    blocks = [steady[place : place + size] for place in range(0, len(steady), size)]
    x = [median(each.items for each in block) for block in blocks]
    y = [float(median(getattr(each, name) for each in block)) for block in blocks]
    # Of equal numbers it gives no bounds, by a rounding error.
    slope, _, low, high = theilslopes(y, x, alpha=_CONFIDENCE) if min(y) < max(y) else (0, 0, 0, 0)
    bounds = (float(each) * ITEMS_OF_24_HOURS for each in (slope, low, high))
    growth, low, high = bounds
    return Trend(first=y[0], last=y[-1], growth=growth, low=low, high=high)


def judged(found: Soaked) -> list[str]:
    """What grows, in words; empty if nothing does."""
    wrong: list[str] = []
    for role, samples in found.samples.items():
        most_bytes = MOST_GROWTH_BYTES[role] * ITEMS_OF_24_HOURS
        for name, most in (("held_bytes", most_bytes), ("files", 1), ("threads", 1)):
            seen = trend(samples, name)
            if seen.low > most:
                wrong.append(f"{role}: {name} grow by {seen.growth:,.0f} in 24 hours")
    if found.cache_bytes > MOST_PROGRAM_BYTES:
        wrong.append(f"the cache holds {found.cache_bytes:,} bytes")
    return wrong


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def table(found: Soaked) -> str:
    """The samples of a run as a table in Markdown."""
    rows = [
        "| Process | Number | First | Last | Growth in 24 h (99 % bounds) |",
        "|---|---|---|---|---|",
    ]
    for role, samples in found.samples.items():
        for name, unit, scale in (
            ("held_bytes", "MiB", _MIB),
            ("files", "", 1),
            ("threads", "", 1),
        ):
            seen = trend(samples, name)
            first, last, growth, low, high = (
                each / scale for each in (seen.first, seen.last, seen.growth, seen.low, seen.high)
            )
            label = {"held_bytes": "memory held", "files": "open files", "threads": "threads"}[name]
            rows.append(
                f"| {role} | {label} {unit} | {first:.1f} | {last:.1f} | "
                f"{growth:+.1f} ({low:+.1f} to {high:+.1f}) |"
            )
    return "\n".join(rows)


def main() -> int:
    """Soak, then plant a leak; 1 if something grows or the leak is not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=ITEMS_OF_24_HOURS)
    parser.add_argument("--most-seconds", type=float, default=math.inf, help="interrupt it then")
    parser.add_argument("--samples", type=Path, help="write the samples to this file")
    parser.add_argument("--only", choices=("soak", "leak"), help="one of the two parts")
    given = parser.parse_args()
    _say(f"24 hours of one worker: {ITEMS_OF_24_HOURS:,} programs of {SECONDS_OF_A_PROGRAM:.2f} s")
    wrong: list[str] = []
    if given.only != "leak":
        wrong += _soaked(given.items, given.most_seconds, given.samples)
    if given.only != "soak":
        wrong += _leaked()
    _say("\n".join(["FAIL", *wrong]) if wrong else "PASS")
    return 1 if wrong else 0


def _soaked(items: int, most_seconds: float, samples: Path | None) -> list[str]:
    """Soak; returns what is wrong."""
    with tempfile.TemporaryDirectory(prefix="soak-") as text:
        found = soak(Path(text), items, most_seconds=most_seconds)
        if samples:
            samples.write_text(json.dumps(asdict(found)["samples"]))
        if found.exit_code and not found.interrupted:
            _say((Path(text) / "output").read_text()[-2000:])
    hours = found.records * SECONDS_OF_A_PROGRAM / 3600
    how = "interrupted" if found.interrupted else f"exit code {found.exit_code}"
    _say(f"{found.records:,} verdicts ({hours:.1f} hours) in {found.seconds:.0f} s, {how}")
    _say(table(found))
    _say(f"largest cache: {found.cache_bytes:,} of {MOST_PROGRAM_BYTES:,} bytes")
    whole = found.interrupted or (found.records == items and not found.exit_code)
    return [*judged(found), *([] if whole else ["the run failed"])]


def _leaked() -> list[str]:
    """Plant a leak; returns what is wrong: it is not found."""
    with tempfile.TemporaryDirectory(prefix="soak-") as text:
        found = soak(Path(text), _LEAK_ITEMS, most_seconds=math.inf, leak_bytes=LEAK_BYTES)
    leaks = judged(found)
    _say(f"planted leak of {LEAK_BYTES // 1024} KiB and 1/8 file per program: {leaks}")
    planted = {"child: held_bytes", "child: files"}
    seen = {each.partition(" grow")[0] for each in leaks}
    return [] if planted <= seen else ["the planted leak is not found"]


if __name__ == "__main__":
    sys.exit(main())
