"""After XLA's host_offloader_test.cc: rows of a stack in host memory, compiled by each compiler.

Upstream runs one pass and looks at memory spaces; here they are looked at in what is compiled.
"""

from __future__ import annotations

import pytest

from assay.model.evidence import FailureKind

from .cases import DEVICES, GPU, Case, Control, Disagreement, Right, checks_of
from .expectations import (
    HostTemporaries,
    Refused,
    ToDevice,
    ToHost,
)
from .observed import Hlo, annotated, moved

pytestmark = pytest.mark.exhaustive

ROW = "f32[1,256,128]"
ROW_BYTES = 256 * 128 * 4
STACK = "f32[2,256,128]"
LENGTH = 6
LONG = f"f32[{LENGTH},256,128]"

STACKED = (
    f"row = {ROW} parameter(0)",
    "at = s32[] parameter(1)",
    "zero = f32[] constant(0)",
    "none = s32[] constant(0)",
    f"empty = {STACK} broadcast(zero), dimensions={{}}",
)
AWAY = moved(ROW, "row", "Host", "away")
WRITTEN = f"written = {STACK} dynamic-update-slice(empty, away, at, none, none)"
READ = f"read = {ROW} dynamic-slice(written, at, none, none), dynamic_slice_sizes={{1,256,128}}"
BACK = "ROOT " + moved(ROW, "read", "Device", "back")

ROW_AND_BACK, NO_ROW_AND_BACK = annotated(*STACKED, AWAY, WRITTEN, READ, BACK)
NOT_EMPTY, _ = annotated(
    *STACKED[:4],
    f"empty = {STACK} parameter(2)",
    AWAY,
    WRITTEN,
    READ,
    BACK,
)
IN_A_TUPLE, NOT_IN_A_TUPLE = annotated(
    *STACKED[:4],
    f"made = {STACK} broadcast(zero), dimensions={{}}",
    f"one = ({STACK}) tuple(made)",
    f"empty = {STACK} get-tuple-element(one), index=0",
    AWAY,
    WRITTEN,
    READ,
    BACK,
)
WHOLE_BACK, NO_WHOLE_BACK = annotated(
    *STACKED, AWAY, WRITTEN, "ROOT " + moved(STACK, "written", "Device", "back")
)
BOTH_WAYS, NOT_BOTH_WAYS = annotated(
    *STACKED,
    AWAY,
    WRITTEN,
    READ,
    moved(ROW, "read", "Device", "first"),
    moved(ROW, "away", "Device", "second"),
    f"ROOT both = ({ROW}, {ROW}) tuple(first, second)",
)


def two_loops(made: str) -> tuple[Hlo, Hlo]:
    """A loop that saves a row per iteration, and one that reads them in the opposite order."""
    state = f"(s32[], {LONG}, {ROW})"

    def condition(name: str) -> str:
        return f"""
{name} {{
  state = {state} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  most = s32[] constant({LENGTH})
  ROOT less = pred[] compare(i, most), direction=LT
}}"""

    parts = f"""
  state = {state} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  stack = {LONG} get-tuple-element(state), index=1
  value = {ROW} get-tuple-element(state), index=2
  none = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(i, one)"""
    computations = f"""
producing {{{parts}
  sine = {ROW} sine(value)
  {moved(ROW, "sine", "Host", "away")}
  written = {LONG} dynamic-update-slice(stack, away, i, none, none)
  ROOT after = {state} tuple(next, written, sine)
}}
consuming {{{parts}
  last = s32[] constant({LENGTH - 1})
  at = s32[] subtract(last, i)
  read = {ROW} dynamic-slice(stack, at, none, none), dynamic_slice_sizes={{1,256,128}}
  {moved(ROW, "read", "Device", "back")}
  product = {ROW} multiply(value, back)
  ROOT after = {state} tuple(next, stack, product)
}}{condition("while_producing")}{condition("while_consuming")}"""
    return annotated(
        f"row = {ROW} parameter(0)",
        "zero = f32[] constant(0)",
        f"empty = {LONG} {made}",
        "none = s32[] constant(0)",
        f"start = {state} tuple(none, empty, row)",
        f"forward = {state} while(start), condition=while_producing, body=producing",
        f"stack = {LONG} get-tuple-element(forward), index=1",
        f"value = {ROW} get-tuple-element(forward), index=2",
        f"turn = {state} tuple(none, stack, value)",
        f"backward = {state} while(turn), condition=while_consuming, body=consuming",
        f"ROOT result = {ROW} get-tuple-element(backward), index=2",
        computations=computations,
    )


