"""How often computations run: nested loops, branches, and computations called twice."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.hlo.module import Module
from assay.hlo.trip_count import Executions, TripCounter, executions

from .conftest import proto_of
from .programs import with_computations


def counts_by_name(text: str) -> Mapping[str, Executions]:
    """Executions, looked up by the names that the texts here give."""
    module = Module.from_proto(proto_of(text))
    counts = executions(module, TripCounter(module))
    return {computation.name: count for computation, count in counts.items()}


def nest(starts_and_trips: list[tuple[int, int]]) -> str:
    """Loops in loops, the outermost first; loop k runs its trips from its start."""
    computations, inner = "", "nothing = s32[] constant(0)"
    for level, (start, trips) in reversed(list(enumerate(starts_and_trips))):
        computations += f"""
condition{level} {{ state = (s32[]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  bound = s32[] constant({start + trips})
  ROOT go = pred[] compare(i, bound), direction=LT }}
body{level} {{ state = (s32[]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  {inner}
  next = s32[] add(i, one)
  ROOT after = (s32[]) tuple(next) }}"""
        inner = f"""init = s32[] constant({start})
  start = (s32[]) tuple(init)
  loop = (s32[]) while(start), condition=condition{level}, body=body{level}"""
    return with_computations(computations, inner.replace("  loop", "  ROOT loop"))


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 6)), min_size=1, max_size=4))
def test_nested_loops_multiply(starts_and_trips: list[tuple[int, int]]) -> None:
    counts = counts_by_name(nest(starts_and_trips))
    around = 1
    for level, (_, trips) in enumerate(starts_and_trips):
        assert counts[f"condition{level}"].count == around * (trips + 1) * (around > 0)
        around *= trips
        assert counts[f"body{level}"].count == around


def test_an_unknown_loop_makes_what_it_runs_unknown_and_nothing_else() -> None:
    text = nest([(0, 3), (0, 4), (0, 5)]).replace(
        "bound = s32[] constant(4)", 'bound = s32[] custom-call(i), custom_call_target="length"'
    )
    counts = counts_by_name(text)
    assert counts["body0"].count == 3
    assert counts["body1"].count is None
    assert counts["body2"].count is None
    assert counts["main"].count == 1


BRANCHES = """
double { x = f32[] parameter(0)
  ROOT y = f32[] add(x, x) }
left { x = f32[] parameter(0)
  ROOT y = f32[] call(x), to_apply=double }
right { x = f32[] parameter(0)
  ROOT y = f32[] negate(x) }
"""


def test_branches_run_at_most_as_often_as_their_conditional() -> None:
    text = with_computations(
        BRANCHES,
        "p = pred[] parameter(0)",
        "x = f32[] parameter(1)",
        "ROOT y = f32[] conditional(p, x, x), true_computation=left, false_computation=right",
    )
    counts = counts_by_name(text)
    bound = Executions(count=1, at_most=True)
    assert (counts["left"], counts["right"], counts["double"]) == (bound, bound, bound)
    assert counts["main"] == Executions(count=1)


def test_a_computation_called_from_two_places_adds_up() -> None:
    text = with_computations(
        BRANCHES,
        "x = f32[] parameter(0)",
        "y = f32[] call(x), to_apply=double",
        "z = f32[] fusion(y), kind=kLoop, calls=right",
        "ROOT w = f32[] call(z), to_apply=left",
    )
    counts = counts_by_name(text)
    assert counts["double"] == Executions(count=2)
    assert counts["right"] == Executions(count=1)


def test_what_an_asynchronous_call_runs_is_counted_once() -> None:
    text = with_computations(
        BRANCHES,
        "x = f32[] parameter(0)",
        "s = ((f32[]), f32[], s32[]) call-start(x), to_apply=double",
        "ROOT d = f32[] call-done(s)",
    )
    assert counts_by_name(text)["double"] == Executions(count=1)


def test_a_reducer_is_not_counted() -> None:
    text = with_computations(
        "add { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b) }",
        "x = f32[9] parameter(0)",
        "z = f32[] constant(0)",
        "ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add",
    )
    assert set(counts_by_name(text)) == {"main"}


def test_a_loop_that_never_runs_runs_nothing() -> None:
    counts = counts_by_name(nest([(0, 0), (0, 5)]))
    assert counts["body0"] == counts["body1"] == Executions(count=0)


@pytest.mark.parametrize(
    ("one", "other", "total"), [(3, 4, 7), (0, 4, 4), (None, 4, None), (4, None, None)]
)
def test_the_sum_of_two_callers_is_known_only_if_both_are(
    one: int | None, other: int | None, total: int | None
) -> None:
    assert Executions(count=one).plus(Executions(count=other)) == Executions(count=total)
    bound = Executions(count=one).plus(Executions(count=other, at_most=True))
    assert bound == Executions(count=total, at_most=True)


@pytest.mark.parametrize(
    ("count", "factor", "product"),
    [(3, 4, 12), (None, 4, None), (4, None, None), (0, None, 0), (None, 0, 0)],
)
def test_what_never_runs_runs_nothing_however_often(
    count: int | None, factor: int | None, product: int | None
) -> None:
    assert Executions(count=count).times(factor) == Executions(count=product)
