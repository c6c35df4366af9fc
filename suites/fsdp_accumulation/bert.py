"""A BERT-like model: embeddings, encoder layers, a masked-language-model head."""

import torch
from torch import nn

from suites.fsdp_accumulation.sizes import BertSizes

IGNORED = -100  # the label of a token that is not masked
MASK = 0
_MASKED = 0.25  # of all tokens; BERT's own 15 % would leave few of 64
_WRAPPERS = frozenset({"_fsdp_shard", "_fsdp_wrapped_module", "_fpw_module", "_orig_module"})


class Layer(nn.Module):
    """One encoder layer: self-attention of one head, then a network four times as wide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(width)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.before_network = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The tokens after attention and network, each added to what came in."""
        y = self.before_attention(x)
        scores = self.query(y) @ self.key(y).transpose(-1, -2) * y.shape[-1] ** -0.5
        x = x + self.output(torch.softmax(scores, -1) @ self.value(y))
        return x + self.narrow(nn.functional.gelu(self.wide(self.before_network(x))))


class Bert(nn.Module):
    """The model; its forward pass gives the loss."""

    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.width)
        self.positions = nn.Embedding(sizes.sequence, sizes.width)
        self.layers = nn.ModuleList(Layer(sizes.width) for _ in range(sizes.layers))
        self.transform, self.norm = nn.Linear(sizes.width, sizes.width), nn.LayerNorm(sizes.width)
        self.decoder = nn.Linear(sizes.width, sizes.vocabulary)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The mean cross entropy of the masked tokens."""
        x = self.tokens(ids) + self.positions.weight
        for layer in self.layers:
            x = layer(x)
        scores = self.decoder(self.norm(nn.functional.gelu(self.transform(x))))
        return nn.functional.cross_entropy(
            scores.flatten(0, 1), labels.flatten(), ignore_index=IGNORED
        )


class Around(nn.Module):
    """A module round the model with a parameter of its own, which leaves the loss as it is."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.unneeded = model, nn.Parameter(torch.ones(1))

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The model's loss."""
        return self.model(ids, labels) + 0 * self.unneeded.sum()


def own_name(name: str) -> str:
    """A parameter's name in the model, without what FSDP's wrappers put round it."""
    parts = name.replace("_FSDP_SHARD_SEPARATOR_", ".").split(".")
    return ".".join(part for part in parts if part not in _WRAPPERS)


def masked_tokens(sizes: BertSizes, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random token ids with one in four masked, and the labels of those, on the host."""
    generator = torch.Generator().manual_seed(seed)
    shape = (sizes.batch, sizes.sequence)
    ids = torch.randint(1, sizes.vocabulary, shape, generator=generator)
    masked = torch.rand(shape, generator=generator) < _MASKED
    return ids.masked_fill(masked, MASK), ids.masked_fill(~masked, IGNORED)
