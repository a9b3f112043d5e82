"""The decoding cache of convolutions, and the initialisation of sequence models.

Shapes: b batch, n positions, c channels.
"""

from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional


@final
class ConvolutionCache:
    """The last inputs of each convolution layer.

    Made by a model's `new_cache` and filled by `model(tokens, cache=cache)`.

    Args:
        reaches: For each layer, the number of past frames in its receptive field.
    """

    def __init__(self, reaches: list[int]) -> None:
        self.reaches = reaches
        self.past: list[Tensor | None] = [None] * len(reaches)

    def extend(
        self,
        layer: int,
        frames: Float[Tensor, "b c n"],
        padding: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b c m"]:
        """Append the new frames to the past frames of the layer; zeros before the beginning.

        Padding is zero too. Trailing padding is not cached: the frames before it are.
        """
        reach, old = self.reaches[layer], self.past[layer]
        if old is None:
            old = frames.new_zeros(*frames.shape[:2], reach)
        if padding is not None:
            frames = frames.masked_fill(padding[:, None], 0.0)
        joined = kept = torch.cat([old, frames], 2)
        if padding is not None:
            text = functional.pad(~padding, (reach, 0), value=True)
            order = text.long().argsort(dim=1, stable=True)
            kept = joined.gather(2, order[:, None].expand_as(joined))
        self.past[layer] = kept[:, :, kept.shape[2] - reach :]
        return joined

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep, repeat or reorder the batch rows."""
        self.past = [None if x is None else x[rows] for x in self.past]


def initialise(module: nn.Module, rng: torch.Generator | None) -> None:
    """Redraw all weights from `rng` (default: seed 0).

    Matrices and kernels are N(0, 1 / fan-in), tables N(0, 0.3^2), biases 0; gains are left at 1.
    """
    if next(module.parameters()).device.type == "meta":
        return
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    with torch.no_grad():
        for part in module.modules():
            gain = isinstance(part, nn.LayerNorm)
            for p in part.parameters(recurse=False):
                if p.ndim < 2:
                    p.fill_(1.0 if gain and p is part.weight else 0.0)
                elif isinstance(part, nn.Embedding):
                    p.normal_(0.0, 0.3, generator=rng)
                else:
                    p.normal_(0.0, p[0].numel() ** -0.5, generator=rng)
