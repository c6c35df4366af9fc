"""pytest-benchmark integration: feed samples to its fixture and write its file format.

The plugin's own clock takes no part: Assay's samples are taken in turns, in another process, and a
timer replays them to the fixture, one round a sample.
"""

import json
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from pytest_benchmark import __version__
from pytest_benchmark.fixture import BenchmarkFixture
from pytest_benchmark.stats import Stats

from assay.frameworks.installed import toolchain
from assay.model.evidence import Evidence, GrowthTimes, Memory
from assay.model.rerun import Rerun, Side
from assay.model.timing import Ratio, Times, VariantTimes, beside
from assay.run import Measured
from assay.stats.ratios import ratio_of_turns
from assay.store import evidence, records
from assay.targets import resolve

FIXTURE = "benchmark"
FILE_NAME = "benchmarks.json"
_FEWEST_PAIRS = 2


class Replay:
    """A timer of which every second reading is a sample later than the one before."""

    __name__ = "assay.turns"

    def __init__(self) -> None:
        self._readings: list[float] = []

    def load(self, samples: Iterable[float]) -> None:
        """Set the samples to replay, starting with the first."""
        self._readings = [reading for sample in samples for reading in (0.0, sample)][::-1]

    def __call__(self) -> float:
        """The next reading, in seconds."""
        return self._readings.pop()


def available(config: pytest.Config) -> bool:
    """Whether the fixture can be fed here: not in a worker, where pytest-benchmark shuts it off."""
    return config.pluginmanager.hasplugin(FIXTURE) and not hasattr(config, "workerinput")


def disabled(config: pytest.Config) -> bool:
    """Whether the user asked that nothing be timed."""
    option = config.option
    wanted = getattr(option, "benchmark_enable", False)
    return bool(getattr(option, "benchmark_disable", False)) and not wanted


def excuse(fixture: BenchmarkFixture) -> None:
    """Let the fixture not complain if it is not fed: where nothing was timed, or after Ctrl-C."""
    fixture.skipped = True


def feed(
    fixture: BenchmarkFixture, replay: Replay, measured: Measured | None, directory: Path
) -> None:
    """Give the judged variant's samples to the fixture, and all else as ``extra_info``.

    Of a loop that grows, those on its greatest length.
    """
    samples: Sequence[float] = ()
    if isinstance(measured, Rerun):
        samples, known = measured.samples(Side.NEW), _rerun_info(measured)
    elif isinstance(measured, GrowthTimes):
        samples, known = measured.seconds[-1], _growth_info(measured, measured.lengths[-1])
    elif measured is not None:
        samples = measured.judged.samples
        known = _extra_info(measured, measured.judged, directory)
    if not samples:
        # It must be used, or it complains; so it counts nothing.
        fixture.disabled = True
        fixture.pedantic(_nothing)
        return
    replay.load(samples)
    fixture.pedantic(_nothing, rounds=len(samples))
    fixture.extra_info.update(known)


def write_file(directory: Path, config: pytest.Config, all_times: Iterable[Times]) -> Path | None:
    """Write the run's file, in pytest-benchmark's format; None if nothing was timed."""
    entries = [
        _entry(times, variant, directory)
        for times in all_times
        for variant in (times.reference, times.judged)
        if variant.samples
    ]
    for seen in evidence.load_all(directory, evidence.GROWTH):
        if seen.growth is not None:
            entries += _growth_entries(seen, seen.growth)
    if not entries:
        return None
    document = {
        "machine_info": _machine_info(config),
        "commit_info": _commit_info(config),
        "benchmarks": entries,
        "datetime": datetime.now(UTC).isoformat(),
        "version": __version__,
    }
    return records.write(directory, FILE_NAME, json.dumps(document, indent=4).encode())


def describe_toolchains(machine_info: dict[str, Any], targets: Iterable[str]) -> None:
    """Add what decides how programs are compiled for the targets.

    pytest-benchmark asks before anything runs, and warns of what is then another in a saved file;
    facts that only a running device reports are stored in the ``extra_info`` of each time.
    """
    machine_info["assay"] = {
        name: toolchain("jax", resolve(name).platform).identity for name in targets
    }


def _nothing() -> None:
    """What the fixture calls between two readings."""


def _entry(times: Times, variant: VariantTimes, directory: Path) -> dict[str, Any]:
    program = f"{times.workload}/{variant.variant}@{times.target}"
    return {
        "group": f"{times.suite}/{times.workload}@{times.target}",
        "name": program,
        "fullname": f"{times.suite}/{program} {_setting(times, variant)}",
        "extra_info": _extra_info(times, variant, directory),
        **_samples(variant.samples, variant.runs_per_sample),
    }


