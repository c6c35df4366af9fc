"""How large the models are: plain numbers, so that a workload is there without PyTorch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSizes:
    """Decoder layers that are run: one step for each entry of ``batches``."""

    layers: int
    width: int
    sequence: int = 16
    batches: tuple[int, ...] = (2, 2, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSizes:
    """Decoder layers that are staged and compiled, never run; attention is Llama's.

    ``key_value_heads`` are shared by equally many of the ``heads``.
    """

    layers: int
    width: int
    hidden: int
    heads: int
    key_value_heads: int
    sequence: int
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JaxSizes:
    """The layers of the JAX control."""

    layers: int
    width: int
    batch: int = 2
    sequence: int = 16
