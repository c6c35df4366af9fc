"""One program of each library, as its users write it: a function and its arguments.

No program was changed for memsafe. Each takes 100 to 500 MB as written.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import jax  # noqa: TID251 — what is measured here is JAX itself.
import jax.numpy as jnp  # noqa: TID251
import optax  # type: ignore[import-untyped]

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def _normal(seed: int, *shape: int) -> Any:
    return jax.random.normal(jax.random.key(seed), shape)


def blackjax_hmc() -> Program:
    """A step of Hamiltonian Monte Carlo in 128 chains: a logistic regression on 50,000 points."""
    import blackjax

    points, chains = 50_000, 128

    def step(positions: Any, inputs: Any, labels: Any) -> Any:
        def log_density(weights: Any) -> Any:
            logits = inputs @ weights
            likelihood = jnp.sum(labels * logits - jax.nn.softplus(logits))
            return likelihood - 0.5 * jnp.sum(weights**2)

        kernel = blackjax.hmc(log_density, 1e-3, jnp.ones(16), num_integration_steps=8)
        keys = jax.random.split(jax.random.key(3), len(positions))
        states, info = jax.vmap(kernel.step)(keys, jax.vmap(kernel.init)(positions))
        return states.position, info.acceptance_rate

    inputs = _normal(0, points, 16)
    labels = (inputs[:, 0] + _normal(1, points) > 0).astype(inputs.dtype)
    return step, (0.1 * _normal(2, chains, 16), inputs, labels)


def lineax_evidence() -> Program:
    """A Gaussian process's fit and its derivative, by conjugate gradients on 3,000 points."""
    import lineax

    def loss(scale: Any, inputs: Any, outputs: Any) -> Any:
        distances = jnp.sum((inputs[:, None] - inputs[None]) ** 2, -1)
        kernel = jnp.exp(-distances / scale**2) + 0.5 * jnp.eye(len(inputs))
        operator = lineax.MatrixLinearOperator(kernel, lineax.positive_semidefinite_tag)
        solver = lineax.CG(rtol=1e-4, atol=1e-4)
        return outputs @ lineax.linear_solve(operator, outputs, solver, throw=False).value

    inputs = _normal(0, 3_000, 3)
    return jax.value_and_grad(loss), (jnp.asarray(0.5), inputs, jnp.sin(inputs.sum(1)))


