"""``python -m benchmarks.startup_time``: what the installed plugin adds to a project without Assay.

Runs pytest on 500 trivial tests with and without the plugin, in alternating pairs of processes.
Ends with 1 if the median difference exceeds ``MOST_SECONDS``.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

MOST_SECONDS: Final = 0.1
_TESTS: Final = 500
_WITHOUT: Final = ("-p", "no:assay")


def main() -> int:
    """Prints the medians and their difference."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=15, help="of pytest with and without it")
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "test_trivial.py"
        file.write_text("".join(f"def test_{number}(): pass\n" for number in range(_TESTS)))
        _seconds(folder)  # Compiles what is imported.
        times = [(_seconds(folder), _seconds(folder, *_WITHOUT)) for _ in range(pairs)]
    with_it, without = (median(side) for side in zip(*times, strict=True))
    added = median(ours - theirs for ours, theirs in times)
    sys.stdout.write(
        f"pytest on {_TESTS} tests: {with_it:.2f} s with the plugin, {without:.2f} s without; "
        f"median difference of {pairs} pairs {added:+.3f} s (limit: {MOST_SECONDS} s)\n"
    )
    return 0 if added <= MOST_SECONDS else 1


def _seconds(folder: str, *options: str) -> float:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)  # noqa: S603 - our words
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
