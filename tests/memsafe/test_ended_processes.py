"""``benchmarks.memsafe_programs``: programs that end the process that computes them."""

import os
from collections.abc import Callable

import pytest

from benchmarks.memsafe_programs import Found, outcomes

pytestmark = pytest.mark.exhaustive  # Each process imports jax.

ENDS = 2


def counted(seed: int) -> Found:
    if seed == ENDS:
        os.abort()
    return [], ["programs"]


def ends(_: int) -> None:
    os.abort()


def goes_on(_: int) -> None:
    pass


@pytest.mark.parametrize(
    ("written", "kind"), [(ends, "XLA ends the process as written"), (goes_on, "crashes")]
)
def test_who_ends_a_process_is_told_and_the_others_run(
    written: Callable[[int], None], kind: str
) -> None:
    found = [kinds for _, kinds in outcomes(range(4), counted, written)]
    assert found == [["programs"], ["programs"], ["programs", kind], ["programs"]]
