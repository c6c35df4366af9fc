"""Programs over four devices, in a process of their own: ``python -m`` this prints what held."""

import json
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from memsafe import BudgetError, memsafe
from memsafe.function import Calls

DEVICES: Final = 4
AXES: Final = (AxisType.Auto, AxisType.Explicit)
ROWS, OTHERS = 256, 512


def product(x: Array, y: Array, v: Array) -> Array:
    return jnp.exp(-((x[:, None] - y[None, :]) ** 2).sum(-1)) @ v


def arrays() -> tuple[Array, Array, Array]:
    numbers = np.random.default_rng(0)
    shapes = ((ROWS, 3), (OTHERS, 3), (OTHERS,))
    x, y, v = (jnp.asarray(numbers.standard_normal(shape), jnp.float32) for shape in shapes)
    return x, y, v


def mesh(kind: AxisType = AxisType.Auto) -> Mesh:
    return jax.make_mesh((DEVICES,), ("d",), axis_types=(kind,))


def split_rows(kind: AxisType = AxisType.Auto) -> NamedSharding:
    return NamedSharding(mesh(kind), PartitionSpec("d"))


def placed(kind: AxisType = AxisType.Auto) -> tuple[Array, Array, Array]:
    x, y, v = arrays()
    whole = NamedSharding(mesh(kind), PartitionSpec())
    return jax.device_put(x, split_rows(kind)), jax.device_put(y, whole), jax.device_put(v, whole)


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

    plain = jax.jit(jax.grad(squares))(*arguments)
    budget = peak_bytes(jax.grad(squares), *arguments) // 2
    for within in (memsafe(jax.grad(squares), budget), jax.grad(memsafe(squares, budget))):
        result = within(*arguments)
        close(result, plain)
        assert result.sharding.is_equivalent_to(plain.sharding, 2), result.sharding


def inside_jit_a_sharded_argument_keeps_its_values() -> None:
    arguments = placed()
    budget = peak_bytes(product, *arguments) // 2
    close(jax.jit(memsafe(product, budget))(*arguments), product(*arrays()))


def squares(*arguments: Array) -> Array:
    return jnp.sum(jnp.tanh(product(*arguments)) ** 2)


def inside_jit_a_sharded_argument_is_differentiated() -> None:
    for kind in AXES:
        for within in (memsafe(jax.grad(squares), 300_000), jax.grad(memsafe(squares, 300_000))):
            close(jax.jit(within)(*placed(kind)), jax.grad(squares)(*arrays()))


def an_argument_whose_type_says_where_it_lies_is_computed_there() -> None:
    plain = product(*placed(AxisType.Explicit))
    assert plain.sharding.spec == split_rows().spec
    budget = peak_bytes(product, *placed()) // 2
    within = memsafe(product, budget)
    for call in (within, jax.jit(within)):
        for context in (nullcontext(), jax.sharding.set_mesh(mesh(AxisType.Explicit))):
            with context:
                result = call(*placed(AxisType.Explicit))
            close(result, plain)
            assert jax.typeof(result) == jax.typeof(plain), jax.typeof(result)
    assert peak_bytes(within, *placed(AxisType.Explicit)) <= budget


def trees_of_results_lie_where_their_types_say() -> None:
    def several(arguments: dict[str, Array], times: int) -> dict[str, Array]:
        found = product(arguments["x"], arguments["y"], arguments["v"])
        return {
            "all": found,
            "mean": found.mean(),
            "ones": jnp.ones(3),
            "v": arguments["v"] * times,
        }

    arguments = dict(zip("xyv", placed(AxisType.Explicit), strict=True))
    plain = several(arguments, 2)
    got = memsafe(several, 300_000, static_argnums=1)(arguments, 2)
    for name, wanted in plain.items():
        close(got[name], wanted)
        assert got[name].sharding.is_fully_replicated == wanted.sharding.is_fully_replicated, name


