"""The number of graphs that accumulated callbacks make is known before the first is compiled."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from itertools import count
from math import inf
from multiprocessing import get_context

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suites.fsdp_accumulation.callbacks import SHAPES, Plan, bucketed, distinct

_STEPS = 12
_BATCHES = count(5)
"""A batch of a size of its own for each example: nothing it compiles was compiled before."""


def test_bucket_that_is_flushed_at_the_end_makes_one_graph() -> None:
    for limit in (0, 600, inf):
        assert distinct(bucketed(limit, _STEPS)) == 1


def test_tail_that_waits_makes_several() -> None:
    assert distinct(bucketed(600, _STEPS, flushes_tail=False)) == 2
    assert distinct(bucketed(3000, _STEPS, flushes_tail=False)) == 3
    assert distinct(bucketed(5000, _STEPS, flushes_tail=False)) == 4


def test_each_order_makes_one() -> None:
    assert distinct(bucketed(inf, _STEPS, shuffled=True)) == 3


@pytest.fixture(scope="module")
def process() -> Iterator[ProcessPoolExecutor]:
    """A process for PyTorch/XLA, which then cannot be started in another way in it."""
    if find_spec("torch_xla") is None:  # not imported: that adds XLA flags to this process
        pytest.skip("no PyTorch/XLA")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


_PLANS = st.builds(
    Plan,
    order=st.permutations(range(len(SHAPES))).map(tuple),
    flushes=st.frozensets(st.integers(1, len(SHAPES))),
)
_LOOPS = st.lists(_PLANS, min_size=1, max_size=2).flatmap(
    lambda plans: st.lists(st.sampled_from(plans), min_size=2, max_size=4)
)


@settings(max_examples=8, derandomize=True)
@given(plans=_LOOPS)
def test_steps_compile_one_graph_for_each_pattern_of_callbacks(
    process: ProcessPoolExecutor, plans: list[Plan]
) -> None:
    compiled = process.submit(_compiled, plans, next(_BATCHES)).result()
    assert compiled == distinct(plans)


def _compiled(plans: Sequence[Plan], batch: int) -> int:
    os.environ["PJRT_DEVICE"] = "CPU"
    import torch_xla
    from torch_xla.debug import metrics

    from suites.fsdp_accumulation.lazy_loop import build

    loop = build(plans, batch)
    torch_xla.sync(wait=True)
    metrics.clear_all()
    for _ in plans:
        loop.step()
    return metrics.counter_value("UncachedCompile") or 0
