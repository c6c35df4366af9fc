"""After jax's tests/layout_test.py: whose buffer a result of another layout takes over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import pytest
from jax.experimental.layout import Format, Layout

from assay.model.evidence import FailureKind
from assay.model.workload import Program

from .cases import EVERYWHERE, TPU, Case, Control, checks_of
from .expectations import (
    AliasBytes,
    Honoured,
    Refused,
    ResultOrders,
    TakenOver,
)
from .programs import F32_BYTES, array, on_four, on_one

pytestmark = pytest.mark.exhaustive

SQUARE = (512, 512)
PART = 512 * 512 * F32_BYTES // 4  # on each of four devices
UNEVEN = (32, 288)  # 16 × 144 on each of four devices: no multiple of 128 either way
ROWS_FIRST = Layout(major_to_minor=(0, 1))
COLUMNS_FIRST = Layout(major_to_minor=(1, 0))
AUTO = Layout.AUTO


def donated(
    function: Callable[..., Any],
    given: Any,
    wanted: Any,
    donate: tuple[int, ...] = (0,),
    dimensions: tuple[int, ...] = SQUARE,
) -> Callable[[Sequence[Any]], Program]:
    def build(devices: Sequence[Any]) -> Program:
        here = on_four(devices, "x", "y")
        layouts: dict[str, Any] = {}
        if given is not None:
            layouts["in_shardings"] = Format(given, here)
        if wanted is not None:
            layouts["out_shardings"] = Format(wanted, here) if wanted is not AUTO else Format(AUTO)
        return Program(
            function=jax.jit(function, donate_argnums=donate, **layouts),
            arguments=(array(dimensions, here),),
        )

    return build


def auto_to_default(devices: Sequence[Any]) -> Program:
    return Program(
        function=jax.jit(lambda x: x * 2, donate_argnums=0, in_shardings=Format(AUTO)),
        arguments=(array(SQUARE, on_one(devices)),),
    )


def default_to_auto(devices: Sequence[Any]) -> Program:
    return Program(
        function=jax.jit(lambda x: x * 2, donate_argnums=0, out_shardings=Format(AUTO)),
        arguments=(array(SQUARE, on_one(devices)),),
    )


LAYOUT = "layout_test.py::LayoutTest::"
BY_COLUMNS = ResultOrders(((1, 0),))

CASES = (
    Case(
        name="donated-identity",
        after=LAYOUT + "test_layout_donation",
        asserts="a donated array in a layout of its own is deleted",
        program=donated(lambda x: x, ROWS_FIRST, ROWS_FIRST),
        expect={EVERYWHERE: (TakenOver((0,)), AliasBytes(PART))},
    ),
    Case(
        name="donated-matching",
        after=LAYOUT + "test_layout_donation_matching_in_and_out",
        asserts="where argument and result have the same layout the donated array is deleted",
        program=donated(lambda x: x * x, COLUMNS_FIRST, COLUMNS_FIRST),
        expect={EVERYWHERE: (TakenOver((0,)), Honoured((0,)), AliasBytes(PART), BY_COLUMNS)},
        control=Control(program=donated(lambda x: x * x, ROWS_FIRST, ROWS_FIRST, donate=())),
    ),
    Case(
        name="donated-mismatching",
        after=LAYOUT + "test_layout_donation_mismatching_in_and_out_fails",
        asserts="where the tiles of the layouts need other sizes the array is not deleted",
        program=donated(lambda x: x * x, ROWS_FIRST, COLUMNS_FIRST, dimensions=UNEVEN),
        expect={TPU: (TakenOver(()), AliasBytes(0), BY_COLUMNS)},
        control=Control(
            program=donated(lambda x: x * x, ROWS_FIRST, ROWS_FIRST, dimensions=UNEVEN)
        ),
    ),
    Case(
        name="donated-default",
        after=LAYOUT + "test_layout_donation_with_default_layout",
        asserts="a default layout that is spelled out is the default: the alias is sure",
        program=donated(lambda x: x * 2, None, ROWS_FIRST),
        expect={EVERYWHERE: (TakenOver((0,)), AliasBytes(PART))},
    ),
    Case(
        name="donated-auto",
        after=LAYOUT + "test_layout_donation_auto",
        asserts="an AUTO result takes over the array",
        program=donated(lambda x: x * x, AUTO, AUTO),
        expect={EVERYWHERE: (TakenOver((0,)), AliasBytes(PART))},
    ),
    Case(
        name="donated-auto-to-default",
        after=LAYOUT + "test_donation_error_on_auto",
        asserts="a donated AUTO argument without an AUTO result is refused",
        program=auto_to_default,
        expect={EVERYWHERE: (Refused(FailureKind.LOWERING, "Did you mean to set the"),)},
        control=Control(program=donated(lambda x: x * x, AUTO, AUTO)),
    ),
    Case(
        name="donated-default-to-auto",
        after=LAYOUT + "test_donation_error_on_auto",
        asserts="a donated argument without AUTO and an AUTO result are refused",
        program=default_to_auto,
        expect={EVERYWHERE: (Refused(FailureKind.LOWERING, "Did you mean to set the"),)},
    ),
)

test_assay_agrees_with_upstream, test_assay_notices_the_control = checks_of(CASES)
