"""Differences of two modules, told in words; every sentence is written out here."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from assay.hlo.fingerprint import fingerprint
from assay.hlo.module import Module
from assay.hlo.summary import inventory, read
from assay.judge.differences.inspections import differences
from assay.model.inspection import Aspect
from assay.model.module import AsyncKind, AsyncPair, Cost, Shape
from assay.model.summary import ModuleSummary

from .assigned import assigned
from .conftest import proto_of
from .full_buffer_write_traps import APART, IN_PLACE, UPDATED, looping
from .programs import entry, offloading_loop


def summary_of(text: str) -> ModuleSummary:
    data = proto_of(text)
    module = Module.from_proto(data)
    return replace(read(data), fingerprint=fingerprint(module), inventory=inventory(module))


def told(before: str, after: str) -> list[str]:
    return [str(each) for each in differences(summary_of(before), summary_of(after))]


def line(number: int) -> str:
    return f'metadata={{source_file="/home/me/model.py" source_line={number}}}'


def stacking_loop(*, body: str = "", saved: str = "saved", trips: int = 8, at: int = 41) -> str:
    """A scan that writes a row of a stack per iteration, with more instructions in its body."""
    carry = "(s32[], f32[8,4], f32[4])"
    return f"""HloModule stacking
condition {{ state = {carry} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  bound = s32[] constant({trips})
  ROOT go = pred[] compare(i, bound), direction=LT }}
body {{ state = {carry} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  saved = f32[8,4] get-tuple-element(state), index=1
  row = f32[4] get-tuple-element(state), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  flat = f32[1,4] bitcast(row)
  {body}
  updated = f32[8,4] dynamic-update-slice({saved}, flat, i, zero), {line(at + 2)}
  next = s32[] add(i, one)
  ROOT after = {carry} tuple(next, updated, row) }}
ENTRY main {{ x = f32[8,4] parameter(0)
  row = f32[4] parameter(1)
  zero = s32[] constant(0)
  start = {carry} tuple(zero, x, row)
  loop = {carry} while(start), condition=condition, body=body, {line(at)}
  ROOT out = f32[8,4] get-tuple-element(loop), index=1 }}
