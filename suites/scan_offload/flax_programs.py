"""The report's own program: the same block as flax modules, with logical sharding."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen.linear import default_kernel_init
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from assay import Program
from suites.scan_offload.programs import HIDDEN, RESIDUAL, Sizes, Writing, mesh_of, train_step

_RULES = (
    ("batch", "data"),
    ("embedding", None),
    ("hidden", "model"),
    ("q_sequence", "model"),
)


class FeedForward(nn.Module):
    """The scanned block; ``residual`` is named at its input or its output."""

    embedding: int
    hidden: int
    residual_at: tuple[str, ...]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[batch, sequence, embedding] → the same."""
        if "input" in self.residual_at:
            x = checkpoint_name(x, RESIDUAL)
        h = _dense(self.hidden, "embedding", "hidden")(x)
        h = nn.relu(checkpoint_name(h, HIDDEN))
        y = x + _dense(self.embedding, "hidden", "embedding")(h)
        y = nn.with_logical_constraint(y, ("batch", "q_sequence", None))
        return checkpoint_name(y, RESIDUAL) if "output" in self.residual_at else y


class Model(nn.Module):
    """The scanned blocks and an output head of one feature."""

    sizes: Sizes
    writing: Writing

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[batch, sequence, embedding] → predictions f32[batch]."""

        def apply(block: FeedForward, x: jax.Array, _: None) -> tuple[jax.Array, None]:
            return block(x), None

        remat = nn.remat(apply, policy=self.writing.policy(), prevent_cse=False)
        scan = nn.scan(
            remat,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=self.sizes.layers,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        block = FeedForward(self.sizes.embedding, self.sizes.hidden, self.writing.residual_at)
        x, _ = scan(block, x, None)
        return jnp.mean(_dense(1, "hidden", None)(x)[..., 0], axis=1)


def flax_program(sizes: Sizes, writing: Writing, devices: Sequence[Any]) -> Program:
    """The report's training step in flax, written one way."""
    mesh = mesh_of(devices)
    model = Model(sizes, writing)
    inputs = jax.ShapeDtypeStruct((sizes.batch, sizes.sequence, sizes.embedding), jnp.float32)
    target = jax.ShapeDtypeStruct((sizes.batch,), jnp.float32)
    with _rules(mesh):
        boxed = jax.eval_shape(model.init, jax.random.key(0), inputs)
        params = nn.unbox(boxed)
        shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, _RULES)
    loss = partial(_loss, model)
    data = NamedSharding(mesh, PartitionSpec("data", None))
    batch = NamedSharding(mesh, PartitionSpec("data"))
    return Program(
        function=partial(train_step, loss),
        arguments=(params, inputs, target),
        in_shardings=(shardings, data, batch),
        out_shardings=(shardings, NamedSharding(mesh, PartitionSpec())),
        donate_argnums=(0,),
        differentiated=loss,
        values=partial(_values, model, sizes) if sizes.executed else None,
        observe=jax.value_and_grad(loss),
        context=partial(_rules, mesh),
    )


def _loss(model: Model, params: Any, inputs: jax.Array, target: jax.Array) -> jax.Array:
    predictions: Any = model.apply(params, inputs)  # flax types it as perhaps with state.
    return jnp.mean((predictions - target) ** 2)


def _values(model: Model, sizes: Sizes) -> tuple[Any, ...]:
    generator = np.random.default_rng(0)
    shape = (sizes.batch, sizes.sequence, sizes.embedding)
    inputs = generator.standard_normal(shape, dtype=np.float32)
    target = generator.standard_normal((sizes.batch,), dtype=np.float32)
    params = jax.jit(lambda x: nn.unbox(model.init(jax.random.key(0), x)))(inputs)
    return jax.device_get(params), inputs, target


def _dense(features: int, rows: str, columns: str | None) -> Callable[[jax.Array], jax.Array]:
    kernel = nn.with_logical_partitioning(default_kernel_init, (rows, columns))
    return nn.Dense(features, kernel_init=kernel, use_bias=False)


@contextmanager
def _rules(mesh: Mesh) -> Iterator[None]:
    with mesh, nn.logical_axis_rules(_RULES):
        yield
