r"""Size of the universal construction, computed without building it.

Letters: d size of a token, n tokens.
"""

import math
from dataclasses import dataclass
from typing import final

from allometry._core.errors import InputError, require
from allometry.construct.proof_stages import largest_id

MOST_BLOCKS = 50_000
"""Largest number of blocks: more would take minutes to build and to run."""


@final
@dataclass(frozen=True)
class UniversalCost:
    r"""Size of the network of class $\mathcal T^{2,1,4}$ for one grid.

    Attributes:
        delta: Size of a cell.
        layers: Number of layers of each stage.
        blocks: Number of blocks; the last attention layer shares one with the first value layer.
        parameters: (17 d + 6) for each block, plus d n for the positional encoding if any.
        bits: Required bits, of float64's 53, for targets of absolute value at most 2.
        cells: Number of tabulated sequences.
    """

    delta: float
    layers: dict[str, int]
    blocks: int
    parameters: int
    bits: int
    cells: int

    @property
    def fits(self) -> bool:
        """Whether float64 and the largest number of blocks suffice."""
        return self.bits <= 53 and self.blocks <= MOST_BLOCKS


def cost(
    d: int,
    n: int,
    eps: float | None = None,
    *,
    delta: float | None = None,
    p: float = 2.0,
    lipschitz: float = 1.0,
    positions: bool = False,
    repeated: bool = True,
    largest: float = 2.0,
) -> UniversalCost:
    r"""Layers and parameters of `universal` as a function of eps, d and n.

    For a function with $\|f(X) - f(Y)\|_p \le L \|X - Y\|_p$, constant on cells of size $\delta$,
    $d_p \le \frac{L \delta}{2} (\frac{dn}{p + 1})^{1/p}$, so eps needs
    $\delta = \frac{2 \epsilon}{L} (\frac{p + 1}{dn})^{1/p}$, rounded down to a power of 1/2. The
    number of value layers is $\sum_s s \binom{M}{s}$ with $M = \delta^{-d}$, or $n M^n$ with
    positions: $O((c/\epsilon)^{dn})$ in total. Every construction for all functions needs the
    exponent dn.

    Args:
        d: Size of a token.
        n: Number of tokens.
        eps: Error to reach; or give `delta`.
        delta: Size of a cell, a power of 1/2.
        p: Exponent of the error.
        lipschitz: L.
        positions: Whether a positional encoding is added.
        repeated: Whether sequences with repeated columns are tabulated.
        largest: Largest absolute value of the target, for the bits.

    Example:
        >>> import allometry as al
        >>> al.construct.cost(1, 2, delta=1 / 16).blocks
        292

    References:
        `yun2020` section 3 and appendix B.
    """
    require(d >= 1, "cost.d", "be at least 1", d)
    require(n >= 1, "cost.n", "be at least 1", n)
    if (eps is None) == (delta is None):
        raise InputError("cost must be given one of eps and delta; got both or neither.")
    if delta is None:
        assert eps is not None
        require(eps > 0, "cost.eps", "be positive", eps)
        sufficient = 2 * eps / lipschitz * ((p + 1) / (d * n)) ** (1 / p)
        delta = min(0.5, 2.0 ** math.floor(math.log2(sufficient)))
    M, places = round(delta**-d), n if positions else 1
    sets = range(1, n + 1) if repeated else range(n, n + 1)
    layers = {
        "clamp": d,
        "quantise": places * round(d / delta),
        "contextual": places * M + 1,
        "rescale": rescalings(d, n, delta, positions),
        "values": n * M**n if positions else sum(s * math.comb(M, s) for s in sets),
        "limit": d,
    }
    blocks = sum(layers.values()) - 1
    return UniversalCost(
        delta=delta,
        layers=layers,
        blocks=blocks,
        parameters=blocks * (17 * d + 6) + (d * n if positions else 0),
        bits=bits(d, n, delta, positions, largest),
        cells=M**n if positions else math.comb(M + n - 1, n),
    )


def top(d: int, n: int, delta: float, positions: bool) -> float:
    """An upper bound of the codes after the global shift, a power of two."""
    most = largest_id(d, delta, n, positions)
    return 2.0 ** (math.ceil(math.log2(most / delta)) + math.ceil(math.log2(most)))


def base(largest: float) -> float:
    """The power of two above every target value; codes are moved there."""
    return 2.0 ** max(1, math.floor(math.log2(max(largest, 0.5))) + 1)


def bits(d: int, n: int, delta: float, positions: bool, largest: float) -> int:
    """Bits of base + 1 in units of an eighth of the smallest gap between codes.

    Windows around codes end a quarter and three eighths of a gap away, hence the eighth.
    """
    whole = math.floor(math.log2(base(largest) + 1)) + 1
    return whole + round(math.log2(top(d, n, delta, positions) / delta)) + 3


def rescalings(d: int, n: int, delta: float, positions: bool) -> int:
    """Number of layers of `proof_stages.rescale` for the largest possible codes."""
    most = top(d, n, delta, positions)
    digits = round(math.log2(most / delta)) + 1
    return math.ceil(math.log2(most) / max(1, 53 - digits)) + 1
