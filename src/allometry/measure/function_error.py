"""Distance between two functions, and permutation equivariance error of one.

Letters: b batch, d size of a token, n tokens, k outputs.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate

Function = Callable[[Tensor], Tensor]


@torch.no_grad()
def d_p(
    f: Function | Float[Tensor, "b *k"],
    g: Function | Float[Tensor, "_ ..."],
    *,
    p: float = 2.0,
    shape: tuple[int, ...] | None = None,
    weights: Float[Tensor, " b"] | None = None,
    points: int = 2048,
    replicates: int | None = None,
    seed: int = 0,
) -> Estimate:
    r"""Distance $d_p(f, g) = (\int_{[0,1]^{d \times n}} \|f(X) - g(X)\|_p^p\,dX)^{1/p}$.

    Functions are compared on scrambled Sobol points: `replicates` independent scramblings of
    `points` each, whose spread gives the standard error. Instead of functions, their values may be
    given: at random points (with the standard error of their mean), or with the `weights` of a
    quadrature rule (then exact up to the rule).

    Args:
        f: A function of (b, *shape), or its values at b points.
        g: The other.
        p: At least 1.
        shape: Shape of one input, such as (d, n); needed for functions.
        weights: Quadrature weights, for values only.
        points: Sobol points per replicate.
        replicates: Independent scramblings, at least 2. Default: 8 for functions. For values: the
            number of consecutive independent groups. Default: all values are independent.
        seed: Seed of the scramblings.

    Example:
        >>> import torch, allometry as al
        >>> round(al.measure.d_p(lambda x: x, torch.zeros_like, shape=(1, 1)).value, 6)
        0.57735

    References:
        `yun2020` section 2.
    """
    require(p >= 1 and math.isfinite(p), "d_p.p", "be a finite number of at least 1", p)
    if isinstance(f, Tensor) and isinstance(g, Tensor):
        require(f.shape == g.shape, "d_p.g", f"have the shape of f, {tuple(f.shape)}", g.shape)
        power = (f - g).abs().pow(p).flatten(1).sum(1)
        if weights is not None:
            return Estimate(float(weights @ power) ** (1 / p), exact=True, method="quadrature")
        if replicates is not None:
            even = replicates >= 2 and len(power) % replicates == 0
            require(even, "d_p.replicates", f"divide {len(power)} points", replicates)
            return _pooled(power.reshape(replicates, -1).mean(1), p, len(power))
        se = float(power.std() / len(power) ** 0.5) if len(power) > 1 else math.nan
        return _root(float(power.mean()), se, p, len(power), "random points")
    require(
        not isinstance(f, Tensor) and not isinstance(g, Tensor),
        "d_p",
        "be given two functions or two tensors",
        "one of each",
    )
    require(shape is not None, "d_p.shape", "be given for functions", shape)
    replicates = 8 if replicates is None else replicates
    require(replicates >= 2, "d_p.replicates", "be at least 2", replicates)
    assert shape is not None
    assert not isinstance(f, Tensor)
    assert not isinstance(g, Tensor)
    means = []
    for replicate in range(replicates):
        x = sobol(points, shape, seed=seed * 1000 + replicate)
        means.append(float((f(x) - g(x)).abs().pow(p).flatten(1).sum(1).mean()))
    return _pooled(torch.tensor(means, dtype=torch.float64), p, points * replicates)


def sobol(points: int, shape: tuple[int, ...], *, seed: int = 0) -> Float[Tensor, "b *shape"]:
    """Scrambled Sobol points of the unit cube, in float64, with all of its 53 bits.

    Args:
        points: Number of points; powers of two are best balanced.
        shape: Shape of one point.
        seed: Seed of the scrambling.
    """
    size, most = math.prod(shape), torch.quasirandom.SobolEngine.MAXDIM
    require(1 <= size <= most, "sobol.shape", f"have from 1 to {most} coordinates", size)
    engine = torch.quasirandom.SobolEngine(size, scramble=True, seed=seed)
    x = engine.draw(points, dtype=torch.float64)
    # The engine rounds down to 30 bits; the lower bits are filled at random.
    rest = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (x + rest * 2.0**-30).reshape(points, *shape)


ROWS = 4096
"""Inputs that `equivariance_error` hands to the function at once."""


@torch.no_grad()
def equivariance_error(
    f: Function,
    x: Float[Tensor, "b d n"],
    *,
    permutations: int = 24,
    seed: int = 0,
) -> Estimate:
    r"""The largest $|f(XP) - f(X)P|$ over the given inputs and permutations P of their columns.

    All permutations but the identity are used if there are at most `permutations` of them;
    otherwise as many random ones, and the value is a lower bound of the supremum.

    Args:
        f: A function from (b, d, n) to (b, k, n).
        x: Inputs.
        permutations: Largest number of permutations.
        seed: Seed of their choice.

    References:
        `yun2020` Claim 1.
    """
    n = x.shape[-1]
    rng = torch.Generator().manual_seed(seed)
    every = n <= 8 and math.factorial(n) - 1 <= permutations
    orders = (
        [torch.tensor(order) for order in itertools.permutations(range(n))][1:]
        if every
        else [torch.randperm(n, generator=rng) for _ in range(permutations)]
    )
    base, worst = f(x), 0.0
    # Many permutations in one call: a deep narrow network takes as long for one row as for 500.
    together = max(1, ROWS // len(x))
    for some in (orders[i : i + together] for i in range(0, len(orders), together)):
        given, wanted = (torch.cat([t[..., order] for order in some]) for t in (x, base))
        worst = max(worst, float((f(given) - wanted).abs().max()))
    tried = f"{'all' if every else 'random'} permutations of {len(x)} inputs"
    return Estimate(
        worst, lo=worst, hi=math.inf, n=len(x) * len(orders), method=f"max over {tried}"
    )


def _pooled(means: Float[Tensor, " r"], p: float, n: int) -> Estimate:
    from scipy import stats  # imported here because it is slow

    se = float(means.std() / len(means) ** 0.5)
    found = _root(float(means.mean()), se, p, n, "scrambled Sobol points")
    assert found.se is not None
    # Few replicates: Student's quantile.
    half = float(stats.t.ppf(0.975, len(means) - 1)) * found.se
    return replace(found, lo=found.value - half, hi=found.value + half)


def _root(mean: float, se: float, p: float, n: int, method: str) -> Estimate:
    # The delta method: d(mean^(1/p)) = mean^(1/p - 1) / p d(mean).
    slope = mean ** (1 / p - 1) / p if mean > 0 else 0.0
    return Estimate(mean ** (1 / p), se * slope, n=n, method=method)
