"""pytest-benchmark integration: its session and its file format receive the samples of timings.

pytest-benchmark measures nothing here. Assay measures the samples in another process.
"""

import json
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest
from pytest_benchmark.plugin import pytest_benchmark_generate_json
from pytest_benchmark.session import BenchmarkSession
from pytest_benchmark.stats import Metadata

from assay.frameworks.installed import toolchain
from assay.model.claim import Trial
from assay.model.evidence import Evidence, GrowthTimes
from assay.model.rerun import Rerun, Side
from assay.model.timing import Calibration, Ratio, Times, VariantTimes, partner
from assay.run import Measured
from assay.stats.ratios import ratio_of_turns
from assay.store import evidence
from assay.store.files import write_whole
from assay.targets import resolve

FILE_NAME = "benchmarks.json"
_FEWEST_PAIRS = 2


def session_of(config: pytest.Config) -> BenchmarkSession | None:
    """pytest-benchmark's session; None if it is not loaded, and in xdist workers."""
    if hasattr(config, "workerinput"):
        return None
    return config.pluginmanager.get_plugin("pytest-benchmark")


def is_disabled(config: pytest.Config) -> bool:
    """Whether the options disable timing."""
    option = config.option
    enabled = getattr(option, "benchmark_enable", False)
    return bool(getattr(option, "benchmark_disable", False)) and not enabled


def report(item: pytest.Item, trial: Trial, measured: Measured, directory: Path) -> None:
    """Add the judged variant's samples to pytest-benchmark's session, as the item's benchmark.

    For a growing loop, these are the samples of its greatest length.
    """
    group = f"{trial.workload.suite}/{trial.workload.name}@{trial.target}"
    if isinstance(measured, Rerun):
        samples, info = measured.samples(Side.NEW), _rerun_info(measured)
        group += " against"
    elif isinstance(measured, GrowthTimes):
        samples, info = measured.seconds[-1], _growth_info(measured, measured.lengths[-1])
    else:
        samples = measured.judged.samples
        info = _times_info(measured, measured.judged, directory)
    session = session_of(item.config)
    if session is not None and samples:
        session.benchmarks.append(_benchmark(group, item.name, item.nodeid, info, samples))


def write_file(directory: Path, config: pytest.Config, all_times: Iterable[Times]) -> Path | None:
    """Write the run's file, in pytest-benchmark's format; None if nothing was timed."""
    entries = [
        _of_times(times, variant, directory)
        for times in all_times
        for variant in (times.reference, times.judged)
        if variant.samples
    ]
    for seen in evidence.load_all(directory, evidence.GROWTH):
        if seen.growth is not None:
            entries += _of_growth(seen, seen.growth)
    if not entries:
        return None
    machine, commit = {"node": platform.node(), "machine": platform.machine()}, {}
    if session := session_of(config):
        machine = session.get_machine_info()
        commit = config.hook.pytest_benchmark_generate_commit_info(config=config)
        config.hook.pytest_benchmark_update_commit_info(config=config, commit_info=commit)
    document = pytest_benchmark_generate_json(
        config, entries, include_data=True, machine_info=machine, commit_info=commit
    )
    path = directory / FILE_NAME
    write_whole(path, json.dumps(document, indent=4).encode())
    return path


def describe_toolchains(machine_info: dict[str, Any], targets: Iterable[str]) -> None:
    """Add the toolchain of each target, which pytest-benchmark compares with a saved file's.

    pytest-benchmark asks for it before anything runs. What only a running device reports is in the
    ``extra_info`` of each time.
    """
    machine_info["assay"] = {
        name: toolchain("jax", resolve(name).platform).identity for name in targets
    }


def _benchmark(
    group: str,
    name: str,
    fullname: str,
    info: dict[str, Any],
    samples: Sequence[float],
    runs_per_sample: int = 1,
) -> Metadata:
    fixture = SimpleNamespace(
        name=name,
        fullname=fullname,
        group=group,
        extra_info=info,
        has_error=False,
        **dict.fromkeys(("param", "params", "cprofile_stats")),
    )
    benchmark = Metadata(fixture, runs_per_sample, {"timer": "assay.turns"})
    benchmark.stats.data += samples
    return benchmark


