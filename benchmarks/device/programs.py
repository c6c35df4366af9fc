"""The suites' programs, each run once: ``python -m benchmarks.device.programs FILE --target gpu``.

Measures of each program the compiler's figures, the most device memory in use in its run, and a
profile of the run. A compile-only target gives the compiler's figures alone. Writes one line of
JSON for each program. Programs that FILE has are not run again.

The allocator reports the peak bytes of the whole process. So before each run, memory is taken until
the run must exceed the peak so far. A process that has no room for that exits with 75, and the
next process continues.
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import jax  # noqa: TID251 - the suites' programs are run here.
import jax.numpy as jnp  # noqa: TID251
import numpy as np

from assay import Level, Program, Variant, Workload
from assay.frameworks.framework import Compiled, Framework, built
from assay.frameworks.installed import framework
from assay.hlo.schema import split
from assay.hlo.summary import read
from assay.model.summary import full_buffer_writes_in_loops
from assay.targets import resolve
from assay.targets.jax_internals import compile_with_dump
from benchmarks.device.profiles import profiled

AGAIN: Final = 75
"""The exit code of a process without room for another measurement (EX_TEMPFAIL)."""

_SUITES: Final = ("scan_offload", "dus_remat", "tensor_splitting", "sharded_scan")
_MODULES: Final = ("workloads", "executed")
_TIMED_RUNS: Final = 5
_ROOM: Final = 0.9
"""Maximum share of the allocator's memory that measurements use."""

_LEAST_COPY: Final = 2**16
"""Minimum bytes of an array whose copies in loops are counted."""


class NoRoomError(Exception):
    """The memory taken so far leaves no room for this program."""


def programs(target: str) -> Iterator[tuple[Workload, Variant]]:
    """The variants of the suites that a live GPU runs, each once."""
    seen = set()
    for suite in _SUITES:
        for name in _MODULES:
            try:
                module = importlib.import_module(f"suites.{suite}.{name}")
            except ModuleNotFoundError:
                continue
            for workload in _workloads(vars(module).values()):
                for variant in workload.variants:
                    key = workload.key(variant.name, target)
                    tried = workload.tries(variant, "gpu", Level.DEVICE)
                    if workload.framework == "jax" and tried and key not in seen:
                        seen.add(key)
                        yield workload, variant


def _workloads(values: Any) -> Iterator[Workload]:
    for value in values:
        if isinstance(value, Workload):
            yield value
        elif isinstance(value, tuple):
            yield from _workloads(value)


def seen(tools: Framework, variant: Variant, meter: "Meter | None") -> dict[str, Any]:
    """Measures of a program: bytes, and with a ``meter`` also seconds and a profile of its run."""
    program = built(variant, tools.devices)
    if program.function is None:
        return {"skipped": "no function"}
    with (program.context or nullcontext)():
        return _seen(tools, program, meter)


def _seen(tools: Framework, program: Program, meter: "Meter | None") -> dict[str, Any]:
    start = time.perf_counter()
    with tools.machine():
        lowered = tools.lower(tools.trace(program))
        traced = time.perf_counter()
        compiled, dumped = compile_with_dump(
            lambda options: lowered.compile(compiler_options=options)
        )
    found: dict[str, Any] = {"trace_s": traced - start, "compile_s": time.perf_counter() - traced}
    kept = Compiled(compiled.runtime_executable(), dumped)
    memory = kept.memory()
    summary = read(*split(kept.hlo_proto()), platform=tools.platform)
    in_loops = full_buffer_writes_in_loops(summary.full_buffer_writes, _LEAST_COPY)
    written = [each.nbytes_per_run for each in in_loops if not each.in_place]
    found |= {
        "compiler": asdict(memory),
        "peak_bytes": summary.peak and summary.peak.nbytes,
        "to_host_bytes": summary.to_host_bytes_per_run,
        "to_device_bytes": summary.to_device_bytes_per_run,
        "copied_in_loops_bytes": None if None in written else sum(filter(None, written)),
    }
    if meter:
        found |= _run(program, compiled, meter, memory.device_bytes)
    return found


