"""What the harness costs beside the compilers: ``python -m benchmarks.harness_overhead``.

Runs part of the suites serially, as a user would, and divides the wall time of the whole run by
the time that its programs spent in trace, lower, compile and execute. Start-up is part of the run:
jax is imported and the targets are made in pytest's process and in the observer's.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from assay.model.evidence import Evidence
from assay.store.evidence import load_all

TIMES_AT_MOST: Final = 1.25
_TARGETS: Final = "gpu-h100:8,tpu-v5p:2x2x2,cpu:8"
_PROGRAMS: Final = "block and not full and (outside or nested or unroll or loop)"
_RAN: Final = (0, 1)  # pytest's exit codes of a run that finished: all passed, some failed


def main() -> int:
    """Prints the ratio and the parts of it; 1 if it is over the limit."""
    arguments = _parser().parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pytest = [
            *(sys.executable, "-m", "pytest", "suites", "-q", "-p", "no:cacheprovider"),
            *("-k", arguments.programs, "--assay-target", arguments.targets),
            *("--assay-results-dir", folder),
        ]
        collecting = _seconds([*pytest, "--collect-only"])
        observer = _seconds([sys.executable, "-m", "assay.isolate", *arguments.targets.split(",")])
        wall = _seconds(pytest)
        found = load_all(Path(folder) / "latest")
    sys.stdout.write(_report(found, wall, collecting, observer))
    return 0 if found and wall <= TIMES_AT_MOST * _toolchain_seconds(found) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--targets", default=_TARGETS, help="as pytest's --assay-target")
    parser.add_argument("--programs", default=_PROGRAMS, help="as pytest's -k")
    return parser


def _seconds(command: Sequence[str]) -> float:
    """The wall time of a command.

    Raises:
        RuntimeError: it did not finish.
    """
    start = time.perf_counter()
    # The command is this interpreter with arguments from the command line's user.
    done = subprocess.run(  # noqa: S603
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    spent = time.perf_counter() - start
    if done.returncode not in _RAN:
        raise RuntimeError(
            f"got exit code {done.returncode} from {' '.join(command)}, wanted a finished run; "
            f"stderr tail: {(done.stdout + done.stderr)[-2000:]}"
        )
    return spent


def _toolchain_seconds(found: Sequence[Evidence]) -> float:
    stages = [each.seconds for each in found]
    return sum(each.trace + each.lower + each.compile + each.execute for each in stages)


def _report(found: Sequence[Evidence], wall: float, collecting: float, observer: float) -> str:
    bare, reading = _toolchain_seconds(found), sum(each.seconds.read for each in found)
    rest = wall - bare - reading - collecting - observer
    times = wall / bare if bare else float("inf")
    rows = [
        (f"the whole run, {len(found)} programs", wall),
        ("toolchain: trace, lower, compile, execute", bare),
        ("start of pytest, jax and the targets; collection", collecting),
        ("start of the observer's process", observer),
        ("reading modules", reading),
        ("the rest: jaxprs, devices, evidence, judging", rest),
    ]
    lines = [f"{words:50} {seconds:>8.2f} s" for words, seconds in rows]
    verdict = "PASS" if times <= TIMES_AT_MOST else "FAIL"
    lines.append(f"{verdict}  {times:.3f} times the toolchain's time, at most {TIMES_AT_MOST}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
