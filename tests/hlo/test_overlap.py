"""Overlap: what lies between a start and its done, by construction.

A ``negate`` of f32[8,4] is 32 operations and 256 bytes: the unit in which the answers are given.
"""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.hlo.module import Module
from assay.hlo.overlap import overlaps
from assay.hlo.trip_count import TripCounter, executions
from assay.model.module import AsyncKind, AsyncPair, Cost

from .conftest import proto_of
from .programs import entry, with_computations

Read = Callable[[str], Module]
HOST = "f32[8,4]{1,0:S(5)}"
UNIT = Cost(flops=32, nbytes=256)
TO_HOST = f"({HOST}, f32[8,4], u32[])"


def scheduled(text: str) -> str:
    """The module with its computations scheduled in the order of the text."""
    head, _, rest = text.partition("\n")
    return f"{head}, is_scheduled=true\n{rest}"


def pairs_of(module: Module) -> tuple[AsyncPair, ...]:
    trips = TripCounter(module)
    return overlaps(module, executions(module, trips), trips)


def units(count: int) -> Cost:
    return Cost(flops=count * UNIT.flops, nbytes=count * UNIT.nbytes)


def matched(pairs: Sequence[AsyncPair]) -> dict[str, tuple[str, Cost | None]]:
    return {pair.start: (pair.done, pair.between) for pair in pairs}


WRAPPED = """sum { l = f32[] parameter(0) r = f32[] parameter(1) ROOT s = f32[] add(l, r) }
reduced { p = f32[16,4] parameter(0)
  ROOT part = f32[8,4] reduce-scatter(p), replica_groups={{0,1}}, dimensions={0}, to_apply=sum }
squared { p = f32[8,4] parameter(0) ROOT s = f32[8,4] multiply(p, p) }
row { p = f32[8,4] parameter(0) at = s32[] parameter(1)
  ROOT r = f32[1,4] dynamic-slice(p, at, at), dynamic_slice_sizes={1,4} }
host_row { p = f32[8,4]{1,0:S(5)} parameter(0) at = s32[] parameter(1)
  ROOT r = f32[1,4] dynamic-slice(p, at, at), dynamic_slice_sizes={1,4} }
fetched { p = f32[8,4]{1,0:S(5)} parameter(0) at = s32[] parameter(1)
  ROOT r = f32[1,4] fusion(p, at), kind=kLoop, calls=host_row }"""
ASYNC = {
    "copy to the host": (f"{TO_HOST} copy-start(x)", f"{HOST} copy-done", "to-host", 128),
    "copy to the device": (
        f"(f32[8,4], {HOST}, u32[]) copy-start(h)",
        "f32[8,4] copy-done",
        "to-device",
        128,
    ),
    "copy into near memory": (
        "(f32[8,4]{1,0:S(1)}, f32[8,4], u32[]) copy-start(x)",
        "f32[8,4]{1,0:S(1)} copy-done",
        "copy",
        128,
    ),
    "row to the host": (
        f"(({HOST}, f32[1,4], s32[], s32[]), {HOST}, u32[]) dynamic-update-slice-start(h, r, i, i)",
        f"{HOST} dynamic-update-slice-done",
        "to-host",
        16,
    ),
    "row within the device": (
        "((f32[8,4], s32[]), f32[1,4], u32[]) async-start(x, i), calls=row",
        "f32[1,4] async-done",
        "copy",
        16,
    ),
    "row from the host, in a fusion": (
        f"(({HOST}, s32[]), f32[1,4], u32[]) async-start(h, i), calls=fetched",
        "f32[1,4] async-done",
        "to-device",
        16,
    ),
    "arithmetic": (
        "((f32[8,4]), f32[8,4], u32[]) async-start(x), calls=squared",
        "f32[8,4] async-done",
        "compute",
        256,
    ),
    "gather": (
        "(f32[8,4], f32[16,4]) all-gather-start(x), replica_groups={{0,1}}, dimensions={0}",
        "f32[16,4] all-gather-done",
        "collective",
        256,
    ),
    "reduction": (
        "f32[8,4] all-reduce-start(x), replica_groups={{0,1}}, to_apply=sum",
        "f32[8,4] all-reduce-done",
        "collective",
        128,
    ),
    "permutation": (
        "(f32[8,4], f32[8,4]) collective-permute-start(x), source_target_pairs={{0,1}}",
        "f32[8,4] collective-permute-done",
        "collective",
        128,
    ),
    "reduction by parts": (
        "((f32[16,4]), f32[8,4]) async-start(wide), calls=reduced",
        "f32[8,4] async-done",
        "collective",
        256,
    ),
    "message to a device": (
        "(f32[8,4], u32[], token[]) send(x, t), channel_id=1",
        "token[] send-done",
        "collective",
        128,
    ),
    "message to the host": (
        "(f32[8,4], u32[], token[]) send(x, t), channel_id=1, is_host_transfer=true",
        "token[] send-done",
        "to-host",
        128,
    ),
    "message from the host": (
        "(f32[8,4], u32[], token[]) recv(t), channel_id=1, is_host_transfer=true",
        "(f32[8,4], token[]) recv-done",
        "to-device",
        128,
    ),
}
CHANNEL = ", channel_id=1"


