"""After XLA's hlo_rematerialization_test.cc and jax's tests of remat: computed again, not kept.

Upstream runs the pass under a limit of a few KiB. A compiler's limit is the device's memory, so
here values are either so cheap that the compiler computes them again anyway, or so large that a
program fits the device only with jax's own rematerialization.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from assay.model.workload import Program

from .cases import DEVICES, EVERYWHERE, GPU, Case, Control, checks_of
from .expectations import Fits, HostTemporaries, Operations, Residuals, TemporariesAtMost
from .programs import F32_BYTES, array, on_one, simple

pytestmark = pytest.mark.exhaustive

SIDE = 256
SQUARE = (SIDE, SIDE)
LAYERS = 16
policies = jax.checkpoint_policies


def early_and_late(value: Callable[..., Any]) -> Callable[..., Any]:
    """A value that is read before two products and after them."""

    def step(x: Any, weights: Any, other: Any) -> Any:
        given = value(x, other)
        product = jnp.tanh(given @ weights) @ weights
        return jnp.sum(jnp.tanh(product) @ weights * given, axis=1)

    return step


def cheap(x: Any, _other: Any) -> Any:
    return jnp.sin(x[:, None] * jnp.arange(float(SIDE)))


def behind_a_barrier(x: Any, other: Any) -> Any:
    return lax.optimization_barrier(cheap(x, other))


def loss(policy: Any, x: Any, weights: Any) -> Any:
    """Blocks of a product and two sines; ``policy`` says what of a block autodiff keeps."""

    def block(carry: Any, _: Any) -> Any:
        product = checkpoint_name(carry @ weights, "product")
        return jnp.sin(jnp.sin(product)), None

    if policy is not None:
        block = jax.checkpoint(block, policy=policy, prevent_cse=False)
    return jnp.sum(lax.scan(block, x, None, length=LAYERS)[0])


def trained(policy: Any) -> Callable[[Sequence[Any]], Program]:
    def build(devices: Sequence[Any]) -> Program:
        here = on_one(devices)
        differentiated = functools.partial(loss, policy)
        return Program(
            function=jax.grad(differentiated, argnums=1),
            arguments=(array((SIDE, 128), here), array((128, 128), here)),
            out_shardings=here,
            differentiated=differentiated,
        )

    return build


def one_block(policy: Any) -> Callable[[Sequence[Any]], Program]:
    """A product and two sines without a loop."""

    def differentiated(x: Any, weights: Any) -> Any:
        def block(x: Any) -> Any:
            return jnp.sin(jnp.sin(checkpoint_name(x @ weights, "product")))

        return jnp.sum(jax.checkpoint(block, policy=policy)(x))

    def build(devices: Sequence[Any]) -> Program:
        here = on_one(devices)
        return Program(
            function=jax.grad(differentiated),
            arguments=(array((SIDE, 128), here), array((128, 128), here)),
            out_shardings=here,
            differentiated=differentiated,
        )

    return build


def large(blocks: int) -> Callable[[Sequence[Any]], Program]:
    """Sixteen layers in so many blocks, of which only the inputs are kept; 0 keeps all layers.

    Measured are twelve layers on a TPU and fifteen on a GPU in four blocks, 33 without blocks.
    """

    def layer(carry: Any, weights: Any) -> Any:
        return jnp.sin(carry @ weights), None

    def differentiated(x: Any, weights: Any) -> Any:
        if not blocks:
            return jnp.sum(lax.scan(layer, x, weights)[0])

        @functools.partial(jax.checkpoint, policy=policies.nothing_saveable, prevent_cse=False)
        def block(carry: Any, part: Any) -> Any:
            return lax.scan(layer, carry, part)

        parts = weights.reshape(blocks, LAYERS // blocks, 128, 128)
        return jnp.sum(lax.scan(block, x, parts)[0])

    def build(devices: Sequence[Any]) -> Program:
        here = on_one(devices)
        # Of 15.75 GiB on a TPU v5e and 79 GiB on an H100.
        rows = (7 if devices[0].platform == "tpu" else 32) * 2**18
        return Program(
            function=jax.grad(differentiated, argnums=1),
            arguments=(array((rows, 128), here), array((LAYERS, 128, 128), here)),
            out_shardings=here,
        )

    return build


FILE = "hlo_rematerialization_test.cc::RecomputeAndCompressHloRematerializationTest."
REMAT = "api_test.py::RematTest::"
ARGUMENTS = ((SIDE,), SQUARE, SQUARE)
TWICE = (Operations("sine", 2),)
STACK = LAYERS * SIDE * 128 * F32_BYTES

CASES = (
    Case(
        name="cheap",
        after=FILE + "SingleComputation",
        asserts="a broadcast is computed again where it is read late, and the peak falls",
        program=simple(early_and_late(cheap), *ARGUMENTS),
        expect={DEVICES: TWICE},
        control=Control(program=simple(early_and_late(behind_a_barrier), *ARGUMENTS)),
    ),
    Case(
        name="not-twice",
        after=FILE + "SingleComputationNoRematerialization",
        asserts="without a need nothing is computed again (here: behind a barrier)",
        program=simple(early_and_late(behind_a_barrier), *ARGUMENTS),
        expect={DEVICES: (Operations("sine", 1),)},
        control=Control(program=simple(early_and_late(cheap), *ARGUMENTS)),
    ),
    Case(
        name="blocks",
        after=FILE + "RematerializeEntryAndWhileBody",
        asserts="a program that needs too much fits once its parts are computed again",
        program=large(4),
        expect={DEVICES: (Fits(),)},
        control=Control(program=large(0)),
    ),
    Case(
        name="nothing-kept",
        after=REMAT + "test_remat_scan",
        asserts="the residuals of a checkpointed scan are the inputs of its blocks alone",
        program=trained(policies.nothing_saveable),
        expect={GPU: (TemporariesAtMost(2 * STACK - 1), HostTemporaries(0))},
        control=Control(program=trained(None), breaks=(TemporariesAtMost(2 * STACK - 1),)),
    ),
    Case(
        name="residuals-nothing",
        after=REMAT + "test_remat_custom_policy",
        asserts="a policy that saves nothing leaves the arguments as residuals",
        program=one_block(policies.nothing_saveable),
        expect={EVERYWHERE: (Residuals(2),)},
        control=Control(program=one_block(policies.everything_saveable)),
    ),
    Case(
        name="residuals-products",
        after=REMAT + "test_remat_checkpoint_dots",
        asserts="a policy that saves products keeps the product besides",
        program=one_block(policies.dots_saveable),
        expect={EVERYWHERE: (Residuals(3),)},
        control=Control(program=one_block(policies.nothing_saveable)),
    ),
    Case(
        name="residuals-names",
        after=REMAT + "test_checkpoint_name_policy / test_saved_residuals_utility",
        asserts="a policy of names keeps what bears the name",
        program=one_block(policies.save_only_these_names("product")),
        expect={EVERYWHERE: (Residuals(3),)},
        control=Control(program=one_block(policies.save_only_these_names("other"))),
    ),
)

test_assay_agrees_with_upstream, test_assay_notices_the_control = checks_of(CASES)
