"""Encoders and decoders: dense and convolutional.

Shapes: n examples, i inputs, o outputs, c channels, h height, w width.
"""

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from allometry._core.errors import require
from allometry.models import packed_mlp


def draw(module: nn.Module, rng: torch.Generator | None) -> None:
    """Draw matrices and kernels from N(0, 1.5 / fan-in); biases 0."""
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    if next(module.parameters()).device.type == "meta":
        return
    with torch.no_grad():
        for part in module.modules():
            for p in part.parameters(recurse=False):
                if p.ndim < 2:
                    p.zero_()
                else:
                    turned = isinstance(part, nn.ConvTranspose2d)
                    fan = p[:, 0].numel() / 4 if turned else p[0].numel()
                    p.normal_(0.0, (1.5 / fan) ** 0.5, generator=rng)


@final
class Dense(nn.Module):
    """A stack of linear layers with ReLU between; without hidden layers it is linear.

    Args:
        inputs: Shape of the input.
        outputs: Shape of the output.
        hidden: Widths of the hidden layers.
        rng: Generator of the initial weights; default: seed 0.
    """

    def __init__(
        self,
        inputs: Sequence[int],
        outputs: Sequence[int],
        hidden: Sequence[int] = (),
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        sizes = [torch.Size(inputs).numel(), *hidden, torch.Size(outputs).numel()]
        require(min(sizes) >= 1, "Dense sizes", "be at least 1", sizes)
        layers: list[nn.Module] = []
        for i in range(len(sizes) - 1):
            layers += [nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])
        draw(self, rng)

    def forward(self, x: Float[Tensor, "n *i"]) -> Float[Tensor, "n *o"]:
        """The outputs, reshaped."""
        return packed_mlp.relu_layers(x, self.layers).unflatten(1, self.outputs)


@final
class Down(nn.Module):
    """Images to a grid of vectors: a stride-2 convolution per halving, then a 1 x 1.

    Args:
        channels: c of the images.
        outputs: Output channels.
        width: Hidden channels.
        halvings: How often height and width are halved.
        rng: Generator of the initial weights; default: seed 0.
    """

    def __init__(
        self,
        channels: int,
        outputs: int,
        width: int = 64,
        halvings: int = 1,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
        for _ in range(halvings):
            layers += [nn.Conv2d(width, width, 4, stride=2, padding=1), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(width, outputs, 1))
        draw(self, rng)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n o h2 w2"]:
        """The grid."""
        return self.layers(x)


@final
class Up(nn.Module):
    """A grid of vectors to images: the mirror of `Down`.

    Args:
        inputs: Input channels.
        channels: Channels of the images.
        width: Hidden channels.
        doublings: How often height and width are doubled.
        rng: Generator of the initial weights; default: seed 0.
    """

    def __init__(
        self,
        inputs: int,
        channels: int,
        width: int = 64,
        doublings: int = 1,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
        for _ in range(doublings):
            layers += [nn.ConvTranspose2d(width, width, 4, stride=2, padding=1), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(width, channels, 3, padding=1))
        draw(self, rng)

    def forward(self, x: Float[Tensor, "n i h w"]) -> Float[Tensor, "n c h2 w2"]:
        """The images."""
        return self.layers(x)
