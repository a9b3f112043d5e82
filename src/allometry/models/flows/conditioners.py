"""Conditioners: networks that compute the parameters of a flow layer.

Shapes: n points, d dimensions, i inputs, o outputs, c size of the context.
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
"""Lower and upper bound on the log scale of one affine layer."""

REACH = 5.0
"""Inputs of the networks are clamped to this absolute value."""

_START = math.log(STRETCH / SHRINK)


def log_scale(raw: Tensor) -> Tensor:
    r"""$s = 4.5\,\sigma(\hat s - \log 2) - 1.5$: near 0 the identity, always between -1.5 and 3.

    Shrinking loses precision: in float32 a stack that shrinks by more than about a hundred cannot
    be inverted to 1e-5. Stretching has no such limit.
    """
    # As 3 - 4.5 sigma(log 2 - s), which is the same in one call less each way.
    return torch.rsub(torch.sigmoid(torch.rsub(raw, _START)), STRETCH, alpha=SHRINK + STRETCH)


def seen(x: Tensor, reach: float = REACH) -> Tensor:
    """The input of a network: x clamped to [-reach, reach].

    Shifts and scales that grow with the tails would lose the precision of the shifted values.
    """
    return x.clamp(-reach, reach)


def draw(module: nn.Module, rng: torch.Generator | None) -> None:
    """Draw matrices and kernels from N(0, 1 / fan-in); biases 0.

    He initialisation (variance 2 / fan-in) preserves the size of activations. A flow layer adds to
    its input, so that is not needed, and a stack of smoother networks has smaller inversion
    errors.
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
    """Draw biases so that the units have their kinks at points distributed like the data.

    With zero biases all kinks are at 0, and a network of one input is linear on each side of 0.
    """
    places = torch.randn(layer.weight.shape, generator=rng)
    layer.bias.copy_(-(layer.weight * places).sum(1))


@final
class MLP(nn.Module):
    """A dense network with `depth` hidden layers, whose last layer is initialised to 0.

    A flow of such networks starts as the identity at any depth.

    Args:
        inputs: i.
        outputs: o.
        width: Width of the hidden layers.
        depth: Number of hidden layers.
        rng: Generator of the initial weights; default: seed 0.
        smooth: SiLU layers instead of ReLU layers, for fields that are differentiated.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        width: int = 64,
        depth: int = 2,
        rng: torch.Generator | None = None,
        smooth: bool = False,
    ) -> None:
        super().__init__()
        self.smooth = smooth
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
        if not self.smooth and packed_mlp.applies(x, parameters):
            return packed_mlp.perceptron(x, parameters)
        activation = F.silu if self.smooth else F.relu
        for i in range(0, len(parameters), 2):
            x = F.linear(activation(x) if i else x, *parameters[i : i + 2])
        return x


@final
class MaskedMLP(nn.Module):
    """A masked network (MADE): outputs of coordinate i depend on coordinates before i and context.

    The outputs of the first coordinate depend on the context only. Degrees are spread evenly over
    the hidden units; a unit of degree k has inputs up to k. Without context no unit has degree 0,
    because it would have no inputs.

    Args:
        dim: d.
        outputs: Outputs per coordinate.
        width: Width of the hidden layers.
        depth: Number of hidden layers.
        context: c, an input of all units.
        rng: Generator of the initial weights; default: seed 0.
        each: Inputs per coordinate.

    Attributes:
        masked: Number of weights fixed at 0, which are not parameters of the network.

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
                # One-hot inputs have no values between 0 and 1.
                _bend(cast("nn.Linear", layer), rng)
        nn.init.zeros_(self.layers[-1].weight)  # pyright: ignore[reportArgumentType]

    @torch.no_grad()
    def _thin(self) -> None:
        """Set masked weights to 0, and scale the others up to the smaller fan-in."""
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
    """The mask of each layer, from the degrees of its units."""
    # On the CPU even for a model on the meta device: masked weights must be counted.
    with torch.device("cpu"):
        places = torch.arange(1, dim + 1).repeat_interleave(each)
        inputs = torch.cat([torch.zeros(context), places])
        # No output depends on degree d. With fewer units than degrees, the units are spread over
        # all degrees.
        least = 0 if context or dim == 1 else 1
        hidden = least + torch.arange(width) * (dim - least) // width
        last = torch.arange(dim).repeat_interleave(outputs)
        degrees = [inputs, *[hidden] * depth, last]
        return [high[:, None] >= low[None] for low, high in itertools.pairwise(degrees)]


@final
class ConvNet(nn.Module):
    """Three convolutions (3 x 3, 1 x 1, 3 x 3), the last initialised to 0, as in GLOW.

    Args:
        inputs: Input channels.
        outputs: Output channels.
        width: Hidden channels.
        rng: Generator of the initial weights; default: seed 0.

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
