"""Vector quantisers by splitting and Lloyd's iteration, and what no quantiser can beat.

Letters: n points, d dimensions, K code vectors.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import require


@final
@dataclass(frozen=True)
class VectorQuantiser:
    """A codebook.

    Args:
        codes: (K, d).
        distortion: Mean squared error per dimension on what it was made for.
        rounds: Of Lloyd's iteration, all splits together.
    """

    codes: Float[Tensor, "K d"]
    distortion: float
    rounds: int

    def encode(self, x: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """The nearest code vector of each point: its Voronoi cell."""
        return nearest(x, self.codes)[0]

    def decode(self, code: Int[Tensor, " n"]) -> Float[Tensor, "n d"]:
        """The vectors."""
        return self.codes[code]

    def distortion_on(self, x: Float[Tensor, "n d"]) -> float:
        """Mean squared error per dimension on other points."""
        return nearest(x, self.codes)[1].mean().item() / x.shape[1]


def nearest(
    x: Float[Tensor, "n d"], codes: Float[Tensor, "K d"], batch: int = 65_536
) -> tuple[Int[Tensor, " n"], Float[Tensor, " n"]]:
    """Number of the nearest code and the squared distance to it."""
    half = 0.5 * codes.square().sum(1)
    found, squares = [], []
    for part in x.split(batch):
        # |x - c|^2 = |x|^2 - 2 (x.c - |c|^2 / 2): one product instead of all differences.
        index = (part @ codes.T - half).argmax(1)
        found.append(index)
        squares.append((part - codes[index]).square().sum(1))
    return torch.cat(found), torch.cat(squares)


def lbg(
    x: Float[Tensor, "n d"],
    K: int,
    *,
    tolerance: float = 1e-4,
    most: int = 200,
    rng: torch.Generator | None = None,
) -> VectorQuantiser:
    """A codebook of K vectors for a sample: split in two, iterate, split again.

    A code that no point is nearest to is moved next to the one whose cell errs most.

    Args:
        x: The sample.
        K: Code vectors.
        tolerance: Relative gain of a round below which a codebook is done.
        most: Rounds of one size.
        rng: Source of the splits; `None` means seed 0.

    References: `linde1980`.
    """
    require(1 <= K <= len(x), "lbg.K", f"be 1 to {len(x)}", K)
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    codes = x.mean(0, keepdim=True)
    spread = x.std(0).mean().item() or 1.0
    rounds, error = 0, math.inf
    while True:
        last = math.inf
        for _ in range(most):
            codes, error = _round(x, codes, spread, rng)
            rounds += 1
            if last - error <= tolerance * error:
                break
            last = error
        if len(codes) == K:
            error = nearest(x, codes)[1].mean().item()
            return VectorQuantiser(codes, error / x.shape[1], rounds)
        shift = 0.01 * spread * torch.randn(codes.shape, generator=rng, dtype=x.dtype)
        new = min(len(codes), K - len(codes))
        worst = _cell_errors(x, codes).argsort(descending=True)[:new]
        codes = torch.cat([codes, codes[worst] + shift[worst]])


def _cell_errors(x: Tensor, codes: Tensor) -> Tensor:
    index, squares = nearest(x, codes)
    return torch.zeros(len(codes), dtype=x.dtype).index_add(0, index, squares)


def _round(x: Tensor, codes: Tensor, spread: float, rng: torch.Generator) -> tuple[Tensor, float]:
    """Centroids of the cells, and the error before they moved."""
    index, squares = nearest(x, codes)
    count = torch.bincount(index, minlength=len(codes)).to(x.dtype)
    sums = torch.zeros_like(codes).index_add(0, index, x)
    centred = sums / count.clamp(min=1)[:, None]
    empty = count == 0
    if bool(empty.any()):
        errors = torch.zeros(len(codes), dtype=x.dtype).index_add(0, index, squares)
        worst = errors.argsort(descending=True)[: int(empty.sum())]
        shift = 0.01 * spread * torch.randn(len(worst), x.shape[1], generator=rng, dtype=x.dtype)
        centred[empty] = centred[worst] + shift
    return centred, squares.mean().item()


def shannon_bound(entropy: float, rate: float, dim: int = 1) -> float:
    r"""Mean squared error per dimension that no code of `rate` bits per dimension goes below.

    $D \ge \frac{1}{2\pi e} e^{2 h / d}\,2^{-2R}$ with h the entropy in nats; for the Gaussian it
    is $\sigma^2 2^{-2R}$ and attained.

    References: `shannon1959`; `cover2006` section 10.3.
    """
    require(dim >= 1, "shannon_bound.dim", "be at least 1", dim)
    return math.exp(2 * entropy / dim) / (2 * math.pi * math.e) * 4.0**-rate


def space_filling_gain(distortion: float, codes: int, volume: float, dim: int) -> float:
    r"""How much better than a cube the cells of a code are on a uniform law: $1 / (12 G)$.

    $G = D\,(K / V)^{2/d}$ is the normalised second moment of a cell, D per dimension; a cube has
    1/12, the hexagon .0801875 (gain 1.0392), a ball in many dimensions $1 / 2 \pi e$ (gain 1.423,
    1.53 dB), which nothing exceeds.

    Args:
        distortion: D on the uniform law, edges left out.
        codes: K.
        volume: V of the law's support.
        dim: d.

    References: `conway1999` chapter 2; `gersho1979`.
    """
    return 1 / (12 * distortion * (codes / volume) ** (2 / dim))
