"""Faults of the clock and of what is timed."""

from __future__ import annotations

from tests.faults.changes import gives, is_killed, raises
from tests.faults.fault import CRASHED, FAILED, TIMES, Fault

_FAILS = "Assay itself failed (exit 3)"


def _raises(place: str) -> Fault:
    return Fault(
        name=f"{place.partition(':')[2]} raises",
        place=f"assay.{place}",
        change=raises(),
        command=TIMES,
        ends=CRASHED,
        says=("assay/" + place.partition(":")[0].replace(".", "/") + ".py", _FAILS),
    )


TIMING = (
    _raises("frameworks.jax_timing:calibrate"),
    _raises("frameworks.jax_timing:run_program"),
    _raises("frameworks.timing:take_turns"),
    _raises("frameworks.timing:Runner.sample"),
    _raises("frameworks.timing:PairTimer.run"),
    Fault(
        name="a run takes no time",
        place="assay.frameworks.jax_timing:run_program",
        change=gives(0.0),
        command=TIMES,
        ends=FAILED,
        says=("time-ratio",),
    ),
    Fault(
        name="all runs take equally long",
        place="assay.frameworks.jax_timing:run_program",
        change=gives(0.001),
        command=TIMES,
        ends=FAILED,
        says=("time-ratio.negative-control",),
    ),
    Fault(
        name="no samples are kept",
        place="assay.frameworks.timing:Runner.sample",
        change=gives(None),
        command=TIMES,
        ends=FAILED,
        says=("time-ratio",),
    ),
    Fault(
        name="times are not numbers",
        place="assay.frameworks.jax_timing:run_program",
        change=gives(float("nan")),
        command=TIMES,
        ends=CRASHED,
        says=("time-ratio",),
    ),
    Fault(
        name="the observer's process is killed while it times",
        place="assay.frameworks.timing:take_turns",
        change=is_killed(),
        command=TIMES,
        ends=FAILED,
        says=("the process ended by SIGKILL",),
    ),
)
