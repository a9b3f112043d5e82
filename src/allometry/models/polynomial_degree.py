r"""The optimal degree of polynomial layers: parameters, degree and separation rank of a stack.

The argument under test: with parameters $B = L\,d\,N$ fixed, the log of the separation rank grows
as $L \ln d$, so $\ln d / d$ should be maximal, which it is at $d = e$ (3 among integers). This
depends on the cost of a layer of degree d.
"""

import math
from collections.abc import Sequence

from scipy.optimize import brentq

from allometry._core.errors import require


def degree(degrees: Sequence[int]) -> int:
    """The degree of a stack of product layers: the product of their degrees.

    Example:
        >>> degree([3, 3, 3, 3])
        81
    """
    return math.prod(degrees)


def parameters(
    inputs: int, width: int, degrees: Sequence[int], *, bias: bool = True, outputs: int = 0
) -> int:
    """Weights and biases of a stack of product layers, and of a readout of `outputs`.

    Example:
        >>> parameters(1, 2, [3, 3], outputs=1)
        33
    """
    total, size = 0, inputs
    for d in degrees:
        total += d * width * (size + bias)
        size = width
    return total + outputs * (width + 1)


def rank_upper(degree: int, m: int) -> int:
    r"""Upper bound on the rank of a polynomial of degree D with m coordinates on each side.

    $\sum_{a=0}^{D} \min(N_a, N_{D-a})$ with $N_a = \binom{m+a-1}{a}$: monomials of degree a or
    more on one side pair with at most as many of degree D - a on the other.

    Example:
        >>> rank_upper(3**4, 2), rank_upper(2**6, 2)
        (1722, 1089)
    """

    def monomials(a: int) -> int:
        return math.comb(m + a - 1, a)

    return sum(min(monomials(a), monomials(degree - a)) for a in range(degree + 1))


def rank_lower(d: int, L: int, m: int) -> int:
    r"""Lower bound on the rank of L layers of degree d, with biases and width m or more.

    $\binom{m+q-1}{q}$ with $q = d^{L-1}$.
    """
    q = d ** (L - 1)
    return math.comb(m + q - 1, q)


def rank_narrow(d: int, L: int) -> int:
    r"""Separation rank of width 1 with at least d coordinates a side: $(d^{L-1} + 1)^d$."""
    return (d ** (L - 1) + 1) ** d


def rank_bounds(degrees: Sequence[int], m: int) -> tuple[int, int]:
    r"""Bounds on the rank of a stack of any degrees, with m coordinates on each side.

    With biases and width m or more, the first layer ($d_1 \ge 2$) can make $a_k b_k$ in unit k and
    the others the power $q = d_2 \cdots d_L$ of their sum: at least $\binom{m+q-1}{q}$. The upper
    bound is `rank_upper` of its degree.

    Example:
        >>> rank_bounds([3, 3, 2, 2, 2], 2)
        (25, 1369)
    """
    require(len(degrees) > 0, "rank_bounds.degrees", "name at least one layer", degrees)
    require(min(degrees) >= 1, "rank_bounds.degrees", "be at least 1", degrees)
    q = degree(degrees[1:])
    lower = math.comb(m + q - 1, q) if degrees[0] >= 2 else 1
    return lower, rank_upper(degree(degrees), m)


def rank_attention(d: int, L: int, pooled: str = "hadamard") -> int:
    r"""Separation rank of attention of width 1, the output token on the first side.

    Hadamard-pooled $(d^L - 1)/(d - 1) + 1$, multi-pooled $d^L$.

    Example:
        >>> rank_attention(3, 4), rank_attention(3, 4, "multi")
        (41, 81)
    """
    require(d >= 2, "rank_attention.d", "be at least 2", d)
    require(pooled in ("hadamard", "multi"), "pooled", "be hadamard or multi", pooled)
    return d**L if pooled == "multi" else (d**L - 1) // (d - 1) + 1


def best_degree(c: float | int = 0.0, whole: bool = False) -> float:
    r"""The degree that maximises $\ln d / (d + c)$, the log rank per parameter.

    A layer of degree d costs $(d + c) N$: $c = 0$ counts d forms, $c = -1$ the d - 1 matrices of
    the note's Eq. (2), $c = 1$ adds an output matrix, as in attention. The best integer is 3 only
    for $-0.290 < c < 0.819$.

    Args:
        c: Cost of a layer beyond its d forms.
        whole: Maximise over integers only.

    Example:
        >>> round(best_degree(), 4), best_degree(0, whole=True)
        (2.7183, 3.0)
        >>> best_degree(-1, whole=True), best_degree(1, whole=True)
        (2.0, 4.0)
    """
    require(c > -2, "best_degree.c", "be above -2, or degree 2 would be free", c)
    if not whole:
        if c <= -1:
            return 1.0  # ln d/(d + c) rises without bound, or to 1, as d falls to -c or 1
        # Stationary where d ln d - d = c; the left side rises from -1 at d = 1.
        return float(brentq(lambda d: d * math.log(d) - d - c, 1.0, 10.0 + 2 * max(c, 0.0)))
    candidates = range(2, 10 + 2 * math.ceil(max(c, 0.0)))
    return float(max(candidates, key=lambda d: math.log(d) / (d + c)))


def best_range(d: int) -> tuple[float, float]:
    r"""The range of costs c for which the integer degree d is best.

    Ties with d ± 1 at $c = (d' \ln d - d \ln d') / (\ln d' - \ln d)$.

    Example:
        >>> lo, hi = best_range(3)
        >>> round(lo, 3), round(hi, 3)
        (-0.29, 0.819)
    """
    require(d >= 3, "best_range.d", "be at least 3", d)

    def tie(a: int, b: int) -> float:
        return (b * math.log(a) - a * math.log(b)) / (math.log(b) - math.log(a))

    return tie(d - 1, d), tie(d, d + 1)


def best_words(*costs: float | int) -> tuple[str, ...]:
    """Sentences: the best degree at a cost of (d + c) N per layer, and when degree 3 is best.

    Example:
        >>> best_words(-1)[0]
        "At (d - 1) N parameters a layer the rank's log grows fastest at degree 2."
    """
    said = []
    for c in costs or (0,):
        whole, real = best_degree(c, whole=True), best_degree(c)
        cost = "d N" if c == 0 else f"(d {'-' if c < 0 else '+'} {abs(c):g}) N"
        free = "" if c <= -1 else f" (at {real:.3f} among real degrees)"
        best = f"the rank's log grows fastest at degree {whole:.0f}{free}"
        said.append(f"At {cost} parameters a layer {best}.")
    lo, hi = best_range(3)
    edge, further = (h / (math.log(3) / 3) for h in (math.log(2) / 2, 1 / math.e))
    said.append(
        f"Degree 3 is best only for {lo:.3f} < c < {hi:.3f} in a cost of (d + c) N a layer: "
        f"{100 / edge - 100:.1f} % ahead of 2 and 4 in the log of the rank at c = 0, and "
        f"{100 * further - 100:.2f} % behind e."
    )
    return tuple(said)
