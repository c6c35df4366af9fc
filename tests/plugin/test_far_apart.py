"""The worse the slowdown, the sooner it is reported: no limit of seconds hides it."""

from __future__ import annotations

import pytest

from assay.model.verdict import Outcome
from tests.plugin.project import PREAMBLE, Ended, Project

RESTS = (
    PREAMBLE
    + """
import numpy as np
from functools import partial

def rests(seconds, devices):
    def rest(x):
        time.sleep(seconds)
        return x
    call = lambda x: jax.pure_callback(rest, X, x)
    return Program(function=call, arguments=(X,), values=lambda: (np.ones(8, np.float32),))

W = workload(
    variant("base", partial(rests, 0.05)),
    variant("slow", partial(rests, 0.6), reference="base"),
    variant("hangs", partial(rests, 600), reference="base"),
    variant("negative_control", partial(rests, 30), Role.NEGATIVE_CONTROL, reference="base"),
)
test_time = Check(
    claim=claims.TimeRatio(),
    workloads=(W,),
    variants=("slow", "hangs"),
    negative_control="negative_control",
)
"""
)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    project = Project(tmp_path_factory.mktemp("far"), {"test_far.py": RESTS})
    return project.pytest("--assay-timing-seconds=1", target="cpu")


def test_twelve_times_slower_fails_by_what_a_second_takes(ended: Ended) -> None:
    record = ended.record("slow", "time-ratio")
    assert record.verdict is Outcome.FAILED
    # A pause of 50 ms lasts longer where other work holds the cores.
    assert 4 < record.measured < 13
    assert ended.exit_code == 1


def test_a_run_that_does_not_end_is_ended_and_fails(ended: Ended) -> None:
    record = ended.record("hangs", "time-ratio")
    assert record.verdict is Outcome.FAILED
    assert record.measured > 16
    assert "at least" in record.reason
    assert "its run was ended after 1" in record.reason
    assert record.seconds < 60


def test_a_negative_control_that_is_cut_off_proves_the_detector(ended: Ended) -> None:
    assert ended.record("negative_control", "time-ratio.negative-control").verdict is Outcome.PASSED
