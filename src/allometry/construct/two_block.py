r"""Universal approximators with two blocks: one attention layer and wide feed-forward layers.

Letters: b batch, d size of a token, n tokens, k codes, M columns of the grid.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate
from allometry.construct.certificate import Certificate, Construction, Term
from allometry.construct.proof_stages import encoding
from allometry.construct.sequence_functions import (
    Function,
    GridTable,
    checked,
    grid_columns,
    grid_sequences,
    orders,
    tabulate,
)
from allometry.construct.universal import check_sizes
from allometry.construct.universal_construction import REPLICATES, centre, sample
from allometry.measure.contextual import is_contextual_mapping
from allometry.measure.function_error import d_p, equivariance_error
from allometry.models.transformer.attention import Attention
from allometry.models.transformer.model import FeedForward, Transformer

RAMP = 2.0**-18
"""Default width of a ramp as a share of a cell."""

MOST_CODES = 2**17
"""Largest number of codes: the hidden layer of the lookup must fit in memory."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class CompactConstruction(Construction):
    """The network of `compact`; see `Construction` for the common attributes.

    Attributes:
        sequences: Numbers of the grid columns of every sequence.
        codes: Code of every column of every sequence.
        middle: The sequences' cell centres.
    """

    model: Transformer
    f: Callable[[Tensor], Tensor]
    d: int
    n: int
    delta: float
    p: float
    positions: bool
    table: GridTable
    ramp: float
    sequences: Int[Tensor, "s n"]
    codes: Float[Tensor, "s n"]
    middle: Float[Tensor, "s d n"]

    def _certify(self) -> Certificate:
        return certify(self)


def compact(
    f: Function,
    d: int,
    n: int,
    delta: float | None = None,
    *,
    eps: float | None = None,
    p: float = 2.0,
    positions: bool = False,
    ramp: float = RAMP,
) -> CompactConstruction:
    r"""A transformer of two blocks, one head and wide layers that approximates f.

    Block 1 rounds each column to its number $l \in \{0, \dots, M - 1\}$, $M = \delta^{-d}$, with
    one step function for each row. Block 2 has one attention layer. Without positions, a softmax
    of finite temperature averages the numbers, $\sum_k l_k e^{\beta l_k} / \sum_k e^{\beta l_k}$,
    which differs for every multiset of columns. With positions, columns write their number as a
    digit of base M and a uniform head adds the digits. This sum and the column's own number make a
    code, and one wide feed-forward layer is a step function from codes to values.

    Differs from the papers: $\beta$ is searched and the gap between codes is measured on all
    sequences; Kajitsuka and Sato prove that one exists.

    Args:
        f: Maps arrays (b, d, n) to arrays (b, d, n); commutes with permutations unless
            `positions`.
        d: Size of a token.
        n: Number of tokens.
        delta: Size of a cell, 1/integer; or give `eps`.
        eps: $d_p$ to reach; the largest sufficient delta is used.
        p: Exponent of the error.
        positions: Add a positional encoding, so that f may be any function.
        ramp: Width of a step's ramp as a share of a cell.

    References:
        `kajitsuka2024` Theorem 2; `yun2020` Theorems 2 and 3.
    """
    check_sizes("compact", d, n, p)
    require(0 < ramp < 0.25, "compact.ramp", "lie between 0 and 1/4", ramp)
    if delta is not None:
        require(eps is None, "compact.eps", "not be given together with delta", eps)
        whole = 1e-9 < delta <= 0.5 and abs(1 / delta - round(1 / delta)) < 1e-9
        require(whole, "compact.delta", "be 1/2, 1/3, 1/4, ...", delta)
        codes = _codes(d, n, round(1 / delta), positions)
        if codes > MOST_CODES:
            raise InputError(
                f"compact.delta must need at most {MOST_CODES:,} codes; got {codes:,} for "
                f"delta = 1/{1 / delta:.0f}, d = {d}, n = {n}. Use a larger delta."
            )
    target = checked(f, d, n, equivariant=not positions)
    cells = _cells_for(target, d, n, eps, p, positions) if delta is None else round(1 / delta)
    delta = 1 / cells
    sequences = grid_sequences(d, n, cells, positions)
    middle = (grid_columns(d, cells).double()[sequences] + delta / 2).mT
    targets = target(middle)
    finite = bool(targets.isfinite().all())
    require(finite, "f", "give finite values everywhere", "NaN or infinity in a cell's middle")
    M = cells**d
    if positions:
        beta, mix = 0.0, float(n * n)
        digits = (sequences * float(M) ** torch.arange(n)).sum(1, keepdim=True)
        codes = n * digits + torch.arange(n).double()
    else:
        beta, gap = _temperature(sequences.double(), M)
        mix = M / gap
        codes = mix * boltzmann(sequences.double(), beta)[:, None] + sequences
    weights = torch.ones(len(codes)).double() if positions else orders(sequences)
    table = tabulate(codes, middle, targets, weights, tolerance=0.25)
    model = _model(table, d, n, cells, positions, beta, mix, ramp)
    return CompactConstruction(
        model=model,
        f=target,
        d=d,
        n=n,
        delta=delta,
        p=p,
        positions=positions,
        table=table,
        ramp=ramp,
        sequences=sequences,
        codes=codes,
        middle=middle,
    )


