"""Trip counts against a loop that Python really runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.hlo import loop_evaluation
from assay.hlo.loop_evaluation import Budget, NotEvaluated, evaluated_trip_count
from assay.hlo.module import Module
from assay.hlo.trip_count import TripCount, TripCounter
from assay.model.module import TripSource

from .conftest import proto_of
from .programs import counting_loop

COMPARE = {
    "LT": int.__lt__,
    "LE": int.__le__,
    "GT": int.__gt__,
    "GE": int.__ge__,
    "EQ": int.__eq__,
    "NE": int.__ne__,
}


def count_of(text: str) -> TripCount:
    """The trip count of the while that the entry returns."""
    module = Module.from_proto(proto_of(text))
    return TripCounter(module).count(module.entry.root)


def derived(trips: int) -> TripCount:
    """A count that follows from init, bound and step."""
    return TripCount(trips=trips, found=TripSource.DERIVED)


def runs(
    *, init: int, bound: int, step: int, direction: str, swap: bool, bits: int | None = None
) -> int | None:
    """Iterations of the loop by running it; wrapping at ``bits``; None if it runs too long."""
    value, iterations = init, 0
    while COMPARE[direction](*((bound, value) if swap else (value, bound))):
        value, iterations = value + step, iterations + 1
        if bits is not None:
            value = (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
        if iterations > 1000:
            return None
    return iterations


@given(
    init=st.integers(-60, 60),
    bound=st.integers(-60, 60),
    step=st.integers(-7, 7),
    direction=st.sampled_from(sorted(COMPARE)),
    swap=st.booleans(),
)
def test_a_derived_count_is_what_running_the_loop_gives(
    *, init: int, bound: int, step: int, direction: str, swap: bool
) -> None:
    text = counting_loop(
        init=str(init), bound=str(bound), step=str(step), direction=direction, swap=swap
    )
    expected = runs(init=init, bound=bound, step=step, direction=direction, swap=swap)
    count = count_of(text)
    assert count.trips == expected
    assert count.found is (TripSource.UNKNOWN if expected is None else TripSource.DERIVED)
    assert bool(count.reason) == (expected is None)


@given(
    init=st.integers(-128, 127),
    bound=st.integers(-128, 127),
    step=st.integers(-100, 100),
    direction=st.sampled_from(sorted(COMPARE)),
)
def test_a_counter_that_wraps_is_never_counted_wrongly(
    init: int, bound: int, step: int, direction: str
) -> None:
    text = counting_loop(
        init=str(init), bound=str(bound), step=str(step), direction=direction, kind="s8"
    )
    ran = runs(init=init, bound=bound, step=step, direction=direction, swap=False, bits=8)
    assert count_of(text).trips in {None, ran}


def test_an_unsigned_counter_may_step_down() -> None:
    text = counting_loop(init="9", bound="2", step=str(2**32 - 1), direction="GT", kind="u32")
    assert count_of(text).trips == 7


def test_the_compilers_own_count_is_believed() -> None:
    text = counting_loop(init="0", bound="4", step="1", direction="LT").replace(
        "body=body", 'body=body, backend_config={"known_trip_count":{"n":"32"}}'
    )
    assert count_of(text) == TripCount(trips=32, found=TripSource.KNOWN)


def test_other_words_of_the_backend_do_no_harm() -> None:
    text = counting_loop(init="0", bound="4", step="1", direction="LT").replace(
        "body=body", 'body=body, backend_config="known_trip_count: 32"'
    )
    assert count_of(text) == TripCount(trips=4, found=TripSource.DERIVED)


# Each text counts 3, 5, ... up to 11, the long way round; the state is (counter, bound, other).
STATE = "(s32[], s32[], s32[])"
HIDDEN = f"""HloModule hidden
less_than {{ b = s32[] parameter(0)
  a = s32[] parameter(1)
  ROOT less = pred[] compare(a, b), direction=LT }}
two_results {{ a = s32[] parameter(0)
  two = s32[] constant(2)
  minus = s32[] constant(-2)
  up = s32[] subtract(a, minus)
  down = s32[] subtract(a, two)
  ROOT both = (s32[], s32[]) tuple(down, up) }}
forward {{ a = s32[] parameter(0)
  ROOT sum = s32[] copy(a) }}
condition {{ state = {STATE} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  bound = s32[] get-tuple-element(state), index=1
  ROOT go = pred[] fusion(bound, i), kind=kLoop, calls=less_than }}