"""


COPIED = "copied = f32[8,4] copy(saved), " + line(42)
LOOP = "the loop at model.py:41 that carries f32[8,4] and 2 more (8 trips)"


def test_a_module_does_not_differ_from_itself() -> None:
    assert told(offloading_loop(trips=8), offloading_loop(trips=8)) == []


def test_names_and_lines_are_no_difference() -> None:
    renamed = stacking_loop(at=60).replace("saved", "kept").replace("loop", "while.12")
    assert told(stacking_loop(), renamed) == []


def test_a_copy_in_a_loop_is_told_with_its_bytes_and_line() -> None:
    copying = stacking_loop(body=COPIED, saved="copied")
    assert told(stacking_loop(), copying) == [
        f"copies of f32[8,4] 0 → 1 in each iteration of {LOOP}, +1.0 KiB per run, model.py:42"
    ]
    assert told(copying, stacking_loop()) == [
        f"copies of f32[8,4] 1 → 0 in each iteration of {LOOP}, −1.0 KiB per run, model.py:42"
    ]


def test_lines_that_all_moved_hide_no_copy() -> None:
    copying = stacking_loop(body=COPIED, saved="copied", at=60)
    (only,) = told(stacking_loop(), copying)
    assert only.startswith(f"copies of f32[8,4] 0 → 1 in each iteration of {LOOP}")


def test_two_loops_of_one_line_are_told_apart_by_what_they_carry() -> None:
    copying = summary_of(stacking_loop(body=COPIED, saved="copied"))
    (narrow,), (copy,) = copying.loops, copying.full_buffer_writes
    arrays = tuple(Shape(element_type="f32", dimensions=(size,)) for size in (6, 7))
    wide = replace(narrow, instruction="wide", body="wide", carries=arrays)
    both = replace(copying, loops=(narrow, wide), fingerprint="one")
    moved = replace(both, full_buffer_writes=(replace(copy, loop="wide"),), fingerprint="other")
    other = "the loop at model.py:41 that carries f32[7] and 1 more (8 trips)"
    assert [str(each) for each in differences(both, moved)] == [
        f"copies of f32[8,4] 0 → 1 in each iteration of {other}, +1.0 KiB per run, model.py:42",
        f"copies of f32[8,4] 1 → 0 in each iteration of {LOOP}, −1.0 KiB per run, model.py:42",
    ]


def test_another_number_of_trips_is_told() -> None:
    assert told(stacking_loop(), stacking_loop(trips=9)) == [f"trips 8 → 9 of {LOOP}"]


def test_a_loop_gained_or_lost_is_told_by_what_it_carries() -> None:
    unrolled = entry(
        "x = f32[8,4] parameter(0)", "row = f32[4] parameter(1)", "ROOT y = f32[8,4] copy(x)"
    )
    found = told(stacking_loop(), unrolled)
    assert "loops that carry f32[8,4] and 2 more 1 → 0, model.py:41" in found
    found = told(unrolled, stacking_loop())
    assert "loops that carry f32[8,4] and 2 more 0 → 1, model.py:41" in found


def test_a_stack_that_left_the_host_is_told_with_its_transfers() -> None:
    placed = offloading_loop(trips=8)
    assert told(placed, placed.replace("{1,0:S(5)}", "")) == [
        "output 2 is f32[8,4], was f32[8,4]S(5)",
        "arrays f32[8,4]S(5) (128 B) placed in host memory 1 → 0",
        "transfers of 16 B to the host 8 → 0, −128 B per run",
        "asynchronous copies of 16 B 0 → 1",
        "asynchronous moves to the host of 16 B 1 → 0",
        "custom-call AllocateBuffer f32[8,4]S(5) becomes f32[8,4]",
        "dynamic-update-slice f32[8,4]S(5) becomes f32[8,4]",
    ]


def test_a_placement_gained_names_its_line() -> None:
    lines = [
        "x = f32[8,4] parameter(0)",
        "h = f32[8,4]{} copy(x), " + line(9),
        "ROOT y = f32[8,4] copy(h)",
    ]
    plain, placed = ("\n".join(lines).replace("{}", where) for where in ("", "{1,0:S(5)}"))
    found = told(entry(plain), entry(placed))
    assert "arrays f32[8,4]S(5) (128 B) placed in host memory 0 → 1, model.py:9" in found
    assert "transfers of 128 B to the host 0 → 1, +128 B per run, model.py:9" in found


def test_an_iteration_that_left_its_loop_moves_no_other_bytes() -> None:
    found = differences(
        summary_of(offloading_loop(trips=8)), summary_of(offloading_loop(trips=8, peeled=1))
    )
    assert [str(each) for each in found] == [
        "trips 8 → 7 of the loop that carries f32[8,4] and 2 more (8 trips)",
        "dynamic-update-slice f32[8,4]S(5) 1 → 2",
    ]


INTERFACE = (
    "HloModule m{alias}\nENTRY main {{ x = {kind} parameter(0)\n  ROOT y = {kind} negate(x) }}\n"
)
ALIAS = ", input_output_alias={ {}: (0, {}, may-alias) }"


def test_a_lost_alias_is_told_with_the_buffer() -> None:
    shared, apart = (INTERFACE.format(alias=alias, kind="f32[8,4]") for alias in (ALIAS, ""))
    assert told(shared, apart) == [
        "output no longer shares the buffer of argument 0 (f32[8,4], 128 B)"
    ]
    assert told(apart, shared) == ["output now shares the buffer of argument 0 (f32[8,4], 128 B)"]


def test_an_alias_of_another_shape_is_the_same_alias() -> None:
    found = aspects([INTERFACE.format(alias=ALIAS, kind=kind) for kind in ("f32[8,4]", "f32[32]")])
    assert Aspect.ARGUMENT in found
    assert Aspect.SHARED_BUFFER not in found


def test_other_arguments_and_outputs_are_told_first() -> None:
    narrow, wide = (INTERFACE.format(alias="", kind=kind) for kind in ("f32[8,4]", "f32[16,4]"))
    assert told(narrow, wide) == [
        "argument 0 is f32[16,4], was f32[8,4]",
        "output 0 is f32[16,4], was f32[8,4]",
        "negate f32[8,4] becomes f32[16,4]",
    ]


def test_a_new_argument_is_told() -> None:
    one = entry("x = f32[4] parameter(0)", "ROOT y = f32[4] negate(x)")
    two = entry("x = f32[4] parameter(0)", "z = f32[8] parameter(1)", "ROOT y = f32[4] negate(x)")
    assert told(one, two) == ["argument 1 is f32[8]"]
    assert told(two, one) == ["argument 1 is gone, was f32[8]"]


def dot(left: str, right: str) -> str:
    dimensions = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    return f"f32[4,4] dot({left}, {right}), {dimensions}, {line(12)}"


def test_a_lost_operation_is_told_with_its_line() -> None:
    lines = ("x = f32[4,4] parameter(0)", f"a = {dot('x', 'x')}", f"b = {dot('a', 'x')}")
    once = entry(*lines[:2], "ROOT y = f32[4,4] negate(a)")
    twice = entry(*lines, "ROOT y = f32[4,4] negate(b)")
    assert told(twice, once) == ["dot f32[4,4] 2 → 1, model.py:12"]


COLLECTIVE = (
    "x = f32[8] parameter(0)",
    "ROOT y = f32[16] all-gather(x), dimensions={0}, replica_groups={{0,1}}, " + line(7),
)
STARTED = (
    COLLECTIVE[0],
    "s = (f32[8], f32[16]) all-gather-start(x), dimensions={0}, replica_groups={{0,1}}, " + line(7),
    "ROOT y = f32[16] all-gather-done(s)",
)


def test_a_lost_collective_is_told() -> None:
    alone = entry("zero = f32[] constant(0)", COLLECTIVE[0], "ROOT y = f32[16] broadcast(zero)")
    assert told(entry(*COLLECTIVE), alone) == [
        "all-gather f32[16] 1 → 0, model.py:7",
        "broadcast f32[16] 0 → 1",
    ]


def pair(kind: AsyncKind, between: Cost, nbytes: int = 64) -> AsyncPair:
    return AsyncPair(
        kind=kind,
        opcode="start",
        nbytes=nbytes,
        between=between,
        executions=1,
        at_most=False,
        computation="main",
        start="s",
        done="d",
        source="model.py:7",
    )


BUSY, IDLE = Cost(flops=8, nbytes=8), Cost()


def test_a_collective_that_became_synchronous_is_no_lost_collective() -> None:
    started = replace(summary_of(entry(*STARTED)), overlaps=(pair(AsyncKind.COLLECTIVE, BUSY),))
    waiting = replace(summary_of(entry(*COLLECTIVE)), overlaps=())
    assert [str(each) for each in differences(started, waiting)] == [
        "asynchronous collectives of 64 B 1 → 0 (1 now synchronous), model.py:7"
    ]


def test_an_update_on_the_host_that_became_synchronous_is_told() -> None:
    started = offloading_loop(trips=8)
    first, last = started.index("  update ="), started.index("  next =")
    updated = "f32[8,4]{1,0:S(5)} dynamic-update-slice(saved, row, i, zero)"
    waiting = f"{started[:first]}  updated = {updated}\n{started[last:]}"
    assert told(started, waiting) == [
        "asynchronous moves to the host of 16 B 1 → 0 (1 now synchronous)"
    ]


def test_a_move_that_became_synchronous_is_told() -> None:
    lines = ("x = f32[16] parameter(0)", "ROOT h = f32[16]{0:S(5)} copy(x)")
    waiting = replace(summary_of(entry(*lines)), fingerprint="waiting")
    started = replace(waiting, fingerprint="started", overlaps=(pair(AsyncKind.TO_HOST, BUSY),))
    assert [str(each) for each in differences(started, waiting)] == [
        "asynchronous moves to the host of 64 B 1 → 0 (1 now synchronous), model.py:7"
    ]
    assert [str(each) for each in differences(waiting, started)] == [
        "asynchronous moves to the host of 64 B 0 → 1, model.py:7"
    ]


def test_a_move_that_nothing_runs_beside_any_more_is_told() -> None:
    plain = summary_of(entry("ROOT x = f32[16] parameter(0)"))
    busy = replace(plain, fingerprint="busy", overlaps=(pair(AsyncKind.TO_HOST, BUSY),))
    idle = replace(plain, fingerprint="idle", overlaps=(pair(AsyncKind.TO_HOST, IDLE),))
    assert [str(each) for each in differences(busy, idle)] == [
        "moves to the host of 64 B overlapped with other work 1 → 0, model.py:7"
    ]


FUSED = """HloModule fused
f {{ p = f32[4] parameter(0)
  n = f32[4] negate(p)
  ROOT q = f32[4] tanh(n) }}
