"""Exact separation ranks of polynomial networks, Mixers and attention."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.measure import Field, epsilon_rank, generic_, matricization, separation_rank
from allometry.measure.uncertainty import median
from allometry.models.polynomial import (
    LinearAttention,
    Mixer,
    PolynomialAttention,
    PolynomialNetwork,
)
from allometry.models.polynomial_degree import degree as total_degree
from allometry.models.polynomial_degree import rank_narrow, rank_upper
from allometry.study.recipes.base import identity
from allometry.study.recipes.polynomial_stacks import STACKS
from allometry.study.recipes.run_outcome import journal_columns
from allometry.study.request import Outcome, Request, RunContext
from allometry.train.budget import Budget
from allometry.train.loop import Progress
from allometry.train.packed_regression import uniform_points

EPSILON = 0.01
POINTS = 256
"""Points on each side, for epsilon-ranks."""


@final
@dataclass(frozen=True)
class Form:
    """A kind of network whose rank is measured.

    Args:
        words: Description, the family in the journal.
        tokens: Number of input tokens, half of them on each side.
        width: Of a token.
        polynomial: Whether its rank is finite; an epsilon-rank always is.
    """

    words: str
    tokens: int
    width: int
    polynomial: bool = True


FORMS = {
    "network": Form("fully connected of width 2", 4, 1),
    "multi": Form("multi-pooled attention of width 2", 2, 2),
    "hadamard": Form("Hadamard-pooled attention of width 2", 2, 2),
    "narrow": Form("fully connected of width 1, wide inputs", 16, 1),
}
"""Networks whose rank `ranks` measures at a fixed number of linear forms: two coordinates a side,
one token a side, and eight coordinates a side for wide inputs."""

MIXERS = {
    "linear": Form("Mixer without activation", 4, 2),
    "quadratic": Form("Mixer, squares", 4, 2),
    "cubic": Form("Mixer, cubes", 4, 2),
    "gelu": Form("Mixer, GELU", 4, 2, polynomial=False),
    "attention": Form("linear attention, two heads", 4, 2),
    "multi": Form("multi-pooled attention of degree 3", 4, 2),
}
"""Networks on four tokens of size 2."""

_DEEP = {"linear": (1, 2, 4), "quadratic": (1, 2), "cubic": (1,), "gelu": (1, 2, 4)} | {
    "attention": (1, 2),
    "multi": (1, 2),
}
MEASURED = 6000
"""Larger ranks that follow from a theorem are not measured."""


@final
@dataclass(frozen=True)
class RankRun(Request):
    """The rank of one network with generic weights.

    Args:
        part: "rank" or "mixer".
        form: A name in `FORMS` or in `MIXERS`.
        degrees: Of each layer.
        rung: Index of the degrees or depth, from 0.
    """

    part: str
    form: str
    degrees: list[int]
    rung: int

    @property
    def _form(self) -> Form:
        return (FORMS if self.part == "rank" else MIXERS)[self.form]

    @property
    def columns(self) -> dict[str, Any]:
        """Family and shape; the rank of a generic polynomial has no seed."""
        count = f"{len(self.degrees)} layer{'s' if len(self.degrees) > 1 else ''}"
        shape = f"{count} of degree {'-'.join(map(str, dict.fromkeys(self.degrees)))}"
        return identity(self._form.words, self.part, shape, self.rung)

    @property
    def dtype(self) -> torch.dtype:
        """Ranks need double precision."""
        return torch.float64

    def model(self) -> nn.Module:
        """The network; its weights are not yet generic."""
        return _model(self.part, self.form, self.degrees)

    def budget(self) -> Budget:
        """Parameters; nothing is trained."""
        return Budget(sum(p.numel() for p in self.model().parameters()), 0, 0, 0.0)

    @property
    def bound(self) -> int:
        """The largest rank of a polynomial of this degree."""
        form = self._form
        whole = total_degree(self.degrees)
        if self.part == "mixer" and self.form in ("linear", "quadratic", "cubic"):
            whole **= 2  # an activation across tokens and one across channels
        return rank_upper(whole, form.tokens * form.width // 2)

    @property
    def expected(self) -> int | None:
        """The rank by theorem, if there is one."""
        if self.part == "rank" and self.form == "narrow":
            return rank_narrow(self.degrees[0], len(self.degrees))
        return None

    def work(self) -> float:
        """Elimination is cubic in the rank."""
        rank = min(self.bound, self.expected or self.bound)
        known = self.expected is not None and self.expected > MEASURED
        return 0.5 if known else 0.5 + 4e-9 * min(rank, 4000) ** 3

    def __call__(self, context: RunContext) -> Outcome:
        """Compute the rank over two primes, and an epsilon-rank at ordinary weights."""
        started = time.monotonic()
        rank, exact, method = self._rank()
        near = self._epsilon_rank() if self.part == "mixer" else None
        context.watch(Progress(1, 1, float(rank or 0)))
        columns = journal_columns(
            self.budget(),
            None,
            D_unique=0,
            seconds=time.monotonic() - started,
            counted=False,
            part=self.part,
            form=self.form,
            degree=self.degrees[0] if len(set(self.degrees)) == 1 else None,
            layers=len(self.degrees),
            forms=sum(self.degrees),
            rank=rank,
            exact=exact,
            method=method,
            bound=self.bound if self._form.polynomial else None,
            epsilon_rank=None if near is None else near.value,
            epsilon_lo=None if near is None else near.lo,
            epsilon_hi=None if near is None else near.hi,
        )
        return Outcome(columns=self.columns | columns)

    def _rank(self) -> tuple[int | None, bool, str]:
        if not self._form.polynomial:
            return None, False, "no polynomial: only epsilon-ranks mean anything"
        if self.expected is not None and self.expected > MEASURED:
            return self.expected, True, "by theorem T3; too large to measure"
        model = generic_(self.model(), Field(), torch.Generator().manual_seed(3))
        inputs = self._form.tokens * self._form.width
        found = separation_rank(
            lambda x, field: self._first(model, x, field), range(inputs // 2), inputs
        )
        return int(found.value), found.exact, found.method

    def _epsilon_rank(self, draws: int = 9) -> Estimate:
        """The median over random initialisations."""
        found, half = [], self._form.tokens * self._form.width // 2
        for seed in range(draws):
            rng = torch.Generator().manual_seed(seed)
            model = _model(self.part, self.form, self.degrees, rng).double()
            a, b = (uniform_points(POINTS, half, rng) for _ in range(2))
            matrix = matricization(lambda x, model=model: self._first(model, x), a, b)
            found.append(epsilon_rank(matrix.numpy(), EPSILON))
        return median(found)

    def _first(self, model: nn.Module, x: Tensor, *field: Field) -> Tensor:
        """The first entry of the output (of the first token)."""
        if isinstance(model, PolynomialNetwork):
            return model(x, *field)[:, 0]
        return model(x.reshape(len(x), self._form.tokens, self._form.width), *field)[:, 0, 0]


@final
@dataclass(frozen=True)
class StackRun(Request):
    """Epsilon-ranks of one stack of eight inputs at its initial weights.

    Stacks of fractional degree have no other rank.

    Args:
        stack: A name in `STACKS`.
        draws: Random initialisations.
        rung: Index of the stack, from 0.
    """

    stack: str
    draws: int
    rung: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family and shape; one run has all draws."""
        return identity(self.stack, "rank", STACKS[self.stack].words, self.rung)

    @property
    def dtype(self) -> torch.dtype:
        """Ranks need double precision."""
        return torch.float64

    def budget(self) -> Budget:
        """Parameters; nothing is trained."""
        return Budget(STACKS[self.stack].size(8), 0, 0, 0.0)

    def work(self) -> float:
        """Singular values of a few small matrices."""
        return 0.5 + 0.3 * self.draws

    def __call__(self, context: RunContext) -> Outcome:
        """Both epsilon-ranks, as medians over draws."""
        started = time.monotonic()
        ranks: dict[float, list[float]] = {0.1: [], EPSILON: []}
        for seed in range(self.draws):
            rng = torch.Generator().manual_seed(seed)
            model = STACKS[self.stack].network(8, True, rng)
            a, b = (uniform_points(POINTS, 4, rng) for _ in range(2))
            matrix = matricization(lambda x, model=model: model(x)[:, 0], a, b).numpy()
            for epsilon, found in ranks.items():
                found.append(epsilon_rank(matrix, epsilon))
        far, near = (median(found) for found in ranks.values())
        context.watch(Progress(1, 1, far.value))
        medians = {"epsilon_rank": far.value, "epsilon_lo": far.lo, "epsilon_hi": far.hi}
        medians |= {"near_rank": near.value, "near_lo": near.lo, "near_hi": near.hi}
        seconds = time.monotonic() - started
        costs = {"D_unique": 0, "seconds": seconds, "counted": False}
        columns = journal_columns(self.budget(), None, **costs, **medians, part="stack")
        return Outcome(self.columns | columns)


