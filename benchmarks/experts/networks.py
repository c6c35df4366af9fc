"""Training steps of networks: the plain program, and ways of an expert to save memory."""

from functools import partial
from typing import Any

import jax  # noqa: TID251 — what is measured here is JAX itself.
import jax.numpy as jnp  # noqa: TID251
import numpy as np
from jax import lax  # noqa: TID251

from benchmarks.experts.by_hand import Wrap, by_policies, in_blocks, summed
from benchmarks.experts.points import BY_HAND
from suites.tensor_splitting.problems import Function, Problem, array, normal

Weights = dict[str, Any]


def _problem(plain: Function, ways: dict[str, Function], *arguments: Any) -> Problem:
    """A program on normal values; those of the weights (the first argument) are small."""

    def values() -> tuple[Any, ...]:
        generator = np.random.default_rng(0)
        weights, *others = arguments
        return normal(generator, weights, 0.1), *(normal(generator, each) for each in others)

    return Problem(plain=plain, ways=ways, arguments=arguments, values=values)


def _of_loss(loss: Function, ways: dict[str, Function], *arguments: Any) -> Problem:
    """The problem of a loss's value and its gradients by the first argument."""
    found = {name: jax.value_and_grad(way) for name, way in ways.items()}
    return _problem(jax.value_and_grad(loss), found, *arguments)


def _normalised(x: jax.Array) -> jax.Array:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-6)


def _heads(x: jax.Array, heads: int) -> jax.Array:
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(-2, -3)


def _block(weights: Weights, x: jax.Array, *, heads: int, causal: bool) -> Any:
    """A transformer layer on ``[batch, sequence, width]``."""
    of = jnp.split(_normalised(x) @ weights["qkv"], 3, axis=-1)
    q, k, v = (_heads(each, heads) for each in of)
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        place = jnp.arange(x.shape[1])
        scores = jnp.where(place <= place[:, None], scores, -1e9)
    made = (jax.nn.softmax(scores) @ v).swapaxes(-2, -3).reshape(x.shape)
    x = x + made @ weights["out"]
    return x + jax.nn.gelu(_normalised(x) @ weights["up"]) @ weights["down"]


def _layers(count: int, width: int) -> Weights:
    return {
        "qkv": array(count, width, 3 * width),
        "out": array(count, width, width),
        "up": array(count, width, 4 * width),
        "down": array(count, 4 * width, width),
    }


def gpt(layers: int, batch: int, sequence: int, width: int) -> Problem:
    """Decoder layers as a scan; by hand: each checkpoint policy, or one sequence at a time."""

    def loss(wrap: Wrap, weights: Weights, x: jax.Array) -> jax.Array:
        layer = wrap(lambda x, one: (_block(one, x, heads=8, causal=True), None))
        return jnp.mean(lax.scan(layer, x, weights)[0] ** 2)

    ways: dict[str, Function] = dict(by_policies(lambda wrap: partial(loss, wrap)))

    def accumulated(weights: Weights, x: jax.Array) -> Any:
        one = partial(loss, jax.checkpoint, weights)
        return summed(one, 1, x) / len(x)

    ways["accumulated"] = accumulated
    plain = partial(loss, lambda layer: layer)
    return _of_loss(plain, ways, _layers(layers, width), array(batch, sequence, width))


def vit(layers: int, batch: int, width: int, rows: int) -> Problem:
    """Layers of a vision transformer in a Python loop; by hand: ``rows`` images at a time."""

    def loss(weights: Weights, x: jax.Array) -> jax.Array:
        for at in range(layers):
            one = {name: each[at] for name, each in weights.items()}
            x = _block(one, x, heads=4, causal=False)
        return jnp.mean(x**2)

    def accumulated(weights: Weights, x: jax.Array) -> Any:
        return summed(partial(loss, weights), rows, x) * rows / len(x)

    weights = _layers(layers, width)
    return _of_loss(loss, {"accumulated": accumulated}, weights, array(batch, 197, width))


def cross_entropy(tokens: int, width: int, vocabulary: int, rows: int) -> Problem:
    """The loss of a language model's last layer, and gradients by weights and hidden states."""

    def lost(weight: jax.Array, x: jax.Array, labels: jax.Array) -> jax.Array:
        log_p = jax.nn.log_softmax(x @ weight)
        return -jnp.sum(jnp.take_along_axis(log_p, labels[:, None], 1))

    def in_rows(weight: jax.Array, x: jax.Array, labels: jax.Array) -> Any:
        return summed(partial(lost, weight), rows, x, labels)

    floats = array(width, vocabulary), array(tokens, width)

    def values() -> tuple[Any, ...]:
        generator = np.random.default_rng(0)
        labels = generator.integers(0, vocabulary, tokens, dtype=np.int32)
        return normal(generator, floats[0], 0.1), normal(generator, floats[1]), labels

    return Problem(
        plain=jax.value_and_grad(lost, (0, 1)),
        ways={BY_HAND: jax.value_and_grad(in_rows, (0, 1))},
        arguments=(*floats, array(tokens, dtype=np.int32)),
        values=values,
    )