FROM_A_BROADCAST, NOT_FROM_A_BROADCAST = two_loops("broadcast(zero), dimensions={}")
FROM_AN_ALLOCATION, _ = two_loops('custom-call(), custom_call_target="AllocateBuffer"')

FILE = "host_offloader_test.cc::HostOffloaderTest."
ONCE = (ToHost(ROW_BYTES), ToDevice(ROW_BYTES))

CASES = (
    Case(
        name="row-and-back",
        after=FILE + "BasicDusDs",
        asserts="the stack is allocated on the host; a row is written there and read from there",
        program=ROW_AND_BACK,
        expect={DEVICES: (HostTemporaries(2 * ROW_BYTES), *ONCE)},
        control=Control(program=NO_ROW_AND_BACK),
    ),
    Case(
        name="not-empty",
        after=FILE + "DusFirstOperandIsNotFromABroadcast",
        asserts="a row of the host cannot be written into a stack of the device: the pass fails",
        program=NOT_EMPTY,
        expect={DEVICES: (Refused(FailureKind.COMPILER, ""),)},
        control=Control(program=ROW_AND_BACK),
    ),
    Case(
        name="in-a-tuple",
        after=FILE + "DusDsWithTupleAfterBroadcast",
        asserts="so it is where the empty stack comes out of a tuple",
        program=IN_A_TUPLE,
        expect={DEVICES: (HostTemporaries(2 * ROW_BYTES), *ONCE)},
        control=Control(program=NOT_IN_A_TUPLE),
    ),
    Case(
        name="whole-back",
        after=FILE + "DusWithoutDs",
        asserts="without a slice the whole stack is copied back",
        program=WHOLE_BACK,
        expect={
            DEVICES: (HostTemporaries(2 * ROW_BYTES), ToHost(ROW_BYTES), ToDevice(2 * ROW_BYTES))
        },
        control=Control(program=NO_WHOLE_BACK),
    ),
    Case(
        name="both-ways",
        after=FILE + "DusAndNoCopyFromSameCustomCall",
        asserts="a row is written into the stack, and copied to the host by itself besides",
        program=BOTH_WAYS,
        expect={
            DEVICES: (
                HostTemporaries(3 * ROW_BYTES),
                ToHost(2 * ROW_BYTES),
                ToDevice(2 * ROW_BYTES),
            )
        },
        control=Control(program=NOT_BOTH_WAYS),
        disagreements=tuple(
            Disagreement(
                of=expectation,
                on=GPU,
                seen=f"measured {seen}",
                right=Right.TOOLCHAIN,
                why="the copy of the row by itself is read by a copy back alone: both are left out",
            )
            for expectation, seen in (
                (HostTemporaries(3 * ROW_BYTES), 2 * ROW_BYTES),
                (ToHost(2 * ROW_BYTES), ROW_BYTES),
                (ToDevice(2 * ROW_BYTES), ROW_BYTES),
            )
        ),
    ),
    Case(
        name="two-loops",
        after=FILE + "LlmActivation",
        asserts="a loop writes its rows on the host, and another reads them from there",
        program=FROM_A_BROADCAST,
        expect={
            DEVICES: (
                HostTemporaries(LENGTH * ROW_BYTES),
                ToHost(LENGTH * ROW_BYTES),
                ToDevice(LENGTH * ROW_BYTES),
            )
        },
        control=Control(program=NOT_FROM_A_BROADCAST),
    ),
    Case(
        name="two-loops-from-an-allocation",
        after=FILE + "LlmActivationSourceIsAllocateBuffer",
        asserts="so they do where the stack is allocated without a value",
        program=FROM_AN_ALLOCATION,
        expect={
            DEVICES: (
                HostTemporaries(LENGTH * ROW_BYTES),
                ToHost(LENGTH * ROW_BYTES),
                ToDevice(LENGTH * ROW_BYTES),
            )
        },
        control=Control(
            program=NOT_FROM_A_BROADCAST,
            breaks=(ToHost(LENGTH * ROW_BYTES), ToDevice(LENGTH * ROW_BYTES)),
        ),
    ),
)

test_assay_agrees_with_upstream, test_assay_notices_the_control = checks_of(CASES)
