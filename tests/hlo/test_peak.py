"""What is alive when most is: on hand-made heap traces, and in compiled programs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.frameworks.framework import Compiled
from assay.hlo.schema import split
from assay.hlo.summary import read
from assay.model.summary import Holds, Peak

from .assigned import Event, Places, assigned
from .compilers import compiled, installed
from .programs import entry

KIB = 1024
HEAP: Places = {"a": (9, 0), "b": (9, 1024), "c": (9, 0), "d": (9, 3072), "e": (9, 4096)}
TEMPORARIES = (
    "a = f32[256] iota(), iota_dimension=0",
    "b = f32[512] iota(), iota_dimension=0",
    "c = f32[256] negate(a)",
    "d = f32[128] iota(), iota_dimension=0",
    "e = f32[256] iota(), iota_dimension=0",
)
TEXT = entry(*TEMPORARIES, "ROOT out = f32[] constant(0)")


def peak(
    events: Sequence[Event] = (), text: str = TEXT, places: Places = HEAP, **more: Any
) -> Peak:
    """The peak of a heap, or of several if ``more`` has traces."""
    traces = more.pop("traces", [events] if events else [])
    places = places if "out" in places else {**places, "out": None}
    found = assigned(text, places, traces=traces, **more).summary().peak
    assert found is not None
    return found


def names(found: Peak) -> set[str]:
    return {each.name for each in found.buffers}


def alloc(*values: str) -> list[Event]:
    return [("alloc", value) for value in values]


def free(*values: str) -> list[Event]:
    return [("free", value) for value in values]


def test_the_peak_is_the_fullest_moment_and_not_the_sum_nor_the_end() -> None:
    found = peak([*alloc("a", "b"), *free("a"), *alloc("d"), *free("b"), *alloc("c", "e")])
    assert (found.nbytes, found.at, names(found)) == (3 * KIB, "b", {"a", "b"})
    assert [each.nbytes for each in found.buffers] == [2 * KIB, KIB]
    everything = sum(each.nbytes for each in peak(alloc("a", "b", "c", "d", "e")).buffers)
    assert everything == 5 * KIB + KIB // 2


def test_the_schedule_shows_each_level_and_what_is_always_alive() -> None:
    found = peak([*alloc("a", "b"), *free("a"), *alloc("d"), *free("b", "d")])
    assert found.levels == (0, KIB, 3 * KIB, 2 * KIB, 2 * KIB + KIB // 2, KIB // 2, 0)
    argument = TEXT.replace("a = f32[256] iota(), iota_dimension=0", "a = f32[256] parameter(0)")
    also = peak([*alloc("b"), *free("b")], argument, {**HEAP, "a": (0, 0)})
    assert also.levels == (KIB, 3 * KIB, KIB)


def test_a_long_schedule_is_thinned_and_keeps_its_peak() -> None:
    short = [*alloc("d"), *free("d")] * 500
    found = peak([*short, *alloc("a", "b"), *free("a", "b"), *short])
    assert len(found.levels) <= 200
    assert max(found.levels) == found.nbytes == 3 * KIB
    assert found.levels.count(3 * KIB) == 1


def test_buffers_that_share_memory_count_once_and_until_the_last_is_free() -> None:
    shared: list[Event] = [*alloc("a"), ("share", "c", "a"), *free("a"), *alloc("b"), *free("c")]
    found = peak([*shared, *alloc("e")])
    assert (found.nbytes, found.at) == (3 * KIB, "b")
    assert len(found.buffers) == 2


def test_memory_shared_with_what_is_free_already_comes_back() -> None:
    found = peak([*alloc("a"), *free("a"), ("share", "c", "a"), *alloc("b")])
    assert (found.nbytes, found.at) == (3 * KIB, "b")


def test_what_shares_with_one_that_shares_is_in_the_same_memory() -> None:
    found = peak([*alloc("a"), ("share", "c", "a"), ("share", "e", "c"), *free("a", "c")])
    assert (found.nbytes, len(found.buffers)) == (KIB, 1)


def test_two_heaps_in_one_allocation_are_both_counted() -> None:
    found = peak(traces=[[*alloc("a"), *free("a"), *alloc("d")], alloc("b")])
    assert (found.nbytes, found.at, names(found)) == (3 * KIB, "b", {"a", "b"})


def test_an_allocation_without_a_heap_counts_whole() -> None:
    found = peak(alloc("a"), places={**HEAP, "e": (5, 0)})
    assert (found.nbytes, names(found)) == (2 * KIB, {"a", "e"})


ARGUMENTS = entry(
    'x = (f32[256], f32[512]) parameter(0), metadata={op_name="state"}',
    "y = f32[128] parameter(1)",
    "out = f32[256] get-tuple-element(x), index=0",
    "chip = f32[2048]{0:S(1)} iota(), iota_dimension=0",
    "host = f32[2048]{0:S(5)} iota(), iota_dimension=0",
    "one = f32[2] constant({1,2})",
    'flag = pred[] constant(true), metadata={op_name="f" source_file="f.py" source_line=1}',
    "ROOT new = f32[512] iota(), iota_dimension=0",
)


def test_arguments_have_the_program_s_own_names_and_constants_and_outputs_their_kind() -> None:
    places: Places = {"x/0": (1, 0), "x/1": (2, 0), "new": (3, 0), "one": (4, 0), "flag": (3, 0)}
    found = peak(text=ARGUMENTS, places={**places, "out": "x/0"}, outputs=[3], constants=[4])
    assert [(each.holds, each.name, each.nbytes) for each in found.buffers] == [
        (Holds.ARGUMENT, "state", 2 * KIB),
        (Holds.OUTPUT, "new", 2 * KIB),
        (Holds.ARGUMENT, "state", KIB),
        (Holds.ARGUMENT, "y", KIB // 2),
        (Holds.CONSTANT, "one", 8),
    ]


def test_an_argument_has_the_first_line_that_reads_it_and_not_the_nearest() -> None:
    text = entry(
        "x = f32[256] parameter(0)",
        "y = f32[128] parameter(1)",
        "moved = f32[256] copy(x)",
        'sine = f32[256] sine(moved), metadata={op_name="sin" source_file="f.py" source_line=3}',
        'sum = f32[256] add(x, sine), metadata={op_name="add" source_file="f.py" source_line=7}',
        "ROOT out = f32[256] copy(sum)",
    )
    lines = {each.name: each.line for each in peak(text=text, places={}).buffers}
    assert (lines["x"], lines["y"]) == ("f.py:3", None)


def test_what_lies_on_the_chip_or_on_the_host_is_left_out() -> None:
    places: Places = {"out": "x/0", "chip": (7, 0), "host": (8, 0)}
    found = peak(text=ARGUMENTS, places=places, traces=[alloc("chip"), alloc("host")])
    assert not {"chip", "host"} & names(found)
    assert found.nbytes < 2048 * 4


def test_no_more_than_a_hundred_buffers_are_listed_and_all_are_summed() -> None:
    lines = [f"v{k} = f32[256] iota(), iota_dimension=0" for k in range(150)]
    text = entry(*lines, "ROOT out = f32[] constant(0)")
    found = peak(text=text, places={})
    assert (len(found.buffers), found.nbytes) == (100, 150 * KIB)


@dataclass(slots=True)
class Heap:
    """A heap's bytes, told from scratch at each moment: who is alive, and in whose memory."""

    lives_in: dict[str, str]
    alive: set[str]

    def nbytes(self, sizes: dict[str, int]) -> int:
        return sum(sizes[each] for each in {self.lives_in[value] for value in self.alive})


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Event], int]:
    """Events that could be a compiler's, and the most bytes that are alive at once."""
    sizes = {"a": KIB, "b": 2 * KIB, "c": KIB, "d": KIB // 2, "e": KIB}
    heap, events, most = Heap({}, set()), list[Event](), 0
    for value in draw(st.permutations(list(sizes))):
        for dead in draw(st.sets(st.sampled_from(sorted(heap.alive)))) if heap.alive else ():
            heap.alive.remove(dead)
            events.append(("free", dead))
        friends = [each for each in sorted(heap.alive) if sizes[each] == sizes[value]]
        friend = draw(st.sampled_from([None, *friends]))
        heap.lives_in[value] = heap.lives_in[friend] if friend else value
        heap.alive.add(value)
        events.append(("share", value, friend) if friend else ("alloc", value))
        most = max(most, heap.nbytes(sizes))
    return events, most


@given(histories())
def test_any_history_of_a_heap_has_its_fullest_moment(history: tuple[list[Event], int]) -> None:
    events, most = history
    found = peak(events, places={name: (9, 4096 * k) for k, name in enumerate("abcde")})
    assert found.nbytes == most == sum(each.nbytes for each in found.buffers)


LOOPING = """HloModule looping
condition { going = (s32[], f32[256]) parameter(0)
  k = s32[] get-tuple-element(going), index=0
  bound = s32[] constant(6)
  ROOT go = pred[] compare(k, bound), direction=LT }
body { state = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  old = f32[256] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  sine = f32[256] sine(old), metadata={op_name="sin" source_file="model.py" source_line=3}
  ROOT after = (s32[], f32[256]) tuple(next, sine) }
ENTRY main { begin = s32[] constant(0)
  zeros = f32[256] iota(), iota_dimension=0
  start = (s32[], f32[256]) tuple(begin, zeros)
  loop = (s32[], f32[256]) while(start), condition=condition, body=body
  ROOT out = f32[256] get-tuple-element(loop), index=1 }
"""


@pytest.mark.parametrize("member", ["state/1", "loop/1"])
def test_what_a_loop_carries_is_called_by_what_fills_it(member: str) -> None:
    places: Places = {"zeros": None, "sine": None, "out": None, "going/1": None, "state/1": None}
    found = peak(text=LOOPING, places={**places, member: (9, 0)})
    first = found.buffers[0]
    assert (first.name, first.opcode, first.line) == ("sine", "sine", "model.py:3")


def test_a_buffer_is_called_by_the_value_in_it_that_has_a_line_also_if_it_comes_later() -> None:
    text = entry(
        "a = f32[256] iota(), iota_dimension=0",
        "c = f32[256] copy(a)",
        'e = f32[256] sine(c), metadata={op_name="sin" source_file="model.py" source_line=9}',
        "ROOT out = f32[] constant(0)",
    )
    events: list[Event] = [*alloc("a"), ("share", "c", "a"), ("share", "e", "a")]
    (found,) = peak(events, text=text, places={"a": (9, 0), "c": (9, 0), "e": (9, 0)}).buffers
    assert (found.name, found.line) == ("e", "model.py:9")


# So large that nothing of note fits on a TPU's chip.
WEIGHTS, ROWS, SQUARE = (8, 4096, 4096), (8192, 4096), (4096, 4096)


def chain(rows: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
    return jnp.tanh(rows @ first) @ second


def loss(weights: jax.Array, rows: jax.Array) -> jax.Array:
    last, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), rows, weights)
    return jnp.sum(last**2)