def _model(
    part: str, form: str, degrees: list[int], rng: torch.Generator | None = None
) -> nn.Module:
    depth, first = len(degrees), degrees[0]
    if part == "rank":
        if form == "network":
            return PolynomialNetwork(4, 2, degrees, outputs=None, rng=rng)
        if form == "narrow":
            return PolynomialNetwork(16, 1, degrees, outputs=None, rng=rng)
        return PolynomialAttention(2, first, depth, form, rng=rng)
    if form == "attention":
        return LinearAttention(2, 2, depth, rng=rng)
    if form == "multi":
        return PolynomialAttention(2, 3, depth, "multi", rng=rng)
    curve = F.gelu if form == "gelu" else None
    return Mixer(4, 2, depth, first, activation=curve, rng=rng)


def ranks(chosen: Sequence[str] = tuple(FORMS), budgets: Sequence[int] = (6, 12)) -> list[Spec]:
    """Requests for the rank at L d = 6 and 12 linear forms, degrees 2, 3, 4 and 6.

    Args:
        chosen: Of `FORMS`.
        budgets: Values of L d.

    References: `levine2020`.
    """
    stacks = [[d] * (B // d) for B in budgets for d in (2, 3, 4, 6) if B % d == 0]
    mixed = [[3, 3, 2, 2, 2], [4, 4, 2, 2]]
    return [
        Spec(RankRun, part="rank", form=form, degrees=stack, rung=rung)
        for form in chosen
        for rung, stack in enumerate([*stacks, *(mixed if form == "network" else [])])
    ]


def stacks(draws: int = 9) -> list[Spec]:
    """Requests for the epsilon-ranks of the stacks whose learning `allometry run degree` compares.

    Args:
        draws: Random initialisations.
    """
    return [Spec(StackRun, stack=name, draws=draws, rung=rung) for rung, name in enumerate(STACKS)]


def mixers(chosen: Sequence[str] = tuple(MIXERS)) -> list[Spec]:
    """Requests for the rank of Mixers and of attention on four tokens of size 2, by depth.

    Args:
        chosen: Of `MIXERS`.

    References: `tolstikhin2021`.
    """
    inside = {"linear": 1, "quadratic": 2, "cubic": 3, "gelu": 1, "attention": 3, "multi": 3}
    return [
        Spec(RankRun, part="mixer", form=form, degrees=[inside[form]] * depth, rung=rung)
        for form in chosen
        for rung, depth in enumerate(_DEEP[form])
    ]