@pytest.mark.parametrize("name", ASYNC)
def test_each_form_of_asynchronous_operation_is_a_pair(module: Read, name: str) -> None:
    start, done, kind, nbytes = ASYNC[name]
    message = CHANNEL if done.endswith(("send-done", "recv-done")) else ""
    message += ", is_host_transfer=true" if "is_host_transfer" in start else ""
    text = with_computations(
        WRAPPED,
        "x = f32[8,4] parameter(0)",
        f"h = {HOST} parameter(1)",
        "r = f32[1,4] parameter(2)",
        "i = s32[] parameter(3)",
        "wide = f32[16,4] parameter(4)",
        "t = token[] after-all()",
        "before = f32[8,4] negate(x)",
        f"begin = {start}",
        "meanwhile = f32[8,4] negate(x)",
        f"end = {done}(begin){message}",
        "ROOT after = f32[8,4] negate(x)",
    )
    (pair,) = pairs_of(module(scheduled(text)))
    assert (pair.start, pair.done, pair.kind.value, pair.nbytes) == ("begin", "end", kind, nbytes)
    assert pair.between == UNIT
    assert (pair.executions, pair.at_most) == (1, False)


def copies(*lines: str) -> str:
    """An entry that copies x to the host as ``begin``, with these lines after it."""
    return scheduled(
        entry(
            "x = f32[8,4] parameter(0)",
            f"begin = {TO_HOST} copy-start(x)",
            *lines,
        )
    )


def test_names_do_not_decide_which_start_a_done_awaits(module: Read) -> None:
    text = copies(
        f"begin.2 = {TO_HOST} copy-start(x)",
        "a = f32[8,4] negate(x)",
        f"done.2 = {HOST} copy-done(begin)",
        "b = f32[8,4] negate(x)",
        f"ROOT done = {HOST} copy-done(begin.2)",
    )
    found = matched(pairs_of(module(text)))
    assert found == {"begin": ("done.2", units(1)), "begin.2": ("done", units(2))}
    by_name = {start: start.replace("begin", "done") for start in found}
    assert by_name != {start: done for start, (done, _) in found.items()}


@pytest.mark.parametrize(
    "way",
    [
        ("kept = W opt-barrier(begin)",),
        ("pack = (f32[8,4], W) tuple(x, begin)", "kept = W get-tuple-element(pack), index=1"),
        (
            "pack = (W, f32[8,4]) tuple(begin, x)",
            "held = (W, f32[8,4]) opt-barrier(pack)",
            "kept = W get-tuple-element(held), index=0",
        ),
    ],
)
def test_a_start_is_found_behind_what_passes_it_on(module: Read, way: tuple[str, ...]) -> None:
    lines = [line.replace("W", TO_HOST) for line in way]
    text = copies(*lines, "a = f32[8,4] negate(x)", f"ROOT end = {HOST} copy-done(kept)")
    assert matched(pairs_of(module(text))) == {"begin": ("end", UNIT)}


def test_a_start_is_found_behind_its_update(module: Read) -> None:
    state = "((f32[8,4]), f32[8,4], u32[])"
    text = with_computations(
        WRAPPED,
        "x = f32[8,4] parameter(0)",
        f"begin = {state} async-start(x), calls=squared",
        f"kept = {state} async-update(begin)",
        "a = f32[8,4] negate(x)",
        "ROOT end = f32[8,4] async-done(kept)",
    )
    assert matched(pairs_of(module(scheduled(text)))) == {"begin": ("end", UNIT)}


def test_another_operation_in_flight_is_no_work(module: Read) -> None:
    text = with_computations(
        WRAPPED,
        "x = f32[8,4] parameter(0)",
        f"begin = {TO_HOST} copy-start(x)",
        "other = ((f32[8,4]), f32[8,4], u32[]) async-start(x), calls=squared",
        "result = f32[8,4] async-done(other)",
        f"ROOT end = {HOST} copy-done(begin)",
    )
    assert matched(pairs_of(module(scheduled(text))))["begin"] == ("end", Cost())


