"""Measuring a construction of the universality theorem against its promises.

Letters: b batch, d size of a token, n tokens.
"""

import math

import torch
from torch import Tensor

from allometry._core.estimate import Estimate
from allometry.construct.certificate import Certificate, Construction, Term
from allometry.construct.modified_layers import RankOneFeedForward, Shift, apply
from allometry.construct.proof_stages import count, encoding, reader
from allometry.construct.sequence_functions import grid_columns, grid_sequences
from allometry.measure.contextual import Contextual, is_contextual_mapping
from allometry.measure.function_error import d_p, equivariance_error, sobol

POINTS, REPLICATES = 512, 8
MOST_CELLS = 2**15


def certify(made: Construction) -> Certificate:
    """The certificate of a construction by `universal`."""
    d, n, p, f = made.d, made.n, made.p, made.f
    x = sample(d, n)
    truth, grid, mid, net = f(x), f(centre(x, made.delta)), made.modified(x), made(x)

    def apart(a: Tensor, b: Tensor) -> Estimate:
        return d_p(a, b, p=p, replicates=REPLICATES)

    low, high = float(made.table.targets.min()), float(made.table.targets.max())
    span, entries = high - low, d * n
    lost = 0.0 if made.positions else clashing_share(d, n, made.delta, made.repeated)
    steps = (
        None
        if made.lipschitz is None
        else made.lipschitz * made.delta / 2 * (entries / (p + 1)) ** (1 / p)
    )
    terms = (
        Term("piecewise", apart(truth, grid), steps, "Lipschitz constant times half a cell"),
        Term(
            *("contextual", apart(grid, mid), span * (entries * lost) ** (1 / p)),
            f"range of f on the {lost:.3g} of cells whose code is lost or shared",
        ),
        Term(
            *("softening", apart(mid, net), span * (entries**2 * made.ramp) ** (1 / p)),
            "range of f on the ramps",
        ),
    )
    cells, error, difference = _grid(made)
    layers = [layer for part in made.stages.values() for layer in part]
    weights = list(made.model.parameters())
    return Certificate(
        d_p=apart(truth, net),
        p=p,
        terms=terms,
        sup_error=_largest((truth - net).abs()),
        equivariance_error=equivariance_error(made, x[:512]),
        blocks=made.model.depth,
        layers={
            "attention": count(layers, Shift),
            "feed-forward": count(layers, RankOneFeedForward),
        },
        heads=(made.model.heads, made.model.head_size),
        hidden=made.model.hidden,
        parameters=made.model.depth * (17 * d + 6) + (entries if made.positions else 0),
        stored=sum(w.numel() for w in weights),
        nonzero=sum(int((w != 0).sum()) for w in weights),
        bits=made.cost.bits,
        cells=cells,
        grid_error=error,
        clashes=made.table.clashes,
        contextual=check_contextual(made),
        hardmax_difference=difference,
        notes=_notes(made),
    )


def sample(d: int, n: int) -> Tensor:
    """The points on which certificates are measured: independent scramblings one after another."""
    return torch.cat([sobol(POINTS, (d, n), seed=7000 + k) for k in range(REPLICATES)])


def centre(x: Tensor, delta: float) -> Tensor:
    """The middle of the cell in which each input lies."""
    return ((x / delta).floor().clamp(0, round(1 / delta) - 1) + 0.5) * delta


def clashing_share(d: int, n: int, delta: float, repeated: bool) -> float:
    """Share of cells with repeated columns whose value is lost, or shared with other cells.

    Left out, all of them; filled in, those in which a column is repeated but not all are equal
    and n > 2 (aab and abb have the same codes, aa and bb have not).
    """
    M = round(delta**-d)
    distinct = math.perm(M, n) / M**n
    alike = M / M**n if repeated else 0.0
    return 0.0 if repeated and n <= 2 else 1.0 - distinct - (alike if n > 1 else 0.0)


def check_contextual(made: Construction) -> Contextual | None:
    """The lemma's properties, on every sequence of different grid columns."""
    if made.cost.cells > MOST_CELLS:
        return None
    sequences = grid_sequences(made.d, made.n, round(1 / made.delta), made.positions)
    if not made.positions:
        sequences = sequences[(sequences.diff(dim=1) > 0).all(1)]
    x = grid_columns(made.d, round(1 / made.delta)).double()[sequences].mT
    x = x + encoding(made.d, made.n) if made.positions else x
    codes = apply(made.stages["contextual"], x)
    ids = torch.einsum("d,bdn->bn", reader(made.d, made.delta), codes)
    return is_contextual_mapping(ids, x)


def _grid(made: Construction) -> tuple[int, float, float]:
    """Cells checked, largest error there, and largest difference of softmax and hardmax."""
    sequences = grid_sequences(made.d, made.n, round(1 / made.delta), made.positions)
    if len(sequences) > MOST_CELLS:
        rng = torch.Generator().manual_seed(0)
        sequences = sequences[torch.randperm(len(sequences), generator=rng)[:MOST_CELLS]]
    corners = grid_columns(made.d, round(1 / made.delta)).double()[sequences].mT
    middle = corners + made.delta / 2
    net, truth = made(middle), made.f(middle)
    other = made.build(not made.softmax)
    with torch.no_grad():
        difference = float((made(corners) - other(corners)).abs().max())
    plain = torch.ones(len(sequences), dtype=torch.bool)
    if not made.positions and (made.n > 2 or not made.repeated):
        # Where a column is repeated the code does not tell how often: a mean is all there can be.
        plain = (sequences.sort(1).values.diff(dim=1) > 0).all(1)
    return len(sequences), float((net - truth)[plain].abs().max()), difference


def _largest(errors: Tensor) -> Estimate:
    worst = float(errors.max())
    return Estimate(worst, lo=worst, hi=math.inf, n=len(errors), method="largest of the points")


def _notes(made: Construction) -> tuple[str, ...]:
    notes = ["values are those in the middle of cells"]
    if not made.positions:
        notes.append(
            f"repeated columns are filled in; {made.table.clashes} codes stand for several values"
            if made.repeated
            else "sequences with repeated columns are left out, as in the proof"
        )
    share = made.d * made.n * made.ramp
    notes.append(f"ramps take up {share:.1g} of the cube, too little for the points to meet")
    if made.cost.cells > MOST_CELLS:
        notes.append(f"the grid was checked on {MOST_CELLS:,} of {made.cost.cells:,} sequences")
    return tuple(notes)
