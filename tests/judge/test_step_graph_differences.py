"""The difference of two steps is one line that names what a person would look for."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.hlo.canonical import canonical
from assay.hlo.module import Module
from assay.judge.differences.step_graphs import difference_of_steps
from assay.model.evidence import (
    StepCollective,
    StepGraph,
    StepOperation,
    StepOutput,
    StepParameter,
)
from assay.model.module import Shape
from tests.hlo.conftest import proto_of
from tests.hlo.random_steps import Step, as_text, steps
from tests.hlo.step_texts import StepText

MATRIX, VECTOR, SCALAR = (Shape(element_type="f32", dimensions=each) for each in ((8, 4), (4,), ()))
NAMED = {"layer.0.weight": (8, 4), "layer.0.bias": (4,)}


def graph(
    *,
    canonical: str = "a",
    raw: str = "a",
    duplicates: int = 0,
    parameters: str = "xyz",
    outputs: str = "uvw",
    collectives: tuple[StepCollective, ...] = (),
    operations: tuple[StepOperation, ...] = (),
) -> StepGraph:
    """A step of f32[4] parameters and outputs; a letter is a colour."""
    return StepGraph(
        canonical=canonical,
        raw=raw,
        instructions=9,
        duplicate_constants=duplicates,
        parameters=tuple(
            StepParameter(number=number, shape=VECTOR, colour=colour, donated=False)
            for number, colour in enumerate(parameters)
        ),
        outputs=tuple(
            StepOutput(index=index, shape=VECTOR, value=colour, colour=colour)
            for index, colour in enumerate(outputs)
        ),
        collectives=collectives,
        operations=operations,
    )


def another(**changed: object) -> StepGraph:
    """A graph that is not the same as `graph`'s."""
    return replace(graph(canonical="b", raw="b"), **changed)


def scatter(*shapes: Shape, operands: str = "", attributes: str = "") -> StepCollective:
    return StepCollective(
        opcode="reduce-scatter",
        shapes=shapes,
        operands=tuple(operands),
        attributes=attributes,
        colour="c",
    )


def operation(
    opcode: str, count: int, shape: Shape = VECTOR, attributes: str = ""
) -> StepOperation:
    return StepOperation(opcode=opcode, shape=shape, attributes=attributes, count=count)


def outputs(*shapes: Shape) -> tuple[StepOutput, ...]:
    return tuple(
        StepOutput(index=index, shape=shape, value=f"{shape}", colour=f"{index}")
        for index, shape in enumerate(shapes)
    )


def test_a_graph_is_the_same_as_itself() -> None:
    assert difference_of_steps(graph(), graph()) == "the same graph"


@pytest.mark.parametrize(
    ("after", "line"),
    [
        (graph(raw="b", parameters="xzy"), "the same graph: parameters 1–2 permuted"),
        (graph(raw="b", outputs="vuw"), "the same graph: outputs 0–1 permuted"),
        (graph(raw="b", duplicates=3), "the same graph: 3 duplicate constants more"),
        (graph(raw="b"), "the same graph, packed or ordered in another way"),
        (
            graph(raw="b", outputs="wvu", duplicates=1),
            "the same graph: outputs 0, 2 permuted; 1 duplicate constant more",
        ),
    ],
)
def test_orders_that_mean_nothing_are_told_as_such(after: StepGraph, line: str) -> None:
    assert difference_of_steps(graph(), after) == line


def test_numbers_in_a_row_are_a_range_and_many_ranges_are_counted() -> None:
    before = graph(parameters="abcdefghijklmnopqrstuvwxyz")
    after = graph(raw="b", parameters="bacdeghfijlkmnpoqrtsuvxwyz")
    told = "parameters 0–1, 5–7, 10–11, 3 more permuted"
    assert difference_of_steps(before, after) == f"the same graph: {told}"


def test_the_operands_of_one_collective_are_told_from_those_of_several() -> None:
    def with_orders(*orders: str, raw: str) -> StepGraph:
        return graph(
            raw=raw,
            collectives=tuple(scatter(VECTOR, VECTOR, VECTOR, operands=each) for each in orders),
        )

    one = difference_of_steps(with_orders("xyz", raw="a"), with_orders("yxz", raw="b"))
    assert one == "the same graph: operands of the reduce-scatter of 3 permuted"
    two = difference_of_steps(
        with_orders("xyz", "xyz", raw="a"), with_orders("yxz", "zxy", raw="b")
    )
    assert two == "the same graph: operands of 2 coalesced collectives permuted"


def test_more_outputs_are_named_by_the_gradients_that_they_are_shaped_like() -> None:
    before, after = another(outputs=outputs(SCALAR)), graph()
    after = replace(after, outputs=outputs(SCALAR, MATRIX, VECTOR, VECTOR, SCALAR))
    assert (
        difference_of_steps(before, after, NAMED)
        == "4 more outputs, shaped like gradients of layer.0.bias, layer.0.weight and f32[]"
    )
    assert (
        difference_of_steps(before, after)
        == "4 more outputs, shaped like f32[4] (2), f32[8,4], f32[]"
    )
    assert difference_of_steps(after, before).startswith("4 fewer outputs")


