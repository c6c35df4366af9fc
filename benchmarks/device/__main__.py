"""Measurements on a live GPU: ``python -m benchmarks.device FOLDER``.

Runs the suites, their programs' memory and transfers, upstream's scan offload at full size, memsafe
and hand-written versions, and the error rates of timings. Writes everything to FOLDER. Programs
that FOLDER has are not run again; the suites, the error rates and the random programs are. Prints
tables last. ``--programs N`` runs memsafe's random programs in N processes, which compile most of
the time.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from math import inf
from pathlib import Path
from typing import Final

from benchmarks.device.offload import VARIANTS
from benchmarks.device.programs import AGAIN
from benchmarks.device.tables import tables

_PARTS: Final = {"programs": 4, "peers": 6}
"""Number of processes of a stage. They share the GPU."""

_STAGES: Final = ("suites", "programs", "offload", "peers", "large", "times", "alarms", "random")
_TOGETHER: Final = (
    ("suites", "programs"),
    ("peers",),
    ("large",),
    ("offload",),
    ("times",),
    ("alarms",),
    ("random",),
)
"""Groups of stages, in the order in which they run. The stages of a group share the GPU."""

_NO_GRAPHS: Final = "--xla_gpu_enable_command_buffer="
_BY_FLAGS: Final = (
    ("offload-residual-input", _NO_GRAPHS),
    ("memsafe", _NO_GRAPHS),
)
"""Variants compiled once more without CUDA graphs.

In a CUDA graph, transfers and kernels run one after another.
"""

_GRACE_S: Final = 10.0


def _memory(fraction: float) -> dict[str, str]:
    """JAX settings of a process that allocates up to ``fraction`` of the GPU's memory as needed."""
    return {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": str(fraction),
    }


_SHARE, _THIRD, _WHOLE = _memory(0.15), _memory(0.3), _memory(0.92)
_UNTUNED: Final = {**_memory(0.05), "XLA_FLAGS": "--xla_gpu_autotune_level=0"}


@dataclass(kw_only=True)
class Job:
    """A command that may have to run several times; its output is appended to ``log``."""

    command: Sequence[str]
    log: Path
    settings: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run the command in a process group of its own."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - its own words
                self.command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.settings},
                start_new_session=True,
            )

    def is_done(self) -> bool:
        """Whether the command has ended; if it exits with `AGAIN`, it is started again."""
        assert self.process is not None
        code = self.process.poll()
        if code == AGAIN:
            self.start()
        return code is not None and code != AGAIN

    def stop(self) -> None:
        """End the command, first with SIGINT, then with SIGKILL."""
        assert self.process is not None
        for sent in (signal.SIGINT, signal.SIGKILL):
            if self.process.poll() is None:
                os.killpg(self.process.pid, sent)
                try:
                    self.process.wait(_GRACE_S)
                except subprocess.TimeoutExpired:
                    continue


def jobs(stage: str, options: argparse.Namespace, more: Sequence[str]) -> Iterator[Job]:
    """The commands of a stage that run at the same time; ``more`` are arguments of pytest."""
    folder: Path = options.folder

    def job(name: str, *words: str, memory: dict[str, str] = _SHARE) -> Job:
        command = (sys.executable, "-u", "-m", *words)
        return Job(command=command, log=folder / f"{name}.log", settings=memory)

    if stage in ("suites", "times"):
        # In reverse order, so that tensor_splitting, whose programs take the longest, runs first.
        chosen = sorted(map(str, Path("suites").glob("*/test_*.py")), reverse=True)
        wanted = [each for each in chosen if ("test_time" in each) == (stage == "times")]
        workers = "--assay-timing-seconds=2" if stage == "times" else "-n=12"
        results = f"--assay-results-dir={folder / stage}"
        target = ("--assay-target=gpu", "--assay-level=device", results)
        known = entry_points(group="pytest11", name="assay")
        plugin = () if known else ("-p", "assay.plugin")
        yield job(stage, "pytest", *plugin, *wanted, *target, "-q", workers, *more)
    elif stage in _PARTS:
        for part in range(1, _PARTS[stage] + 1):
            file = folder / f"{stage}-{part}.jsonl"
            of_part = (f"benchmarks.device.{stage}", str(file), "--part", f"{part}/{_PARTS[stage]}")
            if stage == "programs":
                yield job(file.stem, *of_part)
            else:
                yield job(file.stem, *of_part, "--lock", str(folder / "lock"), memory=_THIRD)
    elif stage == "large":
        file = folder / "large.jsonl"
        yield job(stage, "benchmarks.device.peers", str(file), "--large", memory=_WHOLE)
    elif stage == "alarms":
        words = ("benchmarks.timing_alarms", "--platform", "cuda", "--seconds", "45")
        yield job(stage, *words, memory=_WHOLE)
    elif stage == "random":
        yield from random_programs(folder, options.programs)


