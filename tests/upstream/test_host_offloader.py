"""After XLA's host_offloader_test.cc: annotated HLO, compiled by the whole of each compiler.

Upstream runs one pass and looks at memory spaces; here they are looked at in what is compiled.
"""

from __future__ import annotations

import pytest

from assay.model.evidence import FailureKind

from .cases import DEVICES, GPU, TPU, Case, Control, Disagreement, Right, checks_of, elided
from .expectations import (
    ArgumentKinds,
    HostTemporaries,
    Refused,
    ResultKinds,
    ToDevice,
    ToHost,
)
from .observed import Hlo

pytestmark = pytest.mark.exhaustive

ROW = "f32[1,256,128]"
ROW_BYTES = 256 * 128 * 4
STACK = "f32[2,256,128]"
FLAT = "f32[32768]"
LENGTH = 6
LONG = f"f32[{LENGTH},256,128]"


def moved(array: str, operand: str, where: str, name: str) -> str:
    return f'{name} = {array} custom-call({operand}), custom_call_target="MoveTo{where}"'


def entry(*lines: str, computations: str = "", header: str = "") -> Hlo:
    body = "\n  ".join(lines)
    return Hlo(f"HloModule offloaded{header}\n{computations}\nENTRY main {{\n  {body}\n}}\n")


def annotated(*lines: str, computations: str = "", header: str = "") -> tuple[Hlo, Hlo]:
    """The module, and the same without its annotations, as a negative control."""
    plain = tuple(
        line.replace("custom-call(", "negate(").partition(", custom_call_target=")[0]
        for line in lines
    )
    bare = "\n".join(
        line.replace("custom-call(", "negate(").partition(", custom_call_target=")[0]
        if "MoveTo" in line
        else line
        for line in computations.split("\n")
    )
    return (
        entry(*lines, computations=computations, header=header),
        entry(*plain, computations=bare, header=header),
    )


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

