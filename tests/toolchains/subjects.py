"""Programs that are probed: one that works, and each way in which one does not."""

import os
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp


def update_row(stack: Any, x: Any) -> Any:
    def body(i: Any, carry: Any) -> Any:
        stack, x = carry
        return jax.lax.dynamic_update_index_in_dim(stack, x[None], i, 0), jnp.tanh(x)

    return jax.lax.fori_loop(0, 15, body, (stack, x))


in_place = jax.jit(update_row, donate_argnums=0)


@jax.jit
def keeps_the_old(stack: Any, x: Any) -> Any:
    def body(i: Any, carry: Any) -> Any:
        old, stack = carry
        return stack, jax.lax.dynamic_update_index_in_dim(stack, x[None] + old[0], i, 0)

    return jax.lax.fori_loop(0, 15, body, (stack, stack * 2))


def example_args() -> Any:
    return jax.ShapeDtypeStruct((15, 4096), "float32"), jax.ShapeDtypeStruct((4096,), "float32")


def prints_rubbish(stack: Any, x: Any) -> Any:
    os.write(1, b'{"failure": null}\n\xff garbage')
    print("more", file=sys.stdout)
    return update_row(stack, x)


def crashes(*_: Any) -> Any:
    os.write(2, b"the last words\n")
    os.abort()


def hangs(*_: Any) -> Any:
    time.sleep(600)


def fails(*_: Any) -> Any:
    raise ValueError("the shapes do not fit")


def has_no_memory(*_: Any) -> Any:
    raise ValueError("Could not find memory addressable by device NVIDIA H100 80GB HBM3")


def needs_a_package(*_: Any) -> Any:
    import no_such_package_of_ours  # noqa: F401


def on_a_mesh(x: Any, y: Any) -> Any:
    """A step whose own mesh is of all devices, and whose arguments have no shardings."""
    mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "data"))
    return jax.lax.with_sharding_constraint(x, rows) * y