def offload(folder: Path) -> Iterator[Job]:
    """A job for each variant that ``folder`` lacks; each runs alone on the GPU."""
    file = folder / "offload.jsonl"
    known = file.read_text() if file.exists() else ""
    for variant, flags in (*((each, "") for each in VARIANTS), *_BY_FLAGS):
        name = f"{variant} {flags}".strip()
        if f'"{name}"' not in known:
            of = ("benchmarks.device.offload", str(file), "--variant", variant, "--name", name)
            command = (sys.executable, "-u", "-m", *of)
            settings = {**_WHOLE, **({"XLA_FLAGS": flags} if flags else {})}
            yield Job(command=command, log=folder / "offload.log", settings=settings)


def random_programs(folder: Path, count: int) -> Iterator[Job]:
    """Memsafe's random programs, from other seeds in each process."""
    for at in range(count):
        seed = ("--seed", str(400_000 + 10_000 * at), "--count", "10000")
        command = (sys.executable, "-u", "-m", "benchmarks.memsafe_programs", *seed)
        yield Job(command=command, log=folder / f"random-{at}.log", settings=_UNTUNED)


def run(some: Sequence[Job], until: float) -> None:
    """Run jobs at the same time, and stop them at ``until`` at the latest."""
    for job in some:
        job.start()
    going = list(some)
    while going and time.monotonic() < until:
        time.sleep(0.2)
        going = [job for job in going if not job.is_done()]
    for job in some:
        job.stop()


def main() -> int:
    """Runs the stages, and prints the results in FOLDER."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stages", default=",".join(_STAGES), help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=3600.0, help="of all stages together")
    parser.add_argument("--most", default="", help="of single stages, such as suites=120,times=60")
    parser.add_argument("--programs", type=int, default=0, help="processes of random programs")
    parser.add_argument("--pytest", default="", help="more words for the suites' pytest")
    options = parser.parse_args()
    wanted = options.stages.split(",")
    if unknown := set(wanted) - {*_STAGES, ""}:
        parser.error(f"got stages {sorted(unknown)}; wanted some of {', '.join(_STAGES)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    pairs = (each.split("=") for each in options.most.split(",") if each)
    most = {stage: float(seconds) for stage, seconds in pairs}
    begun = time.monotonic()
    end = begun + options.seconds
    words = shlex.split(options.pytest)
    for together in _TOGETHER:
        stages = [stage for stage in together if stage in wanted]
        until = min(end, time.monotonic() + min([most.get(each, inf) for each in stages] or [inf]))
        if "offload" in stages:
            for job in offload(options.folder):
                run([job], until)
                if time.monotonic() > until:
                    break
        else:
            run([job for stage in stages for job in jobs(stage, options, words)], until)
        if stages:
            sys.stdout.write(f"{' and '.join(stages)}: {time.monotonic() - begun:.0f} s\n")
            sys.stdout.flush()
    sys.stdout.write("\n".join(tables(options.folder)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
