"""After jax's tests on rematerialization that offloads what autodiff saves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from assay.model.evidence import FailureKind
from assay.model.workload import Program

from .cases import DEVICES, EVERYWHERE, Case, Control, checks_of
from .expectations import (
    Compiles,
    HostResiduals,
    HostTemporaries,
    Refused,
    SomeHostTemporaries,
    ToDevice,
    ToHost,
)
from .programs import F32_BYTES, array, on_one, on_two

pytestmark = pytest.mark.exhaustive

SQUARE = (256, 128)
NBYTES = 256 * 128 * F32_BYTES
HALF = NBYTES // 2
LENGTH = 4
policies = jax.checkpoint_policies


def offloading(*names: str, saving: tuple[str, ...] = ()) -> Callable[..., Any]:
    policy: Callable[..., Any] = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=list(saving),
        names_which_can_be_offloaded=list(names),
        offload_src="device",
        offload_dst="pinned_host",
    )
    return policy


def differentiated(
    loss: Callable[..., Any], devices: Sequence[Any], *, two: bool = True
) -> Program:
    here = on_two(devices, "x") if two else on_one(devices)
    return Program(
        function=jax.grad(loss),
        arguments=(array(SQUARE, here),),
        out_shardings=here,
        differentiated=loss,
    )


def named_sines(policy: Callable[..., Any], devices: Sequence[Any]) -> Program:
    @functools.partial(jax.remat, policy=policy)
    def loss(x: Any) -> Any:
        for name in "abc":
            x = checkpoint_name(jnp.sin(x), name)
        return jnp.sum(x)

    return differentiated(loss, devices)


def three_offloaded(devices: Sequence[Any]) -> Program:
    return named_sines(offloading("a", "b", "c"), devices)


def one_offloaded(devices: Sequence[Any]) -> Program:
    return named_sines(offloading("b"), devices)


def three_saved(devices: Sequence[Any]) -> Program:
    return named_sines(policies.save_only_these_names("a", "b", "c"), devices)


def scanned(
    policy: Callable[..., Any], devices: Sequence[Any], *, transposed: bool = False
) -> Program:
    here = on_two(devices, "x")

    @functools.partial(jax.remat, policy=policy)
    def loss(x: Any) -> Any:
        def block(state: Any, _: Any) -> Any:
            y, _ = state
            y = checkpoint_name(jnp.sin(y), "y")
            z = checkpoint_name(jnp.sin(y), "z")
            z = lax.with_sharding_constraint(z, here)
            z = z.T if transposed else z
            w = checkpoint_name(jnp.sin(z), "w")
            return (w.T if transposed else w, jnp.sum(w)), None

        return lax.scan(block, (x, jnp.float32(1)), None, length=LENGTH)[0][1]

    return differentiated(loss, devices)


def scan_offloaded(devices: Sequence[Any]) -> Program:
    return scanned(offloading("z", "w", saving=("y",)), devices)


def scan_saved(devices: Sequence[Any]) -> Program:
    return scanned(policies.save_only_these_names("y", "z", "w"), devices)


def scan_offloaded_transposed(devices: Sequence[Any]) -> Program:
    return scanned(offloading("z", "w", saving=("y",)), devices, transposed=True)


def scan_saved_transposed(devices: Sequence[Any]) -> Program:
    return scanned(policies.save_only_these_names("y", "z", "w"), devices, transposed=True)


def names_in_both(devices: Sequence[Any]) -> Program:
    return named_sines(offloading("a", "b", saving=("b",)), devices)


def products(policy: Callable[..., Any], devices: Sequence[Any]) -> Program:
    @functools.partial(jax.checkpoint, policy=policy)
    def loss(x: Any) -> Any:
        for _ in range(3):
            product = jnp.einsum("ij,jk->ik", x, x, precision=lax.Precision.HIGHEST)
            x = jnp.sin(product)
        return jnp.sum(x)

    here = on_one(devices)
    return Program(
        function=jax.grad(loss),
        arguments=(array((128, 128), here),),
        out_shardings=here,
        differentiated=loss,
    )


def products_offloaded(devices: Sequence[Any]) -> Program:
    return products(policies.offload_dot_with_no_batch_dims("device", "pinned_host"), devices)


def products_saved(devices: Sequence[Any]) -> Program:
    return products(policies.dots_with_no_batch_dims_saveable, devices)


def two_results(devices: Sequence[Any]) -> Program:
    @functools.partial(jax.remat, policy=offloading("kept"))
    def loss(x: Any) -> Any:
        largest, _ = lax.approx_max_k(x, k=2)
        return jnp.sum(checkpoint_name(largest, "kept"))

    here = on_one(devices)
    return Program(function=jax.grad(loss), arguments=(array((128,), here),), out_shardings=here)


def both_policies(devices: Sequence[Any]) -> Program:
    either = policies.save_from_both_policies(
        policies.everything_saveable, policies.nothing_saveable
    )
    return named_sines(either, devices)


def block_input(devices: Sequence[Any], *, offloaded: bool) -> Program:
    policy = offloading("input") if offloaded else policies.nothing_saveable

    def loss(x: Any) -> Any:
        @functools.partial(jax.checkpoint, policy=policy, prevent_cse=False)
        def block(x: Any) -> Any:
            return jnp.sin(jnp.sin(checkpoint_name(x, "input")))

        return jnp.sum(lax.scan(lambda c, _: (block(c), None), x, None, length=LENGTH)[0])

    return differentiated(loss, devices, two=False)


def block_input_offloaded(devices: Sequence[Any]) -> Program:
    return block_input(devices, offloaded=True)


def block_input_kept(devices: Sequence[Any]) -> Program:
    return block_input(devices, offloaded=False)


def own_rule(there: Any, devices: Sequence[Any]) -> Program:
    @jax.custom_vjp
    def sine(x: Any) -> Any:
        return jnp.sin(x)

    def forward(x: Any) -> Any:
        return jnp.sin(x), jax.device_put(x, there)

    def backward(saved: Any, given: Any) -> Any:
        return (given * jnp.cos(jax.device_put(saved, jax.memory.Space.Device)),)

    sine.defvjp(forward, backward)

    def loss(x: Any) -> Any:
        return jnp.sum(lax.scan(lambda c, _: (sine(c), None), x, None, length=LENGTH)[0])

    return differentiated(loss, devices, two=False)


def own_rule_offloaded(devices: Sequence[Any]) -> Program:
    return own_rule(jax.memory.Space.Host, devices)


def own_rule_kept(devices: Sequence[Any]) -> Program:
    return own_rule(jax.memory.Space.Device, devices)


REMAT = "memories_test.py::ActivationOffloadingTest::"

CASES = (
    Case(
        name="three-offloaded",
        after=REMAT + "test_remat_jaxpr_offloadable",
        asserts="two residuals (three with remat3) lie on the host, and host_temp_size > 0",
        program=three_offloaded,
        expect={DEVICES: (HostResiduals(2), SomeHostTemporaries())},
        control=Control(program=three_saved),
    ),
    Case(
        name="one-offloaded",
        after=REMAT + "test_remat_jaxpr_offloadable (one name of three)",
        asserts="a residual that is offloaded crosses once each way",
        program=one_offloaded,
        expect={DEVICES: (HostResiduals(1), HostTemporaries(HALF), ToHost(HALF), ToDevice(HALF))},
        control=Control(program=three_saved),
    ),
    Case(
        name="scan-offloaded",
        after=REMAT + "test_remat_scan_jaxpr_offloadable",
        asserts="of a scan's residuals two are offloaded: S(5) in the module, host_temp_size > 0",
        program=scan_offloaded,
        expect={
            DEVICES: (
                SomeHostTemporaries(2 * LENGTH * HALF),
                ToHost(2 * LENGTH * HALF),
                ToDevice(2 * LENGTH * HALF),
            )
        },
        control=Control(program=scan_saved),
    ),
    Case(
        name="scan-offloaded-transposed",
        after=REMAT + "test_remat_scan_layout_change_offloadable",
        asserts="a transpose between does not undo it: dynamic-(update-)slice-start with S(5)",
        program=scan_offloaded_transposed,
        expect={
            DEVICES: (
                SomeHostTemporaries(2 * LENGTH * HALF),
                ToHost(2 * LENGTH * HALF),
                ToDevice(2 * LENGTH * HALF),
            )
        },
        control=Control(
            program=scan_saved_transposed,
            breaks=(SomeHostTemporaries(2 * LENGTH * HALF), ToHost(2 * LENGTH * HALF)),
        ),
    ),
    Case(
        name="names-in-both",
        after=REMAT + "test_remat_scan_jaxpr_offloadable",
        asserts="a name cannot be both saved and offloaded",
        program=names_in_both,
        expect={EVERYWHERE: (Refused(FailureKind.BUILD, "The names should be exclusive"),)},
        control=Control(program=three_saved),
    ),
    Case(
        name="products-offloaded",
        after=REMAT + "test_remat_checkpoint_dots_with_no_batch_dims",
        asserts="products are offloaded: copy-start and copy-done with S(5), host_temp_size > 0",
        program=products_offloaded,
        expect={DEVICES: (SomeHostTemporaries(), HostResiduals(3))},
        control=Control(program=products_saved),
    ),
    Case(
        name="two-results",
        after=REMAT + "test_primitive_with_multiple_outputs",
        asserts="a primitive with two results does not crash the policy",
        program=two_results,
        expect={DEVICES: (Compiles(),)},
    ),
    Case(
        name="both-policies",
        after="api_test.py::RematTest::test_save_from_both_policies",
        asserts="a policy that only saves puts nothing on the host",
        program=both_policies,
        expect={DEVICES: (HostResiduals(0), HostTemporaries(0), ToHost(0), ToDevice(0))},
        control=Control(program=one_offloaded),
    ),
    Case(
        name="block-input",
        after=REMAT + "test_remat_scan_jaxpr_offloadable (the input of the block is named)",
        asserts="each block's input crosses once each way",
        program=block_input_offloaded,
        expect={
            DEVICES: (
                HostTemporaries(LENGTH * NBYTES),
                ToHost(LENGTH * NBYTES),
                ToDevice(LENGTH * NBYTES),
            )
        },
        control=Control(program=block_input_kept),
    ),
    Case(
        name="own-rule",
        after="memories_test.py::ComputeOffload::test_host_offload_in_custom_vjp",
        asserts="what a custom rule puts on the host in its forward part is read back from there",
        program=own_rule_offloaded,
        expect={
            DEVICES: (
                HostTemporaries(LENGTH * NBYTES),
                ToHost(LENGTH * NBYTES),
                ToDevice(LENGTH * NBYTES),
            )
        },
        control=Control(program=own_rule_kept),
    ),
)

test_assay_agrees_with_upstream, test_assay_notices_the_control = checks_of(CASES)
