"""Hugging Face causal language models as models with a cache."""

from typing import Any, final

import torch
from torch import Tensor


@final
class HuggingFace:
    """Adapter of a `transformers` causal model to `Cached`.

    Args:
        model: A model that accepts `input_ids`, `attention_mask`, `past_key_values`.

    References: `wolf2020`.
    """

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        # The cache of transformers does not slide: beyond the context it is recomputed.
        self.context = getattr(model.config, "max_position_embeddings", None)

    def new_cache(self) -> "HuggingFaceCache":
        """An empty cache."""
        return HuggingFaceCache()

    @property
    def table(self) -> Tensor:
        """The token embeddings (V, d), for gradient-based prompt search."""
        return self.model.get_input_embeddings().weight

    def __call__(
        self,
        tokens: Tensor,
        *,
        cache: "HuggingFaceCache | None" = None,
        padding: Tensor | None = None,
    ) -> Tensor:
        """Logits (b, t, V) at the given tokens, or at embeddings (b, t, d)."""
        if tokens.is_floating_point():
            return self.model(inputs_embeds=tokens, use_cache=False).logits
        with torch.no_grad():
            return self._read(tokens, cache, padding)

    def _read(
        self, tokens: Tensor, cache: "HuggingFaceCache | None", padding: Tensor | None
    ) -> Tensor:
        if cache is None:
            return self.model(input_ids=tokens, use_cache=False).logits
        cache.read(tokens, padding, self.context)
        mask = cache.mask
        assert mask is not None
        assert cache.tokens is not None
        new = tokens if cache.past is not None else cache.tokens
        # Positions count real tokens only; padding must not shift a prompt.
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -new.shape[1] :]
        out = self.model(
            input_ids=new,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache.past,
            use_cache=True,
        )
        cache.past = out.past_key_values
        return out.logits[:, -tokens.shape[1] :]


@final
class HuggingFaceCache:
    """Tokens, mask and keys and values of a Hugging Face model."""

    def __init__(self) -> None:
        self.past: Any = None
        self.tokens: Tensor | None = None
        self.mask: Tensor | None = None

    def read(self, tokens: Tensor, padding: Tensor | None, context: int | None) -> None:
        """Append new tokens. Beyond the context, drop the oldest and all keys and values."""
        mask = torch.ones_like(tokens) if padding is None else (~padding).long()
        old = self.tokens is not None and self.mask is not None
        self.tokens = torch.cat([self.tokens, tokens], 1) if old else tokens  # type: ignore[list-item]
        self.mask = torch.cat([self.mask, mask], 1) if old else mask  # type: ignore[list-item]
        if context is not None and self.tokens.shape[1] > context:
            self.tokens, self.mask = self.tokens[:, -context:], self.mask[:, -context:]
            self.past = None

    def select(self, rows: Tensor) -> None:
        """Keep, repeat or reorder the batch rows."""
        if self.past is not None:
            self.past.reorder_cache(rows)
        if self.tokens is not None and self.mask is not None:
            self.tokens, self.mask = self.tokens[rows], self.mask[rows]
