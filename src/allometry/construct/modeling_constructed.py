"""A transformer whose weights come from a proof, for Hugging Face `transformers`.

Blocks have attention and a feed-forward layer of ReLUs, either of which may be missing, and no
norm. Attention is softmax or hardmax, and each head may have its own mask.
"""

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils.generic import ModelOutput


@final
class ConstructedConfig(PretrainedConfig):
    """Sizes, masks of the heads and shapes of all weights; see `ConstructedModel`."""

    model_type = "allometry_constructed"

    def __init__(self, **settings: Any) -> None:
        for name in ("vocabulary", "width", "depth", "context", "heads", "scale"):
            setattr(self, name, settings.pop(name, None))
        for name in ("shared", "columns", "causal", "hard"):
            setattr(self, name, settings.pop(name, False))
        self.sights = settings.pop("sights", [])
        self.shapes = settings.pop("shapes", {})
        super().__init__(**settings)


@final
@dataclass
class ConstructedOutput(ModelOutput):
    """The outputs at every position."""

    logits: Tensor | None = None


@final
class Parts(nn.Module):
    """Weights by name; names with a dot belong to submodules."""

    def __init__(self, shapes: dict[str, list[int]]) -> None:
        super().__init__()
        inner: dict[str, dict[str, list[int]]] = {}
        for name, shape in shapes.items():
            first, dot, rest = name.partition(".")
            if dot:
                inner.setdefault(first, {})[rest] = shape
            else:
                setattr(self, name, nn.Parameter(torch.zeros(shape, dtype=torch.float64)))
        for name, part in inner.items():
            self.add_module(name, Parts(part))

    def get(self, name: str) -> Any:
        """The weight or submodule of this name, or `None`."""
        return getattr(self, name, None)


@final
class ConstructedModel(PreTrainedModel):
    """The network: maps ids (b, n), or numbers (b, d, n), to outputs at every position."""

    config_class = ConstructedConfig

    def __init__(self, config: ConstructedConfig) -> None:
        super().__init__(config)
        tops = Parts(config.shapes)
        for name, part in tops.named_children():
            self.add_module(name, part)
        for name, weight in tops.named_parameters(recurse=False):
            self.register_parameter(name, weight)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Weights are loaded, never initialised."""

    def forward(self, input_ids: Tensor, **_: Any) -> ConstructedOutput:
        """The outputs; without a vocabulary, `input_ids` are real numbers."""
        c = self.config
        table, places = getattr(self, "table", None), getattr(self, "position_table", None)
        x = input_ids.mT if table is None else table[input_ids]
        x = x if places is None else x + places[: x.shape[1]]
        blocks: Any = self.blocks
        for layer in range(c.depth):
            at = 0 if c.shared else layer
            block = blocks.get(str(at))
            if block.get("attention") is not None:
                x = x + self._attend(x, block.attention, c.sights[at])
            part = block.get("feed_forward")
            if part is not None:
                x = x + _linear(_linear(x, part, "inner").relu(), part, "outer")
        readout: Any = getattr(self, "readout", None)
        if readout is not None:
            bias = getattr(self, "readout_bias", None)
            x = nn.functional.linear(x, readout, bias)
        return ConstructedOutput(logits=x.mT if c.columns else x)

    def _attend(self, x: Tensor, part: Any, sights: list[str]) -> Tensor:
        c = self.config
        q, k, v = (
            _linear(x, part, name).unflatten(-1, (c.heads, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        scores = c.scale * q @ k.mT
        n = x.shape[1]
        full = torch.ones(n, n, dtype=torch.bool, device=x.device)
        masks = {"all": full, "past": full.tril(), "before": full.tril(-1), "after": full.triu(1)}
        mask = torch.stack([masks[s] for s in sights or ["all"] * c.heads])
        mask = mask & full.tril() if c.causal else mask
        # A query that may attend to no key attends to itself.
        mask = mask | (full.tril().triu() & ~mask.any(-1, keepdim=True))
        scores = scores.masked_fill(~mask, -torch.inf)
        if c.hard:
            best = (scores == scores.amax(-1, keepdim=True)).to(scores.dtype)
            fetched = best @ v / best.sum(-1, keepdim=True)
        else:
            fetched = scores.softmax(-1) @ v
        return _linear(fetched.transpose(1, 2).flatten(2), part, "output")


def _linear(x: Tensor, part: Any, name: str) -> Tensor:
    return nn.functional.linear(x, part.get(name), part.get(f"{name}_bias"))