ENTRY main {{ x = f32[4] parameter(0)
  {}
}}
"""


def test_the_number_of_fusions_is_told_once() -> None:
    once = FUSED.format("ROOT a = f32[4] fusion(x), kind=kLoop, calls=f")
    apart = entry("x = f32[4] parameter(0)", "n = f32[4] negate(x)", "ROOT q = f32[4] tanh(n)")
    assert told(once, apart) == ["fusions 1 → 0"]


def test_what_no_sentence_names_is_still_told() -> None:
    lines = ("x = f32[4] parameter(0)", "y = f32[4] parameter(1)", "ROOT z = f32[4] subtract({})")
    one, other = (entry(*lines).replace("{}", operands) for operands in ("x, y", "y, x"))
    assert told(one, other) == [
        "the same operations, with other attributes or operands or in another order"
    ]


def test_a_loop_is_found_again_although_its_arrays_are_narrower() -> None:
    wide = summary_of(stacking_loop())
    narrow = summary_of(
        stacking_loop().replace("f32[8,4]", "bf16[8,4]").replace("f32[1,4]", "bf16[1,4]")
    )
    found = [str(each) for each in differences(wide, narrow)]
    assert f"arrays f32[8,4] 1 → 0 carried by {LOOP}" in found
    assert f"arrays bf16[8,4] 0 → 1 carried by {LOOP}" in found
    assert not any(each.startswith("loops") for each in found)


@pytest.mark.parametrize("without", ["fingerprint", "inventory"])
def test_summaries_read_without_a_part_are_compared_without_it(without: str) -> None:
    missing: str | None = "" if without == "fingerprint" else None
    before, after = (
        replace(summary_of(stacking_loop(trips=trips)), **{without: missing}) for trips in (8, 9)
    )
    assert [str(each) for each in differences(before, after)] == [f"trips 8 → 9 of {LOOP}"]


def aspects(texts: Sequence[str]) -> list[Aspect]:
    return [each.aspect for each in differences(*map(summary_of, texts))]


def test_the_most_important_comes_first() -> None:
    before, after = stacking_loop(), stacking_loop(body=COPIED, saved="copied", trips=9)
    found = aspects(
        (
            before,
            after.replace(
                "row = f32[4] parameter(1)", "row = f32[4] parameter(1)\n  z = f32[] parameter(2)"
            ),
        )
    )
    assert found == [Aspect.ARGUMENT, Aspect.FULL_BUFFER_WRITE, Aspect.TRIPS]


@pytest.mark.parametrize(
    ("was", "now", "told_as"),
    [
        ("{1,0}", "{0,1}", "argument 0 f32[8,4] has layout {0,1}, was {1,0}"),
        ("{1,0}", "{1,0:T(8,128)}", "argument 0 f32[8,4] has layout {1,0:T(8,128)}, was {1,0}"),
    ],
)
def test_another_layout_of_an_argument_is_told(was: str, now: str, told_as: str) -> None:
    def taking(layout: str) -> str:
        return entry(f"x = f32[8,4]{layout} parameter(0)", "ROOT y = f32[8,4]{1,0} negate(x)")

    assert told(taking(was), taking(now)) == [told_as]


def test_a_layout_of_another_shape_is_no_other_layout() -> None:
    before = entry("x = f32[8,4]{1,0} parameter(0)", "ROOT y = f32[8,4]{1,0} negate(x)")
    after = entry("x = f32[32]{0} parameter(0)", "ROOT y = f32[32]{0} negate(x)")
    assert Aspect.ARGUMENT in aspects((before, after))
    assert Aspect.LAYOUT not in aspects((before, after))


DONATED = "HloModule given, input_output_alias={ {}: (0, {}, may-alias) }"
UPDATES = entry("x = f32[8,4] parameter(0)", "ROOT y = f32[8,4] negate(x)")
COPIES = entry(
    "x = f32[8,4] parameter(0)", "old = f32[8,4] copy(x)", "ROOT y = f32[8,4] add(x, old)"
)


def test_a_donation_that_is_copied_all_the_same_is_told() -> None:
    kept, lost = (DONATED + text[text.index("\n") :] for text in (UPDATES, COPIES))
    before, after = (assigned(text, {"x": (1, 0), "y": (1, 0)}).summary() for text in (kept, lost))
    found = [each for each in differences(before, after) if each.aspect is Aspect.DONATION]
    assert [str(each) for each in found] == [
        "argument x is donated but copied, is donated and reused before (f32[8,4], 128 B)"
    ]


def test_the_same_module_with_another_buffer_assignment_differs() -> None:
    loop = looping(UPDATED)
    before, after = (assigned(loop, places).summary() for places in (IN_PLACE, APART))
    assert before.fingerprint == after.fingerprint
    (found,) = differences(before, after)
    assert found.subject == "updates that write all of f32[8,4]"
    assert differences(before, before) == ()
    assert differences(before, read(proto_of(loop))) == ()
