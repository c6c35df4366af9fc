"""The soak finds what grows in a process, and takes noise for no growth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.soak import ITEMS_OF_24_HOURS, ROLES, Sample, Soaked, judged

MIB = 2**20


def soaked(
    nbytes: Callable[[int], float] = lambda _: 0, files: Callable[[int], int] = lambda _: 0
) -> Soaked:
    """Samples of three processes, of which the child holds more after so many items."""
    noise = np.random.default_rng(3)
    found = Soaked(samples={role: [] for role in ROLES})
    for items in range(10, ITEMS_OF_24_HOURS, 40):
        for role in ROLES:
            is_child = role == "child"
            found.samples[role].append(
                Sample(
                    items=items,
                    held_bytes=round(
                        100 * MIB + 4 * MIB * noise.random() + is_child * nbytes(items)
                    ),
                    files=8 + is_child * files(items),
                    threads=30,
                )
            )
    return found


def test_noise_is_no_growth() -> None:
    assert judged(soaked()) == []


def test_a_warm_up_is_no_growth() -> None:
    assert judged(soaked(lambda items: min(items, 2000) * 20_000)) == []


@pytest.mark.parametrize("per_item", [2_000, 32_768])
def test_memory_that_grows_with_each_program_is_found(per_item: int) -> None:
    (found,) = judged(soaked(lambda items: items * per_item))
    assert found.startswith("child: held_bytes grow by ")


def test_files_that_stay_open_are_found() -> None:
    (found,) = judged(soaked(files=lambda items: items // 1000))
    assert found.startswith("child: files grow by ")


def test_a_cache_over_its_bound_is_found() -> None:
    found = soaked()
    found.cache_bytes = 2**30 + 1
    assert judged(found) == ["the cache holds 1,073,741,825 bytes"]
