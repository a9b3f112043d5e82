"""Vector quantisers by splitting and Lloyd's iteration (LBG), and theoretical bounds.

Shapes: n points, d dimensions, K code vectors.
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
        distortion: Mean squared error per dimension on the sample it was fitted to.
        rounds: Iterations of Lloyd's algorithm over all splits.
    """

    codes: Float[Tensor, "K d"]
    distortion: float
    rounds: int

    def encode(self, x: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """The nearest code vector of each point: its Voronoi cell."""
        return nearest(x, self.codes)[0]

    def decode(self, code: Int[Tensor, " n"]) -> Float[Tensor, "n d"]:
        """The code vector of each index."""
        return self.codes[code]

    def distortion_on(self, x: Float[Tensor, "n d"]) -> float:
        """Mean squared error per dimension on other points."""
        return nearest(x, self.codes)[1].mean().item() / x.shape[1]


def nearest(
    x: Float[Tensor, "n d"], codes: Float[Tensor, "K d"], batch: int = 65_536
) -> tuple[Int[Tensor, " n"], Float[Tensor, " n"]]:
    """Index of the nearest code and the squared distance to it.

    Where rounding of the fast product makes the nearest code ambiguous, explicit differences
    decide. On a GPU the product decides: counting the ambiguous rows would make Python wait.
    """
    # |x - c|^2 = |x|^2 - 2 (x.c - |c|^2 / 2): one product instead of all differences. Its rounding
    # error grows with the distance from the origin, so the codes are centred.
    middle = codes.mean(0)
    centred = codes - middle
    half = 0.5 * centred.square().sum(1)
    found, squares = [], []
    for part in x.split(batch):
        own = part - middle
        score = own @ centred.T - half
        if len(codes) == 1 or x.device.type != "cpu":
            index = score.argmax(1)
        else:
            (best, second), (index, _) = (v.T for v in score.topk(2, dim=1))
            size = own.square().sum(1).sqrt() * (2 * half.max()).sqrt() + half.max()
            rounding = (4 + x.shape[1]) * torch.finfo(x.dtype).eps
            # Negated, so that values that are not finite count as ambiguous too.
            doubt = (~(best - second > rounding * size)).nonzero()[:, 0]
            if len(doubt):
                index = index.index_copy(0, doubt, _by_difference(part[doubt], codes))
        found.append(index)
        squares.append((part - codes[index]).square().sum(1))
    return torch.cat(found), torch.cat(squares)


def _by_difference(x: Float[Tensor, "n d"], codes: Float[Tensor, "K d"]) -> Int[Tensor, " n"]:
    """The nearest code by explicit differences; the first one in case of ties."""
    batch = max(1, 2**22 // codes.numel())
    return torch.cat([(p[:, None] - codes).square().sum(2).argmin(1) for p in x.split(batch)])


def lbg(
    x: Float[Tensor, "n d"],
    K: int,
    *,
    tolerance: float = 1e-4,
    most: int = 200,
    rng: torch.Generator | None = None,
    restarts: int = 0,
) -> VectorQuantiser:
    """A codebook of K vectors for a sample: split in two, iterate, split again.

    An empty cell's code is moved next to the code with the largest error. The result is a local
    optimum; another codebook may be better (in one dimension, where the optimum is known, by up to
    a third). Finding the global optimum is NP-hard; `restarts` keeps the best of several searches.
    For scalars `lloyd_max_sample` finds the optimum.

    Args:
        x: The sample.
        K: Number of code vectors.
        tolerance: Relative improvement of an iteration below which the codebook is final.
        most: Largest number of iterations per codebook size.
        rng: Generator of the splits; default: seed 0.
        restarts: Further searches, each initialised by k-means++.

    References: `linde1980`; `arthur2007` for the restarts; `aloise2009` for the hardness.
    """
    require(1 <= K <= len(x), "lbg.K", f"be 1 to {len(x)}", K)
    require(restarts >= 0, "lbg.restarts", "be at least 0", restarts)
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    # Centred, because sums of points far from the origin lose precision.
    middle = x.mean(0)
    x = x - middle
    middle, x = middle + x.mean(0), x - x.mean(0)
    spread = x.square().mean(0).sqrt().mean().item() or 1.0
    codes, rounds = x.new_zeros(1, x.shape[1]), 0
    while True:
        codes, more = _settled(x, codes, spread, tolerance, most, rng)
        rounds += more
        if len(codes) == K:
            break
        shift = 0.01 * spread * torch.randn(codes.shape, generator=rng, dtype=x.dtype)
        new = min(len(codes), K - len(codes))
        worst = _cell_errors(x, codes).argsort(descending=True)[:new]
        codes = torch.cat([codes, codes[worst] + shift[worst]])
    error = nearest(x, codes)[1].mean().item()
    for _ in range(restarts):
        other, more = _settled(x, _drawn(x, K, rng), spread, tolerance, most, rng)
        rounds += more
        own = nearest(x, other)[1].mean().item()
        if own < error:
            codes, error = other, own
    return VectorQuantiser(middle + codes, error / x.shape[1], rounds)


def _settled(
    x: Tensor, codes: Tensor, spread: float, tolerance: float, most: int, rng: torch.Generator
) -> tuple[Tensor, int]:
    """The codes after Lloyd's iteration, and the number of iterations."""
    last = math.inf
    for done in range(1, most + 1):
        codes, error = _round(x, codes, spread, rng)
        if last - error <= tolerance * error:
            return codes, done
        last = error
    return codes, most


def _drawn(x: Tensor, K: int, rng: torch.Generator) -> Tensor:
    """K points by k-means++: drawn by squared distance from the points chosen before."""
    codes = x[torch.randint(len(x), (1,), generator=rng)]
    far = (x - codes).square().sum(1)
    while len(codes) < K:
        weights = far if bool(far.sum() > 0) else torch.ones_like(far)
        at = torch.multinomial(weights / weights.max(), 1, generator=rng)
        codes = torch.cat([codes, x[at]])
        far = torch.minimum(far, (x - x[at]).square().sum(1))
    return codes


def _cell_errors(x: Tensor, codes: Tensor) -> Tensor:
    index, squares = nearest(x, codes)
    return torch.zeros(len(codes), dtype=x.dtype).index_add(0, index, squares)


def _round(x: Tensor, codes: Tensor, spread: float, rng: torch.Generator) -> tuple[Tensor, float]:
    """Centroids of the cells, and the error of the old codes."""
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
    r"""Shannon's lower bound on the mean squared error per dimension at `rate` bits per dimension.

    $D \ge \frac{1}{2\pi e} e^{2 h / d}\,2^{-2R}$ with h the entropy in nats; for the Gaussian it
    is $\sigma^2 2^{-2R}$ and achievable.

    References: `shannon1959`; `cover2006` section 10.3.
    """
    require(dim >= 1, "shannon_bound.dim", "be at least 1", dim)
    return math.exp(2 * entropy / dim) / (2 * math.pi * math.e) * 4.0**-rate


def space_filling_gain(distortion: float, codes: int, volume: float, dim: int) -> float:
    r"""Space-filling gain over cubic cells on a uniform distribution: $1 / (12 G)$.

    $G = D\,(K / V)^{2/d}$ is the normalised second moment of a cell, D per dimension; a cube has
    1/12, the hexagon 0.0801875 (gain 1.0392), a ball in many dimensions $1 / 2 \pi e$ (gain 1.423,
    1.53 dB), the upper bound.

    Args:
        distortion: D on the uniform distribution, without boundary cells.
        codes: K.
        volume: V, the volume of the support.
        dim: d.

    References: `conway1999` chapter 2; `gersho1979`.
    """
    return 1 / (12 * distortion * (codes / volume) ** (2 / dim))
