"""Monotone rational-quadratic splines, vectorised.

Shapes: K bins; "*b" the shape of the values, with a separate spline for every entry.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from allometry._core.errors import require

MIN_WIDTH = 2e-2
"""Smallest width of a bin, as a fraction of the interval."""

MIN_SLOPE = 0.2
"""Smallest slope of a bin from end to end, and at knots. Flat parts lose precision in float32."""

_ONE = math.log(math.expm1(1 - MIN_SLOPE))
"""Softplus of this, plus the smallest slope, is 1: zero parameters give the identity."""

Values = Float[Tensor, "*b"]
Parameters = Float[Tensor, "*b parameters"]


def spline_parameters(K: int) -> int:
    """Number of parameters of a spline of K bins: widths, heights, inner slopes."""
    most = round(1 / MIN_WIDTH) - 1
    require(1 <= K <= most, "spline bins", f"be 1 to {most}, because of the smallest width", K)
    return 3 * K - 1


def _table(raw: Parameters, K: int, bound: float) -> Float[Tensor, "*b 3 knots"]:
    """Positions, heights and slopes at the K + 1 knots."""
    sizes, tilts = raw.split([2 * K, K - 1], -1)
    shares = sizes.unflatten(-1, (2, K)).softmax(-1)
    widths = MIN_WIDTH + (1 - MIN_WIDTH * K) * shares[..., 0, :]
    # Each bin has the height of the smallest slope plus a share of the rest.
    heights = torch.lerp(shares[..., 1, :], widths, MIN_SLOPE)
    steps = 2 * bound * torch.stack([widths, heights], -2)
    # Only inner knots are sums; the outer ones are exactly the bounds.
    inner = steps[..., :-1].cumsum(-1) - bound
    knots = F.pad(F.pad(inner, (1, 0), value=-bound), (0, 1), value=bound)
    slopes = F.pad(F.softplus(tilts + _ONE) + MIN_SLOPE, (1, 1), value=1.0)
    return torch.cat([knots, slopes.unsqueeze(-2)], -2)


def _bin(
    table: Float[Tensor, "*b 3 knots"], value: Values, row: int
) -> tuple[Float[Tensor, "*b 3"], Float[Tensor, "*b 3"]]:
    """The table at the knots left and right of each value, found in `row`."""
    # Counting comparisons is faster than a search at these sizes, and works under vmap.
    index = (value.unsqueeze(-1) >= table[..., row, 1:-1].detach()).sum(-1, keepdim=True)
    index = index.unsqueeze(-2).expand(*table.shape[:-1], 1)
    return table.gather(-1, index).squeeze(-1), table.gather(-1, index + 1).squeeze(-1)


def _inside(value: Values, bound: float) -> tuple[Values, Bool[Tensor, "*b"]]:
    held = value.clamp(-bound, bound)
    return held, held == value


def spline(x: Values, raw: Parameters, bound: float) -> tuple[Values, Values]:
    r"""`(y, log dy/dx)` of the spline on [-bound, bound]; outside it is the identity.

    With $\xi = (x - x_k) / w_k$ and $s_k = h_k / w_k$,
    $y = y_k + h_k [s_k \xi^2 + \delta_k \xi (1 - \xi)] / [s_k + (\delta_{k+1} + \delta_k - 2 s_k)
    \xi (1 - \xi)]$.

    Differs from the paper: bins have a smallest width of 1/50 of the interval and a smallest slope
    of 0.2 from end to end and at their knots, so that layers can be inverted in float32.

    References: `durkan2019` Eqs. (4), (5).
    """
    K = (raw.shape[-1] + 1) // 3
    held, inside = _inside(x, bound)
    low, high = _bin(_table(raw, K, bound), held, 0)
    (x0, y0, d0), (x1, y1, d1) = low.unbind(-1), high.unbind(-1)
    w, h = x1 - x0, y1 - y0
    s = h / w
    xi = (held - x0) / w
    rest = xi * (1 - xi)
    below = s + (d0 + d1 - 2 * s) * rest
    y = y0 + h * (s * xi.square() + d0 * rest) / below
    slope = d1 * xi.square() + 2 * s * rest + d0 * (1 - xi).square()
    log_slope = 2 * (s / below).log() + slope.log()
    return torch.where(inside, y, x), torch.where(inside, log_slope, 0.0)


def spline_inverse(y: Values, raw: Parameters, bound: float) -> tuple[Values, Values]:
    """`(x, log dy/dx)` at the x that `spline` maps to y: the stable root of a quadratic.

    References: `durkan2019` Eqs. (6) to (8).
    """
    K = (raw.shape[-1] + 1) // 3
    held, inside = _inside(y, bound)
    low, high = _bin(_table(raw, K, bound), held, 1)
    (x0, y0, d0), (x1, y1, d1) = low.unbind(-1), high.unbind(-1)
    w, h = x1 - x0, y1 - y0
    s = h / w
    up = held - y0
    bend = d0 + d1 - 2 * s
    a = h * (s - d0) + up * bend
    b = h * d0 - up * bend
    c = -s * up
    root = (b.square() - 4 * a * c).clamp(min=0).sqrt()
    xi = (2 * c / (-b - root)).clamp(0, 1)
    rest = xi * (1 - xi)
    slope = d1 * xi.square() + 2 * s * rest + d0 * (1 - xi).square()
    log_slope = 2 * (s / (s + bend * rest)).log() + slope.log()
    return torch.where(inside, x0 + w * xi, y), torch.where(inside, log_slope, 0.0)
