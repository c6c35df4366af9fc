"""Reading stays linear in the size of a module."""

from .benchmark import best_seconds, large_module


def test_ten_times_the_instructions_take_at_most_24_times_the_time() -> None:
    small, few = best_seconds(large_module(2_000))
    large, many = best_seconds(large_module(20_000))
    assert many.instructions >= 9 * few.instructions
    assert many.to_host_bytes_per_run == 10 * (few.to_host_bytes_per_run or 0)
    assert large / small <= 24
