"""After jax's tests/memories_test.py: memory kinds of results, and programs that are too large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from assay.model.evidence import FailureKind
from assay.model.workload import Program

from .cases import CPU, DEVICES, GPU, TPU, Case, Control, checks_of, elided
from .expectations import (
    Compiles,
    Fits,
    HostResults,
    Refused,
    ResultKinds,
    SomeHostTemporaries,
    ToDevice,
    ToHost,
    Trips,
    Values,
)
from .programs import F32_BYTES, array, counting, on_one, on_two

pytestmark = pytest.mark.exhaustive

HOST = jax.memory.Space.Host
DEVICE = jax.memory.Space.Device
ROWS = (8, 128)
HALF = 8 * 128 * F32_BYTES // 2  # of ROWS on each of two devices
CUBE = (16, 16, 256)
TILE = 512  # what a TPU reserves for a scalar
HALF_CUBE = 16 * 16 * 256 * F32_BYTES // 2


def result_streamed(devices: Sequence[Any], kind: str = "pinned_host") -> Program:
    return Program(
        function=lambda a: a + 1.0,
        arguments=(array(ROWS, on_two(devices, "x")),),
        out_shardings=on_two(devices, "x", kind=kind),
        values=lambda: (counting(ROWS),),
        observe=lambda a: a + 1.0,
    )


def result_kept(devices: Sequence[Any]) -> Program:
    return result_streamed(devices, "device")


def weight_offloaded(devices: Sequence[Any]) -> Program:
    there = on_two(devices, "x", kind="pinned_host")
    return Program(
        function=lambda a: jax.device_put(a * 2, there),
        arguments=(array(ROWS, on_two(devices, "x")),),
    )


def weight_kept(devices: Sequence[Any]) -> Program:
    return Program(function=lambda a: a * 2, arguments=(array(ROWS, on_two(devices, "x")),))


def results_streamed_in_a_scan(devices: Sequence[Any], kind: str = "pinned_host") -> Program:
    there = on_two(devices, None, "x", kind=kind)

    def step(rows: Any) -> Any:
        return lax.scan(lambda c, row: (c, jax.device_put(row + c, there)), 1.0, rows)[1]

    return Program(function=step, arguments=(array(CUBE, on_two(devices, None, None, "x")),))


def results_kept_in_a_scan(devices: Sequence[Any]) -> Program:
    return results_streamed_in_a_scan(devices, "device")


def ragged(devices: Sequence[Any]) -> Program:
    rows = 4

    def step(x: Any) -> Any:
        def part(i: Any) -> Any:
            return lax.dynamic_slice_in_dim(x, i * rows, rows)

        def go(state: Any) -> Any:
            i, _ = state
            return (i * rows < x.shape[0]) & jnp.any(part(i) > 0)

        def body(state: Any) -> Any:
            i, out = state
            moved = jax.device_put(part(i), HOST)
            return i + 1, lax.dynamic_update_slice_in_dim(out, moved, i * rows, axis=0)

        empty = jax.device_put(jnp.zeros_like(x), HOST)
        return lax.while_loop(go, body, (0, empty))[1]

    return Program(
        function=step,
        arguments=(array((64, 128), on_one(devices)),),
        out_shardings=on_one(devices, "pinned_host"),
    )


def too_large(devices: Sequence[Any]) -> Program:
    def step(x: Any) -> Any:
        return lax.broadcast(x, (1024, 1024, 1024, 1024))

    return Program(function=step, arguments=(array((1,), on_one(devices)),))


def small_enough(devices: Sequence[Any]) -> Program:
    return Program(
        function=lambda x: lax.broadcast(x, (16, 16)), arguments=(array((1,), on_one(devices)),)
    )


def one_of_each(devices: Sequence[Any]) -> Program:
    here, there = on_two(devices, "x"), on_two(devices, "x", kind="pinned_host")
    return Program(
        function=lambda x, y: (
            jax.device_put(jnp.sin(x), there),
            jax.device_put(jnp.cos(y), here),
        ),
        arguments=(array(ROWS, here), array(ROWS, here)),
    )


def summed(devices: Sequence[Any]) -> Program:
    return Program(
        function=lambda x: jnp.sum(x * 2),
        arguments=(array(ROWS, on_two(devices, "x")),),
        out_shardings=on_two(devices, kind="pinned_host"),
    )


def summed_and_put(devices: Sequence[Any]) -> Program:
    there = on_two(devices, kind="pinned_host")
    return Program(
        function=lambda x: jax.device_put(jnp.sum(x * 2), there),
        arguments=(array(ROWS, on_two(devices, "x")),),
    )


def made_there(devices: Sequence[Any], *spec: Any) -> Program:
    def step() -> Any:
        made = jax.random.normal(jax.random.key(42), (16, 128))
        return made, made + 1

    return Program(
        function=step,
        out_shardings=(on_two(devices, "x"), on_two(devices, *spec, kind="pinned_host")),
    )


def made_there_in_parts(devices: Sequence[Any]) -> Program:
    return made_there(devices, "x")


def there_and_back(devices: Sequence[Any]) -> Program:
    def step(x: Any) -> Any:
        away = jax.device_put(jnp.sin(x), HOST)
        return jnp.cos(x) + jax.device_put(away, DEVICE)

    return Program(function=step, arguments=(array(ROWS, on_one(devices)),))


def never_away(devices: Sequence[Any]) -> Program:
    return Program(
        function=lambda x: jnp.cos(x) + jnp.sin(x), arguments=(array(ROWS, on_one(devices)),)
    )


PUT = "memories_test.py::DevicePutTest::"
OFFLOAD = "memories_test.py::ComputeOffload::"
ONTO_HOST = (ResultKinds(("host",)), ToHost(HALF), HostResults(HALF))

CASES = (
    Case(
        name="result-streamed",
        after=PUT + "test_output_streaming",
        asserts="a computed result lies in pinned_host",
        program=result_streamed,
        expect={DEVICES: ONTO_HOST, CPU: (Values(lambda: (counting(ROWS) + 1,)),)},
        control=Control(program=result_kept, on=DEVICES),
    ),
    Case(
        name="weight-offloaded",
        after=PUT + "test_weight_offload_with_dp_on_output",
        asserts="a device_put at the end puts the result into pinned_host",
        program=weight_offloaded,
        expect={DEVICES: ONTO_HOST},
        control=Control(program=weight_kept),
    ),
    Case(
        name="results-streamed-in-a-scan",
        after=PUT + "test_output_streaming_inside_scan",
        asserts="the stack of a scan's results lies in pinned_host",
        program=results_streamed_in_a_scan,
        expect={
            DEVICES: (ResultKinds(("host",)), HostResults(HALF_CUBE), ToHost(HALF_CUBE)),
        },
        control=Control(program=results_kept_in_a_scan),
    ),
    Case(
        name="ragged",
        after=PUT + "test_ragged_copy_on_host",
        asserts="a loop that ends by the data writes parts of an array on the host",
        program=ragged,
        expect={TPU: (ResultKinds(("host",)), HostResults(64 * 128 * F32_BYTES), Trips((-1,)))},
    ),
    Case(
        name="too-large",
        after=PUT + "test_oom",
        asserts="4 TiB are refused with the sizes of what is needed and of what there is",
        program=too_large,
        expect={TPU: (Refused(FailureKind.OUT_OF_MEMORY, "exceeds available HBM"),)},
        control=Control(program=small_enough),
    ),
    Case(
        name="small-enough",
        after=PUT + "test_oom",
        asserts="(the GPU compiler takes any size: 4 TiB must not fit by its memory analysis)",
        program=small_enough,
        expect={DEVICES: (Fits(), Compiles())},
        control=Control(program=too_large, breaks=(Fits(),)),
    ),
    Case(
        name="one-of-each",
        after=OFFLOAD + "test_jit_host_multi_outputs",
        asserts="of two results one lies in pinned_host and one on the device",
        program=one_of_each,
        expect={DEVICES: (ResultKinds(("host", "device")), ToHost(HALF), HostResults(HALF))},
    ),
    Case(
        name="summed",
        after=OFFLOAD + "test_jit_out_shardings_single_output",
        asserts="the executable's memory kind of a sum is pinned_host, by out_shardings",
        program=summed,
        expect={
            DEVICES: (ResultKinds(("host",)), ToHost(4)),
            GPU: (HostResults(4),),
            TPU: (HostResults(TILE),),
        },
    ),
    Case(
        name="summed-and-put",
        after=OFFLOAD + "test_jit_out_shardings_single_output",
        asserts="the executable's memory kind of a sum is pinned_host, by device_put",
        program=summed_and_put,
        expect={
            DEVICES: (ResultKinds(("host",)), ToHost(4)),
            GPU: (HostResults(4),),
            TPU: (HostResults(TILE),),
        },
    ),
    Case(
        name="made-there",
        after=OFFLOAD + "test_compute_no_inputs",
        asserts="of two arrays that are made without arguments, one lies in pinned_host",
        program=made_there_in_parts,
        expect={DEVICES: (ResultKinds(("device", "host")), HostResults(16 * 128 * F32_BYTES // 2))},
    ),
    Case(
        name="made-there-whole",
        after=OFFLOAD + "test_compute_no_inputs_host_replicated",
        asserts="the array in pinned_host may be whole on each device",
        program=made_there,
        expect={DEVICES: (ResultKinds(("device", "host")), HostResults(16 * 128 * F32_BYTES))},
    ),
    Case(
        name="there-and-back",
        after=PUT + "test_host_to_device_transfer",
        asserts="what goes to the host can come back",
        program=there_and_back,
        expect={DEVICES: (SomeHostTemporaries(2 * HALF), ToHost(2 * HALF), ToDevice(2 * HALF))},
        control=Control(program=never_away),
        disagreements=elided(SomeHostTemporaries(2 * HALF), ToHost(2 * HALF), ToDevice(2 * HALF)),
    ),
)

test_assay_agrees_with_upstream, test_assay_notices_the_control = checks_of(CASES)
