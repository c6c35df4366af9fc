"""After jax's tests/layout_test.py: the layouts of arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import pytest
from jax import lax
from jax.experimental.layout import Format, Layout, with_layout_constraint

from assay.model.evidence import FailureKind
from assay.model.workload import Program

from .cases import DEVICES, EVERYWHERE, GPU, TPU, Case, Control, Disagreement, Right, checks_of
from .expectations import (
    ArgumentOrders,
    Arguments,
    CopiesOutside,
    Refused,
    ResultKinds,
    ResultOrders,
)
from .programs import F32_BYTES, array, on_four, on_one, on_two

pytestmark = pytest.mark.exhaustive

SQUARE = (512, 512)
PART = 512 * 512 * F32_BYTES // 4  # on each of four devices
ROWS_FIRST = Layout(major_to_minor=(0, 1))
COLUMNS_FIRST = Layout(major_to_minor=(1, 0))
AUTO = Layout.AUTO


def transposed(
    given: Any, wanted: Any, *, both: bool = False
) -> Callable[[Sequence[Any]], Program]:
    """The transpose of one array or two, from a layout to a layout; None stands for jax's own."""

    def build(devices: Sequence[Any]) -> Program:
        here, there = on_four(devices, "x", "y"), on_four(devices, "y", "x")
        names = ("in_shardings", "out_shardings")
        layouts: dict[str, Any] = {
            name: Format(layout, sharding)
            for name, layout, sharding in zip(names, (given, wanted), (here, there), strict=True)
            if layout is not None
        }

        def step(*arrays: Any) -> Any:
            return tuple(each.T for each in arrays) if both else arrays[0].T

        return Program(
            function=jax.jit(step, **layouts), arguments=(array(SQUARE, here),) * (1 + both)
        )

    return build


def transposed_within(layout: Any) -> Callable[[Sequence[Any]], Program]:
    """The transpose of an array in the sharding of the array."""

    def build(devices: Sequence[Any]) -> Program:
        here = on_four(devices, "x", "y")
        return Program(
            function=jax.jit(
                lambda x: x.T, in_shardings=Format(layout, here), out_shardings=Format(layout, here)
            ),
            arguments=(array(SQUARE, here),),
        )

    return build


def constrained(dtype: str, layout: Any) -> Callable[[Sequence[Any]], Program]:
    def build(devices: Sequence[Any]) -> Program:
        here = on_two(devices, "x")
        return Program(
            function=jax.jit(
                lambda x: lax.with_sharding_constraint(x.T, Format(layout, here)),
                out_shardings=Format(AUTO, here),
            ),
            arguments=(array(SQUARE, here, dtype),),
        )

    return build


def constrained_inside(layout: Any) -> Callable[[Sequence[Any]], Program]:
    def build(devices: Sequence[Any]) -> Program:
        here = on_one(devices)
        return Program(
            function=jax.jit(
                lambda x: with_layout_constraint(x, layout) * 2, out_shardings=Format(AUTO)
            ),
            arguments=(array(SQUARE, here),),
        )

    return build


def unused(devices: Sequence[Any]) -> Program:
    return Program(
        function=jax.jit(
            lambda _x, _y, z, _a, b, _c: (z * 2, b.T),
            in_shardings=Format(AUTO),
            out_shardings=Format(AUTO),
        ),
        arguments=(array(SQUARE, on_one(devices)),) * 6,
    )


def all_used(devices: Sequence[Any]) -> Program:
    return Program(
        function=jax.jit(
            lambda x, y, z, a, b, c: (x + y + z + a * 2, b.T + c.T),
            in_shardings=Format(AUTO),
            out_shardings=Format(AUTO),
        ),
        arguments=(array(SQUARE, on_one(devices)),) * 6,
    )


def of_another_rank(devices: Sequence[Any]) -> Program:
    layout = Format(Layout(major_to_minor=(0, 1, 2)), on_one(devices))
    return Program(
        function=jax.jit(lambda x: x * 2, in_shardings=layout),
        arguments=(array((8,), on_one(devices)),),
    )


