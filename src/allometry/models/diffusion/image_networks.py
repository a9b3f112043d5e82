"""Networks of diffusion models of images: a small U-Net and a diffusion transformer (DiT).

Shapes: n images, c channels, h height, w width, t tokens, o output channels, d width of a token
or of the conditioning, k size of the context.
"""

import math
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.errors import require
from allometry.models.diffusion.networks import LEVEL, level_features
from allometry.models.flows.conditioners import draw
from allometry.models.transformer.attention import Attention
from allometry.models.transformer.model import FeedForward

Images = Float[Tensor, "n c h w"]
Given = Float[Tensor, "n k"] | None


@final
class Conditioning(nn.Module):
    """A vector of the noise level and the context, of which the parts of a network read.

    Args:
        width: Its size.
        context: k; a further input says whether a context is given.
    """

    def __init__(self, width: int, context: int = 0) -> None:
        super().__init__()
        self.context = context
        self.first = nn.Linear(LEVEL + (context + 1 if context else 0), width)
        self.second = nn.Linear(width, width)

    def forward(self, level: Float[Tensor, " n"], context: Given) -> Float[Tensor, "n d"]:
        """The vector of each image."""
        parts = [level_features(level)]
        if self.context:
            given = level.new_zeros(len(level), self.context) if context is None else context
            parts += [given, level.new_full((len(level), 1), float(context is not None))]
        return F.silu(self.second(F.silu(self.first(torch.cat(parts, 1)))))


