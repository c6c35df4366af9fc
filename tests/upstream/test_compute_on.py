"""After jax's tests of compute_on: parts of a program that the host computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.layout import Format, Layout

from assay.model.evidence import FailureKind
from assay.model.workload import Program

from .cases import CPU, DEVICES, EVERYWHERE, TPU, Case, Control, checks_of
from .expectations import (
    ArgumentKinds,
    Compiles,
    HostCalls,
    Refused,
    ResultKinds,
    TakenOver,
    ToDevice,
    ToHost,
    Values,
)
from .programs import (
    F32_BYTES,
    array,
    computed_on,
    counting,
    on_host,
    on_one,
    on_two,
    placed,
    simple,
)

pytestmark = pytest.mark.exhaustive

HOST = jax.memory.Space.Host
DEVICE = jax.memory.Space.Device
ROWS = (8, 128)
NBYTES = 8 * 128 * F32_BYTES
HALF = NBYTES // 2
CUBE = (4, 8, 128)


def doubled(x: Any) -> Any:
    return on_host(lambda x: x * 2)(x) * 3


def doubled_by_the_device(x: Any) -> Any:
    return (x * 2) * 3


def to_pinned(devices: Sequence[Any]) -> Program:
    return Program(
        function=doubled,
        arguments=(array(ROWS, on_one(devices)),),
        out_shardings=on_one(devices, "pinned_host"),
    )


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


def inlined(x: Any) -> Any:
    return jax.jit(doubled, inline=True)(x)


def reduced(x: Any) -> Any:
    return on_host(jnp.sum)(x) * jnp.sum(x)


def initialised() -> Any:
    def make() -> Any:
        return jax.nn.initializers.lecun_normal()(jax.random.key(0), (8, 8), jnp.float32)

    return on_host(make)()


def nested_types(x: Any) -> Any:
    within = computed_on("device", lambda x: x * 2, DEVICE)
    return on_host(lambda x: within(x * 3))(x)


def nested_in_itself(x: Any) -> Any:
    within = on_host(lambda x: x * 2)
    return on_host(lambda x: within(x * 3))(x)


def sine_gradient(x: Any) -> Any:
    return jax.grad(lambda x: jnp.sum(on_host(jnp.sin)(x)))(x)


def recomputed_gradient(x: Any) -> Any:
    def three(x: Any) -> Any:
        return jnp.sin(jnp.sin(jnp.sin(x)))

    def loss(x: Any) -> Any:
        return jnp.sum(on_host(three)(x))

    recomputed = jax.remat(loss, policy=jax.checkpoint_policies.nothing_saveable)
    return jax.grad(recomputed)(x)


def sharded(devices: Sequence[Any]) -> Program:
    here = placed(devices, {"x": 2, "y": 2}, "x", "y")
    return Program(
        function=lambda x: on_host(lambda a, b: a * b)(x * 3, x * 3),
        arguments=(array((16, 256), here),),
        out_shardings=here,
    )


def own_rule(x: Any) -> Any:
    @jax.custom_vjp
    def sine(x: Any) -> Any:
        return jnp.sin(x)

    def forward(x: Any) -> Any:
        y = x * 2
        return y, (x, jax.device_put(y, HOST))

    def backward(saved: Any, _given: Any) -> Any:
        x, away = saved
        again = jax.device_put(x * 2, HOST)
        return (on_host(lambda a, b: (a == b).astype(jnp.float32))(away, again),)

    sine.defvjp(forward, backward)
    return jax.grad(lambda x: jnp.sum(sine(x)))(x)


def in_a_scan(rows: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        return carry, on_host(lambda a, b: a + b)(row, carry)

    return lax.scan(body, jnp.float32(1), rows)[1]


def body_of_a_scan(rows: Any) -> Any:
    body = on_host(lambda carry, row: (carry, row + carry))
    return lax.scan(body, jnp.float32(1), rows)[1]


def by_the_device_in_a_scan(rows: Any) -> Any:
    return lax.scan(lambda carry, row: (carry, row + carry), jnp.float32(1), rows)[1]


def copied(x: Any) -> Any:
    return on_host(lambda x: jnp.copy(x) * 2)(x) * 3


def copied_by_jit(x: Any) -> Any:
    return on_host(jax.jit(lambda x: jnp.copy(x) * 2))(x) * 3


def pure_host(devices: Sequence[Any]) -> Program:
    there = placed(devices, {"x": 2, "y": 2}, "x", "y", kind="pinned_host")
    return Program(
        function=on_host(lambda x: x * x, out=HOST),
        arguments=(array((16, 256), there),),
        out_shardings=there,
    )


def to_host_memory(x: Any) -> Any:
    return on_host(lambda x: x * 2.0, out=HOST)(x)


def to_host_memory_and_device(x: Any, y: Any) -> Any:
    return on_host(lambda x, y: (x * 2, y * 2), out=(HOST, DEVICE))(x, y)


def placed_by_itself(function: Any, *dimensions: tuple[int, ...]) -> Any:
    """The results lie where the function puts them."""

    def build(devices: Sequence[Any]) -> Program:
        here = on_one(devices)
        return Program(function=function, arguments=tuple(array(each, here) for each in dimensions))

    return build


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


def small_integers(x: Any) -> Any:
    return 2 * on_host(lambda x: x + x)(x)


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
CALLED = (HostCalls(1), ToHost(NBYTES), ToDevice(NBYTES))
SIX = (Values(lambda: (6 * counting(ROWS),)),)
NO_CALL = simple(doubled_by_the_device, ROWS)

CASES = (
    Case(
        name="doubled",
        after=OFFLOAD + "test_compute_on_basic",
        asserts="the part is called with _xla_compute_type, and gives the device's result",
        program=simple(doubled, ROWS),
        expect={DEVICES: CALLED, CPU: SIX},
        control=Control(program=NO_CALL, on=DEVICES),
    ),
    Case(
        name="doubled-to-pinned",
        after=OFFLOAD + "test_compute_on_basic",
        asserts="the result may go to pinned_host all the same",
        program=to_pinned,
        expect={DEVICES: (HostCalls(1), ResultKinds(("host",)))},
        control=Control(program=NO_CALL),
    ),
    Case(
        name="odd-sizes",
        after=OFFLOAD + "test_compute_on_2d",
        asserts="a matrix of 61 × 163 is computed as well",
        program=simple(doubled, (61, 163)),
        expect={
            DEVICES: (HostCalls(1), ToHost(61 * 163 * F32_BYTES), ToDevice(61 * 163 * F32_BYTES)),
            CPU: (Values(lambda: (6 * counting((61, 163)),)),),
        },
    ),
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
        name="inlined",
        after=OFFLOAD + "test_compute_on_basic_inline",
        asserts="an inlined jit keeps the call's compute type",
        program=simple(inlined, ROWS),
        expect={DEVICES: CALLED, CPU: SIX},
        control=Control(program=NO_CALL, on=DEVICES),
    ),
    Case(
        name="reduced",
        after=OFFLOAD + "test_compute_on_reduction",
        asserts="a reduction, which has a computation of its own, is computed by the host",
        program=simple(reduced, ROWS),
        expect={DEVICES: (HostCalls(1), ToHost(NBYTES), ToDevice(F32_BYTES))},
        control=Control(program=simple(lambda x: jnp.sum(x) * jnp.sum(x), ROWS)),
    ),
    Case(
        name="initialised",
        after=OFFLOAD + "test_compute_host_loop",
        asserts="an initializer, with its loops of random bits, does not crash on the host",
        program=simple(initialised),
        expect={EVERYWHERE: (Compiles(),), DEVICES: (ToHost(0), ToDevice(8 * 8 * F32_BYTES))},
    ),
    Case(
        name="nested-types",
        after=OFFLOAD + "test_nested_compute_error",
        asserts="a part for the device within a part for the host is refused",
        program=simple(nested_types, ROWS),
        expect={EVERYWHERE: (Refused(FailureKind.LOWERING, "Nesting `compute_on`"),)},
        control=Control(program=simple(doubled, ROWS)),
    ),
    Case(
        name="nested-in-itself",
        after=OFFLOAD + "test_nested_no_op_compute",
        asserts="a part for the host within a part for the host is refused",
        program=simple(nested_in_itself, ROWS),
        expect={EVERYWHERE: (Refused(FailureKind.LOWERING, "Nesting `compute_on`"),)},
    ),
    Case(
        name="gradient",
        after=OFFLOAD + "test_compute_on_grad",
        asserts="the lowered gradient of a part calls two host parts",
        program=simple(sine_gradient, ROWS),
        expect={DEVICES: (HostCalls(2),)},
    ),
    Case(
        name="recomputed-gradient",
        after=OFFLOAD + "test_compute_on_remat",
        asserts="the lowered gradient of a recomputed part calls two host parts",
        program=simple(recomputed_gradient, ROWS),
        expect={DEVICES: (HostCalls(2),)},
    ),
    Case(
        name="sharded",
        after=OFFLOAD + "test_sharded_compute_on_host",
        asserts="each device's host computes its shard",
        program=sharded,
        expect={DEVICES: (HostCalls(1), ToDevice(16 * 256 * F32_BYTES // 4))},
    ),
    Case(
        name="own-rule",
        after=OFFLOAD + "test_host_offload_in_custom_vjp",
        asserts="a custom rule's residual on the host is compared by the host: all equal",
        program=simple(own_rule, ROWS),
        expect={
            DEVICES: (HostCalls(1), ToDevice(NBYTES)),
            CPU: (Values(lambda: (np.ones(ROWS, np.float32),)),),
        },
    ),
    Case(
        name="in-a-scan",
        after=OFFLOAD + "test_scan_offload",
        asserts="each iteration has the host add a row",
        program=simple(in_a_scan, CUBE),
        expect={
            DEVICES: (ToDevice(4 * NBYTES), ToHost(4 * NBYTES)),
            CPU: (Values(lambda: (counting(CUBE) + 1,)),),
        },
        control=Control(program=simple(by_the_device_in_a_scan, CUBE), on=DEVICES),
    ),
    Case(
        name="body-of-a-scan",
        after=OFFLOAD + "test_scan_offload",
        asserts="the whole body may be the host's",
        program=simple(body_of_a_scan, CUBE),
        expect={
            DEVICES: (Compiles(),),
            CPU: (Values(lambda: (counting(CUBE) + 1,)),),
        },
    ),
    Case(
        name="copied",
        after=OFFLOAD + "test_copy_offload",
        asserts="an explicit copy within the host's part is taken",
        program=simple(copied, ROWS),
        expect={DEVICES: CALLED, CPU: SIX},
    ),
    Case(
        name="copied-by-jit",
        after=OFFLOAD + "test_copy_offload",
        asserts="so it is where the part is jitted",
        program=simple(copied_by_jit, ROWS),
        expect={DEVICES: CALLED, CPU: SIX},
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
        name="to-host-memory",
        after="memories_test.py::StreamAnnotationTest::test_compute_on_out_mem_space",
        asserts="what out_memory_spaces=Host says, the result's memory kind is",
        program=placed_by_itself(to_host_memory, ROWS),
        expect={DEVICES: (HostCalls(1), ResultKinds(("host",)), ToHost(NBYTES), ToDevice(0))},
        control=Control(
            program=NO_CALL, breaks=(HostCalls(1), ResultKinds(("host",)), ToHost(NBYTES))
        ),
    ),
    Case(
        name="to-host-memory-and-device",
        after="memories_test.py::StreamAnnotationTest::test_compute_on_out_mem_space_tuple",
        asserts="each result of a part lies where out_memory_spaces says",
        program=placed_by_itself(to_host_memory_and_device, ROWS, ROWS),
        expect={
            DEVICES: (
                HostCalls(1),
                ResultKinds(("host", "device")),
                ToHost(2 * NBYTES),
                ToDevice(NBYTES),
            )
        },
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
        name="small-integers",
        after=OFFLOAD + "test_int4_host_compute",
        asserts="integers of 4 bits are computed by the host",
        program=simple(small_integers, (8, 128), dtype="uint4"),
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
