"""GLOW: multi-scale flows of images by squeezing, mixing channels and coupling.

Shapes: n images, c channels, h height, w width.
"""

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from allometry._core.errors import require
from allometry.models.flows.conditioners import ConvNet, log_scale, seen
from allometry.models.flows.invertible_linear import ActNorm, InvertibleLinear
from allometry.models.flows.transform import Context, LogDet, Transform

Images = Float[Tensor, "n c h w"]


def _wide(x: Images) -> Images:
    # Apple's devices have no float64.
    return x if x.device.type == "mps" else x.double()


def _read(network: nn.Module, x: Images) -> Float[Tensor, "n o h w"]:
    """Output of a network for x, computed in the dtype of its weights."""
    return network(seen(x).to(next(network.parameters()).dtype))


@final
class Squeeze(Transform):
    """Every 2 x 2 block of pixels becomes one pixel of four times the channels.

    References: `dinh2017` section 3.6.
    """

    def forward(self, x: Images, context: Context = None) -> tuple[Tensor, LogDet]:
        """Blocks to channels."""
        even = x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0
        require(even, "Squeeze", "be given an even height and width", tuple(x.shape[2:]))
        return nn.functional.pixel_unshuffle(x, 2), x.new_zeros(len(x))

    def inverse(self, z: Images, context: Context = None) -> Tensor:
        """Channels to blocks."""
        return nn.functional.pixel_shuffle(z, 2)