def test_without_a_schedule_the_work_between_is_unknown(module: Read) -> None:
    text = copies("a = f32[8,4] negate(x)", f"ROOT end = {HOST} copy-done(begin)")
    (pair,) = pairs_of(module(text.replace(", is_scheduled=true", "")))
    assert (pair.done, pair.between, pair.nbytes) == ("end", None, 128)


def test_a_start_that_nothing_awaits_is_not_left_out(module: Read) -> None:
    (pair,) = pairs_of(module(copies("ROOT a = f32[8,4] negate(x)")))
    assert (pair.start, pair.done, pair.between) == ("begin", "", None)


def test_the_source_of_what_is_copied_stands_for_a_start_without_one(module: Read) -> None:
    text = scheduled(
        entry(
            "x = f32[8,4] parameter(0)",
            'y = f32[8,4] negate(x), metadata={source_file="a/model.py" source_line=7}',
            f"begin = {TO_HOST} copy-start(y)",
            f"ROOT end = {HOST} copy-done(begin)",
        )
    )
    (pair,) = pairs_of(module(text))
    assert pair.source == "model.py:7"


@given(length=st.integers(2, 8), data=st.data())
def test_a_later_done_never_has_less_between(length: int, data: st.DataObject) -> None:
    chain = [f"n{k} = f32[8,4] negate(x)" for k in range(length)]
    kinds = data.draw(st.lists(st.booleans(), min_size=length, max_size=length))
    chain = [
        line if computes else line.replace("negate", "bitcast")
        for line, computes in zip(chain, kinds, strict=True)
    ]
    early = data.draw(st.integers(0, length))
    late = data.draw(st.integers(early, length))

    def between(at: int) -> Cost:
        done = f"end = {HOST} copy-done(begin)"
        last = "ROOT last = f32[8,4] copy(x)"
        text = copies(*chain[:at], done, *chain[at:], last)
        (pair,) = pairs_of(Module.from_proto(proto_of(text)))
        assert pair.between == units(sum(kinds[:at]))
        return pair.between

    first, second = between(early), between(late)
    assert (first.flops, first.nbytes) <= (second.flops, second.nbytes)


CARRY = f"(s32[], f32[8,4], {TO_HOST})"
LOOP = f"""condition {{ state = {CARRY} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  bound = s32[] BOUND
  ROOT go = pred[] compare(i, bound), direction=LT }}
body {{ state = {CARRY} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[8,4] get-tuple-element(state), index=1
  flying = {TO_HOST} get-tuple-element(state), index=2
  a = f32[8,4] negate(x)
  landed = {HOST} copy-done(flying)
  b = f32[8,4] negate(a)
  again = {TO_HOST} copy-start(b)
  c = f32[8,4] negate(x)
  d = f32[8,4] negate(c)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT after = {CARRY} tuple(next, x, again) }}"""
CONDITION, NEXT = Cost(flops=1, nbytes=9), Cost(flops=1, nbytes=12)


def pipelined(bound: str) -> str:
    """A loop in which each iteration awaits the copy that the one before it started."""
    return scheduled(
        with_computations(
            LOOP.replace("BOUND", bound),
            "x = f32[8,4] parameter(0)",
            "zero = s32[] constant(0)",
            f"first = {TO_HOST} copy-start(x)",
            "p = f32[8,4] negate(x)",
            f"start = {CARRY} tuple(zero, x, first)",
            f"loop = {CARRY} while(start), condition=condition, body=body",
            "q = f32[8,4] negate(x)",
            "r = f32[8,4] negate(x)",
            "s = f32[8,4] negate(x)",
            f"flown = {TO_HOST} get-tuple-element(loop), index=2",
            f"ROOT last = {HOST} copy-done(flown)",
        )
    )


def test_a_copy_that_a_loop_carries_spans_two_iterations(module: Read) -> None:
    found = {(pair.start, pair.done): pair for pair in pairs_of(module(pipelined("constant(5)")))}
    tail = units(2) + NEXT + CONDITION
    assert {ends: (pair.between, pair.executions) for ends, pair in found.items()} == {
        ("first", "landed"): (units(2) + CONDITION, 1),
        ("again", "landed"): (units(1) + tail, 4),
        ("again", "last"): (units(3) + tail, 1),
    }
    assert not any(pair.at_most for pair in found.values())


