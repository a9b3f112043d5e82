"""PixelCNN: masked convolutions over images.

Shapes: b batch, c colours, d width, v levels, h and w image height and width.
"""

from collections.abc import Iterator
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.errors import require
from allometry.models.convolution_cache import initialise

FIRST = 7
"""Side of the first kernel."""


@final
class PastConvolution(nn.Module):
    """A square kernel whose cells after the centre, in raster order, are masked.

    Masked cells are not parameters: only the cells before the centre and, for type B, the centre
    are stored.

    Args:
        width: Input and output channels.
        kernel: Side, odd.
        present: Whether the centre is included (type B) or masked (type A).

    References: `vandenoord2016` Sec. 3.4.
    """

    def __init__(self, width: int, kernel: int, present: bool) -> None:
        super().__init__()
        require(kernel % 2 == 1, "kernel", "be odd", kernel)
        self.kernel, self.cells = kernel, kernel**2 // 2 + present
        self.weight = nn.Parameter(torch.empty(width, width, self.cells))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Float[Tensor, "b d h w"]) -> Float[Tensor, "b d h w"]:
        """The masked convolution at every pixel."""
        reach, rows = self.kernel // 2, self.kernel // 2 + 1
        weight = F.pad(self.weight, (0, rows * self.kernel - self.cells))
        weight = weight.unflatten(2, (rows, self.kernel))
        return F.conv2d(F.pad(x, (reach, reach, reach, 0)), weight, self.bias)

    def at(self, seen: Float[Tensor, "b d y x"], i: int, j: int) -> Float[Tensor, "b d"]:
        """The masked convolution at one pixel of an image padded by half a kernel."""
        rows = self.kernel // 2 + 1
        patch = seen[:, :, i : i + rows, j : j + self.kernel].flatten(2)[:, :, : self.cells]
        return torch.addmm(self.bias, patch.flatten(1), self.weight.flatten(1).T)


@final
class PixelCNN(nn.Module):
    r"""Masked convolutions over an image in raster order; each value is one of `levels` classes.

    $p(x) = \prod_i p(x_i \mid x_{<i})$. The first kernel (type A) masks the centre, the others
    (type B) do not, so the logits at a pixel depend only on earlier pixels. The colours of a pixel
    are separate positions of the row. As in the paper, a wedge to the upper right of a pixel is a
    blind spot.

    Args:
        levels: Number of values of a pixel, 0..levels-1.
        width: Channels.
        depth: Layers after the first.
        kernel: Side of the later kernels, odd; the first is 7.
        colours: Values per pixel, adjacent in a row; 1 for grey.
        rng: Generator of the initial weights; default: seed 0.

    References: `vandenoord2016` Sec. 3.4 (masks) and 3.3 (residual blocks, simplified).
    """

    def __init__(
        self,
        levels: int = 256,
        width: int = 32,
        depth: int = 4,
        kernel: int = 3,
        colours: int = 1,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require(levels >= 2, "PixelCNN.levels", "be at least 2", levels)
        sizes = (width, depth, colours)
        require(min(sizes) >= 1, "PixelCNN sizes", "be at least 1", sizes)
        self.levels, self.colours = levels, colours
        self.table = nn.Embedding(levels, width)
        # A convolution is translation invariant, so the colour of a position is an extra input.
        self.colour = nn.Embedding(colours, width) if colours > 1 else None
        self.first = PastConvolution(width, FIRST, present=False)
        self.later = nn.ModuleList(
            PastConvolution(width, kernel, present=True) for _ in range(depth)
        )
        self.readout = nn.Linear(width, levels)
        initialise(self, rng)

    def forward(self, images: Int[Tensor, "b h w"]) -> Float[Tensor, "b h w v"]:
        """Logits of every pixel given earlier pixels."""
        x = self.first(self.table(images).permute(0, 3, 1, 2))
        if self.colour is not None:
            which = torch.arange(images.shape[2], device=images.device) % self.colours
            x = x + self.colour(which).T[None, :, None]
        for layer in self.later:
            x = x + layer(F.gelu(x))
        return self.readout(F.gelu(x).permute(0, 2, 3, 1))

    def log_prob(self, images: Int[Tensor, "b h w"]) -> Float[Tensor, " b"]:
        """The log-probability of each image, in nats."""
        log_p = self(images).log_softmax(-1)
        return log_p.gather(-1, images[..., None])[..., 0].flatten(1).sum(1)

    @torch.no_grad()
    def sample(
        self, n: int, height: int, width: int, rng: torch.Generator
    ) -> Int[Tensor, "{n} {height} {width}"]:
        """Draw n images pixel by pixel.

        Activations of earlier pixels are cached, so a pixel does not cost a pass over an image.
        """
        weight = self.table.weight
        images = torch.zeros(n, height, width, dtype=torch.int64, device=weight.device)
        layers = [layer for layer in self.later if isinstance(layer, PastConvolution)]
        margins = [FIRST // 2, *(layer.kernel // 2 for layer in layers)]
        kept = [weight.new_zeros(n, weight.shape[1], height + m, width + 2 * m) for m in margins]
        for i in range(height):
            for j in range(width):
                x = self.first.at(kept[0], i, j)
                if self.colour is not None:
                    x = x + self.colour.weight[j % self.colours]
                for layer, margin, seen in zip(layers, margins[1:], kept[1:], strict=True):
                    seen[:, :, i + margin, j + margin] = F.gelu(x)
                    x = x + layer.at(seen, i, j)
                p = self.readout(F.gelu(x)).double().softmax(-1)
                drawn = torch.multinomial(p.to(rng.device), 1, generator=rng)
                images[:, i, j] = drawn[:, 0].to(p.device)
                kept[0][:, :, i + margins[0], j + margins[0]] = weight[images[:, i, j]]
        return images

    def embedding_parameters(self) -> Iterator[Tensor]:
        """Parameters of input and output: tables and readout."""
        yield self.table.weight
        if self.colour is not None:
            yield self.colour.weight
        yield from self.readout.parameters()
