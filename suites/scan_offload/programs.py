"""The scanned transformer block of openxla/xla#17541 in plain JAX, and the ways to write it.

A block ``x → x + relu(x·w1)·w2`` is scanned over its layers under ``jax.checkpoint``; two values
carry names for the policy: ``hidden`` (x·w1) and ``residual`` (the stream between the blocks).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from assay import Program

HIDDEN = "hidden"
RESIDUAL = "residual"
_LEARNING_RATE = 1e-8

Params = dict[str, Any]
Block = Callable[[jax.Array, tuple[jax.Array, jax.Array]], jax.Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The block's dimensions; activations are f32[layers, batch, sequence, width]."""

    layers: int
    batch: int
    sequence: int
    embedding: int
    hidden: int
    executed: bool = False

    def activation_elements(self, name: str) -> int:
        """Elements of a named activation of all layers, over all devices."""
        width = self.hidden if name == HIDDEN else self.embedding
        return self.layers * self.batch * self.sequence * width


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bytes of each of so many devices; of fewer, which hold more each, as much together."""

    each: int
    devices: int = 1

    def of(self, devices: int) -> int:
        """Bytes of each of so many."""
        return self.each * max(self.devices, devices) // devices


NO_BUDGET = Budget(each=0)
"""Where memsafe is not tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """One way to write the model: what is saved, what offloaded, where names and remat stand."""

    save: tuple[str, ...] = ()
    offload: tuple[str, ...] = ()
    residual_at: tuple[str, ...] = ()
    remat: tuple[str, ...] = ("inside",)
    name_carry: bool = False
    unroll: int = 1
    python_loop: bool = False

    def policy(self) -> Callable[..., Any]:
        """The remat policy of upstream's report, with these names."""
        return jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=list(self.save),
            names_which_can_be_offloaded=list(self.offload),
            offload_src="device",
            offload_dst="pinned_host",
        )


def mesh_shape(devices: int) -> tuple[int, int]:
    """(data, model): the report's 4 × 2 on eight devices; model is 2 where four divide them."""
    model = 2 if devices % 4 == 0 else 1
    return devices // model, model


def mesh_of(devices: Sequence[Any]) -> Mesh:
    """The mesh of that shape over the target's devices."""
    return Mesh(np.array(devices).reshape(mesh_shape(len(devices))), ("data", "model"))


def block(
    x: jax.Array, weights: tuple[jax.Array, jax.Array], *, mesh: Mesh, residual_at: tuple[str, ...]
) -> jax.Array:
    """One block, sequence-parallel at its end; ``residual`` named at its input, output or both."""
    w1, w2 = weights
    if "input" in residual_at:
        x = checkpoint_name(x, RESIDUAL)
    h = jax.nn.relu(checkpoint_name(x @ w1, HIDDEN))
    y = x + h @ w2
    y = jax.lax.with_sharding_constraint(y, _sharding(mesh, "data", "model", None))
    return checkpoint_name(y, RESIDUAL) if "output" in residual_at else y


def layers(writing: Writing, mesh: Mesh, params: Params, x: jax.Array) -> jax.Array:
    """All blocks, one after another, as the writing says."""

    def step(x: jax.Array, weights: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return block(x, weights, mesh=mesh, residual_at=writing.residual_at), None

    remat = partial(jax.checkpoint, policy=writing.policy(), prevent_cse=False)
    inner = remat(step) if "inside" in writing.remat else step

    def body(x: jax.Array, weights: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return inner(checkpoint_name(x, RESIDUAL) if writing.name_carry else x, weights)

    def stack(x: jax.Array, weights: tuple[jax.Array, jax.Array]) -> jax.Array:
        if not writing.python_loop:
            return jax.lax.scan(body, x, weights, unroll=writing.unroll)[0]
        for layer in range(weights[0].shape[0]):
            x, _ = body(x, (weights[0][layer], weights[1][layer]))
        return x

    outer = remat(stack) if "outside" in writing.remat else stack
    return outer(x, params["layers"])


def loss_of(
    apply: Callable[[Params, jax.Array], jax.Array],
    params: Params,
    inputs: jax.Array,
    target: jax.Array,
) -> jax.Array:
    """Mean squared error of the report's output head."""
    predictions = jnp.mean((apply(params, inputs) @ params["out"])[..., 0], axis=1)
    return jnp.mean((predictions - target) ** 2)


def train_step(
    loss: Callable[..., jax.Array], params: Params, inputs: jax.Array, target: jax.Array
) -> tuple[Params, jax.Array]:
    """One step of gradient descent, as in the report."""
    value, gradients = jax.value_and_grad(loss)(params, inputs, target)
    update = jax.tree.map(lambda p, g: p - _LEARNING_RATE * g, params, gradients)
    return update, value


def block_program(sizes: Sizes, writing: Writing, devices: Sequence[Any]) -> Program:
    """The report's training step written one way."""
    mesh = mesh_of(devices)
    return training_program(sizes, mesh, partial(layers, writing, mesh))


def budgeted_program(
    sizes: Sizes, writing: Writing, budget: Budget, devices: Sequence[Any]
) -> Program:
    """The same step within a budget."""
    from memsafe import memsafe

    program = block_program(sizes, writing, devices)
    safely = partial(memsafe, budget=budget.of(len(devices)), device=devices[0])
    assert program.function is not None
    assert program.observe is not None
    return replace(
        program,
        function=safely(program.function, donate_argnums=program.donate_argnums),
        observe=safely(program.observe),
        donate_argnums=(),
        out_shardings=None,
    )


def training_program(
    sizes: Sizes, mesh: Mesh, apply: Callable[[Params, jax.Array], jax.Array]
) -> Program:
    """A training step around any stack of layers ``apply(params, x)``."""
    loss = partial(loss_of, apply)
    params = {
        "layers": (_sharding(mesh, None, None, "model"), _sharding(mesh, None, "model", None)),
        "out": _sharding(mesh, "model", None),
    }
    data, batch = _sharding(mesh, "data", None), _sharding(mesh, "data")
    return Program(
        function=partial(train_step, loss),
        arguments=shapes(sizes),
        in_shardings=(params, data, batch),
        out_shardings=(params, _sharding(mesh)),
        donate_argnums=(0,),
        differentiated=loss,
        values=partial(random_values, sizes) if sizes.executed else None,
        observe=jax.value_and_grad(loss),
    )


def shapes(sizes: Sizes) -> tuple[Any, ...]:
    """Parameters, inputs [batch, sequence, embedding] and targets [batch], all f32."""
    f32 = partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    params = {
        "layers": (
            f32((sizes.layers, sizes.embedding, sizes.hidden)),
            f32((sizes.layers, sizes.hidden, sizes.embedding)),
        ),
        "out": f32((sizes.embedding, 1)),
    }
    return params, f32((sizes.batch, sizes.sequence, sizes.embedding)), f32((sizes.batch,))


def random_values(sizes: Sizes) -> tuple[Any, ...]:
    """Normal values of a fixed seed, weights scaled so that the stream keeps its size."""
    generator = np.random.default_rng(0)
    params, inputs, target = jax.tree.map(
        lambda shape: generator.standard_normal(shape.shape, dtype=np.float32), shapes(sizes)
    )
    scale = np.float32(sizes.embedding**-0.5 / sizes.layers)
    params = jax.tree.map(lambda weight: weight * scale, params)
    return params, inputs, target


def _sharding(mesh: Mesh, *axes: str | None) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*axes))
