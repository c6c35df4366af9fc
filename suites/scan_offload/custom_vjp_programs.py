"""The report's second attempt: a block with a hand-written gradient that moves data by itself."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax

from assay import Program
from suites.scan_offload.programs import Params, Sizes, Writing, block, mesh_of, training_program

HOST, DEVICE = jax.memory.Space.Host, jax.memory.Space.Device
Weights = tuple[jax.Array, jax.Array]
Block = Callable[[jax.Array, Weights], jax.Array]


def custom_vjp_program(
    sizes: Sizes, attempt: str, devices: Sequence[Any], *, remat: bool
) -> Program:
    """A scan over custom_vjp blocks, each inside ``jax.checkpoint`` or not.

    ``attempt`` is ``literal`` (as reported: the forward rule returns the block's output on the
    host), ``roundtrip`` (the output goes to the host and back) or ``residual`` (the block's input
    is kept on the host for the backward rule).
    """
    mesh = mesh_of(devices)
    plain = partial(block, mesh=mesh, residual_at=())
    custom = _ATTEMPTS[attempt](plain)
    return training_program(sizes, mesh, partial(_scan, custom, remat=remat))


def _scan(custom: Block, params: Params, x: jax.Array, *, remat: bool) -> jax.Array:
    def step(x: jax.Array, weights: Weights) -> tuple[jax.Array, None]:
        return custom(x, weights), None

    body = jax.checkpoint(step, policy=Writing().policy(), prevent_cse=False) if remat else step
    return jax.lax.scan(body, x, params["layers"])[0]


def _literal(plain: Block) -> Block:
    def forward(x: jax.Array, weights: Weights) -> tuple[jax.Array, Any]:
        y, backward = jax.vjp(plain, x, weights)
        return jax.device_put(y, HOST), backward

    def backward(vjp: Any, cotangent: jax.Array) -> Any:
        return vjp(jax.device_put(cotangent, DEVICE))

    return _with_rules(plain, forward, backward)


def _roundtrip(plain: Block) -> Block:
    def forward(x: jax.Array, weights: Weights) -> tuple[jax.Array, Any]:
        y, backward = jax.vjp(plain, x, weights)
        return jax.device_put(jax.device_put(y, HOST), DEVICE), backward

    return _with_rules(plain, forward, lambda vjp, cotangent: vjp(cotangent))


def _residual(plain: Block) -> Block:
    def forward(x: jax.Array, weights: Weights) -> tuple[jax.Array, Any]:
        return plain(x, weights), (jax.device_put(x, HOST), weights)

    def backward(kept: Any, cotangent: jax.Array) -> Any:
        x, weights = kept
        return jax.vjp(plain, jax.device_put(x, DEVICE), weights)[1](cotangent)

    return _with_rules(plain, forward, backward)


def _with_rules(plain: Block, forward: Callable[..., Any], backward: Callable[..., Any]) -> Block:
    custom = jax.custom_vjp(plain)
    custom.defvjp(forward, backward)
    return custom


_ATTEMPTS = {
    "literal": _literal,
    "roundtrip": _roundtrip,
    "residual": _residual,
}
