"""Activations move to host memory: https://github.com/jax-ml/jax/issues/23869."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

LAYERS, TOKENS, WIDTH = 16, 8192, 2048
POLICY = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[],
    names_which_can_be_offloaded=["block_input"],
    offload_src="device",
    offload_dst="pinned_host",
)


def block(x, weights):
    x = checkpoint_name(x, "block_input")
    return x + jnp.tanh(x @ weights), None


def loss(x, weights):
    x, _ = jax.lax.scan(jax.checkpoint(block, policy=POLICY), x, weights)
    return jnp.sum(x)


f = jax.grad(loss, argnums=1)


def example_args():
    x = jax.ShapeDtypeStruct((TOKENS, WIDTH), jnp.float32)
    return x, jax.ShapeDtypeStruct((LAYERS, WIDTH, WIDTH), jnp.float32)
