"""Whatever loops do with what they carry, exactly what is written whole is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import find, given, settings

from assay.hlo.assignment import BufferAssignment
from assay.hlo.module import Module
from assay.model.summary import FullBufferWrite

from .generated_loops import COSTS_NOTHING, Action, Loop, Written, emitted, expected, loops
from .simple_detectors import by_name, by_opcode, by_result, by_root, by_slice

Detector = Callable[[Module, BufferAssignment], int]


def seen(write: FullBufferWrite) -> Written:
    return Written(
        content=write.content.value,
        nbytes=write.nbytes_per_execution,
        executions=write.executions,
        at_most=write.at_most,
        depth=int(write.loop.split("_")[1]),
    )


def found_in(loop: Loop) -> Counter[Written]:
    return Counter(map(seen, emitted(loop).summary().full_buffer_writes))


@settings(max_examples=300)
@given(loops())
def test_every_whole_write_of_any_loop_is_found_and_nothing_else(loop: Loop) -> None:
    assert found_in(loop) == expected(loop)


@pytest.mark.parametrize("action", Action)
def test_each_action_alone_writes_one_stack_or_nothing(action: Action) -> None:
    loop = Loop(trips=3, actions=(action,), inner=(), joins=False, in_branch=False)
    assert found_in(loop).total() == (action not in COSTS_NOTHING)


@pytest.mark.parametrize("detector", [by_name, by_opcode, by_slice, by_result, by_root])
def test_a_simpler_detector_is_caught(detector: Detector) -> None:
    """Among the loops is one that it is wrong about, even one that always runs."""

    def is_wrong(loop: Loop) -> bool:
        program = emitted(loop)
        assignment = BufferAssignment.from_proto(program.assignment)
        found = detector(Module.from_proto(program.module), assignment)
        return bool(loop.trips) and found != sum(
            written.nbytes for written in expected(loop).elements()
        )

    find(loops(), is_wrong, settings=settings(max_examples=300))