def mixture(tokens: int, experts: int, width: int, hidden: int) -> Problem:
    """A mixture of experts whose tokens are dispatched by one-hot products, as in GShard."""
    capacity = 2 * tokens // experts

    def placed(weights: Weights, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        gates = jax.nn.softmax(x @ weights["gate"])
        chosen = jax.nn.one_hot(jnp.argmax(gates, -1), experts)
        return jnp.sum(gates * chosen, -1), chosen, jnp.cumsum(chosen, 0) * chosen - 1

    def loss(weights: Weights, x: jax.Array) -> jax.Array:
        gate, _, place = placed(weights, x)
        dispatch = jax.nn.one_hot(place, capacity)
        sent = jnp.einsum("tec,td->ecd", dispatch, x)
        hidden = jax.nn.relu(jnp.einsum("ecd,edh->ech", sent, weights["up"]))
        made = jnp.einsum("ech,ehd->ecd", hidden, weights["down"])
        back = jnp.einsum("tec,ecd->td", dispatch * gate[:, None, None], made)
        return jnp.mean((x + back) ** 2)

    def by_experts(weights: Weights, x: jax.Array) -> jax.Array:
        gate, _, place = placed(weights, x)

        @jax.checkpoint
        def add(total: jax.Array, one: Any) -> tuple[jax.Array, None]:
            place, up, down = one
            dispatch = jax.nn.one_hot(place, capacity)
            made = jax.nn.relu(dispatch.T @ x @ up) @ down
            return total + (dispatch * gate[:, None]) @ made, None

        given = (place.T, weights["up"], weights["down"])
        return jnp.mean((x + lax.scan(add, jnp.zeros_like(x), given)[0]) ** 2)

    weights = {
        "gate": array(width, experts),
        "up": array(experts, width, hidden),
        "down": array(experts, hidden, width),
    }
    return _of_loss(loss, {"by-experts": by_experts}, weights, array(tokens, width))


def triangle_attention(residues: int, width: int, rows: int) -> Problem:
    """AlphaFold's attention along the rows of its pairs, with the bias of the third side."""
    heads = 4

    def attended(weights: Weights, bias: jax.Array, x: jax.Array) -> Any:
        q, k, v = (_heads(x @ weights[name], heads) for name in ("query", "key", "value"))
        scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5 + bias
        made = (jax.nn.softmax(scores) @ v).swapaxes(-2, -3).reshape(x.shape)
        return jax.nn.sigmoid(x @ weights["gate"]) * made @ weights["out"]

    def loss(weights: Weights, pairs: jax.Array, *, rows: int = 0) -> jax.Array:
        x = _normalised(pairs)
        bias = jnp.moveaxis(x @ weights["bias"], -1, 0)
        one = partial(attended, weights, bias)
        return jnp.mean((pairs + (in_blocks(one, rows, x) if rows else one(x))) ** 2)

    names = ("query", "key", "value", "gate", "out")
    weights = {**dict.fromkeys(names, array(width, width)), "bias": array(width, heads)}
    ways: dict[str, Function] = {BY_HAND: partial(loss, rows=rows)}
    return _of_loss(loss, ways, weights, array(residues, residues, width))


def triangle_product(residues: int, width: int, rows: int) -> Problem:
    """AlphaFold's multiplicative update of its pairs along outgoing edges."""

    def gated(weights: Weights, side: str, x: jax.Array) -> Any:
        return jax.nn.sigmoid(x @ weights[f"{side} gate"]) * (x @ weights[side])

    def update(weights: Weights, right: jax.Array, x: jax.Array) -> Any:
        made = jnp.einsum("ikc,jkc->ijc", gated(weights, "left", x), right)
        return jax.nn.sigmoid(x @ weights["gate"]) * (_normalised(made) @ weights["out"])

    def loss(weights: Weights, pairs: jax.Array, *, rows: int = 0) -> jax.Array:
        x = _normalised(pairs)
        one = partial(update, weights, gated(weights, "right", x))
        return jnp.mean((pairs + (in_blocks(one, rows, x) if rows else one(x))) ** 2)

    names = ("left", "left gate", "right", "right gate", "gate", "out")
    weights = dict.fromkeys(names, array(width, width))
    ways: dict[str, Function] = {BY_HAND: partial(loss, rows=rows)}
    return _of_loss(loss, ways, weights, array(residues, residues, width))


def gradient_norms(examples: int, width: int, rows: int) -> Problem:
    """The norm of the gradient of each example, as differentially private training needs."""

    def lost(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return jnp.sum(x**2)

    def norms(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        of_each = jax.vmap(jax.grad(lost), (None, 0))(weights, x)
        return jnp.sqrt(sum(jnp.sum(each**2, (1, 2)) for each in of_each))

    def in_rows(weights: list[jax.Array], x: jax.Array) -> Any:
        return in_blocks(partial(norms, weights), rows, x)

    weights = [array(width, width)] * 3
    return _problem(norms, {BY_HAND: in_rows}, weights, array(examples, width))
