r"""Networks whose layers multiply linear forms: polynomials of a chosen degree.

A layer of degree d is $P_d(x) = \prod_{k=1}^d (W_k x + b_k)$, entry by entry; L of them make a
polynomial of degree $d^L$. Linear attention is such a layer across tokens. Without activation and
norm all of these are polynomials in inputs and weights, so they can be evaluated exactly modulo a
prime: every module takes `reduce`, which is applied after each product (see `measure.Field`).

Shapes: b batch, n tokens, i inputs, w width, d degree, h heads.
"""

import math
from collections.abc import Callable, Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.errors import require
from allometry.models.polynomial_layers import (
    Fractional,
    Mixed,
    Product,
    Reduce,
    Tied,
    exactly,
    normal,
)


@final
class PolynomialNetwork(nn.Module):
    r"""$T_{d_1 \dots d_L}$: layers of chosen degrees and a linear output layer.

    Args:
        inputs: i.
        width: w, of every layer.
        degrees: One for each layer; an integer makes a `Product`, another one a `Mixed` layer,
            or a `Fractional` one if `fractional`.
        outputs: Size of the readout; `None` gives the last layer itself.
        bias: Whether linear forms have one (`Product` only).
        heads: Products per unit that are summed with weights, like attention heads.
        norm: RMS norm after each layer but the last. Not a polynomial, but deep products need it
            to train.
        activation: After each layer but the last.
        fractional: See `degrees`.
        tied: Whether the forms of an integer degree share their weights (`Tied`).
        rng: Generator of the weights; default: seed 0.

    Example:
        >>> net = PolynomialNetwork(inputs=4, width=8, degrees=[3, 3])
        >>> net(torch.ones(5, 4)).shape
        torch.Size([5, 1])
    """

    def __init__(
        self,
        inputs: int,
        width: int,
        degrees: Sequence[float | int],
        outputs: int | None = 1,
        *,
        bias: bool = True,
        heads: int = 1,
        norm: bool = False,
        activation: Callable[[Tensor], Tensor] | None = None,
        fractional: bool = False,
        tied: bool = False,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require(len(degrees) > 0, "degrees", "name at least one layer", degrees)
        require(min(degrees) >= 1, "degrees", "be at least 1", degrees)
        for name, size in (("inputs", inputs), ("width", width), ("heads", heads)):
            require(size >= 1, f"PolynomialNetwork.{name}", "be at least 1", size)
        require(bias or not tied, "PolynomialNetwork.bias", "be True if forms are tied", bias)
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        self.norm, self.activation = norm, activation
        self.inputs, self.width = inputs, width
        self.degrees = tuple(degrees)
        layers, mixes = [], []
        for place, degree in enumerate(degrees):
            size = (inputs if place == 0 else width, width * heads)
            if float(degree).is_integer() and tied:
                layers.append(Tied(*size, int(degree), rng))
            elif float(degree).is_integer():
                layers.append(Product(*size, int(degree), bias, rng))
            elif fractional:
                layers.append(Fractional(*size, degree, rng))
            else:
                layers.append(Mixed(*size, degree, rng))
            if heads > 1:
                mixes.append(normal(width, width * heads, std=heads**-0.5, rng=rng))
        self.layers, self.mixes = nn.ModuleList(layers), nn.ParameterList(mixes)
        std = 1 / math.sqrt(width)
        self.readout = None if outputs is None else normal(outputs, width, std=std, rng=rng)
        self.readout_bias = None if outputs is None else nn.Parameter(torch.zeros(outputs))

    @property
    def polynomial(self) -> bool:
        """Whether it can be evaluated modulo a prime."""
        powers = any(isinstance(layer, Fractional) for layer in self.layers)
        return not (powers or self.norm or self.activation is not None)

    def forward(self, x: Float[Tensor, "b i"], reduce: Reduce = exactly) -> Float[Tensor, "b _"]:
        """Outputs, reduced by `reduce`."""
        plain = self.polynomial or reduce is exactly
        require(plain, "reduce", "be omitted: this is not a polynomial", "a field")
        last = len(self.layers) - 1
        for place, layer in enumerate(self.layers):
            x = layer(x, reduce)
            x = reduce(F.linear(x, self.mixes[place])) if len(self.mixes) else x
            if place < last and self.norm:
                x = F.rms_norm(x, (self.width,))
            if place < last and self.activation is not None:
                x = self.activation(x)
        if self.readout is None:
            return x
        return reduce(F.linear(x, self.readout, self.readout_bias))


@final
class PolynomialAttention(nn.Module):
    r"""Attention of degree d without softmax, in two forms that exist for every d.

    Hadamard-pooled, $y_i = W_O[(W_1 x_i) \odot \sum_j (W_2 x_j \odot \dots \odot W_d x_j)]$, for
    d = 3 multi-head linear attention with heads of size 1, and multi-pooled,
    $y_i = W_O[(W_1 x_i) \odot (\sum_j W_2 x_j) \odot \dots \odot (\sum_j W_d x_j)]$.

    Args:
        width: w, the size of a token.
        degree: d, at least 2.
        depth: Number of layers.
        pooled: `"hadamard"` or `"multi"`.
        norm: RMS norm of the tokens after each layer but the last.
        rng: Generator of the weights; default: seed 0.
    """

    def __init__(
        self,
        width: int,
        degree: int,
        depth: int,
        pooled: str = "hadamard",
        *,
        norm: bool = False,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require(degree >= 2, "PolynomialAttention.degree", "be at least 2", degree)
        require(pooled in ("hadamard", "multi"), "pooled", "be hadamard or multi", pooled)
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        self.degree, self.depth, self.pooled, self.norm = degree, depth, pooled, norm
        std = width**-0.5
        self.weight = normal(depth, degree, width, width, std=std, rng=rng)
        self.output = normal(depth, width, width, std=std, rng=rng)

    def forward(
        self, x: Float[Tensor, "b n w"], reduce: Reduce = exactly
    ) -> Float[Tensor, "b n w"]:
        """Every token after the last layer."""
        require(
            not self.norm or reduce is exactly,
            "reduce",
            "be omitted: this is not a polynomial",
            "",
        )
        for layer in range(self.depth):
            weight = self.weight[layer]
            pool: Tensor | None = None
            for k in range(1, self.degree):
                form = reduce(F.linear(x, weight[k]))
                form = reduce(form.sum(1, keepdim=True)) if self.pooled == "multi" else form
                pool = form if pool is None else reduce(pool * form)
            assert pool is not None
            pool = pool if self.pooled == "multi" else reduce(pool.sum(1, keepdim=True))
            y = reduce(reduce(F.linear(x, weight[0])) * pool)
            x = reduce(F.linear(y, self.output[layer]))
            if self.norm and layer < self.depth - 1:
                x = F.rms_norm(x, x.shape[-1:])
        return x


@final
class LinearAttention(nn.Module):
    r"""Standard attention without its softmax, a polynomial of degree 3 in every layer.

    $y_i = \sum_h W_O^h \sum_j (q_i^h \cdot k_j^h)\, v_j^h$.

    Args:
        width: w.
        heads: h; divides the width.
        depth: Number of layers.
        rng: Generator of the weights; default: seed 0.

    References: `katharopoulos2020`.
    """

    def __init__(
        self, width: int, heads: int, depth: int, rng: torch.Generator | None = None
    ) -> None:
        super().__init__()
        require(width % heads == 0, "LinearAttention.heads", f"divide {width}", heads)
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        self.heads, self.depth = heads, depth
        self.weight = normal(depth, 4, width, width, std=width**-0.5, rng=rng)

    def forward(
        self, x: Float[Tensor, "b n w"], reduce: Reduce = exactly
    ) -> Float[Tensor, "b n w"]:
        """Every token after the last layer."""
        for layer in range(self.depth):
            q, k, v = (
                reduce(F.linear(x, self.weight[layer, part])).unflatten(-1, (self.heads, -1))
                for part in range(3)
            )
            memory = reduce(torch.einsum("bnhk,bnhv->bhkv", k, v))
            y = reduce(torch.einsum("bnhk,bhkv->bnhv", q, memory)).flatten(2)
            x = reduce(F.linear(y, self.weight[layer, 3]))
        return x


@final
class Mixer(nn.Module):
    r"""MLP-Mixer: a two-layer map across tokens, then one across channels.

    $U = W_2\,\phi(W_1 X)$, then $Y = \phi(U W_3) W_4$, biases omitted here, with
    $\phi(z) = z^{\mathrm{degree}}$; degree 1 is the linear Mixer, whose separation rank is 2 at
    any depth.

    Args:
        tokens: n.
        width: w.
        depth: Number of layers.
        degree: Degree of the activation.
        activation: Replaces the power; the network is then not a polynomial.
        skip: Skip connections with RMS norm, for training.
        rng: Generator of the weights; default: seed 0.

    References: `tolstikhin2021`.
    """

    def __init__(
        self,
        tokens: int,
        width: int,
        depth: int,
        degree: int = 1,
        *,
        activation: Callable[[Tensor], Tensor] | None = None,
        skip: bool = False,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(0) if rng is None else rng
        self.depth, self.degree, self.activation, self.skip = depth, degree, activation, skip
        self.across = normal(depth, 2, tokens, tokens, std=tokens**-0.5, rng=rng)
        self.channels = normal(depth, 2, width, width, std=width**-0.5, rng=rng)
        self.across_bias = nn.Parameter(torch.zeros(depth, 2, tokens))
        self.channels_bias = nn.Parameter(torch.zeros(depth, 2, width))

    def forward(
        self, x: Float[Tensor, "b n w"], reduce: Reduce = exactly
    ) -> Float[Tensor, "b n w"]:
        """Every token after the last layer."""
        plain = self.activation is None and not self.skip
        require(plain or reduce is exactly, "reduce", "be omitted: this is not a polynomial", "")
        for layer in range(self.depth):
            x = self._map(x.mT, self.across[layer], self.across_bias[layer], reduce).mT
            x = self._map(x, self.channels[layer], self.channels_bias[layer], reduce)
        return x

    def _map(self, x: Tensor, weight: Tensor, bias: Tensor, reduce: Reduce) -> Tensor:
        inside = reduce(
            F.linear(F.rms_norm(x, x.shape[-1:]) if self.skip else x, weight[0], bias[0])
        )
        y = reduce(F.linear(self._activate(inside, reduce), weight[1], bias[1]))
        return x + y if self.skip else y

    def _activate(self, x: Tensor, reduce: Reduce) -> Tensor:
        if self.activation is not None:
            return self.activation(x)
        y = x
        for _ in range(self.degree - 1):
            y = reduce(y * x)
        return y
