"""``benchmarks.peers``: what is counted, what passes beside a peer, and what does not."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from benchmarks.peers import autochunk, inference, jax_networks, training
from benchmarks.peers.autochunk import longest
from benchmarks.peers.fitted import Compiled
from benchmarks.peers.products import products_of
from benchmarks.peers.sizes import NETWORKS
from benchmarks.peers.training import cheapest, is_on_or_below

SQUARE = jax.ShapeDtypeStruct((8, 8), jnp.float32)
ONE = 2.0 * 8**3
"""The operations of one product of two of them."""


def _loss(x: Any) -> Any:
    return jnp.sum(jnp.tanh(x @ x) @ x)


def _looped(x: Any) -> Any:
    return lax.fori_loop(0, 5, lambda _, y: jnp.tanh(y @ x), x)


def _convolved(kernel: Any, image: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    found = lax.conv_general_dilated(image, kernel, (2, 2), "SAME", dimension_numbers=numbers)
    return jnp.sum(found**2)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        pytest.param(jnp.tanh, 0, id="no product"),
        pytest.param(_loss, 2, id="two products"),
        pytest.param(jax.grad(_loss), 6, id="a gradient"),
        pytest.param(jax.jit(_looped), 5, id="the steps of a loop"),
        pytest.param(lambda x: lax.cond(x[0, 0] > 0, _looped, jnp.tanh, x), 5, id="a branch"),
    ],
)
def test_products_are_counted(function: Any, count: int) -> None:
    assert products_of(function, SQUARE) == count * ONE


def test_a_strided_gradient_counts_as_three_convolutions() -> None:
    kernel, image = np.ones((3, 3, 4, 6), np.float32), np.ones((2, 8, 8, 4), np.float32)
    once = products_of(_convolved, kernel, image)
    assert once == 2 * (2 * 4 * 4 * 6) * (3 * 3 * 4)
    assert products_of(jax.grad(_convolved, (0, 1)), kernel, image) == 3 * once


@pytest.mark.parametrize("name", [*NETWORKS, *inference.NETWORKS])
def test_every_network_gives_floats(name: str) -> None:
    if name in NETWORKS:
        function: Any = jax_networks.LOSSES[name]
        arguments = jax_networks.arguments(NETWORKS[name]())
    else:
        function, arguments = inference.NETWORKS[name].run, inference.NETWORKS[name].arguments(64)
    found = jax.tree.leaves(jax.eval_shape(function, *arguments))
    assert {leaf.dtype for leaf in found} == {jnp.dtype("float32")}


def _point(temp_bytes: float, products: float) -> Compiled:
    return Compiled(temp_bytes=temp_bytes, nbytes=temp_bytes, products=products)


def test_the_cheapest_plan_within_the_bytes_is_compared() -> None:
    small, fast, large = _point(10, 1.2), _point(20, 1.1), _point(40, 1.0)
    assert cheapest([small, fast, large], 30) is fast
    assert cheapest([large], 30) is None


PEER = {"live_bytes": 30.0, "products": 1.1}


def test_as_many_bytes_and_products_as_the_peer_pass() -> None:
    assert is_on_or_below(_point(30, 1.1), PEER)


@pytest.mark.parametrize("best", [_point(31, 1.1), _point(30, 1.2), None])
def test_more_bytes_or_products_than_the_peer_fail(best: Compiled | None) -> None:
    assert not is_on_or_below(best, PEER)


@pytest.mark.parametrize(
    ("text", "only", "words"),
    [
        (None, "", "No such file"),
        ("{}", "", "curves"),
        ("nothing", "", "Expecting value"),
        ('{"curves": {}}', "absent", "wanted a part of one of MLP"),
    ],
)
def test_curves_that_cannot_be_read_are_misuse(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str | None,
    only: str,
    words: str,
) -> None:
    curves = tmp_path / "curves.json"
    if text is not None:
        curves.write_text(text)
    monkeypatch.setattr("sys.argv", ["training", str(curves), "--only", only])
    assert training.main() == 2
    assert words in " ".join(capsys.readouterr().out.split())


def test_a_network_that_there_is_not_is_misuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["autochunk", "--only", "absent"])
    assert autochunk.main() == 2


@pytest.mark.parametrize(
    ("limit", "most", "found"),
    [(63, 1_000, 0), (64, 1_000, 64), (100, 1_000, 88), (300, 1_000, 256), (300, 128, 128)],
)
def test_the_longest_is_within_a_quarter_doubling(limit: int, most: int, found: int) -> None:
    assert longest(lambda length: length <= limit, 64, most) == found
