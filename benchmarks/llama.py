"""The longest sequence that a decoder trains on: ``python -m benchmarks.llama``.

A training step of a decoder of the shape of Llama 3 8B, written in flax.nnx: one sequence on each
of eight devices, over which weights and the state of AdamW are divided (FSDP). Everything is bf16
but the loss. The step is compiled, not run: as written, without ``jax.checkpoint``; by memsafe
within all of the device's memory; and with each policy of ``jax.checkpoint`` around each layer.
Operations are memsafe's count, over those of the program as written. Exits with 1 if memsafe fits
no sequence, if another way fits a longer one, or if memsafe is the only way.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import jax  # noqa: TID251 — the programs are compiled here.
import jax.numpy as jnp  # noqa: TID251
import numpy as np
import optax  # type: ignore[import-untyped]
from flax import nnx  # noqa: TID251 — what its users write.
from jax import Array  # noqa: TID251
from jax.ad_checkpoint import checkpoint_name  # noqa: TID251
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: TID251
from rich.console import Console  # noqa: TID251 — a benchmark is a door of its own.
from rich.table import Table  # noqa: TID251

from assay.targets import resolve
from memsafe import BudgetError  # noqa: TID251 — what is measured.
from memsafe.function import Calls  # noqa: TID251 — its plan is looked at.
from memsafe.graph import Graph  # noqa: TID251 — its counter of operations.
from memsafe.options import Asked  # noqa: TID251
from memsafe.programs import flattened  # noqa: TID251

PLAIN: Final = "as written"
MEMSAFE: Final = "memsafe"
_POLICIES: Final = jax.checkpoint_policies
POLICIES: Final[dict[str, Any]] = {
    "nothing_saveable": _POLICIES.nothing_saveable,
    "dots_with_no_batch_dims_saveable": _POLICIES.dots_with_no_batch_dims_saveable,
    "layers' inputs offloaded": _POLICIES.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["residual"],
        offload_src="device",
        offload_dst="pinned_host",
    ),
}
_AXIS: Final = "fsdp"
_DONATED: Final = (0, 1)
_SEQUENCES: Final = (4_096, 8_192, 16_384, 32_768, 65_536)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of a decoder; the defaults are those of Llama 3 8B."""

    layers: int = 32
    width: int = 4_096
    heads: int = 32
    kv_heads: int = 8
    hidden: int = 14_336
    vocabulary: int = 128_256


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A step compiled one way: bytes of one device, operations, and seconds to compile.

    ``nbytes`` is infinite if the compiler refuses the program for its size. If memsafe refuses the
    budget, ``nbytes`` is the smallest peak that it reached, and ``operations`` is None.
    """

    nbytes: float
    operations: float | None
    seconds: float

    def fits(self, room: float) -> bool:
        """Whether the step runs in ``room`` bytes."""
        return self.nbytes <= room


Step = tuple[Callable[..., Any], tuple[Any, ...]]


def main() -> int:
    """Prints a table of ways and sequences; 1 if memsafe does not fit the longest sequence."""
    asked = _parser().parse_args()
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 140)
    target = resolve(asked.target)
    if target.model is None:
        console.print(f"got {asked.target}; wanted a compile-only target, such as gpu-h100:8")
        return 2
    devices, room = target.devices(), float(target.model.memory_bytes)
    sizes = Sizes(layers=asked.layers)
    title = f"{asked.layers} layers on {asked.target}, {room / 1e9:.1f} GB, jax {jax.__version__}"
    table = Table(title=title)
    for name in ("way", "sequence", "bytes", "operations", "compiled in"):
        table.add_column(name, justify="left" if name == "way" else "right")
    longest: dict[str, int] = {}
    for way in asked.way or (PLAIN, MEMSAFE, *POLICIES):
        for length in sorted(asked.sequence):
            found = compiled(way, sizes, devices, length, room)
            fits = found.fits(room)
            longest[way] = max(longest.get(way, 0), length if fits else 0)
            cells = _cells(way, length, found, fits=fits)
            console.print("  ".join(cells))
            table.add_row(*cells)
            if not fits:
                break  # A longer sequence takes more memory.
    console.print(table)
    for way, length in longest.items():
        console.print(f"{way}: {length:,} at most of these")
    good = is_longest(longest)
    console.print("PASS" if good else "FAIL")
    return 0 if good else 1


def is_longest(longest: Mapping[str, int]) -> bool:
    """Whether memsafe fits a sequence, other ways ran, and none of them fits a longer one."""
    others = [length for way, length in longest.items() if way != MEMSAFE]
    return bool(others) and longest.get(MEMSAFE, 0) >= max(1, *others)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--layers", type=int, default=Sizes().layers)
    parser.add_argument("--target", default="gpu-h100:8", help="a compile-only target of 8 devices")
    parser.add_argument("--sequence", type=int, nargs="+", default=_SEQUENCES)
    ways = (PLAIN, MEMSAFE, *POLICIES)
    parser.add_argument("--way", choices=ways, action="append", help="default: all")
    return parser


def _cells(way: str, length: int, found: Compiled, *, fits: bool) -> tuple[str, ...]:
    size = f"{found.nbytes / 1e9:,.1f} GB" if found.nbytes < float("inf") else "refused"
    operations = "–" if found.operations is None else f"{found.operations:.2f} ×"
    return way, f"{length:,}", size if fits else f"{size}, too large", operations, _s(found.seconds)


def _s(seconds: float) -> str:
    return f"{seconds:.0f} s"


def compiled(way: str, sizes: Sizes, devices: Sequence[Any], length: int, room: float) -> Compiled:
    """The training step on sequences of ``length``, compiled one way."""
    begun = time.perf_counter()
    if way == MEMSAFE:
        step, arguments = training_step(sizes, devices, length, None)
        calls = Calls.asked(step, int(room), Asked(donate_argnums=_DONATED))
        try:
            fit = calls.fit(arguments, {})
        except BudgetError as error:
            seconds = time.perf_counter() - begun
            return Compiled(nbytes=error.smallest, operations=None, seconds=seconds)
        seconds = time.perf_counter() - begun
        return Compiled(nbytes=fit.result.nbytes, operations=fit.operations, seconds=seconds)
    step, arguments = training_step(sizes, devices, length, way)
    nbytes = _compiled_bytes(step, arguments, devices)
    seconds = time.perf_counter() - begun
    operations = 1.0
    if way != PLAIN:
        operations = _work(step, arguments) / _work(*training_step(sizes, devices, length, None))
    return Compiled(nbytes=nbytes, operations=operations, seconds=seconds)


def _compiled_bytes(
    step: Callable[..., Any], arguments: tuple[Any, ...], devices: Sequence[Any]
) -> float:
    """Bytes of one device; infinite if the compiler refuses the program for its size."""
    platform = "cuda" if devices[0].platform == "gpu" else devices[0].platform
    traced = jax.jit(step, donate_argnums=_DONATED).trace(*arguments)
    try:
        memory: Any = traced.lower(lowering_platforms=(platform,)).compile().memory_analysis()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return float("inf")
    nbytes: int = (
        memory.temp_size_in_bytes
        + memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
    )
    return float(nbytes)


def _work(step: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    return sum(Graph(flattened(jax.make_jaxpr(step)(*arguments))).costs.operations)


def training_step(sizes: Sizes, devices: Sequence[Any], length: int, way: str | None) -> Step:
    """A step of AdamW, and the shapes and shardings of weights, optimiser state and tokens."""
    mesh = Mesh(np.array(devices), (_AXIS,))
    policy = POLICIES.get(way or PLAIN)
    graph, weights = nnx.split(nnx.eval_shape(lambda: Decoder(sizes, mesh, policy, nnx.Rngs(0))))
    optimiser = optax.adamw(1e-4)

    def step(weights: Any, moments: Any, tokens: Array) -> tuple[Array, Any, Any]:
        def loss(weights: Any) -> Array:
            logits = nnx.merge(graph, weights)(tokens[:, :-1]).astype(jnp.float32)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
            return jnp.mean(losses)

        value, gradients = jax.value_and_grad(loss)(weights)
        updates, moments = optimiser.update(gradients, moments, weights)
        return value, optax.apply_updates(weights, updates), moments

    divided = partial(_divided, mesh)
    moments = jax.eval_shape(optimiser.init, weights)
    rows = NamedSharding(mesh, PartitionSpec(_AXIS))
    tokens = jax.ShapeDtypeStruct((mesh.size, length + 1), jnp.int32, sharding=rows)
    return step, (jax.tree.map(divided, weights), jax.tree.map(divided, moments), tokens)


def _divided(mesh: Mesh, leaf: Any) -> jax.ShapeDtypeStruct:
    """The shape of an array, with its largest divisible dimension divided over all devices."""
    dims = [dim for dim, size in enumerate(leaf.shape) if size % mesh.size == 0]
    along = max(dims, key=lambda dim: leaf.shape[dim], default=None)
    spec = PartitionSpec(*(_AXIS if dim == along else None for dim in range(leaf.ndim)))
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


_TYPES: Final[dict[str, Any]] = {"dtype": jnp.bfloat16, "param_dtype": jnp.bfloat16}
_linear: Final[Any] = partial(nnx.Linear, use_bias=False, **_TYPES)
_norm: Final[Any] = partial(nnx.RMSNorm, **_TYPES)


class Block(nnx.Module):
    """Grouped-query attention with rotary position embeddings, and a gated feed-forward part."""

    def __init__(self, sizes: Sizes, rngs: nnx.Rngs) -> None:
        self.heads, self.kv_heads = sizes.heads, sizes.kv_heads
        keys = sizes.width // sizes.heads * sizes.kv_heads
        self.before_attention = _norm(sizes.width, rngs=rngs)
        self.query = _linear(sizes.width, sizes.width, rngs=rngs)
        self.key = _linear(sizes.width, keys, rngs=rngs)
        self.value = _linear(sizes.width, keys, rngs=rngs)
        self.out = _linear(sizes.width, sizes.width, rngs=rngs)
        self.before_feeding = _norm(sizes.width, rngs=rngs)
        self.gate = _linear(sizes.width, sizes.hidden, rngs=rngs)
        self.up = _linear(sizes.width, sizes.hidden, rngs=rngs)
        self.down = _linear(sizes.hidden, sizes.width, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """The layer's output."""
        x = checkpoint_name(x, "residual")
        normed = self.before_attention(x)
        query = _rotated(_in_heads(self.query(normed), self.heads))
        key = _rotated(_in_heads(self.key(normed), self.kv_heads))
        value = _in_heads(self.value(normed), self.kv_heads)
        attended = jax.nn.dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.reshape(x.shape))
        normed = self.before_feeding(x)
        fed: Array = self.down(nnx.silu(self.gate(normed)) * self.up(normed))
        return x + fed


