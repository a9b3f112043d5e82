r"""Separation rank of a function of two groups of variables.

$\mathrm{sep} f$ is the least R with $f(a, b) = \sum_{r=1}^R g_r(a)\,h_r(b)$. The matrix
$E_{rc} = f(a_r, b_c)$ has at most that rank, for any points; for a polynomial it has that rank at
sufficiently many generic points. Over a prime field the rank is exact and never too large. Float64
is not a substitute: small singular values of a composed polynomial are lost in rounding.

References: `levine2020`.
"""

import inspect
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor, nn

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure.prime_field_rank import PRIMES, Field, prime_rank

Function = Callable[[Tensor], Tensor]
"""Function from inputs (b, i) to one number each (b,)."""
FieldFunction = Callable[[Tensor, Field], Tensor]
"""The same, evaluated modulo the prime of the field."""

_AT_ONCE = 1 << 15  # points per batch: their intermediate values stay in the cache


def generic_(model: nn.Module, field: Field, rng: torch.Generator) -> nn.Module:
    """Set every weight to an integer drawn from the field, in float64; returns the model.

    A polynomial identity that fails for some weights fails for these with probability about
    1 - degree / p (Schwartz and Zippel), so they represent weights in general position.
    """
    model.to(torch.float64)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(field.draw(*p.shape, rng=rng))
    return model


def separation_rank(
    f: FieldFunction | Function | nn.Module,
    partition: Sequence[int],
    inputs: int | None = None,
    *,
    start: int = 32,
    most: int = 8192,
    primes: Sequence[int] = PRIMES[:2],
    tolerance: float = 1e-10,
    seed: int = 0,
) -> Estimate:
    """The separation rank: exact for a polynomial with integer coefficients, else by SVD.

    The matrix of values at random points grows until its rank is below its size. The rank is then
    that of the function, except with probability about degree x rank / p, and never larger. Every
    further prime is a check, at a few points more than the rank.

    For a function without a field argument, one with `polynomial = False`, or a module with
    weights that are not integers (see `generic_`), the singular values at normal points are
    counted instead: an estimate that is neither a lower nor an upper bound.

    Args:
        f: Function from integer inputs (b, i) and a field to residues (b,); a polynomial module,
            of which the first output is used; or a plain function of (b, i).
        partition: The inputs of the first side; the others are on the second.
        inputs: i. Default: `f.inputs`.
        start: Initial number of points on each side.
        most: Largest number of points (1024 for singular values); if the rank is still full, it
            is only a lower bound.
        primes: Primes below 2^21.
        tolerance: Threshold of singular values, relative to the largest; not for polynomials.
        seed: Seed of the points.

    Returns:
        The largest rank found: exact, or without upper end if `most` was reached.

    Example:
        >>> def f(x, field):
        ...     return field(field(x[:, 0] * x[:, 1]) + x[:, 2])
        >>> print(separation_rank(f, [0], 3))
        2
    """
    known = getattr(f, "inputs", None) if inputs is None else inputs
    require(isinstance(known, int), "separation_rank.inputs", "be given for such an f", inputs)
    sides = _sides(partition, int(known or 0))
    require(2 <= start <= most, "separation_rank.start", f"be between 2 and {most}", start)
    if not _polynomial(f):
        return _by_singular_values(f, sides, start, min(most, 1024), tolerance, seed)
    n, rank = start, start
    while True:
        rank = _at(f, sides, n, primes[0], seed)
        if rank < n or n == most:
            break
        n = min(2 * n, most)
    checks = [_at(f, sides, min(most, rank + 8), p, seed + 1) for p in primes[1:]]
    best = max([rank, *checks])
    method = f"rank modulo {', '.join(map(str, primes))} at {n} x {n} points"
    if rank == n:
        return Estimate(best, lo=best, n=n, method=f"{method}, still full: a lower bound")
    return Estimate(best, exact=True, n=n, method=method)


def _polynomial(f: Callable[..., Tensor]) -> bool:
    """Whether f can be evaluated in a field: it takes one, and its weights are integers."""
    if getattr(f, "polynomial", True) is False:
        return False
    if isinstance(f, nn.Module) and not all(bool((p == p.round()).all()) for p in f.parameters()):
        return False
    takes = inspect.signature(f.forward if isinstance(f, nn.Module) else f).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds for p in takes) >= 2


def _values(y: Tensor) -> Tensor:
    """One number for each point: the first of several outputs."""
    return y if y.ndim == 1 else y[:, 0]


def _by_singular_values(
    f: Callable[..., Tensor],
    sides: tuple[Tensor, Tensor],
    n: int,
    most: int,
    tolerance: float,
    seed: int,
) -> Estimate:
    weights = next(f.parameters(), None) if isinstance(f, nn.Module) else None
    dtype = torch.float64 if weights is None else weights.dtype
    while True:
        rng = torch.Generator().manual_seed(seed)
        a, b = (torch.randn(n, len(s), generator=rng, dtype=dtype) for s in sides)
        matrix = _matrix(lambda x: _values(f(x)), a, b, sides).double().numpy()
        found = numerical_rank(matrix, tolerance)
        if found.value < n or n >= most:
            return found
        n = min(2 * n, most)


def _at(f: Callable[..., Tensor], sides: tuple[Tensor, Tensor], n: int, p: int, seed: int) -> int:
    field, rng = Field(p), torch.Generator().manual_seed(seed)
    a = field.draw(n, len(sides[0]), rng=rng)
    b = field.draw(n, len(sides[1]), rng=rng)
    return prime_rank(_matrix(lambda x: _values(f(x, field)), a, b, sides).numpy(), p)