def test_the_ends_of_a_loop_of_unknown_trips_are_upper_bounds(module: Read) -> None:
    text = pipelined('custom-call(i), custom_call_target="f"')
    found = {(pair.start, pair.done): pair for pair in pairs_of(module(text))}
    assert {ends: (pair.executions, pair.at_most) for ends, pair in found.items()} == {
        ("first", "landed"): (1, True),
        ("again", "landed"): (None, False),
        ("again", "last"): (1, True),
    }


def around_a_loop(bound: str) -> str:
    """A copy under way while a loop runs, which does not touch it."""
    body = LOOP.replace("BOUND", bound).replace("x, again", "x, flying")
    body = "\n".join(
        line for line in body.splitlines() if not line.strip().startswith(("landed", "again"))
    )
    return scheduled(
        with_computations(
            body,
            "x = f32[8,4] parameter(0)",
            "zero = s32[] constant(0)",
            f"first = {TO_HOST} copy-start(x)",
            f"start = {CARRY} tuple(zero, x, first)",
            f"loop = {CARRY} while(start), condition=condition, body=body",
            f"flown = {TO_HOST} get-tuple-element(loop), index=2",
            f"ROOT last = {HOST} copy-done(flown)",
        )
    )


def test_a_loop_under_a_copy_counts_with_its_trips(module: Read) -> None:
    expected = Cost()
    for part in [units(4), NEXT] * 5 + [CONDITION] * 6:
        expected += part
    found = matched(pairs_of(module(around_a_loop("constant(5)"))))
    assert found == {"first": ("last", expected)}


def test_a_loop_of_unknown_trips_makes_what_is_between_unknown(module: Read) -> None:
    text = around_a_loop('custom-call(i), custom_call_target="f"')
    assert matched(pairs_of(module(text))) == {"first": ("last", None)}


SHARDS = "(f32[8,4], f32[16,4], u32[])"
SPLIT = """begins { p = f32[8,4] parameter(0)
  g = f32[16,4] all-gather(p), channel_id=7, replica_groups={{0,1}}, dimensions={0}
  ROOT s = W custom-call(g), custom_call_target="begin" }
computes { p = f32[8,4] parameter(0) f = f32[16,4] parameter(1) u = u32[] parameter(2)
  x = f32[8,4] parameter(3)
  n = f32[8,4] negate(x)
  g = f32[16,4] all-gather(p), channel_id=7, replica_groups={{0,1}}, dimensions={0}
  ROOT s = (f32[8,4], f32[8,4], f32[16,4], u32[]) tuple(n, p, f, u) }
ends { p = f32[8,4] parameter(0) f = f32[16,4] parameter(1) u = u32[] parameter(2)
  g = f32[16,4] all-gather(p), channel_id=7, replica_groups={{0,1}}, dimensions={0}
  ROOT s = f32[16,4] custom-call(p, f, g, u), custom_call_target="end" }""".replace("W", SHARDS)


def split_gather() -> str:
    """A gather in three fusions, as a TPU compiler writes it, with arithmetic in the second."""
    return scheduled(
        with_computations(
            SPLIT,
            "x = f32[8,4] parameter(0)",
            f"begin = {SHARDS} fusion(x), kind=kCustom, calls=begins",
            "p = f32[8,4] get-tuple-element(begin), index=0",
            "f = f32[16,4] get-tuple-element(begin), index=1",
            "u = u32[] get-tuple-element(begin), index=2",
            "m = (f32[8,4], f32[8,4], f32[16,4], u32[]) fusion(p, f, u, x), kind=kOutput, "
            "output_to_operand_aliasing={{1}: (0, {}), {2}: (1, {}), {3}: (2, {})}, calls=computes",
            "pp = f32[8,4] get-tuple-element(m), index=1",
            "ff = f32[16,4] get-tuple-element(m), index=2",
            "v = u32[] get-tuple-element(m), index=3",
            "ROOT end = f32[16,4] fusion(pp, ff, v), kind=kCustom, calls=ends",
        )
    )


def test_a_collective_that_fusions_share_is_a_pair(module: Read) -> None:
    (pair,) = pairs_of(module(split_gather()))
    assert (pair.start, pair.done, pair.opcode, pair.nbytes) == ("begin", "end", "all-gather", 256)
    assert pair.kind is AsyncKind.COLLECTIVE
    assert pair.between is not None
    assert pair.between.flops == UNIT.flops


def test_fusions_of_the_same_channel_that_do_not_feed_each_other_are_no_pair(
    module: Read,
) -> None:
    text = split_gather().replace("fusion(pp, ff, v)", "fusion(x, wide, count)")
    text = text.replace(
        "begin = ", "wide = f32[16,4] parameter(1)\ncount = u32[] parameter(2)\nbegin = "
    )
    assert pairs_of(module(text)) == ()
