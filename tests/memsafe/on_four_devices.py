"""Programs over four devices, in a process of their own: ``python -m`` this prints what held."""

import json
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from memsafe import BudgetError, memsafe

DEVICES: Final = 4
ROWS, OTHERS = 256, 512


def product(x: Array, y: Array, v: Array) -> Array:
    return jnp.exp(-((x[:, None] - y[None, :]) ** 2).sum(-1)) @ v


def arrays() -> tuple[Array, Array, Array]:
    numbers = np.random.default_rng(0)
    shapes = ((ROWS, 3), (OTHERS, 3), (OTHERS,))
    x, y, v = (jnp.asarray(numbers.standard_normal(shape), jnp.float32) for shape in shapes)
    return x, y, v


def mesh() -> Mesh:
    return jax.make_mesh((DEVICES,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))


def split_rows() -> NamedSharding:
    return NamedSharding(mesh(), PartitionSpec("d"))


def placed() -> tuple[Array, Array, Array]:
    x, y, v = arrays()
    whole = NamedSharding(mesh(), PartitionSpec())
    return jax.device_put(x, split_rows()), jax.device_put(y, whole), jax.device_put(v, whole)


def peak_bytes(function: Callable[..., Any], *arguments: Any) -> int:
    taken = jax.jit(function).lower(*arguments).compile().memory_analysis()
    parts = (taken.temp_size_in_bytes, taken.argument_size_in_bytes, taken.output_size_in_bytes)
    return int(sum(parts) - taken.alias_size_in_bytes)


def close(got: Array, wanted: Array) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=0, atol=1e-4)


def a_sharded_argument_is_computed_where_it_lies() -> None:
    arguments = placed()
    plain = jax.jit(product)(*arguments)
    assert plain.sharding.is_equivalent_to(split_rows(), 1)
    budget = peak_bytes(product, *arguments) // 2
    result = memsafe(product, budget)(*arguments)
    close(result, plain)
    assert result.sharding.is_equivalent_to(plain.sharding, 1), result.sharding


def a_sharded_argument_is_differentiated_where_it_lies() -> None:
    arguments = placed()

    def loss(*arguments: Array) -> Array:
        return jnp.sum(jnp.tanh(product(*arguments)) ** 2)

    plain = jax.jit(jax.grad(loss))(*arguments)
    budget = peak_bytes(jax.grad(loss), *arguments) // 2
    for within in (memsafe(jax.grad(loss), budget), jax.grad(memsafe(loss, budget))):
        result = within(*arguments)
        close(result, plain)
        assert result.sharding.is_equivalent_to(plain.sharding, 2), result.sharding


def inside_jit_a_sharded_argument_keeps_its_values() -> None:
    arguments = placed()
    budget = peak_bytes(product, *arguments) // 2
    close(jax.jit(memsafe(product, budget))(*arguments), product(*arrays()))


def summed_over(x: Array, y: Array, v: Array) -> Array:
    """The product where each device has a part of `y` and `v`."""
    return lax.psum(product(x, y, v), "d")


def _mapped(local: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    return jax.shard_map(local, mesh=mesh(), in_specs=in_specs, out_specs=out_specs)


ACROSS: Final = ((PartitionSpec(), PartitionSpec("d"), PartitionSpec("d")), PartitionSpec())
ALONG: Final = ((PartitionSpec("d"), PartitionSpec(), PartitionSpec()), PartitionSpec("d"))


def what_each_device_does_is_split() -> None:
    mapped = _mapped(summed_over, *ACROSS)
    budget = peak_bytes(mapped, *arrays()) * 2 // 3
    within = memsafe(mapped, budget)
    close(within(*arrays()), product(*arrays()))
    assert peak_bytes(within, *arrays()) <= budget


def inside_shard_map_a_device_s_part_is_split() -> None:
    plain = peak_bytes(_mapped(product, *ALONG), *arrays())
    within = _mapped(memsafe(product, plain // 2), *ALONG)
    close(within(*arrays()), product(*arrays()))
    assert peak_bytes(within, *arrays()) <= plain // 2


def inside_shard_map_a_budget_that_is_not_even_predicted_is_refused() -> None:
    within = _mapped(memsafe(product, 10_000), *ALONG)
    refused = None
    try:
        within(*arrays())
    except BudgetError as error:
        refused = error
    assert refused is not None, "no plan was refused"
    assert refused.smallest > refused.budget == 10_000


def inside_shard_map_sums_over_devices_stay() -> None:
    plain = peak_bytes(_mapped(summed_over, *ACROSS), *arrays())
    within = _mapped(memsafe(summed_over, plain // 2), *ACROSS)
    close(within(*arrays()), product(*arrays()))
    assert peak_bytes(within, *arrays()) <= plain // 2


def inside_shard_map_gradients_are_right() -> None:
    def loss(by: Callable[..., Any], x: Array, y: Array, v: Array) -> Array:
        return jnp.sum(jnp.tanh(by(x, y, v)) ** 2)

    within = _mapped(memsafe(summed_over, 150_000), *ACROSS)
    got = jax.grad(partial(loss, within), (0, 1, 2))(*arrays())
    wanted = jax.grad(partial(loss, product), (0, 1, 2))(*arrays())
    for one, other in zip(got, wanted, strict=True):
        close(one, other)


def inside_shard_map_a_slice_may_start_where_its_device_says() -> None:
    def local(x: Array, y: Array, v: Array, start: Array) -> Array:
        near = jnp.exp(-((x[:, None] - y[None, :]) ** 2).sum(-1))
        part = lax.dynamic_slice(near, (0, start[0]), (len(x), OTHERS // 2))
        return jnp.tanh(near) @ v + part.sum(1)

    arguments = (*arrays(), 3 * jnp.arange(DEVICES))
    in_specs, out_specs = ALONG
    specs = (*in_specs, PartitionSpec("d")), out_specs
    plain = _mapped(local, *specs)
    budget = peak_bytes(plain, *arguments) // 2
    within = _mapped(memsafe(local, budget), *specs)
    close(within(*arguments), jax.jit(plain)(*arguments))
    assert peak_bytes(within, *arguments) <= budget


def another_device_than_the_first_is_planned_for() -> None:
    last = jax.devices()[-1]
    arguments = tuple(jax.device_put(each, last) for each in arrays())
    result = memsafe(product, 300_000)(*arguments)
    assert result.devices() == {last}
    close(result, product(*arrays()))


CLAIMS: Final = {
    claim.__name__: claim
    for claim in (
        a_sharded_argument_is_computed_where_it_lies,
        a_sharded_argument_is_differentiated_where_it_lies,
        inside_jit_a_sharded_argument_keeps_its_values,
        what_each_device_does_is_split,
        inside_shard_map_a_device_s_part_is_split,
        inside_shard_map_a_budget_that_is_not_even_predicted_is_refused,
        inside_shard_map_sums_over_devices_stay,
        inside_shard_map_gradients_are_right,
        inside_shard_map_a_slice_may_start_where_its_device_says,
        another_device_than_the_first_is_planned_for,
    )
}


def main() -> None:
    """Prints what is wrong with each claim, or an empty text."""
    jax.config.update("jax_num_cpu_devices", DEVICES)
    found = {}
    for name, claim in CLAIMS.items():
        try:
            claim()
            found[name] = ""
        except Exception:  # noqa: BLE001 - whatever is wrong, the test of this claim says so.
            found[name] = traceback.format_exc(limit=-8)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
