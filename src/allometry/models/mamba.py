r"""Mamba: a selective state-space language model, parallel in training, one step in generation.

Shapes: b batch, l positions, d width, e inner channels, n states, r rank of the step sizes,
v vocabulary.
"""

import math
from collections.abc import Iterator
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.errors import require
from allometry.models.convolution_cache import ConvolutionCache
from allometry.models.selective_scan import scan_step, selective_scan
from allometry.models.transformer.attention import RMS_EPS

STEP_SIZES = (1e-3, 1e-1)
"""Smallest and largest initial step size."""


@final
class MambaCache:
    """The state of a Mamba: last inputs of each convolution, and the states of each layer."""

    def __init__(self, depth: int, reach: int) -> None:
        self.inputs = ConvolutionCache([reach] * depth)
        self.states: list[Tensor | None] = [None] * depth

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep, repeat or reorder the batch rows."""
        self.inputs.select(rows)
        self.states = [None if s is None else s[rows] for s in self.states]


@final
class MambaMixer(nn.Module):
    r"""The block of Mamba without norm and skip connection.

    $u, z = W_{in} x$; $u \leftarrow \mathrm{SiLU}(\mathrm{conv}(u))$; step sizes
    $\Delta = \mathrm{softplus}(W_\Delta s + b)$ and $B$, $C$ from $(s, B, C) = W_x u$; the scan
    with $A = -e^{a}$; then $W_{out}[(y + D \odot u) \odot \mathrm{SiLU}(z)]$. Weights have the
    names of `transformers`' `MambaMixer`.

    Args:
        width: d.
        states: n.
        expand: e / d.
        kernel: Size of the convolution.

    References: `gu2023` section 3.4 and Algorithm 2.
    """

    def __init__(self, width: int, states: int = 16, expand: int = 2, kernel: int = 4) -> None:
        super().__init__()
        inner, self.states = expand * width, states
        self.rank = math.ceil(width / 16)
        self.in_proj = nn.Linear(width, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, kernel, groups=inner)
        self.x_proj = nn.Linear(inner, self.rank + 2 * states, bias=False)
        self.dt_proj = nn.Linear(self.rank, inner)
        self.A_log = nn.Parameter(torch.empty(inner, states))
        self.D = nn.Parameter(torch.empty(inner))
        self.out_proj = nn.Linear(inner, width, bias=False)

    def forward(
        self,
        x: Float[Tensor, "b l d"],
        cache: MambaCache,
        layer: int,
        padding: Bool[Tensor, "b l"] | None = None,
    ) -> Float[Tensor, "b l d"]:
        """The block's output; `cache` is extended."""
        u, z = self.in_proj(x).chunk(2, -1)
        u = F.silu(self._convolution(cache.inputs.extend(layer, u.mT, padding))).mT
        sizes = [self.rank, self.states, self.states]
        s, B, C = self.x_proj(u).split(sizes, -1)
        dt = F.softplus(self.dt_proj(s))
        if padding is not None:
            dt = dt.masked_fill(padding[:, :, None], 0.0)  # the state stays as it is
        y = self._scan(u, dt, B, C, cache, layer) + self.D * u
        return self.out_proj(y * F.silu(z))

    def _convolution(self, u: Float[Tensor, "b e m"]) -> Float[Tensor, "b e l"]:
        """The causal convolution: `u` starts with the inputs before the first position.

        Sums of shifted copies: torch's grouped convolution takes several times as long on CPU.
        """
        kernel, length = self.conv1d.weight[:, 0], u.shape[2] - self.conv1d.kernel_size[0] + 1
        assert self.conv1d.bias is not None
        out = self.conv1d.bias[:, None] + kernel[:, :1] * u[:, :, :length]
        for k in range(1, kernel.shape[1]):
            out = torch.addcmul(out, kernel[:, k : k + 1], u[:, :, k : k + length])
        return out

    def _scan(
        self, u: Tensor, dt: Tensor, B: Tensor, C: Tensor, cache: MambaCache, layer: int
    ) -> Float[Tensor, "b l e"]:
        A, state = -self.A_log.exp(), cache.states[layer]
        if state is None:
            y, cache.states[layer] = selective_scan(u, dt, A, B, C)
            return y
        outputs = []
        for t in range(u.shape[1]):
            y, state = scan_step(state, u[:, t], dt[:, t], A, B[:, t], C[:, t])
            outputs.append(y)
        cache.states[layer] = state
        return torch.stack(outputs, 1)


@final
class MambaBlock(nn.Module):
    """A mixer with its norm and skip connection: `x + mixer(norm(x))`."""

    def __init__(self, width: int, states: int, expand: int, kernel: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=RMS_EPS)
        self.mixer = MambaMixer(width, states, expand, kernel)

    def forward(self, x: Tensor, cache: MambaCache, layer: int, padding: Tensor | None) -> Tensor:
        """The tokens after this block."""
        return x + self.mixer(self.norm(x), cache, layer, padding)