def of_its_rank(devices: Sequence[Any]) -> Program:
    layout = Format(Layout(major_to_minor=(0,)), on_one(devices))
    return Program(
        function=jax.jit(lambda x: x * 2, in_shardings=layout),
        arguments=(array((8,), on_one(devices)),),
    )


def without_a_format(devices: Sequence[Any]) -> Program:
    return Program(
        function=lambda x: jax.jit(lambda x: x.T, in_shardings=AUTO)(x) * 1.0,
        arguments=(array(SQUARE, on_one(devices)),),
    )


def columns_in(given: Any) -> Callable[[Sequence[Any]], Program]:
    def build(devices: Sequence[Any]) -> Program:
        here = on_one(devices)
        return Program(
            function=jax.jit(
                lambda x: x + 1,
                in_shardings=Format(given, here),
                out_shardings=Format(ROWS_FIRST, here),
            ),
            arguments=(array(SQUARE, here),),
        )

    return build


def host_layout(kind: str) -> Callable[[Sequence[Any]], Program]:
    def build(devices: Sequence[Any]) -> Program:
        there = on_one(devices, kind)
        wanted = Format(Layout((0, 1, 4, 2, 3)), there)
        return Program(
            function=jax.jit(
                lambda x: with_layout_constraint(x * 2, wanted.layout), out_shardings=wanted
            ),
            arguments=(array((5, 2, 32, 64, 36), on_one(devices)),),
        )

    return build


def constrained_in_vmap(devices: Sequence[Any]) -> Program:
    def step(x: Any) -> Any:
        return with_layout_constraint(x.T, Layout(major_to_minor=(0,))) * 2

    return Program(function=jax.vmap(step), arguments=(array((512, 512), on_one(devices)),))


LAYOUT = "layout_test.py::LayoutTest::"
BY_ROWS, BY_COLUMNS = ResultOrders(((0, 1),)), ResultOrders(((1, 0),))