def _of_times(times: Times, variant: VariantTimes, directory: Path) -> Metadata:
    program = f"{times.workload}/{variant.variant}@{times.target}"
    setting = "alone" if times.is_alone else f"beside {partner(times, variant)}, {times.question}"
    return _benchmark(
        f"{times.suite}/{times.workload}@{times.target}",
        program,
        f"{times.suite}/{program} {setting}",
        _times_info(times, variant, directory),
        variant.samples,
        variant.runs_per_sample,
    )


def _of_growth(seen: Evidence, growth: GrowthTimes) -> Iterator[Metadata]:
    """One benchmark for each length of a growing loop."""
    program = f"{seen.workload}/{seen.variant}@{seen.target}"
    for length, seconds in zip(growth.lengths, growth.seconds, strict=True):
        name = f"{program} on length {length}"
        info = _info(seen, seen.variant, **_growth_info(growth, length))
        yield _benchmark(
            f"{seen.suite}/{program} growth", name, f"{seen.suite}/{name}", info, seconds
        )


def _times_info(times: Times, variant: VariantTimes, directory: Path) -> dict[str, Any]:
    other = times.judged if variant is times.reference else times.reference
    device, enough = variant.on_device, len(times.judged.samples) >= _FEWEST_PAIRS
    key = (times.suite, times.workload, variant.variant, times.target)
    seen = evidence.find(directory, key)
    ratio = None
    if variant is times.judged and not times.is_alone and enough:
        ratio = ratio_of_turns(times.reference.samples, times.judged.samples)
    return _info(
        times,
        variant.variant,
        beside=other.variant or None,
        beside_median_seconds=other.steady,
        question=times.question,
        ended=times.ended.value,
        trace_seconds=variant.trace,
        compile_seconds=variant.compile,
        first_seconds=variant.first,
        runs_per_sample=variant.runs_per_sample,
        device_busy_seconds=device.busy if device else None,
        device_to_host_seconds=device.to_host if device else None,
        host_to_device_seconds=device.to_device if device else None,
        hidden_transfer_seconds=device.hidden if device else None,
        not_profiled=times.not_profiled or None,
        machine=asdict(times.machine) if times.machine else None,
        calibration_before_seconds=_medians(times.before),
        calibration_after_seconds=_medians(times.after),
        **(asdict(seen.memory) if seen and seen.memory else {}),
        **_ratio_info(ratio),
    )


def _rerun_info(rerun: Rerun) -> dict[str, Any]:
    old_samples = rerun.samples(Side.OLD)
    return _info(
        rerun,
        rerun.variant,
        against=rerun.versions(Side.OLD),
        negative_control=rerun.negative_control,
        ended=rerun.ended.value,
        compile_seconds=rerun.compile_seconds(Side.NEW),
        machine=asdict(rerun.machine) if rerun.machine else None,
        against_median_seconds=median(old_samples) if old_samples else None,
        **_ratio_info(rerun.ratio),
    )


def _growth_info(growth: GrowthTimes, length: int) -> dict[str, Any]:
    fastest = dict(zip(map(str, growth.lengths), growth.fastest, strict=True))
    return {"length": length, "fastest_seconds": fastest}


def _ratio_info(ratio: Ratio | None) -> dict[str, Any]:
    if ratio is None:
        return {}
    return {
        "ratio": ratio.ratio,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "change": ratio.change.value,
    }


def _medians(calibration: Calibration | None) -> dict[str, float] | None:
    if calibration is None:
        return None
    return {work: median(seconds) for work, seconds in asdict(calibration).items()}


def _info(measured: Times | Evidence | Rerun, variant: str, **values: Any) -> dict[str, Any]:
    """The program, and the values that are known."""
    return {
        "suite": measured.suite,
        "workload": measured.workload,
        "variant": variant,
        "target": measured.target,
        **{name: value for name, value in values.items() if value is not None},
    }
