"""Dilated causal convolutions over time; a finite-memory network.

Shapes: b batch, n positions, d width, v vocabulary.
"""

from collections.abc import Iterator
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.errors import require
from allometry.models.convolution_cache import ConvolutionCache, initialise


@final
class FiniteMemory(nn.Module):
    r"""A feed-forward network of the last `memory` tokens, shared over time.

    $p(x_{t+1}) = \mathrm{softmax}\,(W_2\,\phi(\dots\phi(W_1 [e(x_{t-m+1}), \dots, e(x_t)])))$.

    Args:
        vocabulary: v.
        width: Size of the embedding.
        hidden: Width of the hidden layers.
        memory: m, number of input tokens.
        depth: Number of hidden layers.
        rng: Generator of the initial weights; default: seed 0.

    References: `bengio2003`.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        hidden: int,
        memory: int,
        depth: int = 1,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        sizes = (vocabulary, width, hidden, memory, depth)
        require(min(sizes) >= 1, "FiniteMemory sizes", "be at least 1", sizes)
        self.vocabulary, self.memory = vocabulary, memory
        self.table = nn.Embedding(vocabulary, width)
        self.first = nn.Conv1d(width, hidden, memory)
        self.middle = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(depth - 1))
        self.readout = nn.Linear(hidden, vocabulary)
        initialise(self, rng)

    def forward(
        self,
        tokens: Int[Tensor, "b n"],
        *,
        cache: ConvolutionCache | None = None,
        padding: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n v"]:
        """Logits of the token after each; see `Recurrent.forward` for the arguments."""
        cache = self.new_cache() if cache is None else cache
        x = F.gelu(self.first(cache.extend(0, self.table(tokens).mT, padding))).mT
        for layer in self.middle:
            x = x + F.gelu(layer(x))
        return self.readout(x)

    def new_cache(self) -> ConvolutionCache:
        """An empty cache for `model(tokens, cache=cache)`."""
        return ConvolutionCache([self.memory - 1])

    def embedding_parameters(self) -> Iterator[Tensor]:
        """Parameters of input and output: table and readout."""
        yield self.table.weight
        yield from self.readout.parameters()


@final
class CausalConvolution(nn.Module):
    r"""Gated causal convolutions whose dilation doubles from layer to layer.

    $x \leftarrow x + W\,(\tanh(K_1 * x) \odot \sigma(K_2 * x))$ with dilations 1, 2, 4, ..., which
    restart every `cycle` layers. In the papers output t predicts token t and the first layer masks
    the current token (type A); here output t predicts token t + 1, which is equivalent.

    Args:
        vocabulary: v.
        width: d.
        depth: Number of layers.
        kernel: Kernel size of every layer.
        cycle: Number of layers after which dilations restart.
        rng: Generator of the initial weights; default: seed 0.

    References: `oord2016` Eq. (2).
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        depth: int,
        kernel: int = 2,
        cycle: int = 6,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        sizes = (vocabulary, width, depth, kernel, cycle)
        require(min(sizes) >= 1, "CausalConvolution sizes", "be at least 1", sizes)
        self.vocabulary, self.kernel = vocabulary, kernel
        self.dilations = [2 ** (layer % cycle) for layer in range(depth)]
        self.table = nn.Embedding(vocabulary, width)
        self.gates = nn.ModuleList(
            nn.Conv1d(width, 2 * width, kernel, dilation=dilation) for dilation in self.dilations
        )
        self.mixes = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in self.dilations)
        self.norm = nn.LayerNorm(width)
        self.readout = nn.Linear(width, vocabulary)
        initialise(self, rng)

    @property
    def reach(self) -> int:
        """Receptive field: number of tokens that an output depends on."""
        return 1 + (self.kernel - 1) * sum(self.dilations)

    def forward(
        self,
        tokens: Int[Tensor, "b n"],
        *,
        cache: ConvolutionCache | None = None,
        padding: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n v"]:
        """Logits of the token after each; see `Recurrent.forward` for the arguments."""
        cache = self.new_cache() if cache is None else cache
        x = self.table(tokens).mT
        for layer, (gate, mix) in enumerate(zip(self.gates, self.mixes, strict=True)):
            a, b = gate(cache.extend(layer, x, padding)).chunk(2, 1)
            x = x + mix(a.tanh() * b.sigmoid())
        return self.readout(self.norm(x.mT))

    def new_cache(self) -> ConvolutionCache:
        """An empty cache for `model(tokens, cache=cache)`."""
        return ConvolutionCache([(self.kernel - 1) * d for d in self.dilations])

    def embedding_parameters(self) -> Iterator[Tensor]:
        """Parameters of input and output: table and readout."""
        yield self.table.weight
        yield from self.readout.parameters()
