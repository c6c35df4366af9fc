"""``assay.compile`` on functions of libraries over jax, which wrap jax's own stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

import assay
from assay import api
from assay.model.target import TargetName
from assay.targets import known, prepare

# Before jax starts in this process: other tests ask it for every compiler.
prepare(map(TargetName.parse, known()))

V5E = "tpu-v5e:2x4"
WIDTH = 1024


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    yield
    api._PROCESSES.close()


def sharded_over_all() -> NamedSharding:
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=auto)
    return NamedSharding(mesh, PartitionSpec("data"))


@nnx.jit
def train_step(model: nnx.Linear, x: jax.Array) -> jax.Array:
    loss, gradient = nnx.value_and_grad(lambda model: (model(x) ** 2).mean())(model)
    nnx.update(model, jax.tree.map(lambda w, g: w - 0.1 * g, nnx.state(model), gradient))
    return loss


def model_and_batch() -> tuple[nnx.Linear, jax.Array]:
    model = nnx.Linear(WIDTH, WIDTH, rngs=nnx.Rngs(0))
    return model, jax.device_put(jnp.ones((8 * WIDTH, WIDTH)), sharded_over_all())


def test_a_training_step_of_flax_compiles_as_it_is() -> None:
    found = assay.compile(train_step, model_and_batch, target=V5E)
    weights, batch = WIDTH * WIDTH * 4, WIDTH * WIDTH * 4
    assert weights + batch <= found.memory.argument_bytes < 1.01 * (weights + batch)
    assert "all-reduce" in found.hlo


class Stage(NamedTuple):
    """What a library returns instead of jax's own stage."""

    lowered: jax.stages.Lowered


class OnlyLowers:
    """As ``equinox.filter_jit``: what is no array is a constant, and there is no ``trace``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def lower(self, *arguments: Any) -> Stage:
        is_array = [isinstance(each, jax.Array | np.ndarray) for each in arguments]
        arrays = [each for each, yes in zip(arguments, is_array, strict=True) if yes]

        def of_arrays(*given: Any) -> Any:
            left = iter(given)
            whole = [
                next(left) if yes else each for each, yes in zip(arguments, is_array, strict=True)
            ]
            return self._function(*whole)

        return Stage(jax.jit(of_arrays).lower(*arrays))


def test_a_function_that_only_lowers_is_lowered_for_the_target() -> None:
    scaled = OnlyLowers(lambda x, factor: jnp.sort(x) * factor)
    found = assay.compile(scaled, np.zeros((WIDTH, WIDTH), np.float32), 2.0, target=V5E)
    assert found.memory.argument_bytes == WIDTH * WIDTH * 4
    assert "sort" in found.hlo


def test_a_function_without_jax_s_stages_is_refused() -> None:
    class LowersToText:
        def __call__(self, x: Any) -> Any:
            return x

        def lower(self, _x: Any) -> str:
            return "module {}"

    with pytest.raises(assay.CompileError, match="wanted"):
        assay.compile(LowersToText(), np.zeros(8, np.float32), target=V5E)
