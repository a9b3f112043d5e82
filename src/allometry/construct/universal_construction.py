"""The constructed universal approximator and its certificate.

Letters: b batch, d size of a token, n tokens.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.estimate import Estimate
from allometry.construct.certificate import Certificate, Construction, Term
from allometry.construct.modified_layers import (
    Layer,
    RankOneFeedForward,
    Shift,
    apply,
)
from allometry.construct.proof_stages import count, encoding, reader
from allometry.construct.sequence_functions import GridTable, grid_columns, grid_sequences
from allometry.construct.universal_cost import UniversalCost
from allometry.measure.contextual import Contextual, is_contextual_mapping
from allometry.measure.function_error import d_p, equivariance_error, sobol
from allometry.models.transformer.attention import Attention
from allometry.models.transformer.model import Transformer

POINTS, REPLICATES = 512, 8
MOST_CELLS = 2**15
MOST_WORK = 2**27
"""Tokens times blocks that one measurement of a certificate runs: about half a second."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class UniversalConstruction(Construction):
    """The network of `universal`; see `Construction` for the common attributes.

    Attributes:
        stages: Layers of the proof's modified class, by stage.
        repeated: Whether sequences with repeated columns are tabulated.
        softmax: Whether attention is softmax; hardmax otherwise.
        temperature: Nats by which the right key wins, times two.
        lipschitz: A Lipschitz constant of f in the p-norm, if known.
        cost: Size of the network.
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
    stages: dict[str, list[Layer]]
    repeated: bool
    softmax: bool
    temperature: float
    lipschitz: float | None
    cost: UniversalCost

    @property
    def layers(self) -> list[Layer]:
        """The layers of all stages."""
        return [layer for stage in self.stages.values() for layer in stage]

    def modified(self, x: Float[Tensor, "b d n"]) -> Float[Tensor, "b d n"]:
        """The output of the proof's modified network: hardmax and piecewise linear activations."""
        return apply(self.layers, x + encoding(self.d, self.n) if self.positions else x)

    def _certify(self) -> Certificate:
        return certify(self)


