"""A problem: a user's program, other ways to write the program, and their arguments."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

DEVICES = "device"
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A program as the user wrote it (``plain``), without regard to memory, and its variants.

    ``ways`` compute the same function of the same ``arguments`` (pytrees of shapes), by hand or
    with a library; the keys are names of variants. ``values`` makes arrays for the arguments.
    ``specs`` says how each argument is divided over all devices, the axis `DEVICES` of a mesh.
    Without ``specs``, all arguments lie on the first device.
    """

    plain: Function
    ways: Mapping[str, Function]
    arguments: tuple[Any, ...]
    values: Callable[[], tuple[Any, ...]]
    specs: tuple[PartitionSpec, ...] = ()

    @property
    def is_double(self) -> bool:
        """Whether any argument is in double precision."""
        return any(leaf.dtype == np.float64 for leaf in jax.tree.leaves(self.arguments))

    @property
    def least_bytes(self) -> int:
        """Bytes of arguments and results, which every way to write the program needs."""
        with jax.enable_x64(self.is_double):
            results = jax.eval_shape(self.plain, *self.arguments)
        leaves = jax.tree.leaves((self.arguments, results))
        return sum(prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)

    def shardings(self, devices: Sequence[Any]) -> Any:
        """Sharding of the arguments: one for all, or one for each."""
        if not self.specs:
            return SingleDeviceSharding(devices[0])
        mesh = Mesh(np.array(devices), (DEVICES,))
        return tuple(NamedSharding(mesh, spec) for spec in self.specs)

    @contextmanager
    def on(self, devices: Sequence[Any]) -> Iterator[None]:
        """Context with the JAX settings in which the problem is traced and run."""
        mesh = jax.set_mesh(Mesh(np.array(devices), (DEVICES,))) if self.specs else nullcontext()
        with jax.enable_x64(self.is_double), mesh:
            yield


class ValueAndGradients(NamedTuple):
    """The results of a problem with gradients; a report names the wrong one by its field."""

    value: jax.Array
    gradients: tuple[jax.Array, ...]


def with_gradients(
    build: Callable[[], Problem], wanted: tuple[int, ...], *, squared: bool = True
) -> Problem:
    """The problem of a loss and its gradients with respect to the ``wanted`` arguments.

    The loss is the mean of the result's squares if ``squared``, otherwise the result itself.
    """
    problem = build()
    differentiate = partial(_value_and_gradients, wanted=wanted, squared=squared)
    return replace(
        problem,
        plain=differentiate(problem.plain),
        ways={name: differentiate(function) for name, function in problem.ways.items()},
    )


def _value_and_gradients(function: Function, *, wanted: tuple[int, ...], squared: bool) -> Function:
    def loss(*arguments: Any) -> jax.Array:
        result = function(*arguments)
        return jnp.mean(result**2) if squared else result

    differentiate = jax.value_and_grad(loss, argnums=wanted)
    return lambda *arguments: ValueAndGradients(*differentiate(*arguments))


def array(*dimensions: int, dtype: Any = np.float32) -> jax.ShapeDtypeStruct:
    """The shape of an array."""
    return jax.ShapeDtypeStruct(dimensions, dtype)


def normal(generator: np.random.Generator, shapes: Any, scale: float = 1.0) -> Any:
    """Normal values for a pytree of shapes, with standard deviation ``scale``."""
    return jax.tree.map(
        lambda leaf: (scale * generator.standard_normal(leaf.shape)).astype(leaf.dtype), shapes
    )


def normal_values(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Standard normal values for each argument, from a fixed seed."""
    generator = np.random.default_rng(0)
    return tuple(normal(generator, shapes) for shapes in arguments)
