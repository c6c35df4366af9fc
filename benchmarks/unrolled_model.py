"""A real large module: the training step of a narrow transformer with every layer written out."""

from dataclasses import dataclass
from typing import Any, Final

LAYERS: Final = 22
_WIDTH: Final = 8
_TOKENS: Final = 16
_RATE: Final = 1e-3

Layer = dict[str, Any]  # the layer's arrays or their shapes, as jax wants them


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A module compiled for the CPU, as text and as bytes, and its buffer assignment."""

    text: str
    proto: bytes
    buffer_assignment: bytes


def compiled(layers: int = LAYERS) -> Compiled:
    """The training step as XLA's CPU compiler optimizes it."""
    import jax  # noqa: TID251 - the program is written in it

    cpu = jax.local_devices(backend="cpu")[0]
    place = jax.sharding.SingleDeviceSharding(cpu)

    def shape(*dimensions: int) -> Any:
        return jax.ShapeDtypeStruct(dimensions, "float32", sharding=place)

    layer = {
        "qkv": shape(_WIDTH, 3 * _WIDTH),
        "out": shape(_WIDTH, _WIDTH),
        "up": shape(_WIDTH, 4 * _WIDTH),
        "down": shape(4 * _WIDTH, _WIDTH),
    }
    weights = [layer] * layers
    step = jax.jit(_step, donate_argnums=(0, 1, 2))
    executable: Any = step.lower(weights, weights, weights, shape(_TOKENS, _WIDTH)).compile()
    (module,) = executable.runtime_executable().hlo_modules()
    memory = executable.memory_analysis()
    return Compiled(
        text=str(module.to_string()),
        proto=bytes(module.as_serialized_hlo_module_proto()),
        buffer_assignment=bytes(memory.serialized_buffer_assignment_proto),
    )


def _step(
    weights: list[Layer], means: list[Layer], squares: list[Layer], tokens: Any
) -> tuple[Any, list[Layer], list[Layer], list[Layer]]:
    """One step of Adam, without bias correction."""
    import jax  # noqa: TID251

    loss, slopes = jax.value_and_grad(_loss)(weights, tokens)
    means = jax.tree.map(lambda mean, slope: 0.9 * mean + 0.1 * slope, means, slopes)
    squares = jax.tree.map(lambda kept, slope: 0.99 * kept + 0.01 * slope**2, squares, slopes)
    weights = jax.tree.map(
        lambda weight, mean, square: weight - _RATE * mean / (square**0.5 + 1e-8),
        weights,
        means,
        squares,
    )
    return loss, weights, means, squares


def _loss(weights: list[Layer], tokens: Any) -> Any:
    x = tokens
    for layer in weights:
        x = x + _attention(layer, _normed(x))
        x = x + _feed_forward(layer, _normed(x))
    return ((x - tokens) ** 2).mean()


def _normed(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / ((centred**2).mean(-1, keepdims=True) + 1e-6) ** 0.5


def _attention(layer: Layer, x: Any) -> Any:
    import jax  # noqa: TID251

    qkv = x @ layer["qkv"]
    query, key, value = (qkv[:, k * _WIDTH : (k + 1) * _WIDTH] for k in range(3))
    return jax.nn.softmax(query @ key.T / _WIDTH**0.5) @ value @ layer["out"]


def _feed_forward(layer: Layer, x: Any) -> Any:
    import jax  # noqa: TID251

    return jax.nn.gelu(x @ layer["up"]) @ layer["down"]