def _run(program: Program, compiled: Any, meter: "Meter", expected: int) -> dict[str, Any]:
    shardings = compiled.input_shardings[0]
    values = program.values() if program.values else _random(program.arguments)
    infos = jax.tree.leaves(compiled.args_info, is_leaf=lambda it: hasattr(it, "donated"))

    def placed() -> Any:
        return jax.block_until_ready(jax.device_put(values, shardings, may_alias=False))

    given = placed()
    arguments = placed if any(each.donated for each in infos) else lambda: given
    own = sum(int(leaf.nbytes) for leaf in jax.tree.leaves(given) if not _on_host(leaf))

    def run() -> None:
        jax.block_until_ready(compiled(*made[0]))

    made = [arguments()]
    extra = meter.most_of(run, expected - own, lambda: made.__setitem__(0, arguments()))
    seconds = []
    for _ in range(_TIMED_RUNS):
        made[0] = arguments()
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    made[0] = arguments()
    return {
        "measured_bytes": extra and own + extra,
        "seconds": seconds,
        "median_s": median(seconds),
        "profile": profiled(run),
    }


@dataclass(slots=True, kw_only=True)
class Meter:
    """Measures the peak memory of a run, by an allocator that reports only the process's peak.

    ``stats`` returns the allocator's figures, ``take`` allocates a number of bytes. ``held`` keeps
    what was taken, so that the next run exceeds the peak so far and can be measured.
    """

    stats: Callable[[], Mapping[str, int]]
    take: Callable[[int], Any]
    held: list[Any] = field(default_factory=list)

    def most_of(
        self, run: Callable[[], None], expected: int, before: Callable[[], None]
    ) -> int | None:
        """The most bytes in use during ``run`` beyond those before it; None if it sets no peak.

        ``before`` prepares another run. Raises NoRoomError if memory runs out and this process
        holds some for earlier measurements, because then a new process has more room.
        """
        for part in (0.9, 0.0):  # Leave room below the peak for 0.9 of what is expected; then none.
            before()
            known = self.stats()
            missing = known["peak_bytes_in_use"] - known["bytes_in_use"]
            missing = max(0, missing - int(part * max(0, expected)))
            total = known["bytes_in_use"] + missing + max(0, expected)
            if total > _ROOM * known["bytes_limit"] and self.held:
                raise NoRoomError
            if missing:
                self.held.append(self.take(missing))
            known = self.stats()
            run()
            most = self.stats()["peak_bytes_in_use"]
            if most > known["peak_bytes_in_use"]:
                return most - known["bytes_in_use"]
        return None


def _taken(nbytes: int) -> jax.Array:
    return jnp.zeros(-(-nbytes // 4), jnp.float32).block_until_ready()


def _on_host(leaf: Any) -> bool:
    return bool(leaf.sharding.memory_kind == "pinned_host")


def _random(shapes: Any) -> Any:
    """Values on the host: normal ones, so small that products stay finite; integers are 0 or 1."""
    generator = np.random.default_rng(0)

    def one(shape: Any) -> Any:
        if np.issubdtype(shape.dtype, np.integer):
            return generator.integers(0, 2, shape.shape, shape.dtype)
        many = generator.standard_normal(2**20, dtype=np.float32) * 0.02
        return np.resize(many, shape.shape).astype(shape.dtype)

    return jax.tree.map(one, shapes)


def main() -> int:
    """Measures the programs that FILE lacks; 75 if another process must continue."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    parser.add_argument("--target", default="gpu")
    parser.add_argument("--part", default="1/1", help="I/N: the I-th of every N programs")
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    target = resolve(options.target)
    tools = framework("jax", target)
    device = tools.devices[0]
    meter = Meter(stats=device.memory_stats, take=_taken) if target.executes else None
    given = options.file.read_text().splitlines() if options.file.exists() else []
    known = {tuple(json.loads(line)["program"]) for line in given}
    with options.file.open("a") as file:
        for workload, variant in list(programs(options.target))[part - 1 :: parts]:
            name = workload.key(variant.name, options.target)
            if name in known or options.only not in "/".join(name):
                continue
            try:
                found = seen(tools, variant, meter)
            except NoRoomError:
                return AGAIN
            except Exception as error:  # noqa: BLE001 - written down, like all that is found
                found = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
            file.write(json.dumps({"program": name, **found}) + "\n")
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
