"""Networks that say how a layer transforms one part of a point, given the other.

Letters: n points, d dimensions, i inputs, o outputs, c size of the context.
"""

import itertools
import math
from typing import cast, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.errors import require
from allometry.models import packed_mlp

SHRINK, STRETCH = 1.5, 3.0
"""Bounds on the log scale of one affine layer, downwards and upwards."""

REACH = 5.0
"""How far from 0 a network still tells numbers apart."""

_START = math.log(STRETCH / SHRINK)


def log_scale(raw: Tensor) -> Tensor:
    r"""$s = 4.5\,\sigma(\hat s - \log 2) - 1.5$: near 0 the identity, always between -1.5 and 3.

    What a layer shrinks is rounded more coarsely and can't be told apart again: in float32 a stack
    that shrinks by more than about a hundred can't be undone to 1e-5. Stretching costs nothing.
    """
    # As 3 - 4.5 sigma(log 2 - s), which is the same in one call less each way.
    return torch.rsub(torch.sigmoid(torch.rsub(raw, _START)), STRETCH, alpha=SHRINK + STRETCH)


def seen(x: Tensor, reach: float = REACH) -> Tensor:
    """What a network is shown of x: far tails as if they were no farther than `reach`.

    Shifts and scales that grew with the tails would drown the numbers that they move.
    """
    return x.clamp(-reach, reach)


def draw(module: nn.Module, rng: torch.Generator | None) -> None:
    """Draw matrices and kernels from N(0, 1 / fan-in); biases 0.

    Rectified layers are often drawn twice as wide, to keep the size of what goes through them. A
    layer of a flow adds to what it moves, so there is nothing to keep, and a stack of less steep
    networks is undone with smaller errors.
    """
    if next(module.parameters()).device.type == "meta":
        return
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    with torch.no_grad():
        for p in module.parameters():
            if p.ndim < 2:
                p.zero_()
            else:
                p.normal_(0.0, p[0].numel() ** -0.5, generator=rng)


@torch.no_grad()
def _bend(layer: nn.Linear, rng: torch.Generator) -> None:
    """Let each unit of a layer bend at a place drawn as data are, not all of them at 0.

    Of a single input a network could else tell nothing but the sign.
    """
    places = torch.randn(layer.weight.shape, generator=rng)
    layer.bias.copy_(-(layer.weight * places).sum(1))