def gradients(weights: jax.Array, rows: jax.Array) -> Any:
    return jax.value_and_grad(loss)(weights, rows)


def train(state: dict[str, jax.Array], rows: jax.Array) -> Any:
    value, gradient = jax.value_and_grad(loss)(state["w"], rows)
    momentum = 0.9 * state["m"] + gradient
    return {"w": state["w"] - 0.1 * momentum, "m": momentum}, value


TRAINED = {"w": WEIGHTS, "m": WEIGHTS}
PROGRAMS = {
    "a chain of products": lambda target: compiled(target, chain, ROWS, SQUARE, SQUARE),
    "a scan with its gradient": lambda target: compiled(target, gradients, WEIGHTS, ROWS),
    "a step with donated state": lambda target: compiled(target, train, TRAINED, ROWS, donate=(0,)),
}
Compile = Callable[[str], Compiled]


def peak_of(program: Compiled) -> Peak:
    found = read(*split(program.hlo_proto())).peak
    assert found is not None
    return found


def peak_by_xla(program: Compiled) -> int:
    nbytes: int = program.executable.get_compiled_memory_stats().peak_memory_in_bytes
    return nbytes


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", installed("gpu-h100", "tpu-v5e:2x4"))
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_the_peak_equals_xla_s_own(target: str, program: Compile) -> None:
    found = program(target)
    assert peak_of(found).nbytes == peak_by_xla(found)


@pytest.mark.parametrize("target", installed("tpu-v5e:2x4"))
def test_main_memory_is_meant_where_xla_takes_the_larger_heap_on_chip(target: str) -> None:
    found = compiled(target, gradients, (8, 512, 512), (256, 512))
    memory = found.memory()
    reserved = memory.argument_bytes + memory.output_bytes + memory.temp_bytes
    assert abs(peak_of(found).nbytes - reserved) < 256 * KIB
    assert peak_by_xla(found) > 2 * reserved


@pytest.mark.parametrize("target", installed("cpu", "gpu-h100"))
def test_the_largest_buffers_of_a_train_step_name_the_lines_they_come_from(target: str) -> None:
    found = peak_of(compiled(target, gradients, (8, 512, 512), (256, 512)))
    largest = [each for each in found.buffers if each.holds is not Holds.ARGUMENT][:3]
    first, last = (inspect.getsourcelines(each)[1] for each in (loss, train))
    for each in largest:
        assert each.line is not None
        file, number = each.line.rsplit(":", 1)
        assert file.endswith("test_peak.py")
        assert first <= int(number) < last
    arguments = {each.name for each in found.buffers if each.holds is Holds.ARGUMENT}
    assert arguments == {"weights", "rows"}
