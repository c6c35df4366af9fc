"""The canonical form of a step: blind to what a tracer chose by chance, and to nothing else."""

from dataclasses import replace
from itertools import permutations

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from assay.hlo import canonical as under_test
from assay.hlo.canonical import canonical
from assay.hlo.fingerprint import fingerprint
from assay.hlo.flow import Flow
from assay.hlo.module import Computation, Module
from assay.hlo.schema import MalformedModule, decode_module
from assay.model.evidence import StepGraph

from .conftest import proto_of
from .random_steps import (
    BINARY,
    COALESCED,
    UNARY,
    Node,
    Step,
    as_plain_text,
    as_text,
    steps,
)
from .step_texts import StepText

SEEDS = st.integers(0, 999)


def of(text: str) -> StepGraph:
    return canonical(Module.from_proto(proto_of(text)))


@settings(max_examples=150)
@given(step=steps(), seeds=st.tuples(SEEDS, SEEDS))
def test_what_a_tracer_chooses_by_chance_changes_nothing(
    step: Step, seeds: tuple[int, int]
) -> None:
    one, other = (of(as_text(step, seed)) for seed in seeds)
    assume(one.raw != other.raw)
    assert one.canonical == other.canonical
    assert sorted(each.colour for each in one.parameters) == sorted(
        each.colour for each in other.parameters
    )
    assert sorted(each.colour for each in one.outputs) == sorted(
        each.colour for each in other.outputs
    )
    assert one.operations == other.operations


@settings(max_examples=150)
@given(step=steps(), seeds=st.tuples(SEEDS, SEEDS), data=st.data())
def test_another_operation_or_constant_in_any_place_that_is_alive_is_seen(
    step: Step, seeds: tuple[int, int], data: st.DataObject
) -> None:
    places = [number for number in step.alive() if number >= step.parameters]
    assume(places)
    number = data.draw(st.sampled_from(places))
    node = step.node(number)
    changed = step.changed(number, data.draw(st.sampled_from(others(node))))
    assert of(as_text(step, seeds[0])).canonical != of(as_text(changed, seeds[1])).canonical


def others(node: Node) -> list[Node]:
    """Nodes that read the same operands, and are something else."""
    if node.opcode == "constant":
        return [replace(node, literal=each) for each in ("{3,3,3,3}", "{1,1,1,3}")]
    alike = next(each for each in (UNARY, BINARY, COALESCED) if node.opcode in each)
    return [replace(node, opcode=each) for each in alike if each != node.opcode]


@settings(max_examples=100)
@given(step=steps(), seeds=st.tuples(SEEDS, SEEDS), data=st.data())
def test_one_more_output_is_seen(step: Step, seeds: tuple[int, int], data: st.DataObject) -> None:
    value = data.draw(st.sampled_from(step.values()))
    more = replace(step, outputs=(*step.outputs, value))
    assert of(as_text(step, seeds[0])).canonical != of(as_text(more, seeds[1])).canonical


@settings(max_examples=100)
@given(step=steps(collectives=False), data=st.data())
def test_a_rewired_step_is_equated_only_if_some_numbering_makes_it_the_same(
    step: Step, data: st.DataObject
) -> None:
    """Against brute force: the plain fingerprint under every numbering of what has numbers."""
    places = [number for number in step.alive() if step.node(number).operands]
    assume(places and step.parameters <= 3 and len(step.outputs) <= 3)
    number = data.draw(st.sampled_from(places))
    earlier = st.sampled_from([value for value in step.values() if value[0] < number])
    node = step.node(number)
    rewired = step.changed(
        number, replace(node, operands=tuple(data.draw(earlier) for _ in node.operands))
    )
    if of(as_text(step, 1)).canonical == of(as_text(rewired, 2)).canonical:
        assert numberings(step, first_only=True) <= numberings(rewired)


def numberings(step: Step, *, first_only: bool = False) -> set[str]:
    """The fingerprints of a step for every order of its parameters and of its outputs."""
    found = set()
    for numbers in permutations(range(step.parameters)):
        for places in permutations(range(len(step.outputs))):
            text = as_plain_text(step, numbers, places)
            found.add(fingerprint(Module.from_proto(proto_of(text))))
            if first_only:
                return found
    return found


PLAIN = StepText().text()
EQUATED = {
    "parameters numbered otherwise": StepText(numbers=(2, 0, 1, 3)).text(),
    "outputs in another order": StepText(outputs=(2, 0, 1)).text(),
    "callbacks in another order": StepText(callbacks=(1, 2, 0)).text(),
    "duplicate constants": StepText(rates=3).text(),
    "not packed into a tuple": StepText(packed=False).text(),
    "all of these": StepText(
        numbers=(1, 2, 0, 3), outputs=(1, 2, 0), callbacks=(2, 0, 1), rates=2, packed=False
    ).text(),
}