def matricization(
    f: Function,
    rows: Float[Tensor, "r p"],
    columns: Float[Tensor, "c q"],
    partition: Sequence[int] | None = None,
) -> Float[Tensor, "r c"]:
    """The matrix of f at every pair of row values and column values.

    Args:
        f: Function from inputs (b, p + q) to numbers (b,).
        rows: Inputs of the first side.
        columns: Inputs of the second side.
        partition: The inputs of the first side. Default: the first p.
    """
    p, inputs = rows.shape[1], rows.shape[1] + columns.shape[1]
    sides = _sides(range(p) if partition is None else partition, inputs)
    require(len(sides[0]) == p, "partition", f"name {p} inputs, as rows have", len(sides[0]))
    return _matrix(f, rows, columns, sides)


def _matrix(f: Function, rows: Tensor, columns: Tensor, sides: tuple[Tensor, Tensor]) -> Tensor:
    r, c = len(rows), len(columns)
    inputs = rows.shape[1] + columns.shape[1]
    first, second = sides
    out, step = [], max(1, _AT_ONCE // max(1, c))
    with torch.no_grad():
        for k in range(0, r, step):
            here = rows[k : k + step]
            x = rows.new_empty(len(here), c, inputs)
            x[:, :, first] = here[:, None].expand(-1, c, -1)
            x[:, :, second] = columns[None].expand(len(here), -1, -1)
            out.append(f(x.flatten(0, 1)).reshape(len(here), c))
    return torch.cat(out)


def template_rows(templates: Float[Tensor, "M w"], tokens: int) -> Float[Tensor, "r q"]:
    """Every assignment of M template vectors to the tokens, (M^tokens, tokens x w)."""
    chosen = itertools.product(range(len(templates)), repeat=tokens)
    return templates[torch.tensor(list(chosen))].flatten(1)


def _sides(partition: Sequence[int], inputs: int) -> tuple[Tensor, Tensor]:
    first = sorted(set(partition))
    good = len(first) > 0 and first[0] >= 0 and first[-1] < inputs and len(first) < inputs
    require(good, "partition", f"leave inputs of 0..{inputs - 1} on both sides", partition)
    second = [i for i in range(inputs) if i not in set(first)]
    return torch.tensor(first), torch.tensor(second)


def numerical_rank(matrix: Float[ndarray, "r c"], tolerance: float = 1e-10) -> Estimate:
    """Number of singular values above `tolerance` times the largest.

    Neither a lower nor an upper bound: rounding hides small singular values and adds others.
    """
    values = np.linalg.svd(matrix, compute_uv=False)
    rank = int((values > tolerance * values[0]).sum()) if values[0] > 0 else 0
    return Estimate(rank, n=len(matrix), method=f"singular values above {tolerance:g} x largest")


def epsilon_rank(matrix: Float[ndarray, "r c"], epsilon: float) -> int:
    r"""The smallest rank within relative $d_2$ distance $\epsilon$: exact, by Eckart and Young.

    $\min\{R : \sum_{k>R} \sigma_k^2 \le \epsilon^2 \sum_k \sigma_k^2\}$.

    Example:
        >>> import numpy as np
        >>> epsilon_rank(np.eye(100), 0.5)
        75
    """
    require(0 <= epsilon < 1, "epsilon_rank.epsilon", "lie in [0, 1)", epsilon)
    squares = np.linalg.svd(matrix, compute_uv=False) ** 2
    return _tail(squares, epsilon**2 * float(squares.sum()))


def epsilon_rank_lower(matrix: Float[ndarray, "r c"], epsilon: float, norm: str = "sup") -> int:
    r"""A certified lower bound on the rank of every matrix within $\epsilon$ of this one.

    In the sup norm, the larger of two bounds: the Frobenius tail against $\epsilon^2 r c$; and
    $((\langle E, W\rangle - \epsilon |W|_1) / (\||E| + \epsilon\|_F |W|_{op}))^2$ with
    $W = U_k V_k^T$, over k. For `"mean"`, $\frac{1}{rc}\sum |E - B| \le \epsilon$: the tail
    against $(\epsilon\, r c)^2$, since no entry-wise sum is below the Frobenius norm.

    Args:
        matrix: E.
        epsilon: The distance, absolute.
        norm: `"sup"` or `"mean"`.
    """
    require(norm in ("sup", "mean"), "epsilon_rank_lower.norm", "be sup or mean", norm)
    require(epsilon >= 0, "epsilon_rank_lower.epsilon", "be at least 0", epsilon)
    u, values, vt = np.linalg.svd(matrix, full_matrices=False)
    cells = matrix.size
    if norm == "mean":
        return _tail(values**2, (epsilon * cells) ** 2)
    best = _tail(values**2, epsilon**2 * cells)
    size = float(np.linalg.norm(np.abs(matrix) + epsilon))
    witness, overlap = np.zeros_like(matrix), 0.0
    for k in range(len(values)):
        witness = witness + np.outer(u[:, k], vt[k])
        overlap += float(values[k])
        gap = overlap - epsilon * float(np.abs(witness).sum())
        if gap > 0 and size > 0:
            # Round up only beyond rounding error, so that the bound stays certified.
            best = max(best, math.ceil((gap / size) ** 2 * (1 - 1e-9) - 1e-9))
    return best


def _tail(squares: ndarray, allowed: float) -> int:
    """How many of the largest squares remain so that the rest sum to at most `allowed`."""
    rest = np.concatenate([np.cumsum(squares[::-1])[::-1], [0.0]])
    return int(np.argmax(rest <= allowed * (1 + 1e-12)))
