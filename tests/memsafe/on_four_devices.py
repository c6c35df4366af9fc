"""Claims about four devices, for a process of their own: ``python -m`` this file prints faults."""

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stdout
from io import StringIO
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from memsafe import explain, memsafe
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
    return jax.make_mesh((DEVICES,), ("data",), axis_types=(kind,))


def split_rows(kind: AxisType = AxisType.Auto) -> NamedSharding:
    return NamedSharding(mesh(kind), PartitionSpec("data"))


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
        return jnp.einsum("ij,j->i", jnp.exp(x @ y.T), v, out_sharding=PartitionSpec("data"))

    with jax.sharding.set_mesh(mesh(AxisType.Explicit)):
        for function in (gathered, divided):
            plain = function(*placed(AxisType.Explicit))
            result = memsafe(function, 10_000_000)(*placed(AxisType.Explicit))
            close(result, plain)
            assert result.sharding.is_equivalent_to(plain.sharding, 1), result.sharding
        for call in (memsafe(divided, 60_000), jax.jit(memsafe(divided, 60_000))):
            refused = ""
            try:
                call(*placed(AxisType.Explicit))
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
    automatic, explicit = (each.nbytes for each in found)
    assert automatic == explicit, found
    assert automatic <= plain // 2


def placed_alike() -> tuple[Array, Array, Array]:
    """Both sides of the pairs, and the weights, over the same devices."""
    x, y, v = (jax.device_put(each, split_rows()) for each in arrays())
    return x, y, v


def contrast(x: Array, y: Array) -> Array:
    """The loss of contrastive learning: each row's own pair against all the others."""
    scores = x @ y.T
    return jnp.mean(jax.nn.logsumexp(scores, 1) - jnp.diagonal(scores))


