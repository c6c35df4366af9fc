"""After jax's tests of compute_on: parts of a program that the host computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from assay.model.evidence import FailureKind
from assay.model.workload import Program

from .cases import CPU, DEVICES, EVERYWHERE, Case, Control, checks_of
from .expectations import (
    Compiles,
    HostCalls,
    Refused,
    ResultKinds,
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
    simple,
)

pytestmark = pytest.mark.exhaustive

HOST = jax.memory.Space.Host
DEVICE = jax.memory.Space.Device
ROWS = (8, 128)
NBYTES = 8 * 128 * F32_BYTES
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


def small_integers(x: Any) -> Any:
    return 2 * on_host(lambda x: x + x)(x)


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
        name="small-integers",
        after=OFFLOAD + "test_int4_host_compute",
        asserts="integers of 4 bits are computed by the host",
        program=simple(small_integers, (8, 128), dtype="uint4"),
        expect={DEVICES: (Compiles(), HostCalls(1))},
    ),
)

test_assay_agrees_with_upstream, test_assay_notices_the_control = checks_of(CASES)
