"""After jax's tests on donation: buffers in host memory, and results in another memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from assay.model.workload import Program

from .cases import (
    DEVICES,
    EVERYWHERE,
    Case,
    Control,
    checks_of,
)
from .expectations import (
    AliasBytes,
    DonationRefused,
    Honoured,
    ResultKinds,
    TakenOver,
)
from .programs import F32_BYTES, array, on_host, on_two

HOST = jax.memory.Space.Host
DEVICE = jax.memory.Space.Device
ROWS = (8, 256)
NBYTES = 8 * 256 * F32_BYTES
HALF = NBYTES // 2  # of ROWS on each of two devices


def across_memories(devices: Sequence[Any], kind: str = "pinned_host") -> Program:
    return Program(
        function=lambda x: x * 2,
        arguments=(array(ROWS, on_two(devices, "x")),),
        out_shardings=on_two(devices, "x", kind=kind),
        donate_argnums=(0,),
    )


def within_a_memory(devices: Sequence[Any]) -> Program:
    return across_memories(devices, "device")


def on_the_host(devices: Sequence[Any]) -> Program:
    here, there = on_two(devices), on_two(devices, kind="pinned_host")
    return Program(
        function=on_host(lambda x, y: (x * 2, y * 2), out=(HOST, DEVICE)),
        arguments=(array(ROWS, there), array(ROWS, here)),
        out_shardings=(there, here),
        donate_argnums=(0, 1),
    )


def on_the_host_and_kept(devices: Sequence[Any]) -> Program:
    here, there = on_two(devices), on_two(devices, kind="pinned_host")
    return Program(
        function=on_host(lambda x, y: (x * 2, y * 2), out=(HOST, DEVICE)),
        arguments=(array(ROWS, there), array(ROWS, here)),
        out_shardings=(there, here),
    )


def identity(devices: Sequence[Any], kind: str) -> Program:
    there = on_two(devices, kind=kind)
    return Program(
        function=lambda x: x,
        arguments=(array(ROWS, there),),
        out_shardings=there,
        donate_argnums=(0,),
    )


def identity_on_the_host(devices: Sequence[Any]) -> Program:
    return identity(devices, "pinned_host")


def identity_on_the_device(devices: Sequence[Any]) -> Program:
    return identity(devices, "device")


TOOK_ONE = (TakenOver((0,)), Honoured((0,)), AliasBytes(NBYTES))
OFFLOAD = "memories_test.py::ComputeOffload::"

CASES = (
    Case(
        name="across-memories",
        after=OFFLOAD + "test_no_donation_across_memory_kinds",
        asserts="a result in pinned_host cannot take a buffer of the device; jax warns",
        program=across_memories,
        expect={DEVICES: (DonationRefused(), TakenOver(()), AliasBytes(0), ResultKinds(("host",)))},
        control=Control(program=within_a_memory),
    ),
    Case(
        name="within-a-memory",
        after=OFFLOAD + "test_single_mem_kind_donation_default_mem_kind",
        asserts="within the device's memory the module has an input_output_alias",
        program=within_a_memory,
        expect={EVERYWHERE: (TakenOver((0,)), AliasBytes(HALF))},
    ),
    Case(
        name="on-the-host",
        after=OFFLOAD + "test_mem_kind_donation_pinned_host",
        asserts="a donated host array and a donated device array are both deleted",
        program=on_the_host,
        expect={DEVICES: (TakenOver((0, 1)), ResultKinds(("host", "device")))},
        control=Control(program=on_the_host_and_kept, breaks=(TakenOver((0, 1)),)),
    ),
    Case(
        name="identity-on-the-host",
        after=OFFLOAD + "test_identity_mem_kind_donation",
        asserts="a donated host array is taken over by a result in the same memory",
        program=identity_on_the_host,
        expect={DEVICES: (TakenOver((0,)), ResultKinds(("host",)))},
    ),
    Case(
        name="identity-on-the-device",
        after=OFFLOAD + "test_identity_mem_kind_donation",
        asserts="a donated device array is taken over by a result in the same memory",
        program=identity_on_the_device,
        expect={EVERYWHERE: TOOK_ONE, DEVICES: (ResultKinds(("device",)),)},
    ),
)

test_assay_agrees_with_upstream, test_assay_notices_the_control = checks_of(CASES)
