"""Claims about memsafe in `shard_map` on four devices: ``python -m`` this file prints faults."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import pytest
from jax import Array, lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from memsafe import BudgetError, memsafe
from memsafe.measure import mesh_of
from tests.memsafe.on_four_devices import (
    DEVICES,
    OTHERS,
    arrays,
    close,
    mesh,
    peak_bytes,
    product,
    report,
    squares,
)


def summed_over(x: Array, y: Array, v: Array) -> Array:
    """The product where each device has a part of `y` and `v`."""
    return lax.psum(product(x, y, v), "data")


def _mapped(
    local: Callable[..., Any], in_specs: Any, out_specs: Any, *, check_vma: bool = True
) -> Callable[..., Any]:
    return jax.shard_map(
        local, mesh=mesh(), in_specs=in_specs, out_specs=out_specs, check_vma=check_vma
    )


ACROSS: Final = ((PartitionSpec(), PartitionSpec("data"), PartitionSpec("data")), PartitionSpec())
ALONG: Final = ((PartitionSpec("data"), PartitionSpec(), PartitionSpec()), PartitionSpec("data"))
ALONG_ROWS: Final = PartitionSpec("data", None)


def what_each_device_does_is_split() -> None:
    mapped = _mapped(summed_over, *ACROSS)
    budget = peak_bytes(mapped, *arrays()) * 2 // 3
    within = memsafe(mapped, budget)
    close(within(*arrays()), product(*arrays()))
    assert peak_bytes(within, *arrays()) <= budget


def a_device_s_part_is_split() -> None:
    plain = peak_bytes(_mapped(product, *ALONG), *arrays())
    within = _mapped(memsafe(product, plain // 2), *ALONG)
    close(within(*arrays()), product(*arrays()))
    assert peak_bytes(within, *arrays()) <= plain // 2


def a_part_of_pmap_is_split() -> None:
    x, y, v = arrays()
    parts = x.reshape(DEVICES, -1, *x.shape[1:])
    plain = jax.pmap(product, in_axes=(0, None, None))
    budget = peak_bytes(product, parts[0], y, v) // 2
    within = jax.pmap(memsafe(product, budget), in_axes=(0, None, None))
    close(within(parts, y, v), plain(parts, y, v))


def refusal(call: Callable[[], Any]) -> BudgetError | None:
    try:
        call()
    except BudgetError as error:
        return error
    return None


def gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    return jax.grad(lambda x, y, v: jnp.sum(jnp.tanh(f(x, y, v)) ** 2), (0, 1, 2))


def tangent(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y, v: jax.jvp(lambda x: f(x, y, v), (x,), (x,))


def a_budget_that_no_plan_keeps_is_refused() -> None:
    """Each transform refuses the budget; the smallest need reported is at most that as written."""
    plain = _mapped(summed_over, *ACROSS)
    for check_vma in (True, False):
        within = _mapped(memsafe(summed_over, 5_000), *ACROSS, check_vma=check_vma)
        calls: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
            (within, plain),
            (jax.jit(within), plain),
            (jax.jit(gradient(within)), gradient(plain)),
            (jax.jit(tangent(within)), tangent(plain)),
        ]
        for call, written in calls:
            refused = refusal(lambda call=call: call(*arrays()))  # type: ignore[misc]
            assert refused is not None, "no plan was refused"
            most = peak_bytes(written, *arrays())
            assert most >= refused.smallest > refused.budget == 5_000


def a_derivative_through_shard_map_keeps_the_budget() -> None:
    """It once took 1.4 times the memory that it takes without memsafe, and no error was raised."""
    for transform, check_vma in ((gradient, True), (gradient, False), (tangent, True)):
        plain = transform(_mapped(summed_over, *ACROSS, check_vma=check_vma))
        most = peak_bytes(plain, *arrays())
        safe = memsafe(summed_over, most // 4)
        within = transform(_mapped(safe, *ACROSS, check_vma=check_vma))
        taken = peak_bytes(within, *arrays())
        assert taken <= most // 3, (transform.__name__, taken, most)
        got, wanted = jax.jit(within)(*arrays()), jax.jit(plain)(*arrays())
        for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            close(one, other)


def some_axes_may_be_left_to_the_compiler() -> None:
    both = jax.make_mesh((2, 2), ("data", "e"), axis_types=(AxisType.Auto,) * 2)

    def mapped(local: Callable[..., Any]) -> Callable[..., Any]:
        in_specs, out_specs = ACROSS
        found: Callable[..., Any] = jax.shard_map(
            local, mesh=both, in_specs=in_specs, out_specs=out_specs, axis_names={"data"}
        )
        return found

    _is_split(mapped)


def a_map_may_be_inside_another() -> None:
    both = jax.make_mesh((2, 2), ("data", "e"), axis_types=(AxisType.Auto,) * 2)
    by_e = PartitionSpec("e")

    def mapped(local: Callable[..., Any]) -> Callable[..., Any]:
        in_specs, out_specs = ACROSS
        inner = jax.shard_map(local, in_specs=in_specs, out_specs=out_specs, axis_names={"data"})
        whole = PartitionSpec()
        found: Callable[..., Any] = jax.shard_map(
            inner, mesh=both, in_specs=(by_e, whole, whole), out_specs=by_e, axis_names={"e"}
        )
        return found

    _is_split(mapped)


def an_abstract_mesh_is_one_of_the_devices_at_hand() -> None:
    in_specs, out_specs = ACROSS
    abstract = mesh().abstract_mesh

    def mapped(local: Callable[..., Any]) -> Callable[..., Any]:
        inner = jax.shard_map(local, mesh=abstract, in_specs=in_specs, out_specs=out_specs)

        def whole(x: Array, y: Array, v: Array) -> Any:
            return inner(lax.with_sharding_constraint(x, NamedSharding(mesh(), in_specs[0])), y, v)

        return whole

    _is_split(mapped)


def a_mesh_of_more_devices_than_there_are_is_refused() -> None:
    refused = ""
    try:
        mesh_of(jax.sharding.AbstractMesh((2 * DEVICES,), ("data",)), jax.devices()[0])
    except ValueError as error:
        refused = str(error)
    assert refused.startswith(f"got a mesh of {2 * DEVICES} devices, and {DEVICES} like"), refused
    assert "do this: memsafe(f, device=" in refused


def a_loop_of_steps_is_differentiated_within_the_budget() -> None:
    def steps(local: Callable[..., Any]) -> Callable[..., Any]:
        def run(x: Array, y: Array, v: Array) -> Array:
            def step(x: Array, _: None) -> tuple[Array, None]:
                return x + 0.01 * jnp.tanh(local(x, y, v))[:, None], None

            return jnp.sum(lax.scan(step, x, None, length=3)[0] ** 2)

        return jax.grad(_mapped(run, ACROSS[0], PartitionSpec()))

    plain = steps(summed_over)
    most = peak_bytes(plain, *arrays())
    within = steps(memsafe(summed_over, most // 8))
    assert peak_bytes(within, *arrays()) <= most // 4
    close(within(*arrays()), plain(*arrays()))


def _is_split(mapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    plain = mapped(summed_over)
    most = peak_bytes(plain, *arrays())
    within = mapped(memsafe(summed_over, most // 3))
    assert peak_bytes(within, *arrays()) <= most // 3
    close(jax.jit(within)(*arrays()), jax.jit(plain)(*arrays()))


def sums_over_devices_stay() -> None:
    plain = peak_bytes(_mapped(summed_over, *ACROSS), *arrays())
    within = _mapped(memsafe(summed_over, plain // 2), *ACROSS)
    close(within(*arrays()), product(*arrays()))
    assert peak_bytes(within, *arrays()) <= plain // 2


def gradients_are_right() -> None:
    def loss(by: Callable[..., Any], x: Array, y: Array, v: Array) -> Array:
        return jnp.sum(jnp.tanh(by(x, y, v)) ** 2)

    within = _mapped(memsafe(summed_over, 150_000), *ACROSS)
    got = jax.grad(partial(loss, within), (0, 1, 2))(*arrays())
    wanted = jax.grad(partial(loss, product), (0, 1, 2))(*arrays())
    for one, other in zip(got, wanted, strict=True):
        close(one, other)


def a_gradient_is_split() -> None:
    for check_vma in (True, False):
        mapped = partial(_mapped, in_specs=ALONG[0], out_specs=ALONG_ROWS, check_vma=check_vma)
        plain = peak_bytes(mapped(jax.grad(squares)), *arrays())
        within = mapped(memsafe(jax.grad(squares), plain // 4))
        close(within(*arrays()), jax.grad(squares)(*arrays()))
        assert peak_bytes(within, *arrays()) <= plain // 3


def a_slice_may_start_where_its_device_says() -> None:
    def local(x: Array, y: Array, v: Array, start: Array) -> Array:
        near = jnp.exp(-((x[:, None] - y[None, :]) ** 2).sum(-1))
        part = lax.dynamic_slice(near, (0, start[0]), (len(x), OTHERS // 2))
        return jnp.tanh(near) @ v + part.sum(1)

    arguments = (*arrays(), 3 * jnp.arange(DEVICES))
    in_specs, out_specs = ALONG
    specs = (*in_specs, PartitionSpec("data")), out_specs
    plain = _mapped(local, *specs)
    budget = peak_bytes(plain, *arguments) // 2
    within = _mapped(memsafe(local, budget), *specs)
    close(within(*arguments), jax.jit(plain)(*arguments))
    assert peak_bytes(within, *arguments) <= budget


def a_loop_that_ends_earlier_on_some_devices_is_differentiated() -> None:
    """A sum over devices inside such a loop would wait for ever, so memsafe refuses it."""

    def root(a: Array, factor: Array) -> Array:
        def going(state: tuple[Any, Array]) -> Array:
            return (state[0] < 40) & (jnp.abs(state[1] ** 2 - a) > 1e-5 * a).any()

        def step(state: tuple[Any, Array]) -> tuple[Any, Array]:
            return state[0] + 1, (state[1] + a / state[1]) / 2 + factor * (a - state[1] ** 2)

        return lax.while_loop(going, step, (0, 1 + a))[1]

    def varying(a: Array, factor: Array) -> Array:
        return root(a, lax.pcast(factor, "data", to="varying"))

    specs = (PartitionSpec("data"), PartitionSpec()), PartitionSpec("data")
    a, factor = 10.0 ** jnp.arange(-DEVICES, DEVICES).astype(float), jnp.asarray(0.01)

    def gradients(local: Callable[..., Array], *, check_vma: bool = True) -> Any:
        mapped = _mapped(memsafe(local, "1GB"), *specs, check_vma=check_vma)
        return jax.grad(lambda *arguments: mapped(*arguments).sum(), (0, 1))(a, factor)

    parts = [
        jax.grad(memsafe(lambda *each: root(*each).sum(), "1GB"), (0, 1))(part, factor)
        for part in a.reshape(DEVICES, -1)
    ]
    for found in (gradients(varying), gradients(root, check_vma=False)):
        close(found[0], jnp.concatenate([part[0] for part in parts]))
        close(found[1], sum(part[1] for part in parts))
    with pytest.raises(ValueError, match="ends earlier on some devices"):
        gradients(root)


def _inside_and_outside(
    local: Callable[..., Any],
    specs: tuple[Any, Any],
    arguments: tuple[Any, ...],
    share: float,
    checks: tuple[bool, ...] = (True, False),
) -> None:
    """Asserts that memsafe inside and around `shard_map` keeps a budget of `share` of the peak."""
    for check_vma in checks:
        mapped = partial(_mapped, in_specs=specs[0], out_specs=specs[1], check_vma=check_vma)
        plain = mapped(local)
        budget = int(share * peak_bytes(plain, *arguments))
        wanted = jax.jit(plain)(*arguments)
        for within in (mapped(memsafe(local, budget)), memsafe(mapped(local), budget)):
            assert peak_bytes(within, *arguments) <= budget
            got = jax.jit(within)(*arguments)
            for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
                close(one, other)


def numbers_are_drawn_in_slices() -> None:
    def dropped(key: Array, x: Array, y: Array, v: Array) -> Array:
        near = jnp.exp(-((x[:, None] - y[None, :]) ** 2).sum(-1))
        key = jax.random.fold_in(key, lax.axis_index("data"))
        return jnp.where(jax.random.bernoulli(key, 0.5, near.shape), near, 0) @ v

    specs = (PartitionSpec(), *ALONG[0]), ALONG[1]
    _inside_and_outside(dropped, specs, (jax.random.key(0), *arrays()), 0.5)


def largest_and_smallest_over_devices_are_taken_in_slices() -> None:
    def spread(x: Array, y: Array, v: Array) -> Array:
        near = jnp.exp(-((x[:, None] - y[None, :]) ** 2).sum(-1))
        return (lax.pmax(near, "data") - lax.pmin(near, "data")) @ v

    _inside_and_outside(spread, (ALONG[0], PartitionSpec()), arrays(), 0.4)


def a_loop_stands_inside_another() -> None:
    def attended(q: Array, k: Array) -> Array:
        length = len(q)
        at = lax.axis_index("data") * length + jnp.arange(length)
        scores = jnp.einsum("qhd,khd->hqk", q, k)
        scores = jnp.where(at[:, None] >= jnp.arange(len(k)), scores, -1e9)
        return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores), k)

    q = jax.random.normal(jax.random.key(0), (1024, 4, 8))
    specs = (PartitionSpec("data"), PartitionSpec()), PartitionSpec("data")
    _inside_and_outside(attended, specs, (q, q), 0.1)


def loops_whose_results_vary_and_those_that_do_not_follow_each_other() -> None:
    def both(x: Array, y: Array, v: Array) -> tuple[Array, Array]:
        return product(x, y, v), product(y, 2 * y, v)

    specs = ALONG[0], (PartitionSpec("data"), PartitionSpec())
    _inside_and_outside(both, specs, arrays(), 0.4)

    def steps(x: Array, y: Array, v: Array) -> tuple[Array, Array]:
        def step(v: Array, _: None) -> tuple[Array, Array]:
            made = product(x, y, v)
            return jnp.tanh(product(y, 1.5 * y, v)), made

        return lax.scan(step, v, None, length=3)

    _inside_and_outside(
        steps, (ALONG[0], (PartitionSpec(), PartitionSpec(None, "data"))), arrays(), 0.5
    )


def a_training_step_over_the_data_is_split_along_them() -> None:
    """Its layers are a `scan`, whose backward pass adds gradients over devices in every step."""

    def loss(weights: dict[str, Array], x: Array) -> Array:
        def layer(h: Array, own: dict[str, Array]) -> tuple[Array, None]:
            return jnp.tanh(h @ own["w"] + own["b"]) + h, None

        return lax.pmean(jnp.mean((lax.scan(layer, x, weights)[0] - 2 * x) ** 2), "data")

    def step(weights: dict[str, Array], x: Array) -> tuple[Array, dict[str, Array]]:
        value, slopes = jax.value_and_grad(loss)(weights, x)
        return value, jax.tree.map(lambda one, slope: one - 0.1 * slope, weights, slopes)

    weights = {
        "w": jax.random.normal(jax.random.key(0), (12, 32, 32)) / 6,
        "b": jnp.zeros((12, 32)),
    }
    specs = (PartitionSpec(), PartitionSpec("data")), (PartitionSpec(), PartitionSpec())
    x = jax.random.normal(jax.random.key(1), (4096, 32))
    for share in (0.33, 0.2):
        _inside_and_outside(step, specs, (weights, x), share, (True,))


def one_axis_may_be_mapped_where_the_others_are_explicit() -> None:
    both = jax.make_mesh((2, 2), ("data", "e"), axis_types=(AxisType.Explicit,) * 2)

    def local(x: Array, y: Array, v: Array) -> Array:
        return lax.psum(jnp.tanh(product(x, y, v)).sum(), "data") + x[:, 0]

    places = [NamedSharding(both, spec) for spec in ALONG[0]]
    given = [jax.device_put(each, place) for each, place in zip(arrays(), places, strict=True)]

    def mapped(function: Callable[..., Any]) -> Callable[..., Any]:
        found: Callable[..., Any] = jax.jit(
            jax.shard_map(
                function, mesh=both, in_specs=ALONG[0], out_specs=ALONG[1], axis_names={"data"}
            )
        )
        return found

    for budget in (10_000_000, 300_000):
        close(mapped(memsafe(local, budget))(*given), mapped(local)(*given))


CLAIMS: Final = {
    claim.__name__: claim
    for claim in (
        what_each_device_does_is_split,
        a_device_s_part_is_split,
        a_budget_that_no_plan_keeps_is_refused,
        a_derivative_through_shard_map_keeps_the_budget,
        some_axes_may_be_left_to_the_compiler,
        a_part_of_pmap_is_split,
        a_map_may_be_inside_another,
        an_abstract_mesh_is_one_of_the_devices_at_hand,
        a_mesh_of_more_devices_than_there_are_is_refused,
        a_loop_of_steps_is_differentiated_within_the_budget,
        sums_over_devices_stay,
        gradients_are_right,
        a_gradient_is_split,
        a_slice_may_start_where_its_device_says,
        a_loop_that_ends_earlier_on_some_devices_is_differentiated,
        numbers_are_drawn_in_slices,
        largest_and_smallest_over_devices_are_taken_in_slices,
        a_loop_stands_inside_another,
        loops_whose_results_vary_and_those_that_do_not_follow_each_other,
        a_training_step_over_the_data_is_split_along_them,
        one_axis_may_be_mapped_where_the_others_are_explicit,
    )
}

if __name__ == "__main__":
    report(CLAIMS)