def test_a_flattened_gradient_is_named_and_one_of_several_is_not_chosen() -> None:
    flat = Shape(element_type="f32", dimensions=(32,))
    after = replace(graph(), outputs=outputs(flat))
    before = another(outputs=())
    named = {"layer.0.weight": (8, 4), "layer.1.weight": (8, 4)}
    told = "1 more output, shaped like gradients of "
    assert difference_of_steps(before, after, NAMED) == told + "layer.0.weight"
    assert difference_of_steps(before, after, named) == told + "layer.*.weight"
    other = {**named, "head": (4, 8)}
    assert difference_of_steps(before, after, other) == told + "layer.0.weight or 2 alike"


def test_collectives_that_group_otherwise_are_told_by_their_sizes() -> None:
    many = (MATRIX,) * 26
    before = graph(collectives=(scatter(*many), scatter(VECTOR)))
    after = another(collectives=(scatter(*many, VECTOR),))
    assert difference_of_steps(before, after) == "reduce-scatter of 26 + 1 (f32[4]) became 27"
    assert (
        difference_of_steps(after, before, NAMED)
        == "reduce-scatter of 27 became 26 + 1 (gradients of layer.0.bias)"
    )


def test_a_collective_that_takes_more_says_what() -> None:
    before = graph(collectives=(scatter(*(MATRIX,) * 10),))
    after = another(collectives=(scatter(*(MATRIX,) * 10, VECTOR),))
    assert difference_of_steps(before, after) == "reduce-scatter of 10 became 11, 1 more: f32[4]"
    assert difference_of_steps(before, another()) == "1 fewer reduce-scatter of 10"
    other = another(collectives=(scatter(*(MATRIX,) * 10, attributes="groups"),))
    assert difference_of_steps(before, other) == "reduce-scatter of 10 with other attributes"


def test_operations_are_told_by_how_many_more_or_fewer() -> None:
    before = graph(operations=(operation("add", 2), operation("dot", 2)))
    after = another(operations=(operation("add", 6), operation("dot", 1)))
    assert difference_of_steps(before, after) == "4 more add, 1 fewer dot"


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (operation("dot", 2, MATRIX), "2 dot of another shape"),
        (operation("dot", 2, attributes="b"), "2 dot f32[4] of other attributes"),
        (operation("dot", 2), "the same operations, joined or ordered in another way"),
    ],
)
def test_as_many_operations_that_are_others_are_told(other: StepOperation, line: str) -> None:
    before = graph(operations=(operation("dot", 2),))
    assert difference_of_steps(before, another(operations=(other,))) == line


def test_a_parameter_that_is_given_away_is_told() -> None:
    donated = tuple(replace(each, donated=True) for each in graph().parameters)
    after = another(parameters=donated)
    assert difference_of_steps(graph(), after) == "3 parameters donated in place of 0"


def test_what_does_not_fit_into_the_line_is_counted() -> None:
    names = {f"a_very_long_name_of_a_module.{k}.weight": (k, 4) for k in range(3)}
    shapes = [Shape(element_type="f32", dimensions=each) for each in names.values()]
    before = another(operations=(operation("add", 1),), parameters=(), outputs=())
    after = replace(graph(parameters="k" * 12345), outputs=outputs(*shapes))
    line = difference_of_steps(before, after, names)
    assert line.endswith("a_very_long_name_of_a_module.2.weight; and 2 more")
    assert len(line) <= 200


def of(text: str) -> StepGraph:
    return canonical(Module.from_proto(proto_of(text)))


PLAIN = StepText().text()
READ = {
    "callbacks": (
        StepText(callbacks=(1, 0, 2)).text(),
        "the same graph: operands of the reduce-scatter of 3 permuted",
    ),
    "parameters": (
        StepText(numbers=(2, 1, 0, 3)).text(),
        "the same graph: parameters 0, 2 permuted",
    ),
    "constants": (StepText(rates=3).text(), "the same graph: 2 duplicate constants more"),
    "packing": (
        StepText(packed=False).text(),
        "the same graph, packed or ordered in another way",
    ),
    "grouping": (
        StepText(groups=((0, 1), (2,))).text(),
        "reduce-scatter of 3 became 2 (f32[4] (2)) + 1 (f32[4])",
    ),
    "a constant": (
        PLAIN.replace("{1,2,3,4}", "{1,2,3,5}"),
        "1 constant f32[4] of another value",
    ),
    "operand order": (
        PLAIN.replace("subtract(p1, step1)", "subtract(step1, p1)"),
        "the same operations, but output 1 (f32[4]) computed from other operands",
    ),
}


@pytest.mark.parametrize(("text", "line"), READ.values(), ids=READ)
def test_graphs_that_were_read_are_told_apart(text: str, line: str) -> None:
    assert difference_of_steps(of(PLAIN), of(text)) == line


@settings(max_examples=100)
@given(one=steps(), other=steps(), seeds=st.tuples(st.integers(0, 99), st.integers(0, 99)))
def test_the_line_begins_with_the_same_graph_for_no_other(
    one: Step, other: Step, seeds: tuple[int, int]
) -> None:
    a, b, c = of(as_text(one, seeds[0])), of(as_text(one, seeds[1])), of(as_text(other, seeds[1]))
    assert difference_of_steps(a, b).startswith("the same graph")
    line = difference_of_steps(a, c)
    assert line
    assert "\n" not in line
    assert line.startswith("the same graph") == (a.canonical == c.canonical)