def certify(made: UniversalConstruction) -> Certificate:
    """Measure the certificate of a construction by `universal`."""
    d, n, p, f = made.d, made.n, made.p, made.f
    most = _affordable(made)
    x = sample(d, n, min(POINTS, 2 ** int(math.log2(max(16, most // REPLICATES)))))
    truth, grid, mid, net = f(x), f(centre(x, made.delta)), made.modified(x), made(x)

    def distance(a: Tensor, b: Tensor) -> Estimate:
        return d_p(a, b, p=p, replicates=REPLICATES)

    cells, error, difference = _check_grid(made, min(MOST_CELLS, most))
    weights = list(made.model.parameters())
    return Certificate(
        d_p=distance(truth, net),
        p=p,
        terms=_terms(made, distance(truth, grid), distance(grid, mid), distance(mid, net)),
        sup_error=_largest((truth - net).abs()),
        equivariance_error=equivariance_error(made, x[: min(512, max(16, most // 25))]),
        blocks=made.model.depth,
        layers={
            "attention": count(made.layers, Shift),
            "feed-forward": count(made.layers, RankOneFeedForward),
        },
        heads=(made.model.heads, made.model.head_size),
        hidden=made.model.hidden,
        parameters=made.model.depth * (17 * d + 6) + (d * n if made.positions else 0),
        stored=sum(w.numel() for w in weights),
        nonzero=sum(int((w != 0).sum()) for w in weights),
        bits=made.cost.bits,
        cells=cells,
        grid_error=error,
        clashes=made.table.clashes,
        contextual=check_contextual(made),
        hardmax_difference=difference,
        notes=_notes(made, cells, len(x)),
    )


def _terms(
    made: UniversalConstruction, piecewise: Estimate, contextual: Estimate, softening: Estimate
) -> tuple[Term, Term, Term]:
    """The measured terms of the triangle inequality with their bounds."""
    p, entries = made.p, made.d * made.n
    span = float(made.table.targets.max()) - float(made.table.targets.min())
    lost = 0.0 if made.positions else clashing_share(made.d, made.n, made.delta, made.repeated)
    steps = (
        None
        if made.lipschitz is None
        else made.lipschitz * made.delta / 2 * (entries / (p + 1)) ** (1 / p)
    )
    return (
        Term("piecewise", piecewise, steps, "Lipschitz constant times half a cell"),
        Term(
            "contextual",
            contextual,
            span * (entries * lost) ** (1 / p),
            f"range of f on the {lost:.3g} of cells whose code is lost or shared",
        ),
        Term(
            "softening",
            softening,
            span * (entries**2 * made.ramp) ** (1 / p),
            "range of f on the ramps",
        ),
    )


def sample(d: int, n: int, points: int = POINTS) -> Tensor:
    """The points on which certificates are measured: `REPLICATES` scrambled Sobol sequences."""
    return torch.cat([sobol(points, (d, n), seed=7000 + k) for k in range(REPLICATES)])


def _affordable(made: UniversalConstruction) -> int:
    """Inputs that one measurement may run through the network: few if it has many blocks."""
    return MOST_WORK // (made.n * made.model.depth)


def centre(x: Tensor, delta: float) -> Tensor:
    """The middle of each input's grid cell."""
    return ((x / delta).floor().clamp(0, round(1 / delta) - 1) + 0.5) * delta


def clashing_share(d: int, n: int, delta: float, repeated: bool) -> float:
    """Share of cells with repeated columns whose value is lost, or shared with other cells.

    Without `repeated`, these are all cells with repeated columns. With it, they are the cells in
    which a column is repeated but not all columns are equal, for n > 2: aab and abb have the same
    codes, aa and bb do not.
    """
    M = round(delta**-d)
    distinct = math.perm(M, n) / M**n
    alike = M / M**n if repeated else 0.0
    return 0.0 if repeated and n <= 2 else 1.0 - distinct - (alike if n > 1 else 0.0)


def check_contextual(made: UniversalConstruction) -> Contextual | None:
    """Check the lemma's properties on every sequence of distinct grid columns."""
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


def _check_grid(made: UniversalConstruction, most: int) -> tuple[int, float, float]:
    """Number of cells, largest error there, and largest difference of softmax and hardmax."""
    sequences = grid_sequences(made.d, made.n, round(1 / made.delta), made.positions)
    if len(sequences) > most:
        rng = torch.Generator().manual_seed(0)
        sequences = sequences[torch.randperm(len(sequences), generator=rng)[:most]]
    corners = grid_columns(made.d, round(1 / made.delta)).double()[sequences].mT
    middle = corners + made.delta / 2
    net, truth = made(middle), made.f(middle)
    difference = float((made(corners) - _other_attention(made, corners)).abs().max())
    plain = torch.ones(len(sequences), dtype=torch.bool)
    if not made.positions and (made.n > 2 or not made.repeated):
        # The code of a repeated column does not show how often it occurs: its value is a mean.
        plain = (sequences.sort(1).values.diff(dim=1) > 0).all(1)
    return len(sequences), float((net - truth)[plain].abs().max()), difference


def _other_attention(made: UniversalConstruction, x: Tensor) -> Tensor:
    """The output with hardmax in place of softmax, or the reverse, and otherwise the same."""
    blocks = made.model.blocks
    parts = [block.attention for block in blocks if isinstance(block.attention, Attention)]
    try:
        for part in parts:
            part.hard = made.softmax
        return made(x)
    finally:
        for part in parts:
            part.hard = not made.softmax


def _largest(errors: Tensor) -> Estimate:
    worst = float(errors.max())
    return Estimate(worst, lo=worst, hi=math.inf, n=len(errors), method="largest of the points")


def _notes(made: UniversalConstruction, cells: int, points: int) -> tuple[str, ...]:
    notes = ["values are those in the middle of cells"]
    if not made.positions:
        notes.append(
            f"repeated columns are tabulated; {made.table.clashes} codes stand for several values"
            if made.repeated
            else "sequences with repeated columns are not tabulated, as in the proof"
        )
    share = made.d * made.n * made.ramp
    notes.append(f"ramps cover {share:.1g} of the cube, too little for the points to hit them")
    if points < POINTS * REPLICATES:
        notes.append(f"errors are those at {points:,} points, since the network has many blocks")
    if made.cost.cells > cells:
        notes.append(f"the grid was checked on {cells:,} of {made.cost.cells:,} sequences")
    return tuple(notes)
