"""How large the models are, how they are wrapped, and how they are trained."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class BertSizes:
    """A BERT-like encoder with a masked-language-model head, and its training on random tokens."""

    layers: int
    width: int
    vocabulary: int
    batch: int
    sequence: int
    steps: int


class Nesting(Enum):
    """Which modules are wrapped."""

    NONE = "no module"
    OUTER = "the model"
    LAYERS = "the model, and each layer in it"
    TWICE = "a module round the wrapped model too"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """What is said to XlaFullyShardedDataParallel.

    ``flushes_tail`` is False where the defect of the report is injected: at the end of backward,
    what a bucket holds below its limit then waits for a later step.
    """

    nesting: Nesting = Nesting.LAYERS
    bucket_mb: int = 0
    flatten: bool = False
    reshard: bool = True
    coalesce: bool = False
    flushes_tail: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The optimiser, and whether it clears gradients to zeros in place of dropping them."""

    adam: bool = False
    zeroes: bool = False
    rate: float = 0.01

    @property
    def graphs(self) -> int:
        """Graphs that the steps need: with state, the first one makes what the others update."""
        return 2 if self.adam or self.zeroes else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SpmdSharding:
    """Whether parameters and batch are sharded over the devices.

    Gradients are gathered over ``steps_an_update`` steps, at the last of which they are applied.
    """

    shards: bool = True
    steps_an_update: int = 1
