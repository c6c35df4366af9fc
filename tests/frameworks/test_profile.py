"""A profile tells how long a device worked and moved data; overlapping work counts once.

``cpu.xplane.pb`` is a profile of five runs of tanh(m @ m) on 256 × 256, taken on a CPU with jax
0.12.0.1. ``h200-offload.xplane.pb.gz`` is one of a step of suite scan_offload's program on an H200,
one device's share with its residual offloaded (26 November 2026, jax 0.11.2). No profile of a TPU
was at hand: its planes are built here, by the names that XLA's profiler gives them.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from jax.profiler import ProfileData

from assay.frameworks.jax_timing import device_times
from assay.model.timing import DeviceTimes

# jaxlib's own class says so when it is made.
pytestmark = pytest.mark.filterwarnings(
    "ignore:builtin type .* has no __module__:DeprecationWarning"
)

CPU = Path(__file__).with_name("cpu.xplane.pb").read_bytes()
Event = tuple[str, int, int]
"""A name, a begin and a length, in microseconds."""

MILLION = 10**6
H200 = gzip.decompress(Path(__file__).with_name("h200-offload.xplane.pb.gz").read_bytes())
BUSY = 0.000530088
"""Seconds of a run in ``cpu.xplane.pb``, as a reader of its protobuf messages sums them."""


def plane(name: str, lines: Mapping[str, Sequence[Event]], late_ns: int = 0) -> bytes:
    """An XSpace of one plane, the lines of which begin later than their events say."""
    names = sorted({event for events in lines.values() for event, _, _ in events})
    parts = [
        f'event_metadata {{ key: {number} value {{ id: {number} name: "{event}" }} }}'
        for number, event in enumerate(names)
    ]
    for title, events in lines.items():
        shown = " ".join(
            f"events {{ metadata_id: {names.index(event)} offset_ps: {begin * MILLION} "
            f"duration_ps: {length * MILLION} }}"
            for event, begin, length in events
        )
        parts.append(f'lines {{ name: "{title}" timestamp_ns: {late_ns} {shown} }}')
    text = f'planes {{ name: "{name}" {" ".join(parts)} }}'
    return bytes(ProfileData.text_proto_to_serialized_xspace(text))


def test_a_cpus_profile_counts_its_operations() -> None:
    seen = device_times([CPU], 5)
    assert seen is not None
    assert seen.busy == pytest.approx(BUSY, rel=1e-6)
    assert (seen.to_host, seen.to_device) == (None, None)


def test_a_gpus_streams_overlap_and_its_transfers_are_told_apart() -> None:
    gpu = plane(
        "/device:GPU:0",
        {
            "Stream #1(Compute)": [("fusion", 0, 30), ("gemm", 40, 20)],
            "Stream #2(MemcpyD2H)": [("MemcpyD2H", 20, 30)],
            "Stream #3(MemcpyH2D)": [("MemcpyH2D", 100, 5), ("MemcpyH2D", 110, 5)],
            "XLA Modules": [("jit_step", 0, 1000)],
            "Steps": [("1", 0, 1000)],
        },
        late_ns=123_456,
    )
    seen = device_times([gpu], 2)
    assert seen == DeviceTimes(
        busy=pytest.approx(35e-6),
        to_host=pytest.approx(15e-6),
        to_device=pytest.approx(5e-6),
        hidden=pytest.approx(10e-6),  # 10 µs under the fusion, 10 under the gemm.
    )


def test_an_h200_moves_32_stacks_each_way_and_hides_none() -> None:
    seen = device_times([H200], 1)
    assert seen is not None
    stack = 16 * 4096 * 2048 * 4 * 32
    assert seen.to_host is not None
    assert seen.to_device is not None
    # PCIe 5.0 with 16 lanes: 64e9 bytes a second at most.
    assert 50e9 < stack / seen.to_host < 64e9
    assert 50e9 < stack / seen.to_device < 64e9
    assert seen.hidden == pytest.approx(0.0, abs=1e-5)
    assert seen.busy == pytest.approx(1.015, rel=1e-3)


def test_a_tpus_modules_are_its_work_and_its_transfers_are_unknown() -> None:
    tpu = plane(
        "/device:TPU:0",
        {
            "XLA Modules": [("jit_step", 0, 100), ("jit_step", 200, 100)],
            "XLA Ops": [("fusion", 0, 60)],
            "Steps": [("1", 0, 500)],
        },
    )
    assert device_times([tpu], 2) == DeviceTimes(busy=pytest.approx(100e-6))


def test_devices_are_summed_and_idle_ones_and_the_host_left_out() -> None:
    busy = plane("/device:GPU:0", {"Stream #1": [("fusion", 0, 10)]})
    other = plane("/device:GPU:1", {"Stream #1": [("fusion", 5, 20)]})
    idle = plane("/device:GPU:2", {})
    seen = device_times([busy, other, idle, CPU], 1)
    assert seen is not None
    assert seen.busy == pytest.approx(30e-6)


def test_a_profile_without_work_tells_nothing() -> None:
    assert device_times([plane("/device:GPU:0", {})], 1) is None
    assert device_times([plane("/host:CPU", {"python": [("main", 0, 10)]})], 1) is None
    assert device_times([], 1) is None


def test_a_plane_that_is_no_device_hides_no_work() -> None:
    megascale = plane("/device:CUSTOM:Megascale Trace", {})
    assert device_times([megascale, CPU], 5) == device_times([CPU], 5)


def test_bytes_that_are_no_profile_are_refused() -> None:
    for damaged in (b"\xff" * 40, CPU[: len(CPU) // 2]):
        with pytest.raises(RuntimeError, match="Failed to parse XSpace"):
            device_times([damaged], 1)
