"""Shapes count logical bytes; traffic is known only if every transfer's count is."""

import pytest

from assay.model.module import Direction, Shape, Transfer, nbytes_per_run
from assay.model.summary import ModuleSummary

TO_HOST, TO_DEVICE = Direction.TO_HOST, Direction.TO_DEVICE
ROW = Shape(element_type="bf16", dimensions=(4, 8))
STACK = Shape(element_type="f32", dimensions=(2, 3), memory_space=5)


def transfer(direction: Direction, nbytes: int, executions: int | None = 1) -> Transfer:
    return Transfer(
        direction=direction,
        nbytes_per_execution=nbytes,
        executions=executions,
        at_most=False,
        opcode="copy",
        computation="main",
        instruction="copy.1",
        source=None,
    )


@pytest.mark.parametrize(
    ("shape", "nbytes"),
    [
        (ROW, 64),
        (Shape(element_type="f32"), 4),
        (Shape(element_type="f32", dimensions=(3, 0)), 0),
        (Shape(element_type="s4", dimensions=(3,)), 2),
        (Shape(element_type="token"), 0),
        (Shape(element_type="tuple"), 0),
        (Shape(element_type="tuple", elements=(ROW, STACK)), 64 + 24),
    ],
)
def test_a_shape_counts_its_logical_bytes(shape: Shape, nbytes: int) -> None:
    assert shape.nbytes == nbytes


def test_memory_space_five_is_the_host_and_no_other_is() -> None:
    assert STACK.on_host
    spaces = [space for space in range(8) if Shape(element_type="f32", memory_space=space).on_host]
    assert spaces == [5]


def test_a_path_leads_into_nested_tuples() -> None:
    inner = Shape(element_type="tuple", elements=(ROW, STACK))
    outer = Shape(element_type="tuple", elements=(STACK, inner))
    assert outer.at(()) is outer
    assert outer.at((1, 0)) is ROW
    assert list(outer.leaves()) == [STACK, ROW, STACK]


@pytest.mark.parametrize(
    ("element_type", "first", "last"),
    [("s8", -128, 127), ("u2", 0, 3), ("s32", -(2**31), 2**31 - 1)],
)
def test_an_integer_type_holds_its_own_range(element_type: str, first: int, last: int) -> None:
    held = Shape(element_type=element_type).integer_range
    assert held is not None
    assert (held[0], held[-1]) == (first, last)


@pytest.mark.parametrize("element_type", ["f32", "pred", "token", "bf16"])
def test_other_types_hold_no_integers(element_type: str) -> None:
    assert Shape(element_type=element_type).integer_range is None


def test_a_shape_reads_as_xla_writes_it() -> None:
    pair = Shape(element_type="tuple", elements=(ROW, STACK))
    assert str(pair) == "(bf16[4,8], f32[2,3]S(5))"


def test_traffic_adds_up_in_its_own_direction() -> None:
    found = [transfer(TO_HOST, 8, 3), transfer(TO_HOST, 1), transfer(TO_DEVICE, 100)]
    assert nbytes_per_run(found, TO_HOST) == 25
    assert nbytes_per_run(found, TO_DEVICE) == 100


def test_one_unknown_count_makes_its_direction_unknown() -> None:
    module = ModuleSummary(
        name="m",
        instructions=1,
        computations=1,
        loops=(),
        transfers=(transfer(TO_HOST, 8), transfer(TO_HOST, 8, None), transfer(TO_DEVICE, 2)),
    )
    assert module.to_host_bytes_per_run is None
    assert module.to_device_bytes_per_run == 2


def test_no_transfer_is_no_traffic() -> None:
    assert nbytes_per_run([], TO_HOST) == 0
