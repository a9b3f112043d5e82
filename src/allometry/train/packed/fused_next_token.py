"""Next-token losses and gradients of stacked decoders by one call; see `fused_decoder`.

Shapes: M models of a stack, P parameters of each, b batch, n positions.
"""

from collections.abc import Callable, Sequence
from typing import final

import numpy as np
import torch
from jaxtyping import UInt64
from torch import Tensor

from allometry.models.transformer.fused_decoder import FusedDecoder, fused
from allometry.train.objectives import next_token
from allometry.train.packed.stack import Flat, StackedModels
from allometry.train.packed.trace import Losses


@final
class FusedNextToken:
    """The fused pass of a stack of decoders.

    Args:
        models: The stack.
        decoder: The pass of their architecture.
    """

    def __init__(self, models: StackedModels, decoder: FusedDecoder) -> None:
        self.models, self.decoder = models, decoder
        starts = np.cumsum([0, *models.sizes])
        named = dict(models.skeleton.named_parameters())
        place = {id(named[name]): start for name, start in zip(models.names, starts, strict=False)}
        # A table of positions without parameters is the same for all models.
        fixed = [0 if p is None or id(p) in place else p.data_ptr() for p in decoder.parameters]
        self.fixed = np.array(fixed, dtype=np.uint64)
        offsets = [-1 if p is None else place.get(id(p), -1) for p in decoder.parameters]
        self.own = np.array(offsets) >= 0
        self.offsets = np.where(self.own, 4 * np.array(offsets), 0).astype(np.uint64)

    def __call__(self, tokens: Tensor) -> tuple[Losses, Flat]:
        """Mean loss of every model on its `tokens` (M, b, n + 1), and the gradients."""
        tokens = tokens.contiguous()
        gradient = torch.zeros_like(self.models.flat, requires_grad=False)
        given = np.where(self.own, self._addresses(self.models.flat), self.fixed)
        wanted = np.where(self.own, self._addresses(gradient), np.uint64(0))
        losses = self.decoder(tokens, tokens[:, :, 1:], given, wanted)
        return losses.flatten(1).mean(1), gradient

    def _addresses(self, flat: Flat) -> UInt64[np.ndarray, "M count"]:
        rows = flat.data_ptr() + 4 * flat.stride(0) * np.arange(len(flat), dtype=np.uint64)
        return rows[:, None] + self.offsets


def fused_next_token(
    models: StackedModels, function: Callable[..., Tensor], batch: Sequence[Tensor]
) -> FusedNextToken | None:
    """The fused pass for a stack; `None` if it does not apply to these models and this loss."""
    if function is not next_token or batch[0].dtype != torch.int64:
        return None
    flat = models.flat
    plain = flat.device.type == "cpu" and flat.dtype == torch.float32 and flat.is_contiguous()
    decoder = fused(models.skeleton) if plain else None
    if decoder is None or not decoder.fits(batch[0].shape[2] - 1):
        return None
    return FusedNextToken(models, decoder)