@final
class Mamba(nn.Module):
    r"""A language model of selective state spaces: table, blocks, norm, readout.

    Memory and time of a step of generation do not depend on the number of tokens read: the state
    of a layer is (e, n). There is no `context`.

    Initial weights are those of the paper where they matter to the dynamics: $A = -(1, \dots, n)$,
    step sizes log-uniform in `STEP_SIZES`. Matrices are $N(0, 1/\text{fan in})$, the last of a
    block divided by $\sqrt{\text{depth}}$, the readout $N(0, 1/d^2)$ (less if
    `readout_scale` is above 1) and the table $N(0, 0.3^2)$, as in `Transformer`.

    Args:
        vocabulary: v.
        width: d.
        depth: Blocks.
        states: n, of each channel.
        expand: Inner channels divided by d.
        kernel: Size of the convolution.
        tied: Use the token table as readout.
        readout_scale: Factor of the logits.
        rng: Generator of the initial weights; default: one with seed 0.

    Example:
        >>> model = Mamba(vocabulary=64, width=32, depth=2)
        >>> model(torch.randint(64, (8, 16))).shape
        torch.Size([8, 16, 64])

    References: `gu2023`.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        depth: int,
        states: int = 16,
        expand: int = 2,
        kernel: int = 4,
        tied: bool = False,
        readout_scale: float = 1.0,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        sizes = (vocabulary, width, depth, states, expand, kernel)
        require(min(sizes) >= 1, "Mamba sizes", "be at least 1", sizes)
        self.vocabulary, self.width, self.depth, self.kernel = vocabulary, width, depth, kernel
        self.readout_scale = readout_scale
        self.table = nn.Parameter(torch.empty(vocabulary, width))
        self.blocks = nn.ModuleList(
            MambaBlock(width, states, expand, kernel) for _ in range(depth)
        )
        self.final_norm = nn.RMSNorm(width, eps=RMS_EPS)
        self.readout = None if tied else nn.Parameter(torch.empty(vocabulary, width))
        if self.table.device.type != "meta":
            self._initialise(torch.Generator().manual_seed(0) if rng is None else rng)

    @torch.no_grad()
    def _initialise(self, rng: torch.Generator) -> None:
        self.table.normal_(0.0, 0.3 if self.readout is not None else 0.02, generator=rng)
        if self.readout is not None:
            # A large factor on the logits of a narrow model must not make them confident at first.
            std = 1 / self.width / max(1.0, self.readout_scale)
            self.readout.normal_(0.0, std, generator=rng)
        low, high = (math.log(size) for size in STEP_SIZES)
        for part in self.modules():
            if not isinstance(part, MambaMixer):
                continue
            inner = len(part.D)
            for matrix in (part.in_proj, part.x_proj, part.out_proj):
                matrix.weight.normal_(0.0, matrix.in_features**-0.5, generator=rng)
            part.out_proj.weight /= math.sqrt(self.depth)
            part.conv1d.weight.normal_(0.0, self.kernel**-0.5, generator=rng)
            assert part.conv1d.bias is not None
            part.conv1d.bias.zero_()
            part.dt_proj.weight.normal_(0.0, (3 * part.rank) ** -0.5, generator=rng)
            size = torch.exp(low + (high - low) * torch.rand(inner, generator=rng))
            part.dt_proj.bias.copy_(size + torch.log(-torch.expm1(-size)))  # inverse of softplus
            part.A_log.copy_(torch.arange(1.0, part.states + 1).log().expand_as(part.A_log))
            part.D.fill_(1.0)

    def forward(
        self,
        tokens: Int[Tensor, "b l"],
        *,
        cache: MambaCache | None = None,
        padding: Bool[Tensor, "b l"] | None = None,
    ) -> Float[Tensor, "b l v"]:
        """Logits of the token after each.

        Args:
            tokens: Token ids.
            cache: From `new_cache`; `tokens` are then only those not yet read.
            padding: True where `tokens` are padding, on either side; it leaves the state as it is.
        """
        cache = self.new_cache() if cache is None else cache
        x = F.embedding(tokens, self.table)
        for layer, block in enumerate(self.blocks):
            x = block(x, cache, layer, padding)
        readout = self.table if self.readout is None else self.readout
        return F.linear(self.readout_scale * self.final_norm(x), readout)

    def new_cache(self) -> MambaCache:
        """An empty cache for `model(tokens, cache=cache)`."""
        return MambaCache(self.depth, self.kernel - 1)

    def embedding_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters of input and output: table and readout."""
        yield self.table
        if self.readout is not None:
            yield self.readout

    def elementwise_parameters(self) -> Iterator[Tensor]:
        """Rates and depthwise kernels, which multiply channel by channel."""
        for part in self.modules():
            if isinstance(part, MambaMixer):
                yield part.A_log
                yield part.conv1d.weight