def count(d: int, n: int, cells: int, positions: bool = False) -> int:
    """Upper bound of the nonzero parameters of `compact`, without building it.

    Each step is two neurons with an input weight, a bias and output weights: d entries of the
    value, or two copies of the number in block 1.

    Args:
        d: Size of a token.
        n: Number of tokens.
        cells: Cells along each entry, 1/delta.
        positions: Whether a positional encoding is added.
    """
    steps = d * (n if positions else 1) * cells - d
    tables = d * (n - 1) if positions else 0
    return 2 * (_codes(d, n, cells, positions) - 1) * (2 + d) + 8 * steps + 6 + d + tables


def _codes(d: int, n: int, cells: int, positions: bool) -> int:
    M = cells**d
    return n * M**n if positions else M * math.comb(M + n - 2, n - 1)


def _cells_for(f: Function, d: int, n: int, eps: float | None, p: float, positions: bool) -> int:
    """The smallest number of cells, 2, 4, 8, ..., whose centres approximate f within eps."""
    require(eps is not None and eps > 0, "compact.eps", "be positive when there is no delta", eps)
    assert eps is not None
    x, cells, best = sample(d, n), 2, math.inf
    truth = f(x)
    while _codes(d, n, cells, positions) <= MOST_CODES:
        best = d_p(truth, f(centre(x, 1 / cells)), p=p, replicates=REPLICATES).value
        if best <= eps:
            return cells
        cells *= 2
    raise InputError(
        f"compact.eps must be reachable with {MOST_CODES:,} codes; got {eps:g}. The finest grid "
        f"that fits, delta = 1/{cells // 2}, gives d_p = {best:.3g}."
    )


def boltzmann(numbers: Float[Tensor, "s n"], beta: float) -> Float[Tensor, " s"]:
    r"""The average $\sum_k l_k e^{\beta l_k} / \sum_k e^{\beta l_k}$ of each row.

    Args:
        numbers: $l_1, \dots, l_n$.
        beta: Inverse temperature.
    """
    return (numbers * (beta * numbers).softmax(1)).sum(1)


def _temperature(numbers: Float[Tensor, "s n"], M: int) -> tuple[float, float]:
    """The inverse temperature that separates the averages best, and their smallest gap."""
    best = (0.0, 0.0)
    for beta in torch.logspace(-4, 1, 400, dtype=torch.float64).tolist():
        gaps = boltzmann(numbers, beta).sort().values.diff()
        best = max(best, (float(gaps.min()) if len(gaps) else 1.0, beta))
    gap, beta = best
    # Rounding errors reach about 2^-30 of the numbers' range; gaps must be larger.
    least = M * 2.0**-30
    if gap < least:
        raise InputError(
            f"compact.delta must keep averages of columns {least:.2g} apart; got {gap:.2g}. "
            "Use a larger delta."
        )
    return beta, gap


def _model(
    table: GridTable,
    d: int,
    n: int,
    cells: int,
    positions: bool,
    beta: float,
    mix: float,
    ramp: float,
) -> Transformer:
    """Rows of the stream: d of input, the number to send, the code, d of output."""
    heights, knots, ends = _steps(d, n, cells, positions)
    width, k = 2 * d + 2, len(table.codes)
    model = Transformer(
        vocabulary=None,
        width=width,
        depth=2,
        heads=1,
        context=n if positions else None,
        kind="encoder",
        head_size=1,
        hidden=(2 * len(knots), max(1, 2 * (k - 1))),
        norm=None,
        positions="learned" if positions else None,
        activation="relu",
        bias=("query", "inner", "outer"),
        parts=("feed_forward", "both"),
        inputs=d,
        outputs=d,
        columns=True,
        attention_scale=1.0,
    ).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        assert model.input is not None
        assert model.readout is not None
        model.input[:d] = torch.eye(d)
        model.readout[:, d + 2 :] = torch.eye(d)
        if model.position_table is not None:
            model.position_table[:, :d] = encoding(d, n).T
        eps = ramp / cells
        layers = [block.feed_forward for block in model.blocks]
        assert isinstance(layers[0], FeedForward)
        assert isinstance(layers[1], FeedForward)
        assert layers[1].outer_bias is not None
        _fill_steps(layers[0], knots - eps, knots, ends, heights)
        attention = model.blocks[1].attention
        assert isinstance(attention, Attention)
        assert attention.query_bias is not None
        attention.query_bias.fill_(beta)
        attention.key[0, d] = 1.0
        attention.value[0, d] = 1.0
        attention.output[d + 1, 0] = mix
        if k > 1:
            low, high = table.codes[:-1], table.codes[1:]
            rows = torch.zeros(2 * d + 2, k - 1, dtype=torch.float64)
            rows[d + 2 :] = table.targets.diff(dim=0).T
            first = torch.full((k - 1,), d + 1)
            middle, quarter = (low + high) / 2, (high - low) / 4
            _fill_steps(layers[1], middle - quarter, middle + quarter, first, rows)
        layers[1].outer_bias[d + 2 :] = table.targets[0]
    return model


