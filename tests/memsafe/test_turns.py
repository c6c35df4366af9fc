"""On a CPU, each convolution waits for the one before."""

import contextlib
import io
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from memsafe import explain, memsafe
from memsafe.device_model import CPU, GPU
from memsafe.graph import Graph
from memsafe.programs import flattened
from memsafe.turns import Turns, held_during

from .budgets import compiled_bytes, held_bytes, peak_bytes

NUMBERS = ("NHWC", "HWIO", "NHWC")


def normal(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32) / 4


def convolved(image: Array, kernel: Array) -> Array:
    return lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=NUMBERS)


def loss(kernels: list[Array], image: Array) -> Array:
    for kernel in kernels:
        image = jnp.tanh(convolved(image, kernel))
    return jnp.sum(image**2)


def in_a_scan(kernels: Array, image: Array) -> Array:
    """A scan whose steps have two convolutions each, which need not wait for one another."""

    def step(image: Array, kernel: Array) -> tuple[Array, None]:
        return jnp.tanh(convolved(image, kernel) + convolved(image[:, ::-1], kernel)), None

    return jnp.sum(lax.scan(step, image, kernels)[0] ** 2)


KERNELS, IMAGE = [normal(3, 3, 8, 8)] * 4, normal(4, 48, 48, 8)
STACKED = normal(3, 3, 3, 8, 8)
GRADIENT = jax.value_and_grad(loss)


def same(got: Any, wanted: Any) -> None:
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(one, other)


def graph_of(function: Callable[..., Any], *arguments: Any, model: Any = CPU) -> Graph:
    return Graph(flattened(jax.make_jaxpr(function)(*arguments)), model=model)


PROGRAMS = {
    "gradient": (GRADIENT, (KERNELS, IMAGE), 0.4),
    "scan": (in_a_scan, (STACKED, IMAGE), 0.7),
}
"""A program, its arguments, and a share of its memory that it fits if convolutions take turns."""


def budget_of(name: str) -> int:
    function, arguments, share = PROGRAMS[name]
    return int(share * peak_bytes(function, *arguments))


def explained(name: str) -> str:
    function, arguments, _ = PROGRAMS[name]
    with contextlib.redirect_stdout(io.StringIO()) as told:
        explain(function, budget_of(name), max_slowdown=100)(*arguments)
    return told.getvalue()


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_fit_in_turn_with_the_same_bits(name: str) -> None:
    function, arguments, _ = PROGRAMS[name]
    compiled = jax.jit(memsafe(function, budget_of(name))).lower(*arguments).compile()
    assert compiled_bytes(compiled) <= budget_of(name)
    same(compiled(*arguments), jax.jit(function)(*arguments))


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_told(name: str) -> None:
    told = explained(name)
    assert "convolutions one after another" in told
    assert "1.00 × the operations of the program" in told
    assert "loop over" not in told


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_control_if_none_waits_other_means_are_needed(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(Turns, "begun", lambda _, __, operands: [*operands])
    assert "convolutions one after another" not in explained(name)


def test_what_the_library_holds_is_predicted() -> None:
    largest = max(map(held_during, graph_of(GRADIENT, KERNELS, IMAGE).equations))
    alone = jax.jit(memsafe(GRADIENT, int(0.4 * peak_bytes(GRADIENT, KERNELS, IMAGE))))
    assert held_bytes(alone.lower(KERNELS, IMAGE).compile()) == largest


def test_a_gpu_computes_them_as_they_come() -> None:
    assert graph_of(GRADIENT, KERNELS, IMAGE).takes_turns
    assert not graph_of(GRADIENT, KERNELS, IMAGE, model=GPU).takes_turns
    assert not graph_of(convolved, IMAGE, KERNELS[0]).takes_turns  # It has only one.


@pytest.mark.parametrize(
    ("image", "kernel", "options"),
    [
        ((4, 24, 24, 8), (3, 3, 8, 16), {"padding": "VALID"}),
        ((4, 24, 24, 8), (5, 3, 8, 4), {"padding": "SAME", "window_strides": (2, 2)}),
        ((4, 24, 24, 8), (3, 3, 2, 8), {"padding": "SAME", "feature_group_count": 4}),
        ((4, 24, 24, 8), (3, 3, 8, 16), {"padding": "SAME", "rhs_dilation": (2, 2)}),
    ],
    ids=["plain", "strided", "groups", "dilated"],
)
def test_a_convolution_alone_holds_what_the_compiled_module_says(
    image: tuple[int, ...], kernel: tuple[int, ...], options: dict[str, Any]
) -> None:
    def alone(image: Array, kernel: Array) -> Array:
        given = {"window_strides": (1, 1), "dimension_numbers": NUMBERS, **options}
        return lax.conv_general_dilated(image, kernel, **given)

    arguments = normal(*image), normal(*kernel)
    (equation,) = graph_of(alone, *arguments).equations
    assert held_during(equation) == held_bytes(jax.jit(alone).lower(*arguments).compile()) > 0