@pytest.mark.parametrize("text", EQUATED.values(), ids=EQUATED)
def test_a_step_written_in_another_way_is_the_same(text: str) -> None:
    assert of(text).canonical == of(PLAIN).canonical
    assert of(text).raw != of(PLAIN).raw


REAL = {
    "a constant": ("{1,2,3,4}", "{1,2,3,5}"),
    "the order of a subtract": ("subtract(p0, step0)", "subtract(step0, p0)"),
    "an output twice": ("tuple(new0, new1, new2)", "tuple(new0, new1, new2, new2)"),
    "another output": ("tuple(new0, new1, new2)", "tuple(new0, new1, step2)"),
    "the reduction": ("add(a, b)", "maximum(a, b)"),
    "the collective": ("replica_groups={}", "replica_groups={{0,1}}"),
    "who shares a buffer": ("{0}: (0, {}", "{0}: (1, {}"),
    "whether it must": ("{0}: (0, {}, may-alias", "{0}: (0, {}, must-alias"),
    "which result is read": (
        "get-tuple-element(all0), index=1",
        "get-tuple-element(all0), index=0",
    ),
    "a callback with another's gradient": ("multiply(r1, rate0)", "multiply(r0, rate0)"),
}


@pytest.mark.parametrize(("old", "new"), REAL.values(), ids=REAL)
def test_a_real_difference_is_seen(old: str, new: str) -> None:
    assert PLAIN.count(old) >= 1
    changed = PLAIN.replace(old, new)
    if old.startswith("tuple"):
        changed = changed.replace("ROOT out = (f32[4], f32[4], f32[4])", "ROOT out = " + root(new))
    assert of(changed).canonical != of(PLAIN).canonical


def root(packed: str) -> str:
    """The type of a tuple of arrays."""
    return f"({', '.join(['f32[4]'] * (packed.count(',') + 1))})"


def test_one_collective_of_three_is_not_one_of_two_and_one() -> None:
    apart = StepText(groups=((0, 1), (2,)))
    assert of(apart.text()).canonical != of(PLAIN).canonical
    assert [len(each.shapes) for each in of(apart.text()).collectives] == [2, 1]


def test_a_token_is_the_same_on_whichever_operand_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [StepText(callbacks=each, token=True).text() for each in ((0, 1, 2), (2, 1, 0))]
    one, other = map(of, texts)
    assert one.canonical == other.canonical != of(PLAIN).canonical

    def nothing(flow: Flow, computation: Computation) -> None:
        """The detector's negative control: a token is an operand like any other."""

    monkeypatch.setattr(under_test, "untie_tokens", nothing)
    one, other = map(of, texts)
    assert one.canonical != other.canonical


@settings(max_examples=150)
@given(step=steps(), seeds=st.tuples(SEEDS, SEEDS))
def test_orders_change_nothing_even_if_any_array_may_be_a_token(
    step: Step, seeds: tuple[int, int]
) -> None:
    """A step of arrays that happen to be joined as a token would be; found by Hypothesis."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(under_test, "_is_scalar", lambda _: True)
        one, other = (of(as_text(step, seed)) for seed in seeds)
    assert one.canonical == other.canonical


LIKE_A_TOKEN = Step(
    parameters=1,
    nodes=(
        Node(opcode="add", operands=((0, 0), (0, 0))),
        Node(opcode="all-gather", operands=((0, 0), (1, 0))),
        Node(opcode="multiply", operands=((0, 0), (2, 1))),
    ),
    outputs=((3, 0),),
)


@pytest.mark.parametrize("seed", range(8))
def test_an_addend_of_itself_is_the_same_in_any_place(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(under_test, "_is_scalar", lambda _: True)
        one, other = (of(as_text(LIKE_A_TOKEN, each)) for each in (seed, seed + 1))
    assert one.canonical == other.canonical


def test_an_addend_that_is_no_token_stays_with_its_operand() -> None:
    texts = [StepText(callbacks=each, token=True).text() for each in ((0, 1, 2), (2, 1, 0))]
    one, other = (
        of(text.replace("multiply(p3, picked0)", "divide(p3, picked0)")) for text in texts
    )
    assert one.canonical != other.canonical


def test_the_token_of_a_second_collective_depends_on_the_whole_first() -> None:
    texts = [
        StepText(callbacks=each, token=True, groups=((0, 1), (2,))).text()
        for each in ((0, 1, 2), (1, 0, 2))
    ]
    assert of(texts[0]).canonical == of(texts[1]).canonical


LOOP = """HloModule loop
body { s = (f32[], f32[]) parameter(0)
  x = f32[] get-tuple-element(s), index=0
  y = f32[] get-tuple-element(s), index=1
  one = f32[] constant(1)
  z = f32[] add(x, one)
  ROOT t = (f32[], f32[]) tuple(z, y) }
condition { s = (f32[], f32[]) parameter(0)
  x = f32[] get-tuple-element(s), index=0
  ten = f32[] constant(10)
  ROOT go = pred[] compare(x, ten), direction=LT }
