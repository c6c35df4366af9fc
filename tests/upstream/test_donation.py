"""After jax's tests on donation: which buffers a result takes over, and which it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from assay.model.workload import Program

from .cases import (
    CPU,
    EVERYWHERE,
    TPU,
    Case,
    Control,
    Disagreement,
    Right,
    checks_of,
)
from .expectations import (
    AliasBytes,
    Compiles,
    CopiesOutside,
    DonationRefused,
    Honoured,
    LoopCopies,
    TakenOver,
    Values,
)
from .programs import F32_BYTES, array, counting, on_one, on_two, simple

ROWS = (8, 256)
NBYTES = 8 * 256 * F32_BYTES
HALF = NBYTES // 2  # of ROWS on each of two devices


def added(devices: Sequence[Any], donate: tuple[int, ...] = (0,)) -> Program:
    here = on_two(devices, "x")
    return Program(
        function=lambda x, y: x + y,
        arguments=(array(ROWS, here), array(ROWS, here)),
        in_shardings=here,
        out_shardings=here,
        donate_argnums=donate,
        values=lambda: (counting(ROWS), counting(ROWS)),
        observe=lambda x, y: x + y,
    )


def added_and_kept(devices: Sequence[Any]) -> Program:
    return added(devices, ())


def by_name(devices: Sequence[Any]) -> Program:
    here = on_two(devices, "x")

    def step(first: Any, second: Any) -> Any:
        return first + second

    return Program(
        function=jax.jit(step, out_shardings=here, donate_argnames="second"),
        arguments=(array(ROWS, here), array(ROWS, here)),
    )


def by_names(devices: Sequence[Any]) -> Program:
    here = on_two(devices, "x")

    def step(first: Any, second: Any, third: Any) -> Any:
        return first + second + third, third

    return Program(
        function=jax.jit(step, out_shardings=here, donate_argnames=("second", "third")),
        arguments=(array(ROWS, here),) * 3,
    )


def trees(devices: Sequence[Any]) -> Program:
    here = on_two(devices, "x")
    tree = {"a": {"b": array(ROWS, here)}, "c": array(ROWS, here)}

    def step(first: Any, second: Any, third: Any) -> Any:
        return jax.tree.map(lambda x, y, z: x + y + z, first, second, third)

    return Program(
        function=step, arguments=(tree, tree, tree), out_shardings=here, donate_argnums=(1,)
    )


def inferred(devices: Sequence[Any]) -> Program:
    here, whole = on_two(devices, "x"), on_two(devices)
    second, third = array((8, 384), here), array((8, 512), here)

    def step(x: Any, y: Any, z: Any) -> Any:
        return [
            part for each in (x, y, z) for part in (lax.with_sharding_constraint(each, whole), each)
        ]

    return Program(
        function=jax.jit(step, donate_argnames=("y", "z")),
        arguments=(array(ROWS, here), second, third),
    )


def of_another_shape(devices: Sequence[Any]) -> Program:
    return Program(
        function=lambda x: x @ x.T,
        arguments=(array((16, 128), on_two(devices, "x")),),
        donate_argnums=(0,),
    )


def of_the_same_shape(devices: Sequence[Any]) -> Program:
    return Program(
        function=lambda x: x * 2,
        arguments=(array((16, 128), on_two(devices, "x")),),
        donate_argnums=(0,),
    )


def reshaped(devices: Sequence[Any]) -> Program:
    rows, depth = on_two(devices, "x"), on_two(devices, None, "x", None)
    return Program(
        function=lambda x, y, z: (x, jnp.reshape(y, (1024,)), z),
        arguments=(array((1024,), rows), array((1024, 1), rows), array((2, 2, 256), depth)),
        out_shardings=(rows, rows, depth),
        donate_argnums=(0, 1, 2),
    )


def summed(devices: Sequence[Any]) -> Program:
    here = on_one(devices)
    return Program(
        function=lambda x, y: x.sum() + jnp.float32(y.sum()),
        arguments=(array(ROWS, here), array(ROWS, here, "int32")),
        donate_argnums=(0, 1),
    )


def with_static(devices: Sequence[Any]) -> Program:
    here = on_one(devices)
    return Program(
        function=jax.jit(
            lambda a, b, c, d: (a + b + c, a + b + d), static_argnums=(0, 1), donate_argnums=(2, 3)
        ),
        arguments=(1, 2, array(ROWS, here), array((4, 128), here)),
    )


def converted(devices: Sequence[Any]) -> Program:
    here = on_one(devices)
    weak = jax.ShapeDtypeStruct(ROWS, jnp.int32, sharding=here, weak_type=True)
    return Program(
        function=lambda x: x.astype(jnp.int32) + 1, arguments=(weak,), donate_argnums=(0,)
    )


def nested(devices: Sequence[Any]) -> Program:
    inner = jax.jit(lambda y: y**2, donate_argnums=0)
    return Program(function=lambda x: inner(x) * 1.0, arguments=(array(ROWS, on_one(devices)),))


def not_nested(devices: Sequence[Any]) -> Program:
    return Program(
        function=jax.jit(lambda y: y**2, donate_argnums=0),
        arguments=(array(ROWS, on_one(devices)),),
    )


def one_row(stack: Any, row: Any) -> Any:
    return stack.at[3].set(row)


def rows_in_a_loop(stack: Any, row: Any) -> Any:
    return lax.fori_loop(0, 8, lambda i, s: s.at[i].set(row + i), stack)


def double(first: Any, second: Any) -> Any:
    return first + second, first - second


TOOK_ONE = (TakenOver((0,)), Honoured((0,)), AliasBytes(NBYTES))
API = "api_test.py::JitTest::"
PJIT = "pjit_test.py::PJitTest::"

CASES = (
    Case(
        name="added",
        after=PJIT + "testBufferDonation",
        asserts="the donated argument is deleted and the other is not",
        program=added,
        expect={
            EVERYWHERE: (TakenOver((0,)), AliasBytes(HALF)),
            CPU: (Values(lambda: (2 * counting(ROWS),)),),
        },
        control=Control(program=added_and_kept, breaks=(TakenOver((0,)), AliasBytes(HALF))),
    ),
    Case(
        name="by-name",
        after=PJIT + "testBufferDonationWithNames",
        asserts="the argument named in donate_argnames is deleted and the other is not",
        program=by_name,
        expect={EVERYWHERE: (TakenOver((1,)), AliasBytes(HALF))},
    ),
    Case(
        name="by-names",
        after=PJIT + "testBufferDonationWithKwargs",
        asserts="both arguments named in donate_argnames are deleted",
        program=by_names,
        expect={EVERYWHERE: (TakenOver((1, 2)), AliasBytes(2 * HALF))},
    ),
    Case(
        name="trees",
        after=PJIT + "testBufferDonationWithPyTreeKwargs",
        asserts="every array of the donated tree is deleted, and of no other",
        program=trees,
        expect={EVERYWHERE: (TakenOver((2, 3)), AliasBytes(2 * HALF))},
    ),
    Case(
        name="inferred",
        after=PJIT + "testBufferDonationWithOutputShardingInference",
        asserts="donated arrays find their results although the compiler chooses the shardings",
        program=inferred,
        expect={EVERYWHERE: (TakenOver((1, 2)), AliasBytes(8 * (384 + 512) * F32_BYTES // 2))},
    ),
    Case(
        name="of-another-shape",
        after=PJIT + "testBufferDonationNotDonated",
        asserts="x @ x.T cannot take the buffer of x, which is not deleted",
        program=of_another_shape,
        expect={EVERYWHERE: (TakenOver(()), AliasBytes(0))},
        control=Control(program=of_the_same_shape),
        disagreements=(
            Disagreement(
                of=TakenOver(()),
                on=TPU,
                seen="measured (0,)",
                right=Right.TOOLCHAIN,
                why="x is of no more use, and a TPU pads both arrays to one size: it takes x over",
            ),
            Disagreement(
                of=AliasBytes(0),
                on=TPU,
                seen="measured 4096",
                right=Right.TOOLCHAIN,
                why="the same 4,096 B",
            ),
        ),
    ),
    Case(
        name="reshaped",
        after=PJIT + "testBufferDonationDifferentIOShapes",
        asserts="all three are deleted, one of them for a result of another shape",
        program=reshaped,
        expect={EVERYWHERE: (TakenOver((0, 1, 2)), AliasBytes(3 * 1024 * F32_BYTES // 2))},
    ),
    Case(
        name="summed",
        after=API + "test_jit_donate_warning_raised",
        asserts="jax warns: a sum can take over neither of two arrays",
        program=summed,
        expect={EVERYWHERE: (DonationRefused(), AliasBytes(0))},
        control=Control(program=added),
    ),
    Case(
        name="back-and-forth",
        after=API + "test_jit_donate_invalidates_input",
        asserts="x + x − x takes over x",
        program=simple(lambda x: x + x - x, ROWS, donate=(0,)),
        expect={EVERYWHERE: TOOK_ONE, CPU: (Values(lambda: (counting(ROWS),)),)},
        control=Control(program=simple(lambda x: x + x - x, ROWS), breaks=TOOK_ONE),
    ),
    Case(
        name="with-static",
        after=API + "test_jit_donate_static_argnums",
        asserts="static arguments do not shift the numbers of those that are donated",
        program=with_static,
        expect={EVERYWHERE: (TakenOver((0, 1)), AliasBytes(NBYTES + 4 * 128 * F32_BYTES))},
    ),
    Case(
        name="converted",
        after=API + "test_jit_donate_weak_type",
        asserts="a weakly typed array is taken over by a result that is not weak",
        program=converted,
        expect={EVERYWHERE: TOOK_ONE},
    ),
    Case(
        name="nested",
        after=API + "test_jit_nested_donate_ignored",
        asserts="a donation to a jit inside of jit is ignored",
        program=nested,
        expect={EVERYWHERE: (Compiles(), TakenOver(()), AliasBytes(0))},
        control=Control(program=not_nested, breaks=(TakenOver(()), AliasBytes(0))),
    ),
    Case(
        name="one-row",
        after=API + "test_jnp_array_copy",
        asserts="an update of a donated array writes into it",
        program=simple(one_row, (8, 8, 128), (8, 128), donate=(0,)),
        expect={
            EVERYWHERE: (
                TakenOver((0,)),
                Honoured((0,)),
                AliasBytes(8 * 8 * 128 * 4),
                CopiesOutside(0, 8192),
            )
        },
        control=Control(
            program=simple(one_row, (8, 8, 128), (8, 128)),
            breaks=(TakenOver((0,)), AliasBytes(8 * 8 * 128 * 4)),
        ),
    ),
    Case(
        name="rows-in-a-loop",
        after=PJIT + "testBufferDonation (a loop that updates the donated array)",
        asserts="the loop's state lies in the donated buffer: nothing is copied in the loop",
        program=simple(rows_in_a_loop, (8, 8, 128), (8, 128), donate=(0,)),
        expect={
            EVERYWHERE: (TakenOver((0,)), Honoured((0,)), LoopCopies(0, larger_than=8 * 128 * 4))
        },
    ),
    Case(
        name="double",
        after=API + "test_specify_donate_argnums_and_argnames (two results of two donated arrays)",
        asserts="each of two donated arrays is taken over by one of two results",
        program=simple(double, ROWS, ROWS, donate=(0, 1)),
        expect={EVERYWHERE: (TakenOver((0, 1)), AliasBytes(2 * NBYTES))},
    ),
)

test_assay_agrees_with_upstream, test_assay_notices_the_control = checks_of(CASES)
