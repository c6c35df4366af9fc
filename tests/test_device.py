"""``benchmarks.device``: how the most memory of a run is seen, and what a profile holds."""

import gzip
from pathlib import Path

import pytest

from benchmarks.device.profiles import summed
from benchmarks.device.programs import Meter, NoRoomError, programs

PROFILE = Path(__file__).parent / "frameworks" / "h200-offload.xplane.pb.gz"
STACK = 16 * 4096 * 2048 * 4 * 32
"""Bytes of the residuals of all 32 layers."""

LONGEST_PAUSE = ("loop_subtract_fusion_2", "MemcpyD2H")
"""Before the loss goes to the host."""


class Allocator:
    """Counts as a device's allocator does: what is in use, and the most of all time."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used, self.most = limit, 0, 0

    def take(self, nbytes: int) -> int:
        self.used += nbytes
        self.most = max(self.most, self.used)
        return nbytes

    def run(self, nbytes: int) -> None:
        self.take(nbytes)
        self.used -= nbytes

    def stats(self) -> dict[str, int]:
        return {
            "bytes_in_use": self.used,
            "peak_bytes_in_use": self.most,
            "bytes_limit": self.limit,
        }


def _most_of(meter: Meter, allocator: Allocator, nbytes: int, expected: int) -> int | None:
    return meter.most_of(lambda: allocator.run(nbytes), expected, lambda: None)


@pytest.mark.parametrize("expected", [0, 300, 1000, 10_000])
def test_a_small_run_after_a_large_one_is_seen_exactly(expected: int) -> None:
    allocator = Allocator(10**6)
    meter = Meter(stats=allocator.stats, take=allocator.take)
    assert _most_of(meter, allocator, 5000, 5000) == 5000
    assert _most_of(meter, allocator, 300, expected) == 300


def test_without_memory_taken_the_small_run_would_not_be_seen() -> None:
    allocator = Allocator(10**6)
    allocator.run(5000)
    allocator.run(300)
    assert allocator.most == 5000


def test_another_process_goes_on_where_there_is_no_room() -> None:
    allocator = Allocator(10_000)
    meter = Meter(stats=allocator.stats, take=allocator.take)
    assert _most_of(meter, allocator, 5000, 5000) == 5000
    assert _most_of(meter, allocator, 300, 300) == 300
    with pytest.raises(NoRoomError):
        _most_of(meter, allocator, 5000, 5000)


def test_a_run_that_takes_nothing_has_no_most() -> None:
    allocator = Allocator(10_000)
    assert _most_of(Meter(stats=allocator.stats, take=allocator.take), allocator, 0, 0) is None


@pytest.mark.filterwarnings("ignore:builtin type .* has no __module__:DeprecationWarning")
def test_a_profile_of_an_h200_has_the_bytes_that_the_hlo_names() -> None:
    found = summed(gzip.decompress(PROFILE.read_bytes()))
    assert found["bytes"]["MemcpyH2D"] == STACK
    assert found["bytes"]["MemcpyD2H"] == STACK + 4  # The loss.
    assert found["hidden_s"] == pytest.approx({"MemcpyD2H": 0.0, "MemcpyH2D": 0.0}, abs=1e-5)
    assert found["idle_s"] == pytest.approx(2.88e-3, rel=1e-2)
    assert found["pauses"][0] == (pytest.approx(1.24e-3, rel=1e-2), *LONGEST_PAUSE)
    assert found["kernel_s"] + sum(found["transfer_s"].values()) == pytest.approx(
        found["busy_s"], rel=1e-3
    )


def test_each_program_of_the_suites_is_run_once() -> None:
    names = [workload.key(variant.name, "gpu") for workload, variant in programs("gpu")]
    assert len(names) == len(set(names)) > 200
    assert {name[0] for name in names} >= {"scan_offload", "dus_remat", "tensor_splitting"}
