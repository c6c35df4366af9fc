"""After XLA's host_offloader_test.cc: whole arrays in annotated HLO, compiled by each compiler.

Upstream runs one pass and looks at memory spaces; here they are looked at in what is compiled.
"""

from __future__ import annotations

import pytest

from .cases import DEVICES, TPU, Case, Control, Disagreement, Right, checks_of, elided
from .expectations import (
    ArgumentKinds,
    HostTemporaries,
    ResultKinds,
    ToDevice,
    ToHost,
)
from .observed import Hlo, annotated, entry, moved

pytestmark = pytest.mark.exhaustive

ROW_BYTES = 256 * 128 * 4
FLAT = "f32[32768]"
LENGTH = 6

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
