"""Generators and discriminators of GANs.

Shapes: b batch, d size of a point, z size of the noise, w width, m points in a pack (PacGAN).
"""

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from allometry._core.errors import require
from allometry.models import packed_mlp


@final
class Generator(nn.Module):
    """Noise to points through layers of batch norm and ReLU.

    Args:
        dim: d, the size of a generated point.
        width: Width of the hidden layers.
        depth: Number of hidden layers.
        latent: z, size of its normal noise.
        norm: Batch norm before each ReLU. Its batch noise blurs the samples and is slow to
            unlearn.
        running: Whether batch norms keep running statistics for use after training; otherwise
            samples are normalised by their own batch.
        init: Standard deviation of the weights; default: He's, by fan-in.
        rng: Generator of the weights.

    References: `lin2018` section 4.1, with four layers of 400 and init 0.02.
    """

    def __init__(
        self,
        dim: int,
        width: int = 400,
        depth: int = 4,
        latent: int = 2,
        norm: bool = True,
        running: bool = True,
        init: float | None = None,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        sizes = (dim, width, depth, latent)
        require(min(sizes) >= 1, "Generator sizes", "be at least 1", sizes)
        self.dim, self.latent, self.normed = dim, latent, norm
        layers: list[nn.Module] = []
        for i in range(depth):
            # No bias: batch norm would cancel it.
            layers += [nn.Linear(width if i else latent, width, bias=not norm)]
            norms = [nn.BatchNorm1d(width, track_running_stats=running)] if norm else []
            layers += [*norms, nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(width, dim))
        _initialise(self, init, rng)

    def forward(self, z: Float[Tensor, "b z"]) -> Float[Tensor, "b d"]:
        """The points generated from noise."""
        return self.layers(z) if self.normed else packed_mlp.relu_layers(z, self.layers)

    @torch.no_grad()
    def sample(self, n: int, rng: torch.Generator | None = None) -> Float[Tensor, "n d"]:
        """`n` points, with the running statistics of the norms if they keep any."""
        was, _ = self.training, self.eval()
        weight = next(self.parameters())
        z = torch.randn(n, self.latent, generator=rng, dtype=weight.dtype).to(weight.device)
        points = self(z.to(weight.device))
        self.train(was)
        return points


@final
class Location(nn.Module):
    """A Gaussian with learnt mean (and scale): the smallest class of generators.

    Args:
        dim: d.
        scaled: Whether its standard deviation is learnt too.
    """

    def __init__(self, dim: int, scaled: bool = False) -> None:
        super().__init__()
        require(dim >= 1, "Location.dim", "be at least 1", dim)
        self.dim = self.latent = dim
        self.shift = nn.Parameter(torch.zeros(dim))
        self.log_scale = nn.Parameter(torch.zeros(())) if scaled else None

    def forward(self, z: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        """The noise, shifted and scaled."""
        return self.shift + (z if self.log_scale is None else z * self.log_scale.exp())


@final
class Discriminator(nn.Module):
    """The logit that a point, or a pack of points, is real.

    Args:
        dim: d, the size of a point.
        width: Width of the hidden layers.
        depth: Number of hidden layers.
        pieces: Linear pieces of each maxout unit; 1 means leaky ReLU instead.
        pack: m, points classified together (PacGAN); a batch must be a multiple of it.
        kernels: Kernels of a last layer of minibatch discrimination; 0 for none.
        spectral: Divide each weight by its largest singular value, so that the logit is
            1-Lipschitz up to the slopes of the hidden units.
        init: Standard deviation of the weights; default: He's, by fan-in.
        rng: Generator of the weights.

    References: `lin2018` sections 3.1 and 4.1; `goodfellow2013` for maxout; `salimans2016` section
        3.2; `miyato2018`.
    """

    def __init__(
        self,
        dim: int,
        width: int = 200,
        depth: int = 3,
        pieces: int = 5,
        pack: int = 1,
        kernels: int = 0,
        spectral: bool = False,
        init: float | None = None,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        sizes = (dim, width, depth, pieces, pack)
        require(min(sizes) >= 1, "Discriminator sizes", "be at least 1", sizes)
        require(kernels >= 0, "Discriminator.kernels", "be at least 0", kernels)
        self.dim, self.pieces, self.pack, self.spectral = dim, pieces, pack, spectral
        self.hidden = nn.ModuleList(
            nn.Linear(width if i else pack * dim, width * pieces) for i in range(depth)
        )
        self.minibatch = MinibatchDiscrimination(width, kernels) if kernels else None
        self.readout = nn.Linear(width + kernels, 1)
        _initialise(self, init, rng)

    def forward(self, x: Float[Tensor, "b d"]) -> Float[Tensor, " packs"]:
        """One logit for every m consecutive points."""
        h = x.reshape(-1, self.pack * self.dim)
        for layer in self.hidden:
            h = self._linear(layer, h)
            if self.pieces > 1:
                h = _maxout(h.chunk(self.pieces, 1))
            else:
                h = functional.leaky_relu(h, 0.2)
        if self.minibatch is not None:
            h = torch.cat([h, self.minibatch(h)], 1)
        return self._linear(self.readout, h)[:, 0]

    def _linear(self, layer: nn.Module, h: Tensor) -> Tensor:
        assert isinstance(layer, nn.Linear)
        weight, bias = layer.weight, layer.bias
        if self.spectral:
            weight = weight / torch.linalg.matrix_norm(weight, 2)
        return functional.linear(h, weight, bias)


def _maxout(parts: Sequence[Tensor]) -> Tensor:
    """The elementwise maximum; ReLU of differences is three times as fast as torch.maximum."""
    largest = parts[0]
    for part in parts[1:]:
        largest = largest + functional.relu(part - largest)
    return largest


@final
class MinibatchDiscrimination(nn.Module):
    r"""Similarity of each row's features to the rest of its batch, which exposes mode collapse.

    $o_{ib} = \sum_{j \ne i} \exp(-\|M_{ib} - M_{jb}\|_1)$ with $M_i = f(x_i) T$.

    Args:
        features: Size of f(x).
        kernels: B, features added to each row.
        size: C, size of each $M_{ib}$.

    References: `salimans2016` section 3.2.
    """

    def __init__(self, features: int, kernels: int, size: int = 5) -> None:
        super().__init__()
        self.kernels, self.size = kernels, size
        self.weight = nn.Parameter(torch.randn(features, kernels * size) / features**0.5)

    def forward(self, h: Float[Tensor, "b w"]) -> Float[Tensor, "b kernels"]:
        """Similarity to the rest of the batch, per kernel."""
        M = (h @ self.weight).unflatten(1, (self.kernels, self.size))
        distance = (M[:, None] - M[None]).abs().sum(3)
        return (-distance).exp().sum(1) - 1


def _initialise(model: nn.Module, sd: float | None, rng: torch.Generator | None) -> None:
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                scale = sd if sd is not None else (2 / module.in_features) ** 0.5
                module.weight.normal_(0, scale, generator=rng)
                if module.bias is not None:
                    module.bias.zero_()
            elif isinstance(module, MinibatchDiscrimination):
                fan = module.weight.shape[0]
                module.weight.normal_(0, sd if sd is not None else fan**-0.5, generator=rng)
