"""After jax's tests/memories_test.py: memory kinds of arguments, and what crosses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from assay.model.evidence import FailureKind
from assay.model.workload import Program

from .cases import CPU, DEVICES, EVERYWHERE, GPU, TPU, Case, Control, checks_of
from .expectations import (
    ArgumentKinds,
    HostArguments,
    HostResults,
    Refused,
    ResultKinds,
    ToDevice,
    ToHost,
    Values,
)
from .programs import F32_BYTES, array, counting, on_two, placed

pytestmark = pytest.mark.exhaustive

DEVICE = jax.memory.Space.Device
ROWS = (8, 128)
HALF = 8 * 128 * F32_BYTES // 2  # of ROWS on each of two devices
CUBE = (16, 16, 256)
TILE = 512  # what a TPU reserves for a scalar
HALF_CUBE = 16 * 16 * 256 * F32_BYTES // 2


def streaming(devices: Sequence[Any], kind: str = "pinned_host") -> Program:
    here, there = on_two(devices, "x"), on_two(devices, "x", kind=kind)

    def step(a: Any, b: Any) -> Any:
        product = (b * 2) * jax.device_put(a, here)
        return product * 4, product

    return Program(
        function=step,
        arguments=(array(ROWS, there), array(ROWS, here)),
        out_shardings=there,
        values=lambda: (counting(ROWS), counting(ROWS)),
        observe=lambda a, b: (b * 2 * a * 4, b * 2 * a),
    )


def streaming_on_the_device(devices: Sequence[Any]) -> Program:
    return streaming(devices, "device")


def nothing_streamed(devices: Sequence[Any]) -> Program:
    there = on_two(devices, kind="pinned_host")
    return Program(
        function=lambda a: jax.device_put(a, on_two(devices)),
        arguments=(array((0,), there),),
        out_shardings=there,
    )


def scalars(devices: Sequence[Any]) -> Program:
    there = placed(devices, {"x": 2, "y": 2}, kind="pinned_host")
    return Program(
        function=lambda a: (jax.device_put(a, there), jax.device_put(2, there)),
        arguments=(array((), placed(devices, {"x": 2, "y": 2}), "int32"),),
        out_shardings=there,
    )


def twice(devices: Sequence[Any]) -> Program:
    there = on_two(devices, "x", kind="pinned_host")
    return Program(
        function=lambda a: (a, a), arguments=(array(ROWS, there),), out_shardings=(there, there)
    )


def scalar_twice(devices: Sequence[Any]) -> Program:
    there = on_two(devices, kind="pinned_host")
    return Program(
        function=lambda a: (a, a),
        arguments=(array((), on_two(devices), "int32"),),
        out_shardings=(there, there),
    )


def identity(devices: Sequence[Any], given: str, wanted: str) -> Program:
    return Program(
        function=lambda a: a,
        arguments=(array(ROWS, on_two(devices, "x", kind=given)),),
        out_shardings=on_two(devices, "x", kind=wanted),
    )


def to_the_device(devices: Sequence[Any]) -> Program:
    return identity(devices, "pinned_host", "device")


def to_the_host(devices: Sequence[Any]) -> Program:
    return identity(devices, "device", "pinned_host")


def stays_on_the_device(devices: Sequence[Any]) -> Program:
    return identity(devices, "device", "device")


def streamed_in_a_scan(devices: Sequence[Any], kind: str = "pinned_host") -> Program:
    def step(rows: Any) -> Any:
        return lax.scan(lambda c, row: (c, jax.device_put(row, DEVICE) + c), 1.0, rows)[1]

    return Program(
        function=step,
        arguments=(array(CUBE, on_two(devices, None, None, "x", kind=kind)),),
        out_shardings=on_two(devices, None, None, "x"),
    )


def scanned_on_the_device(devices: Sequence[Any]) -> Program:
    return streamed_in_a_scan(devices, "device")


def mixed(devices: Sequence[Any]) -> Program:
    here, there = on_two(devices, "x"), on_two(devices, "x", kind="pinned_host")
    return Program(function=lambda a, b: a + b, arguments=(array(ROWS, here), array(ROWS, there)))


def not_mixed(devices: Sequence[Any]) -> Program:
    here = on_two(devices, "x")
    return Program(function=lambda a, b: a + b, arguments=(array(ROWS, here), array(ROWS, here)))


def placed_inside(devices: Sequence[Any]) -> Program:
    here, there = on_two(devices, "x"), on_two(devices, "x", kind="pinned_host")

    def step(a: Any, b: Any) -> Any:
        x, y = jax.device_put((a, b), here)
        return x * y

    return Program(
        function=step, arguments=(array(ROWS, there), array(ROWS, there)), out_shardings=here
    )


def gradient(devices: Sequence[Any], kind: str = "pinned_host") -> Program:
    there, here = on_two(devices, "x", kind=kind), on_two(devices, "x")

    def loss(x: Any) -> Any:
        return jnp.sum(jnp.sin(jax.device_put(x, here)))

    return Program(function=jax.grad(loss), arguments=(array(ROWS, there),), out_shardings=there)


def gradient_on_the_device(devices: Sequence[Any]) -> Program:
    return gradient(devices, "device")


def kind_differs(devices: Sequence[Any]) -> Program:
    return Program(
        function=lambda x: x * 2,
        arguments=(array(ROWS, on_two(devices, "x")),),
        in_shardings=on_two(devices, "x", kind="pinned_host"),
    )


def kind_is_as_said(devices: Sequence[Any]) -> Program:
    here = on_two(devices, "x")
    return Program(function=lambda x: x * 2, arguments=(array(ROWS, here),), in_shardings=here)


def unknown_kind(devices: Sequence[Any]) -> Program:
    return identity(devices, "device", "my_host")


PUT = "memories_test.py::DevicePutTest::"
OFFLOAD = "memories_test.py::ComputeOffload::"
ONTO_HOST = (ResultKinds(("host",)), ToHost(HALF), HostResults(HALF))

CASES = (
    Case(
        name="streaming",
        after=PUT + "test_parameter_streaming",
        asserts="the entry layout has S(5), and both results lie in pinned_host",
        program=streaming,
        expect={
            DEVICES: (
                ArgumentKinds(("host", "device")),
                ResultKinds(("host", "host")),
                HostArguments(HALF),
                HostResults(2 * HALF),
                ToDevice(HALF),
                ToHost(2 * HALF),
            ),
            CPU: (Values(lambda: (counting(ROWS) ** 2 * 8, counting(ROWS) ** 2 * 2)),),
        },
        control=Control(program=streaming_on_the_device, on=DEVICES),
    ),
    Case(
        name="nothing-streamed",
        after=PUT + "test_zero_size_parameter",
        asserts="an array without elements compiles, and keeps S(5) in the entry layout",
        program=nothing_streamed,
        expect={TPU: (ArgumentKinds(("host",)), ResultKinds(("host",)), ToDevice(0), ToHost(0))},
    ),
    Case(
        name="scalars",
        after=PUT + "test_parameter_streaming_with_scalar_and_constant",
        asserts="a scalar argument and a constant both end in pinned_host",
        program=scalars,
        expect={
            DEVICES: (ResultKinds(("host", "host")),),
            GPU: (HostResults(8),),
            TPU: (HostResults(2 * TILE),),
        },
    ),
    Case(
        name="twice",
        after=PUT + "test_parameter_and_output_streaming_with_array",
        asserts="what comes from the host and goes there keeps S(5) in the entry layout",
        program=twice,
        expect={DEVICES: (ArgumentKinds(("host",)), ResultKinds(("host", "host")), ToDevice(0))},
    ),
    Case(
        name="scalar-twice",
        after=PUT + "test_parameter_and_output_streaming_with_scalar",
        asserts="a scalar of the device goes to the host twice",
        program=scalar_twice,
        expect={
            DEVICES: (ResultKinds(("host", "host")),),
            GPU: (HostResults(8),),
            TPU: (HostResults(2 * TILE),),
        },
    ),
    Case(
        name="to-the-device",
        after=PUT + "test_identity_jit_host_to_device_and_vice_versa",
        asserts="an identity moves an array from the host to the device",
        program=to_the_device,
        expect={
            DEVICES: (
                ArgumentKinds(("host",)),
                ResultKinds(("device",)),
                HostArguments(HALF),
                ToDevice(HALF),
                ToHost(0),
            )
        },
        control=Control(
            program=stays_on_the_device,
            breaks=(ArgumentKinds(("host",)), HostArguments(HALF), ToDevice(HALF)),
        ),
    ),
    Case(
        name="to-the-host",
        after=PUT + "test_identity_jit_host_to_device_and_vice_versa",
        asserts="an identity moves an array from the device to the host",
        program=to_the_host,
        expect={DEVICES: (*ONTO_HOST, ToDevice(0))},
        control=Control(program=stays_on_the_device, breaks=ONTO_HOST),
    ),
    Case(
        name="streamed-in-a-scan",
        after=PUT + "test_parameter_streaming_inside_scan",
        asserts="each iteration fetches its row; the results lie on the device",
        program=streamed_in_a_scan,
        expect={
            DEVICES: (
                ArgumentKinds(("host",)),
                ResultKinds(("device",)),
                ToDevice(HALF_CUBE),
                ToHost(0),
            )
        },
        control=Control(
            program=scanned_on_the_device, breaks=(ArgumentKinds(("host",)), ToDevice(HALF_CUBE))
        ),
    ),
    Case(
        name="mixed",
        after=PUT + "test_diff_mem_space_error",
        asserts="an addition of a host array and a device array is refused while it is traced",
        program=mixed,
        expect={DEVICES: (Refused(FailureKind.TRACE, "memory_space of all inputs"),)},
        control=Control(program=not_mixed),
    ),
    Case(
        name="placed-inside",
        after=PUT + "test_device_put_inside_jit",
        asserts="two host arrays are fetched inside of jit; the result is on the device",
        program=placed_inside,
        expect={
            DEVICES: (
                ArgumentKinds(("host", "host")),
                ResultKinds(("device",)),
                ToDevice(2 * HALF),
            )
        },
    ),
    Case(
        name="gradient",
        after=PUT + "test_device_put_transpose_auto_mode",
        asserts="the gradient of an argument in pinned_host lies there too",
        program=gradient,
        expect={
            DEVICES: (
                ArgumentKinds(("host",)),
                ResultKinds(("host",)),
                ToDevice(HALF),
                ToHost(HALF),
            )
        },
        control=Control(
            program=gradient_on_the_device,
            breaks=(ResultKinds(("host",)), ToDevice(HALF), ToHost(HALF)),
        ),
    ),
    Case(
        name="kind-differs",
        after=OFFLOAD + "test_jit_in_shardings",
        asserts="jit refuses an argument of another memory kind than in_shardings says",
        program=kind_differs,
        expect={DEVICES: (Refused(FailureKind.LOWERING, "Memory kinds passed to jax.jit"),)},
        control=Control(program=kind_is_as_said),
    ),
    Case(
        name="unknown-kind",
        after="memories_test.py::ShardingMemoriesTest::test_wrong_memory_kind",
        asserts="a memory kind that no device has is refused when the sharding is made",
        program=unknown_kind,
        expect={EVERYWHERE: (Refused(FailureKind.BUILD, "Could not find memory addressable"),)},
        control=Control(program=to_the_host),
    ),
)

test_assay_agrees_with_upstream, test_assay_notices_the_control = checks_of(CASES)