@final
class MLP(nn.Module):
    """A plain network with `depth` hidden layers, whose last layer is 0 at the start.

    A flow made of such networks begins as the identity, whatever its length.

    Args:
        inputs: i.
        outputs: o.
        width: Of the hidden layers.
        depth: How many.
        rng: Source of the initial weights; `None` means seed 0.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        width: int = 64,
        depth: int = 2,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require(min(inputs, outputs, width, depth) >= 1, "MLP sizes", "be at least 1", width)
        sizes = [inputs, *[width] * depth, outputs]
        pairs = itertools.pairwise(sizes)
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairs)
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        draw(self, rng)
        first, last = self.layers[0], self.layers[-1]
        nn.init.zeros_(last.weight)  # pyright: ignore[reportArgumentType]
        if first.weight.device.type != "meta":
            _bend(cast("nn.Linear", first), rng)

    def forward(self, x: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        """The outputs."""
        parameters = [
            cast("Tensor", p) for layer in self.layers for p in (layer.weight, layer.bias)
        ]
        if packed_mlp.applies(x, parameters):
            return packed_mlp.perceptron(x, parameters)
        for i in range(0, len(parameters), 2):
            x = F.linear(F.relu(x) if i else x, *parameters[i : i + 2])
        return x


@final
class MaskedMLP(nn.Module):
    """A network whose outputs for coordinate i see only the coordinates before it (and a context).

    The first coordinate's outputs are constants of the context. Hidden units are dealt evenly to
    the coordinates, and a unit of degree k sees inputs up to k. Where there is no context no unit
    has the degree 0, for it would see nothing.

    Args:
        dim: d.
        outputs: Per coordinate.
        width: Of the hidden layers.
        depth: How many.
        context: c, seen by all.
        rng: Source of the initial weights; `None` means seed 0.
        each: Numbers that come in for each coordinate.

    Attributes:
        masked: Weights that are held at 0 and are no parameters of the network.

    References: `germain2015` section 4.
    """

    def __init__(
        self,
        dim: int,
        outputs: int,
        width: int = 64,
        depth: int = 2,
        context: int = 0,
        rng: torch.Generator | None = None,
        each: int = 1,
    ) -> None:
        super().__init__()
        require(min(dim, outputs, width, depth) >= 1, "MaskedMLP sizes", "be at least 1", width)
        self.dim, self.outputs, self.masked = dim, outputs, 0
        self.layers = nn.ModuleList()
        for i, mask in enumerate(_masks(dim, outputs, width, depth, context, each)):
            layer = nn.Linear(mask.shape[1], len(mask))
            self.layers.append(layer)
            self.masked += mask.numel() - int(mask.sum())
            shown = mask.to(layer.weight.device, torch.get_default_dtype())
            self.register_buffer(f"mask{i}", shown, persistent=False)
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        draw(self, rng)
        first = cast("nn.Linear", self.layers[0])
        if first.weight.device.type != "meta":
            self._thin()
            for layer in self.layers[0 if each == 1 else 1 : -1]:
                # Of a one-hot number there is no place between.
                _bend(cast("nn.Linear", layer), rng)
        nn.init.zeros_(self.layers[-1].weight)  # pyright: ignore[reportArgumentType]

    @torch.no_grad()
    def _thin(self) -> None:
        """Weights of 0 at the masks, and as much wider ones beside them as fewer come in."""
        for i, layer in enumerate(self.layers):
            weight, mask = cast("Tensor", layer.weight), cast("Tensor", getattr(self, f"mask{i}"))
            free = mask.sum(1, keepdim=True).clamp(min=1)
            weight.mul_(mask * (mask.shape[1] / free).sqrt())

    def forward(
        self, x: Float[Tensor, "n i"], context: Float[Tensor, "n c"] | None = None
    ) -> Float[Tensor, "n d o"]:
        """Parameters of every coordinate."""
        h = x if context is None else torch.cat([context, x], 1)
        for i, layer in enumerate(self.layers):
            weight, bias = cast("Tensor", layer.weight), cast("Tensor", layer.bias)
            h = F.linear(F.relu(h) if i else h, weight * getattr(self, f"mask{i}"), bias)
        return h.unflatten(1, (self.dim, self.outputs))


def _masks(
    dim: int, outputs: int, width: int, depth: int, context: int, each: int
) -> list[Bool[Tensor, "o i"]]:
    """Which input each unit of each layer may see, by degrees."""
    # On the processor even where a model is only sketched: masked weights are to be counted.
    with torch.device("cpu"):
        places = torch.arange(1, dim + 1).repeat_interleave(each)
        inputs = torch.cat([torch.zeros(context), places])
        # Degree d would be of use to nobody. Where there are fewer units than degrees they are
        # spread over all of them.
        least = 0 if context or dim == 1 else 1
        hidden = least + torch.arange(width) * (dim - least) // width
        last = torch.arange(dim).repeat_interleave(outputs)
        degrees = [inputs, *[hidden] * depth, last]
        return [high[:, None] >= low[None] for low, high in itertools.pairwise(degrees)]


@final
class ConvNet(nn.Module):
    """Three convolutions (3 x 3, 1 x 1, 3 x 3), the last 0 at the start, as GLOW has them.

    Args:
        inputs: Channels in.
        outputs: Channels out.
        width: Channels between.
        rng: Source of the initial weights; `None` means seed 0.

    References: `kingma2018` section 3.3.
    """

    def __init__(
        self, inputs: int, outputs: int, width: int = 64, rng: torch.Generator | None = None
    ) -> None:
        super().__init__()
        require(min(inputs, outputs, width) >= 1, "ConvNet sizes", "be at least 1", width)
        self.first = nn.Conv2d(inputs, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 1)
        self.third = nn.Conv2d(width, outputs, 3, padding=1)
        draw(self, rng)
        nn.init.zeros_(self.third.weight)

    def forward(self, x: Float[Tensor, "n i h w"]) -> Float[Tensor, "n o h w"]:
        """The outputs, of the same height and width."""
        return self.third(F.relu(self.second(F.relu(self.first(x)))))
