"""After jax's tests of Pallas: the memories of a kernel, and what it copies between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from assay.model.evidence import FailureKind
from assay.model.workload import Program

from .cases import TPU, Case, Control, checks_of
from .expectations import (
    ArgumentKinds,
    Compiles,
    CopiesOutside,
    HostArguments,
    HostResults,
    Kernels,
    Refused,
    ResultKinds,
    TemporariesAtMost,
)
from .programs import F32_BYTES, array, on_one, shape, simple

pytestmark = pytest.mark.exhaustive

TILE = (8, 128)
TILE_BYTES = 8 * 128 * F32_BYTES
ANY = pl.BlockSpec(memory_space=pl.ANY)


def moving(kernel: Callable[..., None], *scratch: Any) -> Callable[..., Any]:
    """A call of a kernel that moves its argument by itself."""

    def step(x: Any) -> Any:
        return pl.pallas_call(
            kernel, out_shape=shape(TILE), in_specs=[ANY], out_specs=ANY, scratch_shapes=scratch
        )(x)

    return step


def copy_within_hbm(x_ref: Any, o_ref: Any) -> None:
    pltpu.sync_copy(x_ref.at[:8, :], o_ref.at[:, :128])


def copy_with_a_semaphore(x_ref: Any, o_ref: Any, semaphore: Any) -> None:
    pltpu.make_async_copy(x_ref, o_ref, semaphore).start()
    pltpu.make_async_copy(x_ref, o_ref, semaphore).wait()


def copy_through_vmem(x_ref: Any, o_ref: Any) -> None:
    def body(scratch: Any, semaphore: Any) -> None:
        pltpu.async_copy(x_ref, scratch, semaphore).wait()
        pltpu.async_copy(scratch, o_ref, semaphore).wait()

    pl.run_scoped(body, pltpu.VMEM(TILE, jnp.float32), pltpu.SemaphoreType.DMA)


def copy_with_many_semaphores(x_ref: Any, o_ref: Any) -> None:
    def body(semaphore: Any) -> None:
        pltpu.async_copy(x_ref, o_ref, semaphore).wait()

    pl.run_scoped(body, pltpu.SemaphoreType.DMA((1,)))


def scoped() -> Any:
    def kernel(o_ref: Any) -> None:
        def body(scratch: Any) -> None:
            scratch[...] = jnp.ones_like(scratch)
            o_ref[...] = 4 * scratch[...]

        pl.run_scoped(body, pltpu.VMEM(TILE, jnp.float32))

    return pl.pallas_call(kernel, out_shape=shape(TILE))()


def host_memory() -> Any:
    # Older jax lists it among the memories of a TPU.
    return vars(pl).get("HOST") or vars(pltpu)["HOST"]


def transfer(x_ref: Any, o_ref: Any) -> None:
    def body(semaphore: Any) -> None:
        pltpu.async_copy(x_ref, o_ref, semaphore).wait()

    pl.run_scoped(body, pltpu.SemaphoreType.DMA)


def from_the_host(devices: Sequence[Any]) -> Program:
    def step(x: Any) -> Any:
        return pl.pallas_call(
            transfer,
            in_specs=[pl.BlockSpec(memory_space=host_memory())],
            out_specs=ANY,
            out_shape=shape(TILE),
        )(x)

    return Program(function=step, arguments=(array(TILE, on_one(devices, "pinned_host")),))


def to_the_host(devices: Sequence[Any]) -> Program:
    def step(x: Any) -> Any:
        return pl.pallas_call(
            transfer,
            in_specs=[ANY],
            out_specs=pl.BlockSpec(memory_space=host_memory()),
            out_shape=pl.MemoryRef(jax.core.ShapedArray(TILE, jnp.float32), host_memory()),
        )(x)

    return Program(
        function=step,
        arguments=(array(TILE, on_one(devices)),),
        out_shardings=on_one(devices, "pinned_host"),
    )


def limited(nbytes: int) -> Callable[..., Any]:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    def step(x: Any) -> Any:
        return pl.pallas_call(
            kernel,
            out_shape=shape((128, 128)),
            compiler_params=pltpu.CompilerParams(vmem_limit_bytes=nbytes),
        )(x)

    return step


def windows(rows: int) -> Callable[[Sequence[Any]], Program]:
    """A copy in windows of so many rows."""

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    def build(devices: Sequence[Any]) -> Program:
        block = pl.BlockSpec((rows, 8192), lambda i, j: (i, j))
        whole = (2 * rows, 2 * 8192)
        call = pl.pallas_call(
            kernel, out_shape=shape(whole), grid=(2, 2), in_specs=[block], out_specs=block
        )
        return Program(
            function=call,
            arguments=(array(whole, on_one(devices)),),
        )

    return build


ONE_KERNEL = (Compiles(), Kernels(1))
TESTS = "tpu_pallas_test.py::PallasCall"
NO_KERNEL = simple(lambda x: x + 1, TILE)

CASES = (
    Case(
        name="within-hbm",
        after=TESTS + "DMATest::test_hbm_hbm_dma",
        asserts="a kernel copies from device memory to device memory",
        program=simple(moving(copy_within_hbm), TILE),
        expect={TPU: (*ONE_KERNEL, CopiesOutside(0), TemporariesAtMost(0))},
        control=Control(program=NO_KERNEL, breaks=(Kernels(1),)),
    ),
    Case(
        name="with-a-semaphore",
        after=TESTS + "DMATest::test_dma_with_scalar_semaphore_ref",
        asserts="a kernel may have a semaphore of its own",
        program=simple(moving(copy_with_a_semaphore, pltpu.SemaphoreType.DMA), TILE),
        expect={TPU: ONE_KERNEL},
    ),
    Case(
        name="with-many-semaphores",
        after=TESTS + "DMATest::test_cannot_dma_with_nonscalar_semaphore_ref",
        asserts="an array of semaphores cannot be signalled",
        program=simple(moving(copy_with_many_semaphores), TILE),
        expect={TPU: (Refused(FailureKind.TRACE, "Cannot signal"),)},
        control=Control(program=simple(moving(copy_through_vmem), TILE)),
    ),
    Case(
        name="through-vmem",
        after=TESTS + "DMATest::test_hbm_vmem_dma and test_vmem_hbm_dma",
        asserts="a kernel copies to its own memory and back",
        program=simple(moving(copy_through_vmem), TILE),
        expect={TPU: (*ONE_KERNEL, CopiesOutside(0))},
    ),
    Case(
        name="scoped",
        after=TESTS + "DMATest::test_scoped_allocation",
        asserts="a kernel may allocate for a part of itself",
        program=simple(scoped),
        expect={TPU: (*ONE_KERNEL, TemporariesAtMost(0))},
    ),
    Case(
        name="from-the-host",
        after=TESTS + "DMATest::test_host_input_host_to_hbm_dma",
        asserts="a kernel reads an argument in pinned_host",
        program=from_the_host,
        expect={
            TPU: (
                *ONE_KERNEL,
                ArgumentKinds(("host",)),
                ResultKinds(("device",)),
                HostArguments(TILE_BYTES),
            )
        },
        control=Control(
            program=simple(moving(transfer), TILE),
            breaks=(ArgumentKinds(("host",)), HostArguments(TILE_BYTES)),
        ),
    ),
    Case(
        name="to-the-host",
        after=TESTS + "DMATest::test_hbm_to_host_host_output_dma",
        asserts="a kernel writes a result in pinned_host",
        program=to_the_host,
        expect={TPU: (*ONE_KERNEL, ResultKinds(("host",)), HostResults(TILE_BYTES))},
        control=Control(
            program=simple(moving(transfer), TILE),
            breaks=(ResultKinds(("host",)), HostResults(TILE_BYTES)),
        ),
    ),
    Case(
        name="too-little-vmem",
        after=TESTS + "Test::test_vmem_limit",
        asserts="256 B of memory for a kernel are refused by the compiler",
        program=simple(limited(256), (128, 128)),
        expect={TPU: (Refused(FailureKind.COMPILER, "vmem"),)},
        control=Control(program=simple(limited(2**18), (128, 128))),
    ),
    Case(
        name="enough-vmem",
        after=TESTS + "Test::test_vmem_limit",
        asserts="256 KiB are enough",
        program=simple(limited(2**18), (128, 128)),
        expect={TPU: ONE_KERNEL},
    ),
    Case(
        name="windows-too-large",
        after=TESTS + "Test::test_vmem_oom_error_message_basics",
        asserts="windows of 64 MiB are refused",
        program=windows(2048),
        expect={TPU: (Refused(FailureKind.COMPILER, "vmem"),)},
        control=Control(program=windows(64)),
    ),
)

test_assay_agrees_with_upstream, test_assay_notices_the_control = checks_of(CASES)
