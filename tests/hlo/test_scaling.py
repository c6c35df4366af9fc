"""Reading stays linear in the size of a module."""

import gc

import pytest

from assay.hlo.schema import MalformedModule
from assay.hlo.summary import read
from benchmarks.hlo_reading import measure
from benchmarks.large_module import large_module


def test_ten_times_the_instructions_take_at_most_24_times_the_time() -> None:
    small = measure(large_module(1_000), readings=3)
    large = measure(large_module(10_000), readings=3)
    few, many = small.summary, large.summary
    assert many.instructions >= 9 * few.instructions
    assert many.to_host_bytes_per_run == 10 * (few.to_host_bytes_per_run or 0)
    assert min(large.processor) / min(small.processor) <= 24


def test_reading_leaves_the_garbage_collector_as_it_was() -> None:
    data = large_module(200)
    assert gc.isenabled()
    read(data)
    assert gc.isenabled()
    with pytest.raises(MalformedModule):
        read(data[:20])
    assert gc.isenabled()
    gc.disable()
    try:
        read(data)
        assert not gc.isenabled()
    finally:
        gc.enable()