@final
class ResidualConvolutions(nn.Module):
    """Two convolutions with a skip connection; the conditioning scales and shifts between them.

    Args:
        inputs: Input channels.
        outputs: Output channels.
        condition: Size of the conditioning.
    """

    def __init__(self, inputs: int, outputs: int, condition: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        self.modulation = nn.Linear(condition, 2 * outputs)

    def forward(self, x: Images, condition: Float[Tensor, "n d"]) -> Float[Tensor, "n o h w"]:
        """The images after this block."""
        scale, shift = self.modulation(condition)[:, :, None, None].chunk(2, 1)
        h = self.first(F.silu(x)) * (1 + scale) + shift
        return (self.skip(x) + self.second(F.silu(h))) / math.sqrt(2)


@final
class UNet(nn.Module):
    """A U-Net: residual convolutions at resolutions that halve, and back with skip connections.

    Args:
        shape: (channels, height, width).
        width: Channels at full resolution; twice as many at the lower ones.
        levels: Resolutions; height and width must be divisible by 2^(levels - 1).
        context: k.
        rng: Generator of the initial weights; default: seed 0.

    Differs from the paper: no attention, no group norm; made for images of some 8 to 32 pixels.

    References: `ronneberger2015`; `ho2020` Appendix B.
    """

    def __init__(
        self,
        shape: Sequence[int],
        width: int = 32,
        levels: int = 2,
        context: int = 0,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require(len(shape) == 3, "UNet.shape", "be (channels, height, width)", tuple(shape))
        require(min(width, levels) >= 1, "UNet sizes", "be at least 1", (width, levels))
        factor = 2 ** (levels - 1)
        even = all(side % factor == 0 for side in shape[1:])
        require(even, "UNet.shape", f"have sides divisible by {factor}", tuple(shape))
        channels = [width * min(2**i, 2) for i in range(levels)]
        size = 2 * width
        self.condition = Conditioning(size, context)
        self.first = nn.Conv2d(shape[0], width, 3, padding=1)
        before = [width, *channels[:-1]]
        self.down = nn.ModuleList(
            ResidualConvolutions(i, o, size) for i, o in zip(before, channels, strict=True)
        )
        self.up = nn.ModuleList(
            ResidualConvolutions(2 * i, o, size)
            for i, o in zip(reversed(channels), [*reversed(channels[:-1]), width], strict=True)
        )
        self.last = nn.Conv2d(width, shape[0], 3, padding=1)
        draw(self, rng)
        nn.init.zeros_(self.last.weight)

    def forward(self, y: Images, level: Float[Tensor, " n"], context: Given = None) -> Images:
        """The prediction."""
        condition = self.condition(level, context)
        h, seen = self.first(y), []
        for i, block in enumerate(self.down):
            h = block(F.avg_pool2d(h, 2) if i else h, condition)
            seen.append(h)
        for i, block in enumerate(self.up):
            h = F.interpolate(h, scale_factor=2.0) if i else h
            h = block(torch.cat([h, seen.pop()], 1), condition)
        return self.last(F.silu(h))


@final
class ModulatedBlock(nn.Module):
    """A transformer block with norms scaled and shifted, and parts gated, by the conditioning.

    At the start every gate is 0 and the block is the identity (adaLN-Zero).

    Args:
        width: d.
        heads: Attention heads.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        size = width // heads
        biases = ("query", "key", "value", "output")
        self.attention = Attention(width, heads, size, size**-0.5, hard=False, bias=biases)
        self.feed_forward = FeedForward(width, 4 * width, F.gelu, ("inner", "outer"))
        self.modulation = nn.Linear(width, 6 * width)

    def forward(
        self, x: Float[Tensor, "n t d"], condition: Float[Tensor, "n d"]
    ) -> Float[Tensor, "n t d"]:
        """The tokens after this block."""
        parts = self.modulation(condition)[:, None].chunk(6, 2)
        for part, (scale, shift, gate) in zip(
            (self.attention, self.feed_forward), (parts[:3], parts[3:]), strict=True
        ):
            x = x + gate * part(_norm(x) * (1 + scale) + shift)
        return x


def _norm(x: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
    return F.layer_norm(x, x.shape[-1:])


@final
class DiT(nn.Module):
    """A diffusion transformer: patches of an image as tokens, blocks modulated by the noise level.

    Args:
        shape: (channels, height, width).
        width: d.
        depth: Number of blocks.
        heads: Attention heads; divides `width`.
        patch: Side of a patch; divides height and width.
        context: k.
        rng: Generator of the initial weights; default: seed 0.

    References: `peebles2023` section 3.2.
    """

    def __init__(
        self,
        shape: Sequence[int],
        width: int = 64,
        depth: int = 2,
        heads: int = 4,
        patch: int = 2,
        context: int = 0,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require(len(shape) == 3, "DiT.shape", "be (channels, height, width)", tuple(shape))
        require(min(width, depth, heads) >= 1, "DiT sizes", "be at least 1", (width, depth, heads))
        require(width % heads == 0, "DiT.width", f"be divisible by {heads} heads", width)
        fits = all(side % patch == 0 for side in shape[1:])
        require(fits, "DiT.patch", f"divide the sides of {tuple(shape)}", patch)
        self.patch = patch
        tokens = shape[1] * shape[2] // patch**2
        self.condition = Conditioning(width, context)
        self.first = nn.Linear(shape[0] * patch**2, width)
        self.position_table = nn.Parameter(torch.empty(tokens, width))
        self.blocks = nn.ModuleList(ModulatedBlock(width, heads) for _ in range(depth))
        self.modulation = nn.Linear(width, 2 * width)
        self.last = nn.Linear(width, shape[0] * patch**2)
        draw(self, rng)
        for name, p in self.named_parameters():
            if name.endswith(("modulation.weight", "last.weight")):
                nn.init.zeros_(p)

    def forward(self, y: Images, level: Float[Tensor, " n"], context: Given = None) -> Images:
        """The prediction."""
        condition, p = self.condition(level, context), self.patch
        high, wide = y.shape[2] // p, y.shape[3] // p
        tokens = y.unflatten(3, (wide, p)).unflatten(2, (high, p)).permute(0, 2, 4, 1, 3, 5)
        x = self.first(tokens.flatten(3).flatten(1, 2)) + self.position_table
        for block in self.blocks:
            x = block(x, condition)
        scale, shift = self.modulation(condition)[:, None].chunk(2, 2)
        out = self.last(_norm(x) * (1 + scale) + shift)
        out = out.unflatten(1, (high, wide)).unflatten(3, (y.shape[1], p, p))
        return out.permute(0, 3, 1, 4, 2, 5).reshape(y.shape)