body {{ state = {STATE} parameter(0)
  barrier = {STATE} opt-barrier(state)
  i = s32[] get-tuple-element(barrier), index=0
  bound = s32[] get-tuple-element(barrier), index=1
  other = s32[] get-tuple-element(barrier), index=2
  called = s32[] call(i), to_apply=forward
  fused = (s32[], s32[]) fusion(called), kind=kLoop, calls=two_results
  next = s32[] get-tuple-element(fused), index=1
  kept = s32[] copy(bound)
  changed = s32[] multiply(other, other)
  ROOT after = {STATE} tuple(next, kept, changed) }}
ENTRY main {{ three = s16[] constant(3)
  init = s32[] convert(three)
  eleven = s32[] constant(11)
  start = {STATE} tuple(init, eleven, eleven)
  ROOT loop = {STATE} while(start), condition=condition, body=body }}
"""


def test_bound_and_step_are_found_behind_fusions_calls_and_the_carried_state() -> None:
    assert count_of(HIDDEN) == derived(len(range(3, 11, 2)))


def wrapped(number: int) -> int:
    """The number as 32 bits hold it."""
    return (number + 2**31) % 2**32 - 2**31


def test_a_carried_bound_that_changes_is_computed_and_wraps_as_its_type_does() -> None:
    count = count_of(HIDDEN.replace("tuple(next, kept, changed)", "tuple(next, changed, kept)"))
    i, bound, other, ran = 3, 11, 11, 0
    while i < bound:
        i, bound, other, ran = i + 2, wrapped(other * other), bound, ran + 1
    assert (count.trips, count.found) == (ran, TripSource.EVALUATED)


def test_a_bound_that_falls_as_the_counter_rises_is_followed() -> None:
    text = HIDDEN.replace(
        "kept = s32[] copy(bound)",
        "one = s32[] constant(1)\n  kept = s32[] subtract(bound, one)",
    )
    assert count_of(text) == derived(3)  # 3<11, 5<10, 7<9, and not 9<8


def test_a_step_that_is_negated_is_followed() -> None:
    text = HIDDEN.replace(
        "up = s32[] subtract(a, minus)",
        "plus = s32[] negate(minus)\n  up = s32[] add(plus, a)",
    )
    assert count_of(text) == derived(len(range(3, 11, 2)))


@pytest.mark.parametrize(
    ("direction", "opposite", "init", "bound", "step", "trips"),
    [
        ("LT", "GE", "0", "6", "1", 6),
        ("LE", "GT", "0", "6", "1", 7),
        ("GT", "LE", "6", "0", "-1", 6),
        ("GE", "LT", "6", "0", "-1", 7),
        ("NE", "EQ", "0", "6", "1", 6),
        ("EQ", "NE", "6", "6", "1", 1),
    ],
)
def test_a_negated_condition_counts_as_its_opposite(
    direction: str, opposite: str, init: str, bound: str, step: str, trips: int
) -> None:
    plain = counting_loop(init=init, bound=bound, step=step, direction=direction)
    negated = plain.replace(
        f"ROOT go = pred[] compare(i, bound), direction={direction}",
        f"ends = pred[] compare(i, bound), direction={opposite}\n  ROOT go = pred[] not(ends)",
    )
    assert count_of(plain) == count_of(negated) == derived(trips)
    twice = negated.replace(
        f"direction={opposite}\n  ROOT go = pred[] not(ends)",
        f"direction={direction}\n  on = pred[] not(ends)\n  ROOT go = pred[] not(on)",
    )
    assert count_of(twice) == derived(trips)
    computed = plain.replace(
        f"ROOT go = pred[] compare(i, bound), direction={direction}",
        f"on = pred[] compare(i, bound), direction={direction}\n"
        f"  ends = pred[] compare(i, bound), direction={opposite}\n"
        "  off = pred[] not(ends)\n  ROOT go = pred[] and(on, off)",
    )
    assert count_of(computed) == TripCount(trips=trips, found=TripSource.EVALUATED)


def test_a_peeled_loop_counts_from_its_start_not_from_zero() -> None:
    text = counting_loop(init="1", bound="32", step="1", direction="LT")
    assert count_of(text) == derived(31)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("init = s32[] constant(0)", "init = s32[] parameter(0)", "program's arguments"),
        ("next = s32[] add(i, step)", "next = s32[] multiply(i, step)", "multiply"),
        ("next = s32[] add(i, step)", "next = s32[] add(i, i)", "by no constant"),
        ("direction=LT", "direction=NE", "never meets"),
    ],
)
def test_what_cannot_be_told_has_a_reason(old: str, new: str, reason: str) -> None:
    text = counting_loop(init="0", bound="7", step="2", direction="LT").replace(old, new)
    count = count_of(text)
    assert count.trips is None
    assert reason in count.reason


def test_a_condition_of_several_comparisons_is_computed() -> None:
    text = counting_loop(init="0", bound="7", step="2", direction="LT").replace(
        "ROOT go = pred[] compare(i, bound), direction=LT",
        "less = pred[] compare(i, bound), direction=LT\n  ROOT go = pred[] and(less, less)",
    )
    assert count_of(text) == TripCount(trips=4, found=TripSource.EVALUATED)


@pytest.mark.parametrize(
    "condition",
    [
        "ROOT go = pred[] convert(left)",
        "more = pred[] convert(left)\n  ROOT go = pred[] add(more, more)",
    ],
)
def test_a_number_other_than_zero_is_true(condition: str) -> None:
    text = counting_loop(init="0", bound="8", step="2", direction="LT").replace(
        "ROOT go = pred[] compare(i, bound), direction=LT",
        f"left = s32[] subtract(bound, i)\n  {condition}",
    )
    assert count_of(text) == TripCount(trips=4, found=TripSource.EVALUATED)


def test_a_condition_on_what_is_no_integer_has_a_reason() -> None:
    text = counting_loop(init="0", bound="7", step="2", direction="LT").replace(
        "ROOT go = pred[] compare(i, bound), direction=LT",
        "less = pred[] compare(i, bound), direction=LT\n  near = f32[] convert(i)\n"
        "  far = f32[] constant(5)\n  short = pred[] compare(near, far), direction=LT\n"
        "  ROOT go = pred[] and(less, short)",
    )
    count = count_of(text)
    assert (count.trips, count.found) == (None, TripSource.UNKNOWN)
    assert "ends in and" in count.reason


# As a TPU counts in 64 bits: a high and a low word, and a carry between them.
WORDS = "(u32[], u32[])"
TWO_WORDS = f"""HloModule two_words
condition {{ state = {WORDS} parameter(0)
  low = u32[] get-tuple-element(state), index=0
  high = u32[] get-tuple-element(state), index=1
  signed = s32[] bitcast-convert(high)
  zero = s32[] constant(0)
  negative = pred[] compare(signed, zero), direction=LT
  none = u32[] constant(LAST_HIGH)
  same = pred[] compare(high, none), direction=EQ
  bound = u32[] constant(LAST_LOW)
  less = pred[] compare(low, bound), direction=LT
  within = pred[] and(same, less)
  fewer = pred[] compare(high, none), direction=LT
  before = pred[] or(fewer, within)
  ROOT go = pred[] or(negative, before) }}
