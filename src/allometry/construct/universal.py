r"""Universal approximators of sequence-to-sequence functions, constructed by the proof.

Letters: b batch, d size of a token, n tokens, k codes.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import InputError, require
from allometry.construct import proof_stages as stage
from allometry.construct.modified_layers import (
    TEMPERATURE,
    Layer,
    Phi,
    RankOneFeedForward,
    apply,
    soften,
)
from allometry.construct.sequence_functions import (
    Function,
    GridTable,
    checked,
    grid_columns,
    grid_sequences,
    orders,
    tabulate,
)
from allometry.construct.universal_construction import UniversalConstruction
from allometry.construct.universal_cost import MOST_BLOCKS, base, cost, top
from allometry.measure.function_error import d_p, sobol


def universal(
    f: Function,
    d: int,
    n: int,
    delta: float | None = None,
    *,
    eps: float | None = None,
    p: float = 2.0,
    positions: bool = False,
    softmax: bool = True,
    repeated: bool = True,
    outside: str = "clamp",
    ramp: float = stage.RAMP,
    temperature: float = TEMPERATURE,
    lipschitz: float | None = None,
) -> UniversalConstruction:
    r"""The transformer of class $\mathcal T^{2,1,4}$ near f, by the proof of the theorem.

    It quantises the input to a grid of step $\delta$, gives every column a code that identifies
    its whole sequence (the contextual mapping), and maps each code to the value of f in the middle
    of the cell. `made.stages` has the layers of the proof's modified class, which `made.modified`
    runs; `made.model` has only softmax and ReLUs.

    Differs from the paper: values are taken in the middle of cells; sequences with `repeated`
    columns, which the proof leaves out, are tabulated (their codes do not show how often a column
    occurs, so for n > 2 they get a mean); positions are 0, 2, 4, ... instead of 0, 1, 2, ...;
    codes are rescaled and outputs limited to the range of f, because float64 has 53 bits.

    Args:
        f: Maps arrays (b, d, n) to arrays (b, d, n); commutes with permutations of the n columns
            unless `positions`.
        d: Size of a token.
        n: Number of tokens.
        delta: Size of a cell, a power of 1/2; or give `eps`.
        eps: $d_p$ to reach; the largest sufficient delta is used.
        p: Exponent of the error.
        positions: Add a positional encoding, so that f may be any function (Theorem 3).
        softmax: `False` keeps hardmax attention.
        repeated: Tabulate sequences with repeated columns.
        outside: Treatment of inputs outside the cube: "clamp" uses the nearest point inside (with
            positions, for entries up to 3/2 only), "zero" maps them to a far value and the output
            to 0, as the paper does.
        ramp: Width of a jump's ramp as a share of a cell.
        temperature: Nats by which the right key wins, times two.
        lipschitz: A Lipschitz constant of f in the p-norm, for the certificate's bound.

    Raises:
        InputError: f is not such a function, or float64 or memory do not suffice; the message
            names a delta that fits.

    Example:
        >>> import torch, allometry as al
        >>> made = al.construct.universal(al.targets.functions.mean, d=1, n=2, delta=1 / 4)
        >>> made(torch.tensor([[0.3, 0.9]])).tolist()
        [[0.625, 0.625]]

    References:
        `yun2020` Theorems 2 and 3.
    """
    check_sizes("universal", d, n, p)
    require(outside in ("clamp", "zero"), "universal.outside", "be 'clamp' or 'zero'", outside)
    fix = "With positions, the column of an entry outside the cube is unknown."
    require(outside == "clamp" or not positions, "universal.outside", "be 'clamp'", outside, fix)
    require(0 < ramp < 0.25, "universal.ramp", "lie between 0 and 1/4", ramp)
    target = checked(f, d, n, equivariant=not positions)
    if delta is None:
        delta = _delta_for(target, d, n, eps, p, positions, repeated)
    else:
        require(eps is None, "universal.eps", "not be given together with delta", eps)
    _check_fits(d, n, delta, positions, repeated)
    table, parts = tabulated(target, d, n, delta, positions, repeated)
    largest = float(table.targets.abs().max())
    _check_fits(d, n, delta, positions, repeated, largest)
    stages = _stages(table, parts, d, n, delta, positions, outside, ramp)
    model = soften(
        [layer for part in stages.values() for layer in part],
        positions=stage.encoding(d, n) if positions else None,
        softmax=softmax,
        temperature=temperature,
    )
    return UniversalConstruction(
        model=model,
        f=target,
        d=d,
        n=n,
        delta=delta,
        p=p,
        positions=positions,
        table=table,
        ramp=ramp,
        stages=stages,
        repeated=repeated,
        softmax=softmax,
        temperature=temperature,
        lipschitz=lipschitz,
        cost=cost(d, n, delta=delta, positions=positions, repeated=repeated, largest=largest),
    )


def tabulated(
    f: Callable[[Tensor], Tensor],
    d: int,
    n: int,
    delta: float,
    positions: bool = False,
    repeated: bool = True,
) -> tuple[GridTable, dict[str, list[Layer]]]:
    """The code and target value of every column of every grid sequence.

    Returns the table and the stages that compute its codes ("contextual" and "rescale").
    """
    sequences = grid_sequences(d, n, round(1 / delta), positions)
    if not positions and not repeated:
        sequences = sequences[(sequences.diff(dim=1) > 0).all(1)]
    corners = grid_columns(d, round(1 / delta)).double()[sequences].mT
    targets = f(corners + delta / 2)
    finite = bool(targets.isfinite().all())
    require(finite, "f", "give finite values everywhere", "NaN or infinity in a cell's middle")
    largest = float(targets.abs().max())
    parts = {
        "contextual": stage.contextual(d, delta, n, positions),
        "rescale": stage.rescale(d, top(d, n, delta, positions), delta, base(largest)),
    }
    start = corners + stage.encoding(d, n) if positions else corners
    columns = apply([*parts["contextual"], *parts["rescale"]], start)
    weights = torch.ones(len(sequences)).double() if positions else orders(sequences)
    return tabulate(columns[:, 0], columns, targets, weights), parts


def check_sizes(name: str, d: int, n: int, p: float) -> None:
    """Refuse sizes below 1 and exponents below 1."""
    require(d >= 1, f"{name}.d", "be at least 1", d)
    require(n >= 1, f"{name}.n", "be at least 1", n)
    require(p >= 1, f"{name}.p", "be at least 1", p)


def _stages(
    table: GridTable,
    parts: dict[str, list[Layer]],
    d: int,
    n: int,
    delta: float,
    positions: bool,
    outside: str,
    ramp: float,
) -> dict[str, list[Layer]]:
    low, high = float(table.targets.min()), float(table.targets.max())
    gap = delta / 2.0 ** math.ceil(math.log2(top(d, n, delta, positions)))
    spaced = bool((table.codes.diff() >= gap).all())
    assert spaced, "codes are closer than the proof says"
    if outside == "clamp":
        # Slightly below the top, so that the largest entry falls into the last cell.
        first = stage.clamp(d, 0.0, 2.0 * n - 1 if positions else 1 - delta / 2)
        last = stage.clamp(d, low, high)
    else:
        first = stage.banish(d, 0.0, 1.0 + ramp, -(delta ** (-n * d)), ramp)
        last = _zero_outside(d, low, high)
    return {
        "clamp": first,
        "quantise": stage.quantise(d, delta, n if positions else 1, ramp),
        **parts,
        "values": stage.values(table.codes, table.columns, table.targets, gap),
        "limit": last,
    }


def _zero_outside(d: int, low: float, high: float) -> list[Layer]:
    """Layers that map columns whose first entry is not a value of f to 0.

    Their other entries, which may be in the range of f, are first moved below it.
    """
    width = high - low + 1
    lost = Phi(low - 0.25, high + 0.25, left=(0.0, 1.0), right=(0.0, 1.0), ramp=0.125)
    push = torch.full((d,), -2 * width - 2 * abs(high), dtype=torch.float64)
    push[0] = 0.0
    pushes: list[Layer] = [RankOneFeedForward(stage.unit(d, 0), 0.0, lost, push)] if d > 1 else []
    return [*pushes, *stage.banish(d, low - 0.25, high + 0.25, 0.0, 0.125)]


def _check_fits(
    d: int, n: int, delta: float, positions: bool, repeated: bool, largest: float = 0.5
) -> None:
    m = -math.log2(delta) if delta > 0 else math.nan
    power = m == round(m) if math.isfinite(m) else False
    if not power or m < 1:
        below = 2.0 ** -math.ceil(m) if 0 < m < 30 else 0.5
        whole = delta > 1e-9 and abs(1 / delta - round(1 / delta)) < 1e-9 and delta < 1
        why = "Grid points must be exact in binary." if whole else "1/delta counts cells."
        raise InputError(
            f"universal.delta must be 1/2, 1/4, 1/8, ...; got {delta:g}. {why} "
            f"Use 1/{1 / below:.0f}."
        )
    if not positions:
        require(
            delta**-d >= n,
            "universal.delta",
            f"leave at least n = {n} different columns, delta^-d >= n",
            delta,
            f"Use 1/{2 ** math.ceil(math.log2(n) / d)}.",
        )
    size = cost(d, n, delta=delta, positions=positions, repeated=repeated, largest=largest)
    if size.fits:
        return
    finest = 0.5
    while cost(d, n, delta=finest / 2, positions=positions, largest=largest).fits:
        finest /= 2
    possible = cost(d, n, delta=finest, positions=positions, largest=largest).fits
    advice = f"The smallest delta that fits is 1/{1 / finest:.0f}." if possible else "None fits."
    raise InputError(
        f"universal.delta must need at most 53 bits and {MOST_BLOCKS:,} blocks; got {size.bits} "
        f"bits and {size.blocks:,} blocks for delta = 1/{1 / delta:.0f}, d = {d}, n = {n}. "
        f"{advice} construct.compact allows smaller ones."
    )


def looked_up(
    x: Float[Tensor, "b d n"],
    table: GridTable,
    parts: dict[str, list[Layer]],
    delta: float,
    positions: bool,
) -> Float[Tensor, "b d n"]:
    """The output of the modified network, read from the table instead of run through layers."""
    corner = (x / delta).floor().clamp(0, round(1 / delta) - 1) * delta
    start = corner + stage.encoding(*x.shape[1:]) if positions else corner
    codes = apply([*parts["contextual"], *parts["rescale"]], start)[:, 0]
    line = torch.searchsorted(table.codes, codes).clamp(max=len(table.codes) - 1)
    return table.targets[line].mT


def _delta_for(
    f: Callable[[Tensor], Tensor],
    d: int,
    n: int,
    eps: float | None,
    p: float,
    positions: bool,
    repeated: bool,
) -> float:
    require(
        eps is not None and eps > 0, "universal.eps", "be positive when there is no delta", eps
    )
    assert eps is not None
    x = torch.cat([sobol(1024, (d, n), seed=k) for k in range(4)])
    truth, delta, best = f(x), 0.5, math.inf
    while cost(d, n, delta=delta, positions=positions, repeated=repeated).fits:
        if positions or delta**-d >= n:
            table, parts = tabulated(f, d, n, delta, positions, repeated)
            near = looked_up(x, table, parts, delta, positions)
            best = d_p(truth, near, p=p, replicates=4).value
            if best <= eps:
                return delta
        delta /= 2
    raise InputError(
        f"universal.eps must be reachable in float64; got {eps:g}. The finest grid that fits, "
        f"delta = 1/{0.5 / delta:.0f}, gives d_p = {best:.3g}. construct.compact allows finer "
        "grids."
    )
