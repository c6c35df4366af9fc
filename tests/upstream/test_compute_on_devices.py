"""After jax's tests of compute_on: the host computes for several devices, and in their memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.layout import Format, Layout

from assay.model.workload import Program

from .cases import DEVICES, TPU, Case, Control, checks_of
from .expectations import (
    ArgumentKinds,
    Compiles,
    HostCalls,
    ResultKinds,
    TakenOver,
    ToDevice,
    ToHost,
)
from .programs import (
    F32_BYTES,
    array,
    on_host,
    on_one,
    on_two,
    placed,
)

pytestmark = pytest.mark.exhaustive

HOST = jax.memory.Space.Host
DEVICE = jax.memory.Space.Device
ROWS = (8, 128)


def shared(devices: Sequence[Any]) -> Program:
    here, there = on_two(devices, "x"), on_two(devices, "x", kind="pinned_host")

    def both(x: Any, y: Any) -> Any:
        y = jax.device_put(y, there)
        return x * y, (x**2) * (y**2)

    def step(x: Any, y: Any) -> Any:
        part = on_host(both, out=(HOST, DEVICE))
        x, y = part(x, y)
        return part(x, y * 2)

    return Program(
        function=step,
        arguments=(array(ROWS, there), array(ROWS, here)),
        out_shardings=(there, here),
        donate_argnums=(0,),
    )


def sharded(devices: Sequence[Any]) -> Program:
    here = placed(devices, {"x": 2, "y": 2}, "x", "y")
    return Program(
        function=lambda x: on_host(lambda a, b: a * b)(x * 3, x * 3),
        arguments=(array((16, 256), here),),
        out_shardings=here,
    )


def pure_host(devices: Sequence[Any]) -> Program:
    there = placed(devices, {"x": 2, "y": 2}, "x", "y", kind="pinned_host")
    return Program(
        function=on_host(lambda x: x * x, out=HOST),
        arguments=(array((16, 256), there),),
        out_shardings=there,
    )


def in_shards(devices: Sequence[Any]) -> Program:
    here = placed(devices, {"x": 2, "y": 2}, "x", "y")

    def step(x: Any) -> Any:
        return on_host(lambda x: x * 2)(x * 3) * 4

    mapped = jax.shard_map(step, mesh=here.mesh, in_specs=here.spec, out_specs=here.spec)
    return Program(function=mapped, arguments=(array((16, 256), here),), out_shardings=here)


def indexed(devices: Sequence[Any]) -> Program:
    def step(x: Any) -> Any:
        ones = jax.device_put(jnp.ones((2, 1, 128)), HOST)
        return x.at[:, 1:2, :].set(ones)

    there = on_one(devices, "pinned_host")
    return Program(
        function=on_host(step, out=HOST),
        arguments=(array((2, 3, 128), there),),
        out_shardings=there,
    )


def experts(devices: Sequence[Any]) -> Program:
    here = on_one(devices)

    def forward(x: Any, experts: Any, indices: Any, scores: Any) -> Any:
        taken = jnp.take(experts, indices, axis=0)
        gate = jnp.einsum("btd,bthkd->bthk", x, taken[..., 0])
        down = jnp.einsum("btd,bthkd->bthk", x, taken[..., 1])
        return jnp.einsum("bthk,bthkd->btd", down * jax.nn.gelu(gate) * scores, taken[..., 2])

    return Program(
        function=on_host(forward),
        arguments=(
            array((4, 4, 32), here),
            array((16, 32, 3), here),
            array((4, 4, 4, 2), here, "int32"),
            array((4, 4, 4, 2), here),
        ),
    )


def donating(devices: Sequence[Any]) -> Program:
    here, there = on_one(devices), on_one(devices, "pinned_host")
    return Program(
        function=on_host(lambda x, y: (x * x, y + y), out=(DEVICE, HOST)),
        arguments=(array((1024,), here), array((1024,), there)),
        in_shardings=(here, there),
        out_shardings=(here, there),
        donate_argnums=(0, 1),
    )


def not_donating(devices: Sequence[Any]) -> Program:
    here, there = on_one(devices), on_one(devices, "pinned_host")
    return Program(
        function=on_host(lambda x, y: (x * x, y + y), out=(DEVICE, HOST)),
        arguments=(array((1024,), here), array((1024,), there)),
        in_shardings=(here, there),
        out_shardings=(here, there),
    )


def linear(devices: Sequence[Any]) -> Program:
    tiled = Format(Layout(major_to_minor=(0, 1), tiling=((8, 128),)), on_one(devices))
    flat = Format(Layout(major_to_minor=(0, 1), tiling=((1,),)), on_one(devices, "pinned_host"))
    return Program(
        function=on_host(lambda x, y: (x * x, y + y), out=(DEVICE, HOST)),
        arguments=(
            array((16, 128), tiled.sharding),
            array((16, 128), flat.sharding),
        ),
        in_shardings=(tiled, flat),
        out_shardings=(tiled, flat),
    )


OFFLOAD = "memories_test.py::ComputeOffload::"

CASES = (
    Case(
        name="shared",
        after=OFFLOAD + "test_compute_on_host_shared_sharding",
        asserts="two calls with an array of the host and one of the device; the results lie there",
        program=shared,
        expect={
            DEVICES: (
                ArgumentKinds(("host", "device")),
                ResultKinds(("host", "device")),
                TakenOver((0,)),
                HostCalls(2),
            )
        },
    ),
    Case(
        name="sharded",
        after=OFFLOAD + "test_sharded_compute_on_host",
        asserts="each device's host computes its shard",
        program=sharded,
        expect={DEVICES: (HostCalls(1), ToDevice(16 * 256 * F32_BYTES // 4))},
    ),
    Case(
        name="pure-host",
        after=OFFLOAD + "test_pure_host_data_and_compute",
        asserts="from pinned_host to pinned_host, computed by the host: nothing crosses",
        program=pure_host,
        expect={
            DEVICES: (
                ArgumentKinds(("host",)),
                ResultKinds(("host",)),
                HostCalls(1),
                ToHost(0),
                ToDevice(0),
            )
        },
        control=Control(
            program=sharded,
            breaks=(
                ArgumentKinds(("host",)),
                ResultKinds(("host",)),
                ToHost(0),
                ToDevice(0),
            ),
        ),
    ),
    Case(
        name="in-shards",
        after=OFFLOAD + "test_compute_offload_inside_shmap",
        asserts="a part within shard_map is computed by the host",
        program=in_shards,
        expect={
            DEVICES: (
                HostCalls(1),
                ToHost(16 * 256 * F32_BYTES // 4),
                ToDevice(16 * 256 * F32_BYTES // 4),
            )
        },
    ),
    Case(
        name="indexed",
        after=OFFLOAD + "test_indexing_on_host",
        asserts="an update of a slice of a host array by the host does not crash",
        program=indexed,
        expect={DEVICES: (Compiles(), ArgumentKinds(("host",)), ResultKinds(("host",)))},
    ),
    Case(
        name="experts",
        after=OFFLOAD + "test_offload_take_host",
        asserts="gathers and products of experts on the host do not crash",
        program=experts,
        expect={DEVICES: (Compiles(), HostCalls(1))},
    ),
    Case(
        name="donating",
        after=OFFLOAD + "test_compute_offload_with_donation",
        asserts="arguments of a host part are donated, one in each memory",
        program=donating,
        expect={
            DEVICES: (
                ArgumentKinds(("device", "host")),
                ResultKinds(("device", "host")),
                TakenOver((0, 1)),
            )
        },
        control=Control(program=not_donating, breaks=(TakenOver((0, 1)),)),
    ),
    Case(
        name="linear",
        after=OFFLOAD + "test_compute_offload_with_linear_layout",
        asserts="the host's arrays may be linear where the device's are tiled (not on a GPU)",
        program=linear,
        expect={TPU: (HostCalls(1), ArgumentKinds(("device", "host")))},
    ),
)

test_assay_agrees_with_upstream, test_assay_notices_the_control = checks_of(CASES)