body {{ state = {WORDS} parameter(0)
  low = u32[] get-tuple-element(state), index=0
  high = u32[] get-tuple-element(state), index=1
  one = u32[] constant(1)
  next = u32[] add(low, one)
  wrapped = pred[] compare(next, low), direction=LT
  carry = u32[] convert(wrapped)
  upper = u32[] add(high, carry)
  ROOT after = {WORDS} tuple(next, upper) }}
ENTRY main {{ low = u32[] constant(FIRST_LOW)
  high = u32[] constant(0)
  start = {WORDS} tuple(low, high)
  ROOT loop = {WORDS} while(start), condition=condition, body=body }}
"""


@pytest.mark.parametrize(("first", "last"), [(0, 16), (3, 3), (2**32 - 3, 2**32 + 4)])
def test_a_counter_of_two_words_is_followed_over_the_carry(first: int, last: int) -> None:
    text = (
        TWO_WORDS.replace("FIRST_LOW", str(first))
        .replace("LAST_LOW", str(last % 2**32))
        .replace("LAST_HIGH", str(last // 2**32))
    )
    assert count_of(text) == TripCount(trips=last - first, found=TripSource.EVALUATED)


def test_a_loop_that_runs_longer_than_is_tried_has_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_evaluation, "_AT_MOST", 1000)
    words = TWO_WORDS.replace("FIRST_LOW", "0").replace("LAST_HIGH", "0")
    longest = count_of(words.replace("LAST_LOW", "1000"))
    assert longest == TripCount(trips=1000, found=TripSource.EVALUATED)
    count = count_of(words.replace("LAST_LOW", "1001"))
    assert count.trips is None
    assert "ends in or" in count.reason


def test_a_loop_that_comes_back_to_a_state_is_given_up_at_once() -> None:
    text = counting_loop(init="5", bound="0", step="-1", direction="NE").replace(
        "next = s32[] add(i, step)", "next = s32[] multiply(i, step)"
    )
    loop = Module.from_proto(proto_of(text)).entry.root
    with pytest.raises(NotEvaluated, match="comes back"):
        evaluated_trip_count(loop, lambda _: 5, Budget())
    assert evaluated_trip_count(loop, lambda _: 0, Budget()) == 0


@given(
    start=st.integers(-128, 127),
    factor=st.integers(-7, 7),
    mask=st.integers(-128, 127),
    bound=st.integers(-128, 127),
    operation=st.sampled_from(["and", "or", "xor", "maximum", "minimum"]),
)
def test_an_evaluated_count_is_what_running_the_loop_gives(
    *, start: int, factor: int, mask: int, bound: int, operation: str
) -> None:
    python = {
        "and": int.__and__,
        "or": int.__or__,
        "xor": int.__xor__,
        "maximum": max,
        "minimum": min,
    }
    text = counting_loop(
        init=str(start), bound=str(bound), step=str(mask), direction="NE", kind="s8"
    ).replace(
        "next = s8[] add(i, step)",
        f"factor = s8[] constant({factor})\n  scaled = s8[] multiply(i, factor)\n"
        f"  next = s8[] {operation}(scaled, step)",
    )
    i, ran = start, 0
    while i != bound and ran < 300:  # of 256 states, one must have come back by then
        i = python[operation]((i * factor + 128) % 256 - 128, mask)
        ran += 1
    count = count_of(text)
    assert count.trips == (ran if i == bound else None)


def test_a_float_counter_has_a_reason() -> None:
    text = counting_loop(init="0", bound="7", step="2", direction="LT", kind="f32")
    count = count_of(text)
    assert count.trips is None
    assert count.reason


def test_a_long_chain_of_additions_ends_in_a_reason_not_in_a_crash() -> None:
    lines = [f"  n{k + 1} = s32[] add(n{k}, n{k})" for k in range(3000)]
    text = counting_loop(init="0", bound="7", step="1", direction="LT").replace(
        "next = s32[] add(i, step)",
        "n0 = s32[] add(i, step)\n" + "\n".join(lines) + "\n  next = s32[] copy(n3000)",
    )
    assert "too many steps" in count_of(text).reason


# Two nested loops; the inner one's bound and step are the outer state's second and third element.
NESTED = f"""HloModule nested
inner_condition {{ state = {STATE} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  bound = s32[] get-tuple-element(state), index=1
  ROOT go = pred[] compare(i, bound), direction=LT }}