def a_function_that_places_its_results_itself_still_does() -> None:
    def gathered(x: Array, y: Array, v: Array) -> Array:
        return jnp.tanh(jax.sharding.reshard(product(x, y, v), PartitionSpec()))

    def divided(x: Array, y: Array, v: Array) -> Array:
        return jnp.einsum("ij,j->i", jnp.exp(x @ y.T), v, out_sharding=PartitionSpec("d"))

    with jax.sharding.set_mesh(mesh(AxisType.Explicit)):
        for function in (gathered, divided):
            plain = function(*placed(AxisType.Explicit))
            result = memsafe(function, 10_000_000)(*placed(AxisType.Explicit))
            close(result, plain)
            assert result.sharding.is_equivalent_to(plain.sharding, 1), result.sharding
        refused = ""
        try:
            memsafe(divided, 60_000)(*placed(AxisType.Explicit))
        except ValueError as error:
            refused = str(error)
        assert "do this: use jax.lax.with_sharding_constraint" in refused, refused


def a_constraint_reaches_the_compiler() -> None:
    def constrained(x: Array, y: Array, v: Array) -> Array:
        return lax.with_sharding_constraint(product(x, y, v), split_rows())

    x, y, v = (jax.device_put(each, NamedSharding(mesh(), PartitionSpec())) for each in arrays())
    for call in (memsafe(constrained, 600_000), jax.jit(memsafe(constrained, 600_000))):
        result = call(x, y, v)
        close(result, product(*arrays()))
        assert result.sharding.is_equivalent_to(split_rows(), 1), result.sharding


def explicit_axes_change_no_plan() -> None:
    plain = peak_bytes(product, *placed())
    found = [Calls.asked(product, plain // 2, {}).fit(placed(kind), {}).result for kind in AXES]
    automatic, explicit = (each.nbytes if each else None for each in found)
    assert automatic == explicit, found
    assert automatic is not None
    assert automatic <= plain // 2


def summed_over(x: Array, y: Array, v: Array) -> Array:
    """The product where each device has a part of `y` and `v`."""
    return lax.psum(product(x, y, v), "d")


def _mapped(
    local: Callable[..., Any], in_specs: Any, out_specs: Any, *, check_vma: bool = True
) -> Callable[..., Any]:
    return jax.shard_map(
        local, mesh=mesh(), in_specs=in_specs, out_specs=out_specs, check_vma=check_vma
    )


ACROSS: Final = ((PartitionSpec(), PartitionSpec("d"), PartitionSpec("d")), PartitionSpec())
ALONG: Final = ((PartitionSpec("d"), PartitionSpec(), PartitionSpec()), PartitionSpec("d"))
ALONG_ROWS: Final = PartitionSpec("d", None)


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


def inside_shard_map_a_gradient_is_split() -> None:
    for check_vma in (True, False):
        mapped = partial(_mapped, in_specs=ALONG[0], out_specs=ALONG_ROWS, check_vma=check_vma)
        plain = peak_bytes(mapped(jax.grad(squares)), *arrays())
        within = mapped(memsafe(jax.grad(squares), plain // 4))
        close(within(*arrays()), jax.grad(squares)(*arrays()))
        assert peak_bytes(within, *arrays()) <= plain // 3


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
        inside_jit_a_sharded_argument_is_differentiated,
        an_argument_whose_type_says_where_it_lies_is_computed_there,
        trees_of_results_lie_where_their_types_say,
        a_function_that_places_its_results_itself_still_does,
        a_constraint_reaches_the_compiler,
        explicit_axes_change_no_plan,
        what_each_device_does_is_split,
        inside_shard_map_a_device_s_part_is_split,
        inside_shard_map_a_budget_that_is_not_even_predicted_is_refused,
        inside_shard_map_sums_over_devices_stay,
        inside_shard_map_gradients_are_right,
        inside_shard_map_a_gradient_is_split,
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