@final
class ImageCoupling(Transform):
    r"""Affine coupling between halves of the channels, with a convolutional network.

    $z_A = x_A$, $z_B = x_B\,e^{s(x_A)} + t(x_A)$.

    Differs from the paper: its scale is $\sigma(\hat s + 2)$, which only shrinks; here $s$
    saturates smoothly at -1.5 and 3 and the network's input $x_A$ is clamped to [-5, 5].

    Args:
        channels: c.
        width: Hidden channels of the network.
        rng: Generator of the initial weights; default: seed 0.

    References: `kingma2018` section 3.3; `dinh2017`.
    """

    def __init__(self, channels: int, width: int = 64, rng: torch.Generator | None = None) -> None:
        super().__init__()
        require(channels >= 2, "ImageCoupling.channels", "be at least 2", channels)
        self.seen = channels - channels // 2
        self.network = ConvNet(self.seen, 2 * (channels // 2), width, rng)

    def _numbers(self, given: Tensor) -> tuple[Tensor, Tensor]:
        s, t = _read(self.network, given).chunk(2, 1)
        return log_scale(s), t

    def forward(self, x: Images, context: Context = None) -> tuple[Images, LogDet]:
        """Scale and shift the second half."""
        given, moved = x.split([self.seen, x.shape[1] - self.seen], 1)
        s, t = self._numbers(given)
        return torch.cat([given, torch.addcmul(t, moved, s.exp())], 1), s.flatten(1).sum(1)

    def inverse(self, z: Images, context: Context = None) -> Images:
        """Invert the affine transform."""
        given, moved = z[:, : self.seen], z[:, self.seen :]
        s, t = self._numbers(given)
        return torch.cat([given, (moved - t) * (-s).exp()], 1)


@final
class MultiScale(Transform):
    r"""Multi-scale architecture: after each level but the last, half of the channels are output.

    The factored-out half is normal with mean and scale from a network of the other half, which is
    an affine layer: $z_B = (x_B - \mu(x_A))\,e^{-\lambda(x_A)}$. The noise of all levels is
    arranged in the shape of the image.

    Activations between layers are float64 for every dtype of the weights. This costs little
    compared with the convolutions; rounding after each of so many layers would make the inverse
    inaccurate in float32.

    Args:
        levels: Transforms of each level, the squeeze first.
        channels: Channels at the end of each level.
        width: Hidden channels of the networks of the factored-out halves.
        rng: Generator of the initial weights; default: seed 0.

    References: `dinh2017` section 3.6; `kingma2018` Figure 2.
    """

    def __init__(
        self,
        levels: Sequence[Sequence[Transform]],
        channels: Sequence[int],
        width: int = 64,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require(len(levels) >= 1, "MultiScale.levels", "have at least one", len(levels))
        self.levels = nn.ModuleList(nn.ModuleList(level) for level in levels)
        self.readers = nn.ModuleList(
            ConvNet(c - c // 2, 2 * (c // 2), width, rng) for c in channels[:-1]
        )
        self.stay = [c - c // 2 for c in channels[:-1]]

    @torch.no_grad()
    def initialise(self, x: Images, context: Context = None) -> None:
        """Data-dependent initialisation of each transform on the output of the previous."""
        for i, level in enumerate(self.levels):
            for transform in level:  # pyright: ignore[reportGeneralTypeIssues]
                transform.initialise(x, context)
                x, _ = transform(x, context)
            if i < len(self.readers):
                x = x[:, : self.stay[i]]

    def forward(self, x: Images, context: Context = None) -> tuple[Images, LogDet]:
        """Down the levels."""
        shape, dtype = x.shape, x.dtype
        x = _wide(x)
        total, gone = x.new_zeros(len(x)), []
        for i, level in enumerate(self.levels):
            for transform in level:  # pyright: ignore[reportGeneralTypeIssues]
                x, logdet = transform(x, context)
                total = total + logdet
            if i < len(self.readers):
                x, leaving = x[:, : self.stay[i]], x[:, self.stay[i] :]
                mean, log_sd = self._leaving(i, x)
                gone.append(((leaving - mean) * (-log_sd).exp()).flatten(1))
                total = total - log_sd.flatten(1).sum(1)
        return torch.cat([*gone, x.flatten(1)], 1).view(shape).to(dtype), total.to(dtype)

    def _leaving(self, level: int, stays: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = _read(self.readers[level], stays).chunk(2, 1)
        # The scale is exp of minus this, so the bounds are those of an inverted layer.
        return mean, -log_scale(-raw)

    def inverse(self, z: Images, context: Context = None) -> Images:
        """Up the levels."""
        n, c, h, w = z.shape
        flat, shapes = _wide(z).flatten(1), []
        for i in range(len(self.levels)):
            c, h, w = 4 * c, h // 2, w // 2
            if i < len(self.readers):
                shapes.append((c - self.stay[i], h, w))
                c = self.stay[i]
        shapes.append((c, h, w))
        parts = flat.split([a * b * d for a, b, d in shapes], 1)
        x = parts[-1].view(n, *shapes[-1])
        for i in reversed(range(len(self.levels))):
            if i < len(self.readers):
                mean, log_sd = self._leaving(i, x)
                left = parts[i].view(n, *shapes[i]) * log_sd.exp() + mean
                x = torch.cat([x, left], 1)
            for transform in reversed(list(self.levels[i])):  # pyright: ignore[reportArgumentType]
                x = transform.inverse(x, context)
        return x.to(z.dtype)


def glow_levels(
    shape: Sequence[int],
    levels: int,
    steps: int,
    width: int,
    rng: torch.Generator | None,
) -> MultiScale:
    """Levels of a squeeze and `steps` times (actnorm, 1 x 1 convolution, coupling)."""
    c, h, w = shape
    fix = "Use fewer levels or pad the images."
    fine = h % 2**levels == 0 and w % 2**levels == 0
    require(fine, "glow.shape", f"halve {levels} times", (h, w), fix)
    built, ends = [], []
    for level in range(levels):
        c = 4 * c
        layers: list[Transform] = [Squeeze()]
        for _ in range(steps):
            layers += [ActNorm(c), InvertibleLinear(c, rng), ImageCoupling(c, width, rng)]
        built.append(layers)
        ends.append(c)
        if level < levels - 1:
            c = c - c // 2
    return MultiScale(built, ends, width, rng)