def _growth_entries(seen: Evidence, growth: GrowthTimes) -> Iterator[dict[str, Any]]:
    """One for each length of a growing loop."""
    program = f"{seen.workload}/{seen.variant}@{seen.target}"
    for length, seconds in zip(growth.lengths, growth.seconds, strict=True):
        yield {
            "group": f"{seen.suite}/{program} growth",
            "name": f"{program} on length {length}",
            "fullname": f"{seen.suite}/{program} on length {length}",
            "extra_info": {
                "suite": seen.suite,
                "workload": seen.workload,
                "variant": seen.variant,
                "target": seen.target,
                **_growth_info(growth, length),
            },
            **_samples(seconds, 1),
        }


def _growth_info(growth: GrowthTimes, length: int) -> dict[str, Any]:
    return {
        "length": length,
        "fastest_seconds": dict(zip(map(str, growth.lengths), growth.fastest, strict=True)),
    }


def _samples(samples: Sequence[float], runs_per_sample: int) -> dict[str, Any]:
    stats = Stats()
    for sample in samples:
        stats.update(sample)
    return {
        "params": None,
        "param": None,
        "options": {"timer": Replay.__name__},
        "stats": {**stats.as_dict(), "data": list(samples), "iterations": runs_per_sample},
    }


def _setting(times: Times, variant: VariantTimes) -> str:
    if times.is_alone:
        return "alone"
    return f"beside {beside(times, variant)}, {times.question}"


def _extra_info(times: Times, variant: VariantTimes, directory: Path) -> dict[str, Any]:
    other = times.judged if variant is times.reference else times.reference
    known: dict[str, Any] = {
        "suite": times.suite,
        "workload": times.workload,
        "variant": variant.variant,
        "target": times.target,
        "beside": other.variant or None,
        "beside_median_seconds": other.steady,
        "question": times.question,
        "ended": times.ended.value,
        "trace_seconds": variant.trace,
        "compile_seconds": variant.compile,
        "first_seconds": variant.first,
        "runs_per_sample": variant.runs_per_sample,
        **_device(variant),
        "not_profiled": times.not_profiled or None,
        **_bytes(times, variant, directory),
        **_machine(times),
    }
    if variant is times.judged:
        known |= _ratio(times)
    return {name: value for name, value in known.items() if value is not None}


def _rerun_info(rerun: Rerun) -> dict[str, Any]:
    known = {
        "suite": rerun.suite,
        "workload": rerun.workload,
        "variant": rerun.variant,
        "target": rerun.target,
        "against": rerun.versions(Side.OLD),
        "negative_control": rerun.negative_control,
        "ended": rerun.ended.value,
        "compile_seconds": rerun.compile_seconds(Side.NEW),
        "machine": asdict(rerun.machine) if rerun.machine else None,
        **(_told(rerun.ratio) if rerun.ratio else {}),
    }
    if samples := rerun.samples(Side.OLD):
        known["against_median_seconds"] = median(samples)
    return {name: value for name, value in known.items() if value is not None}


def _device(variant: VariantTimes) -> Mapping[str, float | None]:
    seen = variant.on_device
    if seen is None:
        return {}
    return {
        "device_busy_seconds": seen.busy,
        "device_to_host_seconds": seen.to_host,
        "host_to_device_seconds": seen.to_device,
    }


def _bytes(times: Times, variant: VariantTimes, directory: Path) -> Mapping[str, int | None]:
    key = (times.suite, times.workload, variant.variant, times.target)
    seen = evidence.find(directory, key)
    memory: Memory | None = seen.memory if seen else None
    return asdict(memory) if memory else {}


def _machine(times: Times) -> Mapping[str, Any]:
    machine = times.machine
    return {
        "machine": asdict(machine) if machine else None,
        **{
            f"calibration_{when}_seconds": {
                name: median(seconds) for name, seconds in asdict(taken).items()
            }
            for when, taken in (("before", times.before), ("after", times.after))
            if taken is not None
        },
    }


def _ratio(times: Times) -> Mapping[str, Any]:
    samples = (times.reference.samples, times.judged.samples)
    if times.is_alone or len(times.judged.samples) < _FEWEST_PAIRS:
        return {}
    return _told(ratio_of_turns(*samples))


def _told(found: Ratio) -> Mapping[str, Any]:
    return {
        "ratio": found.ratio,
        "ratio_low": found.low,
        "ratio_high": found.high,
        "change": found.change.value,
    }


def _machine_info(config: pytest.Config) -> dict[str, Any]:
    if not config.pluginmanager.hasplugin(FIXTURE):
        return {"node": platform.node(), "machine": platform.machine()}
    hook = config.hook
    known: dict[str, Any] = hook.pytest_benchmark_generate_machine_info(config=config)
    hook.pytest_benchmark_update_machine_info(config=config, machine_info=known)
    return known


def _commit_info(config: pytest.Config) -> dict[str, Any]:
    if not config.pluginmanager.hasplugin(FIXTURE):
        return {}
    hook = config.hook
    known: dict[str, Any] = hook.pytest_benchmark_generate_commit_info(config=config)
    hook.pytest_benchmark_update_commit_info(config=config, commit_info=known)
    return known