ENTRY main { a = f32[] parameter(0)
  b = f32[] parameter(1)
  s = (f32[], f32[]) tuple(a, b)
  ROOT w = (f32[], f32[]) while(s), condition=condition, body=body }
"""


def test_a_loop_keeps_the_order_of_what_it_carries() -> None:
    carried = LOOP.replace("tuple(z, y)", "tuple(y, z)")
    assert of(carried).canonical != of(LOOP).canonical


def test_a_constant_copied_within_a_loop_is_one() -> None:
    reading = "z = f32[] add(x, one)\n  v = f32[] multiply(y, {})"
    once, twice = (
        LOOP.replace("tuple(z, y)", "tuple(z, v)").replace(
            "z = f32[] add(x, one)", "uno = f32[] constant(1)\n  " + reading.format(each)
        )
        for each in ("one", "uno")
    )
    assert of(once).canonical == of(twice).canonical
    assert of(once).raw != of(twice).raw


def test_which_element_of_a_loop_shares_a_buffer_is_seen() -> None:
    one, other = (
        LOOP.replace("loop\n", f"loop, input_output_alias={{ {{{k}}}: (0, {{}}, may-alias) }}\n", 1)
        for k in (0, 1)
    )
    assert len({of(text).canonical for text in (LOOP, one, other)}) == 3


def test_duplicate_constants_are_counted_and_dead_code_is_not() -> None:
    dead = PLAIN.replace("ROOT out", "dead = f32[4] negate(p0)\n  ROOT out")
    assert of(dead) == of(PLAIN)
    assert of(StepText(rates=3).text()).duplicate_constants == 2
    assert of(PLAIN).duplicate_constants == 0


def test_a_parameter_that_nobody_reads_counts() -> None:
    unread = PLAIN.replace("ROOT out", "unread = f32[] parameter(4)\n  ROOT out")
    assert of(unread).canonical != of(PLAIN).canonical


def test_copies_are_told_apart_by_who_reads_them() -> None:
    read = """HloModule copies
ENTRY main {{ x = f32[4] parameter(0)
  a = f32[4] negate(x)
  b = f32[4] negate(x)
  c = f32[4] subtract(a, {0})
  d = f32[4] divide({1}, b)
  ROOT out = (f32[4], f32[4]) tuple(c, d) }}
"""
    assert of(read.format("b", "a")).canonical != of(read.format("a", "b")).canonical


def test_a_graph_of_equal_neighbourhoods_is_not_told_apart() -> None:
    """The limit of refinement: a ring of six against two rings of three."""

    def rings(ends: list[int]) -> str:
        edges = [f"e{k} = f32[4] add(p{k}, p{end})" for k, end in enumerate(ends)]
        parameters = [f"p{k} = f32[4] parameter({k})" for k in range(6)]
        kind = ", ".join(["f32[4]"] * 6)
        out = f"ROOT out = ({kind}) tuple({', '.join(f'e{k}' for k in range(6))})"
        return "HloModule rings\nENTRY main {\n" + "\n".join([*parameters, *edges, out]) + "\n}\n"

    one, two = of(rings([1, 2, 3, 4, 5, 0])), of(rings([1, 2, 0, 4, 5, 3]))
    assert one.raw != two.raw
    assert one.canonical == two.canonical


def test_a_step_graph_is_stored_and_read_again() -> None:
    graph = of(PLAIN)
    assert msgspec.json.decode(msgspec.json.encode(graph), type=StepGraph) == graph


def test_a_reference_to_nothing_is_malformed() -> None:
    message = decode_module(proto_of(PLAIN))
    entry = message.computations[-1]
    entry.instructions[:] = entry.instructions[::-1]
    with pytest.raises(MalformedModule, match="operands before users"):
        canonical(Module(message))


ALIVE = """HloModule alive, buffer_donor={ (1, {}) }
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main { x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  a = f32[4] negate(x)
  b = f32[4] tanh(y), control-predecessors={a}
  told = () custom-call(a), custom_call_target="tell", custom_call_has_side_effect=true
  all = (f32[4], f32[4]) all-reduce(a, b), replica_groups={}, to_apply=sum
  ROOT out = ((f32[4], f32[4]), f32[4]) tuple(all, x) }
"""
ALSO_REAL = {
    "an effect that nobody reads": ("custom-call(a)", "custom-call(b)"),
    "what only its effect keeps": (", custom_call_has_side_effect=true", ""),
    "what must run before": ("control-predecessors={a}", 'metadata={op_name="b"}'),
    "which parameter is given away": ("(1, {})", "(0, {})"),
    "the order of results that are read as a whole": ("all-reduce(a, b)", "all-reduce(b, a)"),
}


@pytest.mark.parametrize(("old", "new"), ALSO_REAL.values(), ids=ALSO_REAL)
def test_what_is_rare_in_a_step_is_seen_too(old: str, new: str) -> None:
    assert ALIVE.count(old) == 1
    assert of(ALIVE.replace(old, new)).canonical != of(ALIVE).canonical