GIVEN = f"given = {FLAT} parameter(0)"
SENT = moved(FLAT, "given", "Host", "sent")
THROUGH_A_TUPLE, NOT_THROUGH_A_TUPLE = annotated(
    GIVEN,
    f"other = {FLAT} parameter(1)",
    SENT,
    f"pair = ({FLAT}, {FLAT}) tuple(sent, other)",
    f"first = {FLAT} get-tuple-element(pair), index=0",
    f"second = {FLAT} get-tuple-element(pair), index=1",
    moved(FLAT, "first", "Device", "back"),
    f"ROOT sum = {FLAT} add(back, second)",
)
THROUGH_NESTED_TUPLES, NOT_THROUGH_NESTED_TUPLES = annotated(
    GIVEN,
    f"other = {FLAT} parameter(1)",
    SENT,
    f"inner = ({FLAT}, {FLAT}) tuple(sent, other)",
    f"outer = (({FLAT}, {FLAT}), {FLAT}) tuple(inner, other)",
    f"again = ({FLAT}, {FLAT}) get-tuple-element(outer), index=0",
    f"first = {FLAT} get-tuple-element(again), index=0",
    "ROOT " + moved(FLAT, "first", "Device", "back"),
)
CALLED = f"same {{ ROOT it = {FLAT} parameter(0) }}"
THROUGH_A_CALL, NOT_THROUGH_A_CALL = annotated(
    GIVEN,
    SENT,
    f"called = {FLAT} call(sent), to_apply=same",
    "ROOT " + moved(FLAT, "called", "Device", "back"),
    computations=CALLED,
)
LOOPING = f"""
body {{
  state = (s32[], {FLAT}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  kept = {FLAT} get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT after = (s32[], {FLAT}) tuple(next, kept)
}}
go {{
  state = (s32[], {FLAT}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  most = s32[] constant({LENGTH})
  ROOT less = pred[] compare(i, most), direction=LT
}}"""
THROUGH_A_LOOP, NOT_THROUGH_A_LOOP = annotated(
    GIVEN,
    SENT,
    "first = s32[] constant(0)",
    f"start = (s32[], {FLAT}) tuple(first, sent)",
    f"loop = (s32[], {FLAT}) while(start), condition=go, body=body",
    f"carried = {FLAT} get-tuple-element(loop), index=1",
    "ROOT " + moved(FLAT, "carried", "Device", "back"),
    computations=LOOPING,
)
BEHIND_A_BARRIER, NOT_BEHIND_A_BARRIER = annotated(
    GIVEN,
    SENT,
    f"waiting = {FLAT} opt-barrier(sent)",
    "ROOT " + moved(FLAT, "waiting", "Device", "back"),
)
SENT_TWICE, NOT_SENT_TWICE = annotated(
    GIVEN,
    SENT,
    moved(FLAT, "sent", "Host", "again"),
    "ROOT " + moved(FLAT, "again", "Device", "back"),
)
FETCHED_TWICE, NOT_FETCHED_TWICE = annotated(
    GIVEN,
    SENT,
    moved(FLAT, "sent", "Device", "back"),
    "ROOT " + moved(FLAT, "back", "Device", "again"),
)
SENT_BY_TWO, NOT_SENT_BY_TWO = annotated(
    GIVEN,
    SENT,
    moved(FLAT, "given", "Host", "unused"),
    "ROOT " + moved(FLAT, "sent", "Device", "back"),
)
FETCHED_BY_TWO, NOT_FETCHED_BY_TWO = annotated(
    GIVEN,
    SENT,
    moved(FLAT, "sent", "Device", "first"),
    moved(FLAT, "sent", "Device", "second"),
    f"sine = {FLAT} sine(first)",
    f"ROOT sum = {FLAT} add(sine, second)",
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

ON_THE_HOST = f", entry_computation_layout={{({FLAT}{{0:S(5)}})->{FLAT}{{0}}}}"
STREAMED, _ = annotated(GIVEN, "ROOT " + moved(FLAT, "given", "Device", "b"), header=ON_THE_HOST)
NOT_STREAMED = entry(GIVEN, f"ROOT b = {FLAT} negate(given)")
TO_THE_HOST = f", entry_computation_layout={{({FLAT}{{0}})->{FLAT}{{0:S(5)}}}}"
RETURNED, _ = annotated(
    GIVEN,
    f"sine = {FLAT} sine(given)",
    "ROOT " + moved(FLAT, "sine", "Host", "sent"),
    header=TO_THE_HOST,
)
NOT_RETURNED = entry(GIVEN, f"ROOT sine = {FLAT} sine(given)")

FILE = "host_offloader_test.cc::HostOffloaderTest."
ONCE = (ToHost(ROW_BYTES), ToDevice(ROW_BYTES))
THERE = (HostTemporaries(ROW_BYTES), *ONCE)


def round_trip(
    name: str,
    after: str,
    asserts: str,
    program: Hlo,
    control: Hlo,
    disagreements: tuple[Disagreement, ...] = elided(*THERE),
) -> Case:
    """A case whose array goes to the host once and comes back once."""
    return Case(
        name=name,
        after=FILE + after,
        asserts=asserts,
        program=program,
        expect={DEVICES: THERE},
        control=Control(program=control, breaks=THERE, on=DEVICES),
        disagreements=disagreements,
    )


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
    round_trip(
        "through-a-tuple",
        "NoCopyThroughTuple",
        "within a tuple the array stays on the host, and the other array on the device",
        THROUGH_A_TUPLE,
        NOT_THROUGH_A_TUPLE,
    ),
    round_trip(
        "through-nested-tuples",
        "NoCopyThroughNestedTuple",
        "so it does within a tuple in a tuple",
        THROUGH_NESTED_TUPLES,
        NOT_THROUGH_NESTED_TUPLES,
    ),
    round_trip(
        "through-a-call",
        "NoCopyThroughComputation",
        "so it does through a computation that is called",
        THROUGH_A_CALL,
        NOT_THROUGH_A_CALL,
    ),
    round_trip(
        "through-a-loop",
        "NoCopyThroughWhile",
        "so it does through a loop, which moves nothing",
        THROUGH_A_LOOP,
        NOT_THROUGH_A_LOOP,
    ),
    round_trip(
        "behind-a-barrier",
        "NoCopyWithOptBarrier",
        "so it does through an optimization barrier",
        BEHIND_A_BARRIER,
        NOT_BEHIND_A_BARRIER,
        (),
    ),
    round_trip(
        "sent-twice",
        "RepeatedMoveToHost",
        "two moves to the host one after the other are one",
        SENT_TWICE,
        NOT_SENT_TWICE,
    ),
    round_trip(
        "fetched-twice",
        "RepeatedMoveToDevice",
        "two moves to the device one after the other are one",
        FETCHED_TWICE,
        NOT_FETCHED_TWICE,
    ),
    round_trip(
        "sent-by-two",
        "RepeatedMoveToHostNonSequential",
        "two moves of one array to the host are one",
        SENT_BY_TWO,
        NOT_SENT_BY_TWO,
    ),
    Case(
        name="fetched-by-two",
        after=FILE + "RepeatedMoveToDeviceNonSequential",
        asserts="an array goes to the host once, and is copied back for each of two moves",
        program=FETCHED_BY_TWO,
        expect={DEVICES: (HostTemporaries(ROW_BYTES), ToHost(ROW_BYTES), ToDevice(2 * ROW_BYTES))},
        control=Control(program=NOT_FETCHED_BY_TWO),
        disagreements=(
            *elided(HostTemporaries(ROW_BYTES), ToHost(ROW_BYTES), ToDevice(2 * ROW_BYTES)),
            Disagreement(
                of=ToDevice(2 * ROW_BYTES),
                on=TPU,
                seen=f"measured {ROW_BYTES}",
                right=Right.TOOLCHAIN,
                why="both readers are given what was copied back once",
            ),
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
    Case(
        name="streamed",
        after=FILE + "ParameterStreamingNoOpToHost / MoveToDevice of a host parameter",
        asserts="a parameter with S(5) in the entry layout is copied to the device",
        program=STREAMED,
        expect={DEVICES: (ArgumentKinds(("host",)), ToDevice(ROW_BYTES), ToHost(0))},
        control=Control(
            program=NOT_STREAMED, breaks=(ArgumentKinds(("host",)), ToDevice(ROW_BYTES))
        ),
    ),
    Case(
        name="returned",
        after=FILE + "OutputStreaming",
        asserts="a result with S(5) in the entry layout is copied to the host",
        program=RETURNED,
        expect={DEVICES: (ResultKinds(("host",)), ToHost(ROW_BYTES), ToDevice(0))},
        control=Control(program=NOT_RETURNED, breaks=(ResultKinds(("host",)), ToHost(ROW_BYTES))),
    ),
)

test_assay_agrees_with_upstream, test_assay_notices_the_control = checks_of(CASES)
