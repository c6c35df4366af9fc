"""Loops are found again by what they carry, repeat and stand for, never by a name."""

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from assay.judge.differences.loops import alike, matched
from assay.model.module import Shape, TripSource, WhileLoop

COUNTER = Shape(element_type="s32")


def array(*dimensions: int, memory_space: int = 0, element_type: str = "f32") -> Shape:
    return Shape(element_type=element_type, dimensions=dimensions, memory_space=memory_space)


def loop(name: str, *carries: Shape, trips: int | None = 8, source: str | None = None) -> WhileLoop:
    return WhileLoop(
        instruction=name,
        computation="main",
        body=f"body of {name}",
        condition=f"condition of {name}",
        trips=trips,
        trips_from=TripSource.KNOWN,
        reason="",
        executions=1,
        at_most=False,
        carries=(COUNTER, *carries),
        source=source,
    )


def names(before: list[WhileLoop], after: list[WhileLoop]) -> set[tuple[str, str]]:
    return {(one.instruction, other.instruction) for one, other in matched(before, after)}


def test_carries_decide_where_names_and_order_say_otherwise() -> None:
    before = [loop("a", array(4)), loop("b", array(5))]
    after = [loop("a", array(5)), loop("b", array(4))]
    assert names(before, after) == {("a", "b"), ("b", "a")}


def test_the_line_decides_between_loops_that_carry_the_same() -> None:
    before = [loop("a", array(4), source="m.py:1"), loop("b", array(4), source="m.py:2")]
    after = [loop("c", array(4), source="m.py:2"), loop("d", array(4), source="m.py:1")]
    assert names(before, after) == {("a", "d"), ("b", "c")}


def test_trips_decide_where_all_lines_moved() -> None:
    before = [loop("a", array(4), trips=1, source="m.py:1"), loop("b", array(4), source="m.py:2")]
    after = [loop("c", array(4), source="m.py:8"), loop("d", array(4), trips=1, source="m.py:9")]
    assert names(before, after) == {("a", "d"), ("b", "c")}


def test_an_array_that_left_the_host_is_the_same_array() -> None:
    before, after = [loop("a", array(4, memory_space=5))], [loop("b", array(4))]
    assert names(before, after) == {("a", "b")}


def test_half_of_the_arrays_is_enough_and_less_is_not() -> None:
    one = loop("a", array(4), array(5), array(6))
    assert names([one], [loop("b", array(4), array(5), array(9))]) == {("a", "b")}
    assert names([one], [loop("b", array(7), array(8), array(6))]) == set()


def test_a_line_alone_makes_no_loop_the_same() -> None:
    before = [loop("a", array(4), array(5), source="m.py:1")]
    after = [loop("b", array(6), array(7), source="m.py:1")]
    assert names(before, after) == set()


LOOPS = st.lists(
    st.builds(
        loop,
        st.just("loop"),
        st.sampled_from([array(4), array(5), array(4, memory_space=5)]),
        st.sampled_from([array(4), array(6)]),
        trips=st.sampled_from([None, 8, 9]),
        source=st.sampled_from([None, "m.py:1", "m.py:2"]),
    ),
    max_size=6,
).map(lambda found: [replace(each, instruction=f"loop.{k}") for k, each in enumerate(found)])


@given(before=LOOPS, after=LOOPS)
def test_no_loop_is_in_two_pairs(before: list[WhileLoop], after: list[WhileLoop]) -> None:
    pairs = matched(before, after)
    assert len({one.instruction for one, _ in pairs}) == len(pairs)
    assert len({other.instruction for _, other in pairs}) == len(pairs)


@given(before=LOOPS, seed=st.integers(0, 99))
def test_every_loop_finds_its_like_in_a_shuffled_program(
    before: list[WhileLoop], seed: int
) -> None:
    after = [replace(each, instruction=f"renamed {each.instruction}") for each in before]
    Random(seed).shuffle(after)
    pairs = matched(before, after)
    assert len(pairs) == len(before)
    assert all(alike(one) == alike(other) for one, other in pairs)
