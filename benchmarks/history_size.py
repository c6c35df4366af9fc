"""``python -m benchmarks.history_size``: ``assay history`` on 1.5 million verdicts.

Writes the records of many nightly runs, adds each to a database as ``assay history --add`` does,
and then runs ``assay history CLAIM`` in new processes. Ends with 1 if the median exceeds
``MOST_SECONDS``.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from assay.model.units import Unit
from assay.model.verdict import RECORD_SCHEMA, Outcome, Record
from assay.store.history import opened
from assay.store.records import FILE_NAME, line_of

MOST_SECONDS: Final = 2.0
BYTES_CLAIM: Final = "claim-0"
TIMES_CLAIM: Final = "time-ratio"
_CLAIMS: Final = (*(f"claim-{number}" for number in range(14)), TIMES_CLAIM)
_PROGRAMS: Final = 10
_TARGETS: Final = 10
RECORDS: Final = len(_CLAIMS) * _PROGRAMS * _TARGETS
_QUESTIONS: Final = 5
_FIRST: Final = datetime(2024, 1, 1, 2, 15, tzinfo=UTC)
_NIGHTS_OF_A_RELEASE: Final = 30


def nightly(night: int) -> Iterator[Record]:
    """The records of a night: bytes that few releases change, and times with noise of 1 %."""
    chance = np.random.default_rng(night)
    release = night // _NIGHTS_OF_A_RELEASE
    run = f"{_FIRST + timedelta(days=night):%Y%m%dT%H%M%S}-{night:04x}"
    for place in range(RECORDS):
        rest, claim = divmod(place, len(_CLAIMS))
        target, program = divmod(rest, _PROGRAMS)
        is_time = _CLAIMS[claim] == TIMES_CLAIM
        size = 2**30 * (1 + (release > 0 and release % (place % 97 + 2) == 0))
        fails = not is_time and size > 2**30
        yield Record(
            schema=RECORD_SCHEMA,
            run=run,
            suite=f"suite-{program // 5}",
            workload=f"workload-{program % 5}",
            variant="variant",
            claim=_CLAIMS[claim],
            target=f"target-{target}",
            toolchain={"jax": f"0.{release}.0", "jaxlib": f"0.{release}.0"},
            verdict=Outcome.FAILED if fails else Outcome.PASSED,
            measured=float(np.exp(chance.normal(0, 0.01))) if is_time else size,
            limit=2**30,
            unit=Unit.RATIO if is_time else Unit.BYTES,
            baseline=None,
            reason=f"temporaries: {size} bytes, at most {2**30}",
            advice="",
            upstream="",
            seconds=0.5,
        )


def fill(database: str, nights: int) -> float:
    """Add so many nights; returns the median seconds of one."""
    seconds = []
    with tempfile.TemporaryDirectory() as folder, opened(database) as history:
        for night in range(nights):
            (Path(folder) / FILE_NAME).write_bytes(b"".join(map(line_of, nightly(night))))
            start = time.perf_counter()
            history.add(Path(folder))
            seconds.append(time.perf_counter() - start)
    return median(seconds)


def ask(database: str, claim: str) -> tuple[float, float]:
    """Median seconds of ``assay history CLAIM``: of the whole process, and of the processor.

    The first is that of a reader. On a busy machine it contains the work of others.
    """
    command = [sys.executable, "-m", "assay.cli", "history", claim, "--db", database]
    seconds, processor = [], []
    for _ in range(_QUESTIONS):
        start, before = time.perf_counter(), os.times()
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603 -- our words
        seconds.append(time.perf_counter() - start)
        after = os.times()
        used = after.children_user + after.children_system
        processor.append(used - before.children_user - before.children_system)
    return median(seconds), median(processor)


def main() -> int:
    """Prints the figures and PASS or FAIL."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--nights", type=int, default=1000, help=f"of {RECORDS} records each")
    parser.add_argument("--db", default="", help="an empty database; default: a new file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = given.db or str(Path(folder) / "history.db")
        added = fill(database, given.nights)
        sys.stdout.write(f"{given.nights} runs of {RECORDS} records: {added:.3f} s to add one\n")
        if not given.db:
            size = (Path(folder) / "history.db").stat().st_size
            sys.stdout.write(f"the file has {size / 2**20:.0f} MiB\n")
        slowest = 0.0
        for claim in (BYTES_CLAIM, TIMES_CLAIM):
            seconds, processor = ask(database, claim)
            slowest = max(slowest, seconds)
            sys.stdout.write(
                f"assay history {claim}: {seconds:.2f} s, of the processor {processor:.2f} s\n"
            )
    passed = slowest <= MOST_SECONDS
    sys.stdout.write(f"{'PASS' if passed else 'FAIL'}  at most {MOST_SECONDS} s\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