def _steps(
    d: int, n: int, cells: int, positions: bool
) -> tuple[Float[Tensor, "w s"], Float[Tensor, " s"], Tensor]:
    """Steps of block 1: heights for the rows of the residual stream, knots, and rows read."""
    M, heights, knots, reads = cells**d, [], [], []
    for i in range(d):
        level = (0.0, 0.0)
        for j in range(n if positions else 1):
            for cell in range(cells):
                own = float(j) if positions and i == 0 else 0.0
                number = float(cell * cells**i)
                now = (number * float(M) ** j, own) if positions else (number, number)
                if (j, cell) != (0, 0):
                    add = torch.zeros(2 * d + 2, dtype=torch.float64)
                    add[d], add[d + 1] = now[0] - level[0], now[1] - level[1]
                    heights.append(add)
                    # A step between two columns is halfway, outside the range of both.
                    knots.append(2.0 * j + (cell / cells if cell else -0.5))
                    reads.append(i)
                level = now
    return torch.stack(heights, 1), torch.tensor(knots, dtype=torch.float64), torch.tensor(reads)


def _fill_steps(
    layer: FeedForward,
    low: Float[Tensor, " s"],
    high: Float[Tensor, " s"],
    reads: Tensor,
    heights: Float[Tensor, "w s"],
) -> None:
    """Fill `layer` with ramps from `low` to `high` on the rows `reads`, of given heights."""
    steps = len(low)
    slopes = heights / (high - low)
    assert layer.inner_bias is not None
    layer.inner[torch.arange(2 * steps), reads.repeat_interleave(2)] = 1.0
    layer.inner_bias.copy_(-torch.stack([low, high], 1).flatten())
    # Start and end of a step are adjacent, so that partial sums never grow large.
    layer.outer.copy_(torch.stack([slopes, -slopes], 2).flatten(1))


def certify(made: CompactConstruction) -> Certificate:
    """Measure the certificate of a construction by `compact`."""
    d, n, p, f, table = made.d, made.n, made.p, made.f, made.table
    x = sample(d, n)
    truth, grid, net = f(x), f(centre(x, made.delta)), made(x)

    def distance(a: Tensor, b: Tensor) -> Estimate:
        return d_p(a, b, p=p, replicates=REPLICATES)

    span = float(table.targets.max() - table.targets.min())
    ramps = span * ((d * n) ** 2 * made.ramp) ** (1 / p)
    error = (truth - net).abs()
    parameters = list(made.model.parameters())
    stored = sum(w.numel() for w in parameters)
    worst = float((made(made.middle) - f(made.middle)).abs().max())
    check = is_contextual_mapping(made.codes, _ordered(made), tolerance=0.25)
    return Certificate(
        d_p=distance(truth, net),
        p=p,
        terms=(
            Term("piecewise", distance(truth, grid), None, ""),
            Term("softening", distance(grid, net), ramps, "range of f on the ramps"),
        ),
        sup_error=Estimate(float(error.max()), lo=float(error.max()), hi=math.inf, n=len(x)),
        equivariance_error=equivariance_error(made, x[:512]),
        blocks=2,
        layers={"attention": 1, "feed-forward": 2},
        heads=(1, 1),
        hidden=made.model.hidden,
        parameters=stored,
        stored=stored,
        nonzero=sum(int((w != 0).sum()) for w in parameters),
        bits=math.ceil(math.log2(float(table.codes.max()) + 2)) + 3,
        cells=len(made.sequences),
        grid_error=worst,
        clashes=table.clashes,
        contextual=check,
        hardmax_difference=None,
        notes=(
            "values are those in the middle of cells",
            "sequences with repeated columns have distinct codes",
        ),
    )


def _ordered(made: CompactConstruction) -> Tensor:
    """The grid sequences, with the positional encoding if there is one."""
    return made.middle + encoding(made.d, made.n) if made.positions else made.middle