class Decoder(nnx.Module):
    """A list of layers; the input of each layer has one sequence on each device."""

    def __init__(self, sizes: Sizes, mesh: Mesh, policy: Any, rngs: nnx.Rngs) -> None:
        self.embedding = nnx.Embed(sizes.vocabulary, sizes.width, rngs=rngs, **_TYPES)
        self.blocks = nnx.List([Block(sizes, rngs) for _ in range(sizes.layers)])
        self.norm = _norm(sizes.width, rngs=rngs)
        self.head = _linear(sizes.width, sizes.vocabulary, rngs=rngs)
        self.place = NamedSharding(mesh, PartitionSpec(_AXIS))
        self.policy = policy

    def __call__(self, tokens: Array) -> Array:
        """The logits of the next token at each position."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = jax.lax.with_sharding_constraint(x, self.place)
            x = _computed(block, x) if self.policy is None else _again(self.policy)(block, x)
        logits: Array = self.head(self.norm(x))
        return logits


def _computed(block: Block, x: Array) -> Array:
    return block(x)


def _again(policy: Any) -> Callable[..., Any]:
    found: Callable[..., Any] = nnx.remat(_computed, policy=policy)
    return found


def _in_heads(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1)


def _rotated(x: Array) -> Array:
    half = x.shape[-1] // 2
    turns = 500_000.0 ** -(jnp.arange(half) / half)
    angles = jnp.arange(x.shape[1])[:, None, None] * turns
    cosine, sine = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate(
        [first * cosine - second * sine, second * cosine + first * sine], axis=-1
    )


if __name__ == "__main__":
    sys.exit(main())