CASES = (
    Case(
        name="auto",
        after=LAYOUT + "test_auto_layout",
        asserts="the order of each result is the order of its argument reversed",
        program=transposed(AUTO, AUTO, both=True),
        expect={
            EVERYWHERE: (
                ArgumentOrders(((0, 1), (0, 1))),
                ResultOrders(((1, 0), (1, 0))),
            )
        },
        control=Control(
            program=transposed(None, None, both=True), breaks=(ResultOrders(((1, 0), (1, 0))),)
        ),
    ),
    Case(
        name="default",
        after=LAYOUT + "test_default_layout",
        asserts="without layouts both the argument and its transpose are in the order of rows",
        program=transposed(None, None),
        expect={EVERYWHERE: (ArgumentOrders(((0, 1),)), BY_ROWS, CopiesOutside(PART, PART))},
        control=Control(program=transposed(AUTO, AUTO), breaks=(BY_ROWS,)),
    ),
    Case(
        name="auto-out",
        after=LAYOUT + "test_in_layouts_out_layouts",
        asserts="from the default order to AUTO: the result is in the order of columns",
        program=transposed(None, AUTO),
        expect={EVERYWHERE: (ArgumentOrders(((0, 1),)), BY_COLUMNS)},
        control=Control(program=transposed(None, None), breaks=(BY_COLUMNS,)),
    ),
    Case(
        name="auto-with-shardings",
        after=LAYOUT + "test_sharding_and_layouts",
        asserts="AUTO with a sharding on both sides: the result is in the order of columns",
        program=transposed_within(AUTO),
        expect={EVERYWHERE: (ArgumentOrders(((0, 1),)), BY_COLUMNS)},
        control=Control(program=transposed_within(ROWS_FIRST), breaks=(BY_COLUMNS,)),
    ),
    Case(
        name="concrete-out",
        after=LAYOUT + "test_concrete_layout_jit",
        asserts="the result has the order that out_shardings says",
        program=transposed(None, ROWS_FIRST),
        expect={EVERYWHERE: (BY_ROWS, CopiesOutside(PART, PART))},
        control=Control(program=transposed(None, COLUMNS_FIRST), breaks=(BY_ROWS,)),
    ),
    Case(
        name="concrete-in",
        after=LAYOUT + "test_concrete_layout_in_shardings",
        asserts="an argument in the order of rows gives an AUTO transpose in that of columns",
        program=transposed(ROWS_FIRST, AUTO),
        expect={EVERYWHERE: (ArgumentOrders(((0, 1),)), BY_COLUMNS)},
        control=Control(program=transposed(COLUMNS_FIRST, ROWS_FIRST)),
    ),
    Case(
        name="constrained",
        after=LAYOUT + "test_wsc_concrete_layout",
        asserts="with_sharding_constraint gives a transpose the order of rows",
        program=constrained("float32", ROWS_FIRST),
        expect={EVERYWHERE: (BY_ROWS,)},
        control=Control(program=constrained("float32", COLUMNS_FIRST), on=DEVICES),
    ),
    Case(
        name="constrained-bfloat16",
        after=LAYOUT + "test_wsc_bfloat16_concrete_layout",
        asserts="so it does for bfloat16",
        program=constrained("bfloat16", ROWS_FIRST),
        expect={EVERYWHERE: (BY_ROWS,)},
        control=Control(program=constrained("bfloat16", COLUMNS_FIRST), on=DEVICES),
    ),
    Case(
        name="constrained-inside",
        after=LAYOUT + "test_with_layout_constraint",
        asserts="a layout constraint in the middle of a function is kept by its AUTO result",
        program=constrained_inside(COLUMNS_FIRST),
        expect={TPU: (BY_COLUMNS,)},
        control=Control(program=constrained_inside(ROWS_FIRST)),
    ),
    Case(
        name="constrained-in-vmap",
        after=LAYOUT + "test_with_layout_constraint_vmap",
        asserts="a layout constraint can be mapped: the result is in the order of rows",
        program=constrained_in_vmap,
        expect={TPU: (BY_ROWS,)},
    ),
    Case(
        name="columns-in",
        after=LAYOUT + "test_in_layouts_jit_jnp_input",
        asserts="an argument in the order of columns is taken",
        program=columns_in(COLUMNS_FIRST),
        expect={EVERYWHERE: (ArgumentOrders(((1, 0),)), BY_ROWS)},
        control=Control(program=columns_in(ROWS_FIRST), breaks=(ArgumentOrders(((1, 0),)),)),
    ),
    Case(
        name="unused",
        after=LAYOUT + "test_dce_in_layouts",
        asserts="of six arguments with layouts, four that are not used are dropped",
        program=unused,
        expect={EVERYWHERE: (Arguments(2), ResultOrders(((0, 1), (1, 0))))},
        control=Control(program=all_used, breaks=(Arguments(2),)),
    ),
    Case(
        name="of-another-rank",
        after=LAYOUT + "test_compatible_aval_error",
        asserts="a layout of three dimensions for an array of one is refused",
        program=of_another_rank,
        expect={EVERYWHERE: (Refused(FailureKind.TRACE, "Length of major_to_minor"),)},
        control=Control(program=of_its_rank),
    ),
    Case(
        name="without-a-format",
        after=LAYOUT + "test_default_layout",
        asserts="jit does not take a layout that is in no Format",
        program=without_a_format,
        expect={EVERYWHERE: (Refused(FailureKind.TRACE, "does not accept device-local layouts"),)},
    ),
    Case(
        name="host-layout",
        after=LAYOUT + "test_layout_propagation_host",
        asserts="a result in pinned_host has the layout that is asked for, and S(5)",
        program=host_layout("pinned_host"),
        expect={DEVICES: (ResultKinds(("host",)), ResultOrders(((0, 1, 4, 2, 3),)))},
        control=Control(program=host_layout("device"), breaks=(ResultKinds(("host",)),)),
        disagreements=(
            Disagreement(
                of=ResultOrders(((0, 1, 4, 2, 3),)),
                on=GPU,
                seen="measured ((0, 1, 2, 3, 4),)",
                right=Right.UPSTREAM,
                why="before jaxlib 0.11 a GPU's result in host memory has the default order",
                toolchain={"jaxlib": "<0.11"},
            ),
        ),
    ),
)

test_assay_agrees_with_upstream, test_assay_notices_the_control = checks_of(CASES)