def haiku_transformer() -> Program:
    """A training step of a decoder: `hk.MultiHeadAttention`, `hk.LayerNorm`, adam of optax."""
    import haiku as hk

    layers, width, vocabulary = 4, 128, 4_000

    def model(tokens: Any) -> Any:
        x = hk.Embed(vocabulary, width)(tokens)
        mask = jnp.tril(jnp.ones((tokens.shape[1],) * 2))[None, None]
        for _ in range(layers):
            start = hk.initializers.VarianceScaling(2 / layers)
            normed = hk.LayerNorm(-1, create_scale=True, create_offset=True)(x)
            attention = hk.MultiHeadAttention(8, width // 8, w_init=start, model_size=width)
            x = x + attention(normed, normed, normed, mask=mask)
            normed = hk.LayerNorm(-1, create_scale=True, create_offset=True)(x)
            x = x + hk.nets.MLP([4 * width, width], activation=jax.nn.gelu)(normed)
        return hk.Linear(vocabulary)(x)

    return _trained(hk.without_apply_rng(hk.transform(model)), _tokens(2, 513, vocabulary))


def haiku_lstm() -> Program:
    """A training step of an LSTM over 512 steps: `hk.dynamic_unroll`."""
    import haiku as hk

    vocabulary, width = 1_000, 128

    def model(tokens: Any) -> Any:
        x = hk.Embed(vocabulary, width)(tokens)
        core = hk.DeepRNN([hk.LSTM(width), jax.nn.relu, hk.LSTM(width)])
        x, _ = hk.dynamic_unroll(core, x, core.initial_state(len(tokens)), time_major=False)
        return hk.Linear(vocabulary)(x)

    return _trained(hk.without_apply_rng(hk.transform(model)), _tokens(32, 513, vocabulary))


def _tokens(batch: int, length: int, vocabulary: int) -> Any:
    return jax.random.randint(jax.random.key(1), (batch, length), 0, vocabulary)


def _trained(model: Any, tokens: Any) -> Program:
    """A step of Adam on the cross-entropy of the next tokens."""

    def loss(weights: Any, tokens: Any) -> Any:
        logits = model.apply(weights, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    return _stepped(loss, model.init(jax.random.key(0), tokens[:, :-1]), tokens)


def _stepped(loss: Callable[..., Any], weights: Any, *data: Any) -> Program:
    """A step of Adam. Its large `eps` keeps a gradient that is only rounding from becoming ±1."""
    optimiser = optax.adam(1e-3, eps=1e-2)

    def step(weights: Any, moments: Any, *data: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(weights, *data)
        updates, moments = optimiser.update(slopes, moments)
        return value, optax.apply_updates(weights, updates), moments

    return step, (weights, optimiser.init(weights), *data)


def distrax_flow() -> Program:
    """A training step of a flow of rational-quadratic spline couplings, on 12,000 points."""
    import distrax
    import haiku as hk

    dims, bins = 8, 8

    def model(x: Any) -> Any:
        couplings = []
        for layer in range(4):
            conditioner = hk.Sequential(
                [
                    hk.nets.MLP([128, 128], activate_final=True),
                    hk.Linear(dims * (3 * bins + 1)),
                    hk.Reshape((dims, 3 * bins + 1)),
                ]
            )
            couplings.append(
                distrax.MaskedCoupling(
                    mask=jnp.arange(dims) % 2 == layer % 2,
                    bijector=lambda params: distrax.RationalQuadraticSpline(
                        params, range_min=-4.0, range_max=4.0
                    ),
                    conditioner=conditioner,
                )
            )
        base = distrax.Independent(distrax.Normal(jnp.zeros(dims), jnp.ones(dims)), 1)
        flow = distrax.Transformed(base, distrax.Inverse(distrax.Chain(couplings)))
        return flow.log_prob(x)

    points = 0.5 * _normal(0, 12_000, dims)
    network = hk.without_apply_rng(hk.transform(model))

    def loss(weights: Any, points: Any) -> Any:
        return -network.apply(weights, points).mean()

    return _stepped(loss, network.init(jax.random.key(0), points), points)


def jraph_attention() -> Program:
    """A training step of `jraph.GraphNetwork` with attention: 10,000 nodes, 100,000 edges."""
    import haiku as hk
    import jraph

    nodes, edges, width = 10_000, 100_000, 64

    def model(graph: Any) -> Any:
        for _ in range(2):
            net = jraph.GraphNetwork(
                update_edge_fn=jraph.concatenated_args(hk.nets.MLP([width, width])),
                update_node_fn=jraph.concatenated_args(hk.nets.MLP([width, width])),
                attention_logit_fn=lambda edge, *_: hk.Linear(1)(jax.nn.leaky_relu(edge)),
                attention_reduce_fn=lambda edge, weight: edge * weight,
            )
            graph = net(graph)
        return hk.Linear(8)(graph.nodes)

    ends = jax.random.randint(jax.random.key(0), (2, edges), 0, nodes)
    graph = jraph.GraphsTuple(
        nodes=_normal(1, nodes, 32),
        edges=_normal(2, edges, 8),
        senders=ends[0],
        receivers=ends[1],
        globals=None,
        n_node=jnp.array([nodes]),
        n_edge=jnp.array([edges]),
    )
    labels = jax.random.randint(jax.random.key(3), (nodes,), 0, 8)
    network = hk.without_apply_rng(hk.transform(model))

    def loss(weights: Any, graph: Any, labels: Any) -> Any:
        logits = network.apply(weights, graph)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return _stepped(loss, network.init(jax.random.key(4), graph), graph, labels)


def e3nn_forces() -> Program:
    """The energy of 2,000 atoms and its forces: equivariant messages over 40,000 edges."""
    import e3nn_jax as e3nn
    import haiku as hk

    atoms, edges = 2_000, 40_000

    def energy(positions: Any, senders: Any, receivers: Any) -> Any:
        vectors = positions[receivers] - positions[senders]
        lengths = jnp.sqrt(jnp.sum(vectors**2, 1) + 1e-3)
        around = e3nn.spherical_harmonics("0e + 1o + 2e", vectors, normalize=False)
        radial = e3nn.bessel(lengths, 8, 6.0) * e3nn.poly_envelope(5, 2, 6.0)(lengths)[:, None]
        features = e3nn.IrrepsArray("16x0e", jnp.ones((atoms, 16)))
        for wanted in ("16x0e + 8x1o + 4x2e", "16x0e"):
            sent = features[senders]
            turned = e3nn.tensor_product(sent, around, filter_ir_out="0e + 1o + 2e")
            messages = e3nn.concatenate([sent, turned]).regroup()
            mixed = hk.nets.MLP([32, messages.irreps.num_irreps], activation=jax.nn.silu)(radial)
            summed = e3nn.scatter_sum(messages * mixed, dst=receivers, output_size=atoms)
            features = e3nn.gate(e3nn.haiku.Linear(e3nn.Irreps(wanted))(summed / 5))
        return jnp.sum(features.filter("0e").array)

    network = hk.without_apply_rng(hk.transform(energy))
    positions = 5 * _normal(0, atoms, 3)
    ends = jax.random.randint(jax.random.key(1), (2, edges), 0, atoms)
    weights = network.init(jax.random.key(2), positions, *ends)

    def total(positions: Any, weights: Any, ends: Any) -> Any:
        return network.apply(weights, positions, *ends)

    return jax.value_and_grad(total), (positions, weights, ends)


def netket_energies() -> Program:
    """The energy of a chain of 64 spins from 256 samples, and its derivatives (`netket`)."""
    import netket as nk

    sites, samples = 64, 256
    space = nk.hilbert.Spin(0.5, sites)
    operator = nk.operator.IsingJax(space, nk.graph.Chain(sites), h=1.0)
    model = nk.models.RBM(alpha=4, param_dtype=float)

    def energy(weights: Any, spins: Any) -> Any:
        connected, elements = operator.get_conn_padded(spins)
        here = model.apply(weights, spins)
        ratios = jnp.exp(model.apply(weights, connected) - here[:, None])
        local = jnp.sum(elements * ratios, -1)
        _, pull = jax.vjp(lambda weights: model.apply(weights, spins), weights)
        centred = (local - local.mean()) / samples
        return local.mean(), pull(centred)[0]

    spins = 2.0 * jax.random.bernoulli(jax.random.key(0), 0.5, (samples, sites)) - 1
    return energy, (model.init(jax.random.key(1), spins), spins)


def evosax_population() -> Program:
    """A generation of CMA-ES: 128 networks, each on 8,192 points."""
    import evosax.algorithms

    width = 32

    def network(weights: Any, inputs: Any) -> Any:
        return jnp.tanh(inputs @ weights["in"]) @ weights["out"]

    start = {"in": 0.3 * _normal(0, 8, width), "out": 0.3 * _normal(1, width)}
    strategy = evosax.algorithms.CMA_ES(128, start)
    params = strategy.default_params
    state = strategy.init(jax.random.key(2), start, params)

    def generation(state: Any, inputs: Any, outputs: Any) -> Any:
        ask, tell = jax.random.split(jax.random.key(3))
        population, state = strategy.ask(ask, state, params)
        found = jax.vmap(network, (0, None))(population, inputs)
        fitness = jnp.mean((found - outputs) ** 2, axis=1)
        state, _ = strategy.tell(tell, population, fitness, state, params)
        return fitness, state.mean

    inputs = _normal(4, 8_192, 8)
    return generation, (state, inputs, jnp.sin(inputs.sum(1)))


PROGRAMS: Final[Mapping[str, Callable[[], Program]]] = {
    each.__name__: each
    for each in (
        blackjax_hmc,
        lineax_evidence,
        haiku_transformer,
        haiku_lstm,
        distrax_flow,
        jraph_attention,
        e3nn_forces,
        evosax_population,
        netket_energies,  # Last, because it turns on double precision for all later programs.
    )
}
