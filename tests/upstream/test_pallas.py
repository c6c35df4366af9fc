"""After jax's tests of Pallas: kernels in a program, and whose buffers they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from assay.model.workload import Program

from .cases import CPU, TPU, Case, Control, checks_of
from .expectations import (
    AliasBytes,
    Compiles,
    CopiesOutside,
    Kernels,
    LoopCopies,
    TakenOver,
    TemporariesAtMost,
    Trips,
    Values,
)
from .programs import F32_BYTES, array, counting, on_one, shape, simple

pytestmark = pytest.mark.exhaustive

ROWS = (256, 128)
NBYTES = 256 * 128 * F32_BYTES
TILE = (8, 128)
TILE_BYTES = 8 * 128 * F32_BYTES
ANY = pl.BlockSpec(memory_space=pl.ANY)
HALVES = pl.BlockSpec((128, 128), lambda i: (i, 0))


def one_more(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + 1


def in_halves(x: Any, **options: Any) -> Any:
    return pl.pallas_call(
        one_more, out_shape=shape(ROWS), grid=(2,), in_specs=[HALVES], out_specs=HALVES, **options
    )(x)


def interpreted(x: Any) -> Any:
    return in_halves(x, interpret=True)


def into_its_argument(x: Any) -> Any:
    return in_halves(x, input_output_aliases={0: 0})


def two_sums(x: Any, y: Any) -> Any:
    def add(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + y_ref[...]

    return pl.pallas_call(
        add, out_shape=shape(ROWS), grid=(2,), in_specs=[HALVES, HALVES], out_specs=HALVES
    )(x, y)


def prefetched(*, alias: bool) -> Callable[..., Any]:
    """Which rows are taken is read from an array of integers before the kernel runs."""

    def kernel(_: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + 1.0

    def step(x: Any) -> Any:
        block = pl.BlockSpec((None, 128, 128), lambda i, _: (i, 0, 0))
        return pl.pallas_call(
            kernel,
            out_shape=shape(x.shape),
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=1, in_specs=[block], out_specs=block, grid=(x.shape[0],)
            ),
            input_output_aliases={1: 0} if alias else {},
        )(jnp.array([1, 2, 3], jnp.int32), x)

    return step


def dynamic(steps: Any) -> Any:
    def kernel(o_ref: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += 1

    return pl.pallas_call(
        kernel,
        grid=(steps * 2,),
        out_specs=pl.BlockSpec(TILE, lambda _: (0, 0)),
        out_shape=shape(TILE),
    )()


def dynamic_on(devices: Sequence[Any]) -> Program:
    return Program(function=dynamic, arguments=(array((), on_one(devices), "int32"),))


def rows_in_a_loop(*, alias: bool) -> Callable[..., Any]:
    """A loop whose kernel writes one row of the stack that it is given, or a stack of its own."""

    def kernel(i_ref: Any, x_ref: Any, o_ref: Any) -> None:
        del x_ref
        i = i_ref[0]

        def body(scratch: Any, semaphore: Any) -> None:
            scratch[...] = jnp.full(TILE, 1.0, jnp.float32) * i
            pltpu.async_copy(scratch, o_ref.at[i], semaphore).wait()

        pl.run_scoped(body, pltpu.VMEM(TILE, jnp.float32), pltpu.SemaphoreType.DMA)

    def step(stack: Any) -> Any:
        def write(i: Any, stack: Any) -> Any:
            return pl.pallas_call(
                kernel,
                in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), ANY],
                out_specs=ANY,
                out_shape=shape(stack.shape),
                input_output_aliases={1: 0} if alias else {},
            )(jnp.reshape(i, (1,)), stack)

        return lax.fori_loop(0, stack.shape[0], write, stack)

    return step


def started_and_ended(x: Any) -> tuple[Any, Any]:
    """A copy that one kernel starts and another ends, with a semaphore between them."""
    semaphores = pl.BlockSpec(memory_space=pltpu.SEMAPHORE)

    def start(x_ref: Any, same_ref: Any, o_ref: Any, semaphore: Any) -> None:
        del same_ref
        pltpu.make_async_copy(x_ref, o_ref, semaphore).start()

    def end(x_ref: Any, o_ref: Any, semaphore: Any, same_ref: Any) -> None:
        del same_ref
        pltpu.make_async_copy(x_ref, o_ref, semaphore).wait()

    x, copied, semaphore = pl.pallas_call(
        start,
        out_shape=(shape(x.shape), shape(x.shape), pltpu.SemaphoreType.DMA(())),
        in_specs=[ANY],
        out_specs=(ANY, ANY, semaphores),
        input_output_aliases={0: 0},
    )(x)
    copied = pl.pallas_call(
        end,
        out_shape=shape(x.shape),
        in_specs=[ANY, ANY, semaphores],
        out_specs=ANY,
        input_output_aliases={1: 0},
    )(x, copied, semaphore)
    return x, copied


def copied_once(x: Any) -> Any:
    return started_and_ended(x)[1]


def copied_in_a_loop(x: Any) -> Any:
    return lax.fori_loop(0, 16, lambda _, x: started_and_ended(x)[1], x)


def aliased_and_transposed(x: Any, y: Any) -> Any:
    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        del y_ref
        pltpu.sync_copy(x_ref.at[:2], o_ref.at[pl.ds(1, 2)])

    hbm = pl.BlockSpec(memory_space=pltpu.HBM)
    y = pltpu.with_memory_space_constraint(y, pltpu.HBM)
    return pl.pallas_call(
        kernel,
        in_specs=[ANY, hbm],
        out_specs=hbm,
        out_shape=shape(y.shape),
        input_output_aliases={1: 0},
    )(x, y)


STACK = (16, 8, 128)
ONE_KERNEL = (Compiles(), Kernels(1))
TESTS = "tpu_pallas_test.py::PallasCall"
ONE_MORE = Values(lambda: (counting(ROWS) + 1,))

CASES = (
    Case(
        name="two-sums",
        after=TESTS + "PipelineTest::test_two_input_vadd",
        asserts="a kernel of two arguments in blocks adds them",
        program=simple(two_sums, ROWS, ROWS),
        expect={TPU: (Kernels(1), TemporariesAtMost(0), CopiesOutside(0))},
        control=Control(program=simple(lambda x, y: x + y, ROWS, ROWS), breaks=(Kernels(1),)),
    ),
    Case(
        name="interpreted",
        after="pallas_test.py::PallasCallInterpretTest::test_basic",
        asserts="an interpreted kernel gives what the device's gives",
        program=simple(interpreted, ROWS),
        expect={CPU: (ONE_MORE,)},
        control=Control(program=simple(lambda x: x + 2, ROWS)),
    ),
    Case(
        name="into-its-argument",
        after="pallas_test.py::PallasCallTest::test_input_output_aliasing",
        asserts="a kernel writes into its donated argument",
        program=simple(into_its_argument, ROWS, donate=(0,)),
        expect={TPU: (Kernels(1), TakenOver((0,)), AliasBytes(NBYTES), CopiesOutside(0))},
        control=Control(
            program=simple(into_its_argument, ROWS),
            breaks=(TakenOver((0,)), AliasBytes(NBYTES), CopiesOutside(0)),
        ),
    ),
    Case(
        name="not-given-away",
        after="pallas_test.py::PallasCallTest::test_input_output_aliasing",
        asserts="a kernel that writes into an argument that is not given away gets a copy of it",
        program=simple(into_its_argument, ROWS),
        expect={TPU: (Kernels(1), TakenOver(()), CopiesOutside(NBYTES))},
        control=Control(program=simple(in_halves, ROWS), breaks=(CopiesOutside(NBYTES),)),
    ),
    Case(
        name="prefetched",
        after=TESTS + "ScalarPrefetchTest::test_trivial_scalar_prefetch",
        asserts="the blocks of a kernel may be chosen by integers that are read first",
        program=simple(prefetched(alias=False), (3, 128, 128)),
        expect={TPU: ONE_KERNEL},
    ),
    Case(
        name="prefetched-into-its-argument",
        after=TESTS + "ScalarPrefetchTest::test_input_output_aliasing_with_scalar_prefetch",
        asserts="alias_size_in_bytes is the size of the array",
        program=simple(prefetched(alias=True), (3, 128, 128), donate=(0,)),
        expect={TPU: (AliasBytes(3 * 128 * 128 * F32_BYTES), TakenOver((0,)))},
        control=Control(program=simple(prefetched(alias=False), (3, 128, 128))),
    ),
    Case(
        name="dynamic-grid",
        after=TESTS + "DynamicGridTest::test_dynamic_grid",
        asserts="a grid may be as long as an argument says",
        program=dynamic_on,
        expect={TPU: ONE_KERNEL},
    ),
    Case(
        name="row-in-a-loop",
        after="pallas_test.py::PallasCallTest::test_input_output_aliasing (in a loop)",
        asserts="a kernel that writes a row of its argument copies no stack in a loop",
        program=simple(rows_in_a_loop(alias=True), STACK, donate=(0,)),
        expect={TPU: (Kernels(1), LoopCopies(0), TakenOver((0,)), Trips((16,)))},
        control=Control(
            program=simple(rows_in_a_loop(alias=False), STACK, donate=(0,)), breaks=(LoopCopies(0),)
        ),
    ),
    Case(
        name="copied-once",
        after="tpu_pallas_async_test.py::PallasCallAsyncCopyTest::test_basic_async_copy",
        asserts="a copy may be started by one kernel and ended by another",
        program=simple(copied_once, TILE),
        expect={TPU: (Compiles(), Kernels(2))},
    ),
    Case(
        name="copied-in-a-loop",
        after="tpu_pallas_async_test.py::PallasCallAsyncCopyTest::test_copy_in_a_loop",
        asserts="so it may be in a loop, whose state swaps its buffers",
        program=simple(copied_in_a_loop, TILE),
        expect={TPU: (Compiles(), Trips((16,)))},
    ),
    Case(
        name="constrained",
        after=TESTS + "DMATest::test_hbm_hbm_dma_with_memory_space_annotation_aliased_input",
        asserts="an argument that is bound to device memory is written by the kernel",
        program=simple(aliased_and_transposed, TILE, TILE, donate=(1,)),
        expect={TPU: (Kernels(1), TakenOver((1,)), AliasBytes(TILE_BYTES))},
        control=Control(
            program=simple(aliased_and_transposed, TILE, TILE),
            breaks=(TakenOver((1,)), AliasBytes(TILE_BYTES)),
        ),
    ),
)

test_assay_agrees_with_upstream, test_assay_notices_the_control = checks_of(CASES)