inner_body {{ state = {STATE} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  bound = s32[] get-tuple-element(state), index=1
  step = s32[] get-tuple-element(state), index=2
  next = s32[] add(i, step)
  ROOT after = {STATE} tuple(next, bound, step) }}
condition {{ state = {STATE} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  four = s32[] constant(4)
  ROOT go = pred[] compare(i, four), direction=LT }}
body {{ state = {STATE} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  bound = s32[] get-tuple-element(state), index=1
  step = s32[] get-tuple-element(state), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  start = {STATE} tuple(zero, bound, step)
  inner = {STATE} while(start), condition=inner_condition, body=inner_body
  next = s32[] add(i, one)
  ROOT after = {STATE} tuple(next, bound, step) }}
ENTRY main {{ zero = s32[] constant(0)
  ten = s32[] constant(10)
  three = s32[] constant(3)
  start = {STATE} tuple(zero, ten, three)
  ROOT loop = {STATE} while(start), condition=condition, body=body }}
"""


def inner_count(text: str) -> TripCount:
    """The trip count of the inner loop of ``NESTED``."""
    module = Module.from_proto(proto_of(text))
    (body,) = (each for each in module.computations if each.name == "body")
    (inner,) = body.of(frozenset({"while"}))
    return TripCounter(module).count(inner)


def test_a_bound_and_a_step_that_outer_loops_keep_are_followed() -> None:
    assert inner_count(NESTED).trips == len(range(0, 10, 3))


def test_a_bound_that_the_outer_loop_changes_is_unknown() -> None:
    text = NESTED.replace("tuple(zero, bound, step)", "tuple(zero, i, step)")
    count = inner_count(text)
    assert count.trips is None
    assert "changes in the loop around it" in count.reason


def test_a_step_that_the_loop_changes_is_computed() -> None:
    text = NESTED.replace(
        "tuple(next, bound, step) }\ncondition", "tuple(next, bound, next) }\ncondition"
    )
    assert text != NESTED
    assert inner_count(text) == TripCount(trips=3, found=TripSource.EVALUATED)  # 0, 3, 6, not 12


def test_a_loop_that_goes_on_where_another_ended_starts_there() -> None:
    once = counting_loop(init="0", bound="6", step="4", direction="LT")  # leaves 8
    conditions = once.replace("HloModule counting", "").split("ENTRY")[0]
    again = conditions.replace("condition {", "condition2 {").replace("body {", "body2 {")
    text = once.replace("ENTRY", again.replace("constant(6)", "constant(21)") + "ENTRY").replace(
        "ROOT loop = (s32[]) while(start), condition=condition, body=body",
        "loop = (s32[]) while(start), condition=condition, body=body\n"
        "  ROOT on = (s32[]) while(loop), condition=condition2, body=body2",
    )
    assert count_of(text).trips == len(range(8, 21, 4))