def all_pairs_of_sides_over_the_same_devices_are_split() -> None:
    x, y, v = placed_alike()
    wide = jax.device_put(jnp.concatenate([x, x]), split_rows())
    programs: list[tuple[Callable[..., Any], tuple[Array, ...]]] = [
        (product, (x, y, v)),
        (jax.grad(squares, (0, 1, 2)), (x, y, v)),
        (contrast, (wide, y)),
        (jax.grad(contrast, (0, 1)), (wide, y)),
    ]
    for function, arguments in programs:
        plain, wanted = peak_bytes(function, *arguments), jax.jit(function)(*arguments)
        fit = Calls.asked(function, plain // 3, {}).fit(arguments, {})
        assert fit.attempts, "the program as written is not larger than the budget"
        assert fit.result.nbytes <= plain // 3
        got = memsafe(function, plain // 3)(*arguments)
        for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            close(one, other)


def ahead_of_time_arguments_lie_where_they_say() -> None:
    arguments = placed_alike()
    plain = peak_bytes(product, *arguments)
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for x in arguments]
    for given in (arguments, shapes):
        compiled = memsafe(product, plain // 3).lower(*given).compile()
        taken = compiled.memory_analysis()
        assert taken.temp_size_in_bytes + taken.argument_size_in_bytes <= plain // 3
        close(compiled(*arguments), jax.jit(product)(*arguments))
    explicit = placed(AxisType.Explicit)
    compiled = memsafe(product, 100_000).lower(*explicit).compile()
    assert compiled.memory_analysis().temp_size_in_bytes <= 100_000 < peak_bytes(product, *placed())
    close(compiled(*explicit), product(*arrays()))
    fit = Calls.asked(product, plain // 3, {}).fit(tuple(shapes), {})
    assert fit.result.nbytes <= plain // 3


def another_device_than_the_first_is_planned_for() -> None:
    last = jax.devices()[-1]
    arguments = tuple(jax.device_put(each, last) for each in arrays())
    result = memsafe(product, 300_000)(*arguments)
    assert result.devices() == {last}
    close(result, product(*arrays()))


def what_is_committed_says_where_it_runs() -> None:
    x, y, v = arrays()
    last = jax.devices()[-1]
    for budget in (10_000_000, 300_000):
        result = memsafe(product, budget)(x, y, jax.device_put(v, last))
        assert result.devices() == {last}, result.devices()
        close(result, product(*arrays()))


def arrays_in_a_closure_lie_anywhere() -> None:
    x, y, v = arrays()
    first, *_, last = jax.devices()
    here, divided = (jax.device_put(v, place) for place in (first, split_rows()))
    for weights in (v, here, np.asarray(v), divided):
        for place in (last, *(NamedSharding(mesh(kind), PartitionSpec()) for kind in AXES)):
            if weights is divided and place is not last and place.mesh != mesh():
                continue  # JAX cannot compute with arrays of both kinds of axes either.
            given = jax.device_put((x, y), place)
            within = memsafe(lambda x, y, v=weights: product(x, y, v), 500_000)
            for _ in range(2):
                result = within(*given)
                assert result.sharding.device_set == given[0].sharding.device_set
                close(result, product(*arrays()))
            close(within.lower(*given).compile()(*given), result)
    both = memsafe(lambda x: product(x, jax.device_put(y, last), here), 500_000)
    close(both(x), product(*arrays()))


def an_array_in_a_closure_may_lie_on_the_devices_in_another_order() -> None:
    there = Mesh(np.array(jax.devices()[::-1]), ("data",))
    _, y, v = placed()
    held = jax.device_put(y, NamedSharding(there, PartitionSpec("data")))
    result = memsafe(lambda v: v @ held, 10**9)(v)
    close(result, v @ y)
    assert result.sharding == jax.jit(lambda v: v @ held)(v).sharding


def arrays_in_a_closure_are_moved_once() -> None:
    x, y, v = placed()
    whole = jax.device_put(v, jax.devices()[0])
    within = memsafe(lambda x, y: product(x, y, whole), 500_000)
    within(x, y)
    with jax.transfer_guard("disallow_explicit"):
        within(x, y)


def the_default_device_is_asked_at_every_call() -> None:
    given, within = arrays(), memsafe(product, 300_000)
    for device in (*jax.devices()[:2], None):
        with jax.default_device(device):
            result = within(*given)
        assert result.devices() == {device or jax.devices()[0]}, device
        close(result, product(*given))


def layers(weights: list[Array], x: Array) -> Array:
    for each in weights:
        x = jnp.tanh(x @ each)
    return (x**2).mean()


def gradients_lie_where_those_of_the_program_as_written_do() -> None:
    grid = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    numbers = np.random.default_rng(0)
    weights = [
        jax.device_put(
            jnp.asarray(numbers.standard_normal((64, 64)) / 8, jnp.float32),
            NamedSharding(grid, PartitionSpec(None, "b")),
        )
        for _ in range(6)
    ]
    x = jnp.asarray(numbers.standard_normal((2048, 64)), jnp.float32)
    for axes in (PartitionSpec("a"), PartitionSpec()):
        arguments = weights, jax.device_put(x, NamedSharding(grid, axes))
        gradient = jax.grad(layers)
        budget = int(0.6 * peak_bytes(gradient, *arguments))
        wanted = jax.jit(gradient)(*arguments)
        compiled = memsafe(gradient, budget).lower(*arguments).compile()
        for got in (memsafe(gradient, budget)(*arguments), compiled(*arguments)):
            for one, other in zip(got, wanted, strict=True):
                close(one, other)
                assert one.sharding.is_equivalent_to(other.sharding, 2), one.sharding


def shapes_on_explicit_axes_are_planned_as_arrays() -> None:
    arguments = placed(AxisType.Explicit)
    budget = peak_bytes(product, *placed()) // 2
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for x in arguments]
    within = memsafe(product, budget)
    compiled = within.lower(*shapes).compile()
    assert compiled.memory_analysis().temp_size_in_bytes <= budget
    for got in (compiled(*arguments), within(*arguments)):
        close(got, product(*arrays()))
        assert got.sharding.spec == split_rows().spec, got.sharding
    one, other, last = arguments[0], *shapes[1:]
    assert within.lower(one, other, last).out_info.sharding.spec == split_rows().spec


def arrays_that_a_program_holds_are_used_on_all_axes() -> None:
    for kind in AXES:
        arguments = placed(kind)
        within = memsafe(product, peak_bytes(product, *placed()) // 2)
        with jax.set_mesh(mesh(kind)):  # `jax.jit` requires a mesh for explicit axes.
            found = jax.jit(lambda: within(*arguments))()  # noqa: B023 — called here
        close(found, product(*arrays()))


def arrays_on_explicit_axes_are_not_copied() -> None:
    def buffers(x: Array) -> list[int]:
        return [shard.data.unsafe_buffer_pointer() for shard in x.addressable_shards]

    x = jax.device_put(jnp.arange(4096.0), split_rows(AxisType.Explicit))
    before = buffers(x)
    result = memsafe(lambda x: 2 * x + 1, 10_000_000, donate_argnums=0)(x)
    assert x.is_deleted()
    assert buffers(result) == before
    assert result.sharding == split_rows(AxisType.Explicit)
    close(result, 2 * jnp.arange(4096.0) + 1)


def sums_along_a_divided_dimension_are_added_over_devices() -> None:
    grid = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    place = NamedSharding(grid, PartitionSpec("a", "b"))
    wide = [jax.random.normal(jax.random.key(at), (1024, 8)) for at in range(2)]

    def pairs(x: Array, y: Array) -> Array:
        return jnp.exp(-((x[:, None] - y[None]) ** 2).sum(-1)) @ y

    def placed_inside(x: Array, y: Array) -> Array:
        x, y = (lax.with_sharding_constraint(jnp.tanh(each), place) for each in (x, y))
        return pairs(x, y)

    wanted = pairs(*wide), pairs(*map(jnp.tanh, wide))
    for function, where, value in zip(
        (pairs, placed_inside), (place, split_rows()), wanted, strict=True
    ):
        given = [jax.device_put(each, where) for each in wide]
        budget = peak_bytes(function, *given) // 2
        np.testing.assert_allclose(memsafe(function, budget)(*given), value, rtol=1e-4, atol=1e-3)


def sums_over_devices(text: str) -> tuple[int, int]:
    """Numbers of all-reduces of a compiled program: in its entry, and elsewhere (in its loops)."""
    before, entry = text.split("\nENTRY ")
    return entry.count(" all-reduce("), before.count(" all-reduce(")


def a_batch_over_devices_is_computed_in_slices_of_each_device() -> None:
    numbers = np.random.default_rng(0)
    host = [numbers.standard_normal((128, 128)).astype(np.float32) / 11 for _ in range(12)]
    rows = numbers.standard_normal((8192, 128)).astype(np.float32)
    gradient = jax.grad(layers)
    for kind in AXES:
        whole = NamedSharding(mesh(kind), PartitionSpec())
        arguments = jax.device_put(host, whole), jax.device_put(rows, split_rows(kind))
        wanted = jax.jit(gradient)(*arguments)
        fixed = sum(each.nbytes for each in (*host, *wanted)) + rows.nbytes // DEVICES
        budget = fixed + (peak_bytes(gradient, *arguments) - fixed) // 4
        compiled = memsafe(gradient, budget).lower(*arguments).compile()
        for one, other in zip(compiled(*arguments), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-8)
            assert one.sharding.is_equivalent_to(other.sharding, 2), one.sharding
        text = compiled.as_text()
        assert " while(" in text
        with redirect_stdout(StringIO()) as told:
            explain(gradient, budget)(*arguments)
        assert "of each of 4 devices)" in told.getvalue(), told.getvalue()
        assert sums_over_devices(text) == (1, 0), text


def constraints_in_a_loop_over_layers_let_the_batch_be_sliced() -> None:
    place = NamedSharding(mesh(), PartitionSpec("data", None))

    def step(x: Array, w: Array) -> tuple[Array, None]:
        x = lax.with_sharding_constraint(x + jnp.tanh(x @ w[0]) @ w[1], place)
        return x, None

    def loss(weights: Array, x: Array) -> Array:
        return (lax.scan(step, x, weights)[0] ** 2).mean()

    numbers = np.random.default_rng(0)
    weights = jnp.asarray(numbers.standard_normal((8, 2, 64, 64)) / 16, jnp.float32)
    x = jnp.asarray(numbers.standard_normal((8192, 64)), jnp.float32)
    whole = NamedSharding(mesh(), PartitionSpec())
    arguments = jax.device_put(weights, whole), jax.device_put(x, split_rows())
    gradient = jax.grad(loss)
    budget = peak_bytes(gradient, *arguments) // 4
    compiled = memsafe(gradient, budget).lower(*arguments).compile()
    np.testing.assert_allclose(
        compiled(*arguments), jax.jit(gradient)(*arguments), rtol=1e-4, atol=1e-8
    )
    text = compiled.as_text()
    assert sums_over_devices(text) == (1, 0), text


def a_language_model_whose_table_lies_as_its_tokens_do_is_sliced() -> None:
    """FSDP without a constraint: table, weights and tokens over the same devices."""
    vocabulary, width = 4096, 64

    def loss(weights: tuple[Array, ...], tokens: Array) -> Array:
        table, *layers = weights
        x = table[tokens]
        for each in layers:
            scores = jax.nn.softmax(x @ each @ x.swapaxes(1, 2))
            x = x + jnp.tanh(scores @ x @ each)
        logits = x @ table.T
        found = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1)
        return -found.mean()

    numbers = np.random.default_rng(0)
    shapes = ((vocabulary, width), *(((width, width),) * 4))
    host = [numbers.standard_normal(each).astype(np.float32) / 16 for each in shapes]
    tokens = numbers.integers(0, vocabulary, (32, 128)).astype(np.int32)
    arguments = jax.device_put((tuple(host), tokens), split_rows())
    gradient = jax.grad(loss)
    budget = peak_bytes(gradient, *arguments) // 6
    with redirect_stdout(StringIO()) as told:
        explain(gradient, budget)(*arguments)
    over_batch = [each for each in told.getvalue().splitlines() if "loop over 32 in " in each]
    assert over_batch, told.getvalue()
    assert all("of each of 4 devices)" in each for each in over_batch), over_batch
    wanted = jax.jit(gradient)(*arguments)
    for one, other in zip(memsafe(gradient, budget)(*arguments), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


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
        all_pairs_of_sides_over_the_same_devices_are_split,
        ahead_of_time_arguments_lie_where_they_say,
        another_device_than_the_first_is_planned_for,
        what_is_committed_says_where_it_runs,
        arrays_in_a_closure_lie_anywhere,
        an_array_in_a_closure_may_lie_on_the_devices_in_another_order,
        arrays_in_a_closure_are_moved_once,
        the_default_device_is_asked_at_every_call,
        gradients_lie_where_those_of_the_program_as_written_do,
        shapes_on_explicit_axes_are_planned_as_arrays,
        arrays_that_a_program_holds_are_used_on_all_axes,
        arrays_on_explicit_axes_are_not_copied,
        sums_along_a_divided_dimension_are_added_over_devices,
        a_batch_over_devices_is_computed_in_slices_of_each_device,
        constraints_in_a_loop_over_layers_let_the_batch_be_sliced,
        a_language_model_whose_table_lies_as_its_tokens_do_is_sliced,
    )
}


def report(claims: Mapping[str, Callable[[], None]]) -> None:
    """Prints JSON: for each claim its traceback, or an empty text if the claim holds."""
    jax.config.update("jax_num_cpu_devices", DEVICES)
    found = {}
    for name, claim in claims.items():
        try:
            claim()
            found[name] = ""
        except Exception:  # noqa: BLE001 - whatever is wrong, the test of this claim says so.
            found[name] = traceback.format_exc(limit=-8)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    report(CLAIMS)
