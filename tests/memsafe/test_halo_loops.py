"""Loops over slices of one large image or volume, through chains of stencils."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.extend.core import JaxprEqn

from memsafe import BudgetError, explain, graph, memsafe, rules, slice_body
from memsafe.factors import Axis, Factor
from memsafe.function import Calls
from memsafe.programs import flattened
from memsafe.rewrites import computed_in_blocks
from memsafe.rewrites.cuts import Cut

from .budgets import assert_same, peak_bytes

pytestmark = pytest.mark.usefixtures("doubles")

Function = Callable[..., Any]


def normal(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape) / 2


def convolved(image: Array, kernel: Array, stride: int = 1, padding: str = "SAME") -> Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    (found,) = lax.conv_general_dilated(
        image[None], kernel, (stride, 1), padding, dimension_numbers=numbers
    )
    return found


def network(kernels: list[Array], image: Array) -> Array:
    for kernel in kernels[:-1]:
        image = jnp.tanh(convolved(image, kernel))
    return jnp.sum(convolved(image, kernels[-1]) ** 2)


def strided(kernels: list[Array], image: Array) -> Array:
    """Every second convolution halves the rows; a maximum of windows follows the last one."""
    for at, kernel in enumerate(kernels):
        image = jax.nn.relu(convolved(image, kernel, 1 + at % 2))
    pooled = lax.reduce_window(image, -jnp.inf, lax.max, (2, 2, 1), (2, 2, 1), "SAME")
    return jnp.sum(jnp.sin(pooled))


def heat(field: Array) -> Array:
    for _ in range(2):
        moved = sum(jnp.roll(field, shift, dim) for dim in range(3) for shift in (1, -1))
        field = field + 0.1 * jnp.tanh(moved - 6 * field)
    return jnp.sum(field**2)


def bounded(field: Array) -> Array:
    """Steps of diffusion with zeros at the border, written as shifted slices."""
    for _ in range(3):
        inner = field[1:-1, 1:-1]
        moved = field[2:, 1:-1] + field[:-2, 1:-1] + field[1:-1, 2:] + field[1:-1, :-2]
        field = jnp.pad(inner + 0.1 * jnp.tanh(moved - 4 * inner), 1)
    return field


def squared(field: Array) -> Array:
    return jnp.sum(bounded(field) ** 2)


def padded(kernels: list[Array], image: Array) -> Array:
    """The network with explicit padding, whose derivative crops."""
    for kernel in kernels:
        around = jnp.pad(image, ((1, 1), (1, 1), (0, 0)))
        image = jnp.tanh(convolved(around, kernel, padding="VALID"))
    return jnp.sum(image**2)


def waves(field: Array, speed: Array) -> tuple[Array, Array]:
    """Steps that are predicted to fuse into one; XLA for CPUs stores two of their values."""
    for _ in range(4):
        around = jnp.pad(field, 1)
        moved = around[2:, 1:-1] + around[:-2, 1:-1] + around[1:-1, 2:] + around[1:-1, :-2]
        speed = speed + 0.1 * (moved - 4 * field) - 0.01 * jnp.sin(field)
        field = field + 0.1 * speed
    return field, speed


KERNELS = [normal(3, 3, 2, 2).astype(np.float32) for _ in range(4)]
"""Single precision, because XLA of jax 0.12 for CPUs computes small convolutions of doubles without
a library. With doubles, the network would keep only two images."""

IMAGE = KERNELS, normal(96, 90, 2).astype(np.float32)
VOLUME, FIELD = (normal(32, 31, 30),), (normal(128, 120),)
PROGRAMS: dict[str, tuple[Function, Any, float]] = {
    "network": (network, IMAGE, 1 / 8),
    "heat": (heat, VOLUME, 1 / 4),
    "bounded": (bounded, FIELD, 1 / 2),
    "waves": (waves, FIELD * 2, 3 / 4),
    "gradient of padded": (jax.grad(padded), IMAGE, 1 / 8),
    "gradient of network": (jax.value_and_grad(network), IMAGE, 1 / 4),
    "gradient of strided": (jax.grad(strided), IMAGE, 1 / 2),
    "gradient of heat": (jax.grad(heat), VOLUME, 1 / 4),
    "gradient of bounded": (jax.grad(squared), FIELD, 1 / 4),
}
"""Function, arguments, and the share of the memory (without arguments) that must suffice."""

SLOW = [name for name in PROGRAMS if name.startswith("gradient")]


def budget_of(name: str) -> int:
    function, given, share = PROGRAMS[name]
    arguments = sum(each.nbytes for each in jax.tree.leaves(given))
    return arguments + int(share * (peak_bytes(function, *given) - arguments))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.exhaustive] if n in SLOW else []) for n in PROGRAMS],
)
def test_a_chain_of_stencils_fits_its_share(name: str) -> None:
    function, given, _ = PROGRAMS[name]
    safe = memsafe(function, budget_of(name))
    assert_same(safe(*given), jax.jit(function)(*given), tolerance_of(given))


def tolerance_of(given: Any) -> float:
    """Tolerance for results that are computed in the precision of the arguments."""
    types = {each.dtype for each in jax.tree.leaves(given)}
    return 1e-9 if types == {np.dtype(np.float64)} else 1e-5


def moved_by_one(name: str) -> Callable[[JaxprEqn], tuple[Factor, ...]]:
    """The factors of a primitive, with each halo moved by one element."""
    right = rules.RULES[name]

    def moved(axis: Axis | None) -> Axis | None:
        return axis and (
            axis._replace(before=axis.before - 1, after=axis.after + 1) if axis.has_halo else axis
        )

    def factors(equation: JaxprEqn) -> tuple[Factor, ...]:
        found = right.factors(equation)
        return tuple(replace(each, operands=tuple(map(moved, each.operands))) for each in found)

    return factors


@pytest.mark.parametrize(
    ("name", "primitive"),
    [("network", "conv_general_dilated"), ("heat", "roll"), ("bounded", "slice")],
)
def test_the_control_a_halo_that_is_off_by_one_gives_other_values(
    monkeypatch: pytest.MonkeyPatch, name: str, primitive: str
) -> None:
    function, given, _ = PROGRAMS[name]
    wrong = replace(rules.RULES[primitive], factors=moved_by_one(primitive))
    monkeypatch.setattr(rules, "RULES", {**rules.RULES, primitive: wrong})
    safe = memsafe(function, budget_of(name))
    with pytest.raises(AssertionError):
        assert_same(safe(*given), jax.jit(function)(*given), tolerance_of(given))


@pytest.mark.exhaustive
def test_the_control_without_halos_the_network_does_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graph, "has_halos", lambda _: False)
    with pytest.raises(BudgetError, match="cannot be split along dimension"):
        memsafe(network, budget_of("network"))(*IMAGE)


def test_slices_are_as_long_as_fits_where_the_compiler_keeps_what_seemed_fused() -> None:
    """Slices of one row, each with eight rows around it, took 4.1 times the operations."""
    fit = Calls.asked(waves, budget_of("waves"), {}).fit(FIELD * 2, {})
    assert fit.attempts > 1
    assert 1.0 < fit.operations < 1.5


def test_a_border_is_followed_with_a_halo_and_not_computed_in_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flat = flattened(jax.make_jaxpr(jax.grad(padded))(*IMAGE))
    assert not computed_in_blocks(flat).notes
    monkeypatch.setattr(Cut, "is_at_an_end", False)
    in_blocks = computed_in_blocks(flat)
    assert all("in 3 blocks" in note for note in in_blocks.notes)
    assert in_blocks.notes
    assert "jit" not in {each.primitive.name for each in in_blocks.program.jaxpr.eqns}


def test_what_halos_repeat_is_in_the_operations(capsys: pytest.CaptureFixture[str]) -> None:
    explain(network, budget_of("network"))(*IMAGE)
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "operations" in each]
    assert 1.0 < float(line.split()[0]) < 2.5


def operations_of_a_slice() -> float:
    """XLA's count of operations: a loop's body once, a value in each reader that computes it."""
    safe = memsafe(jax.grad(heat), tensor_size_threshold="16kB", tensor_split_size="32kB")
    return float(safe.lower(*VOLUME).compile().cost_analysis()["flops"])


def test_what_a_slice_reads_at_several_shifts_is_computed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    once = operations_of_a_slice()
    monkeypatch.setattr(slice_body, "stored", lambda value, **_: value)
    assert 1.5 * once < operations_of_a_slice()
