"""The best values of some variables under a law: learning rate and batch, a mixture, a shape.

Letters: s draws, k points, v variables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate
from allometry.laws.multivariate.draws import draws
from allometry.laws.multivariate.law_expressions import parse
from allometry.laws.multivariate.roles import Variable
from allometry.laws.multivariate.variable_runs import coordinates, costs

if TYPE_CHECKING:
    from allometry.laws.multivariate.law import VariableLaw

GRID = 4000
"""Points of a search; variables have equal shares of it."""

ROUNDS = 4
"""Searches, each around the best point of the one before."""

DRAWS = 200
"""Random laws for the intervals."""

BEYOND = 1.0
"""How far beyond the runs the search goes, in standard deviations of the coordinate."""


@final
@dataclass(frozen=True)
class Optimum:
    """The best values, what they reach, and what is given up at half and twice of them.

    Args:
        at: The best value of each variable with its 95 % interval.
        response: The predicted response there, with the interval of a new run.
        given_up: For each variable the relative change of the response at half and at twice the
            best value; empty for shares.
        warnings: Sentences, such as on an optimum at the edge of the search.
    """

    at: dict[str, Estimate]
    response: Estimate
    given_up: dict[str, tuple[float, float]]
    warnings: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The optimum as plain values, ready for JSON."""
        return {
            "at": {name: e.to_dict() for name, e in self.at.items()},
            "response": self.response.to_dict(),
            "given_up": {k: {"half": a, "twice": b} for k, (a, b) in self.given_up.items()},
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        lines = [f"{name} = {value}" for name, value in self.at.items()]
        lines.append(f"response = {self.response}")
        lines += [
            f"{name} at half: {a:+.2%}, at twice: {b:+.2%}"
            for name, (a, b) in self.given_up.items()
        ]
        return "\n".join([*lines, *(f"warning: {w}" for w in self.warnings)])


def optimum(
    law: "VariableLaw",
    over: Sequence[str],
    fixed: Mapping[str, Any],
    *,
    bounds: Mapping[str, tuple[float, float]],
    budget: float | None,
    maximise: bool,
    seed: int,
) -> Optimum:
    """The values of some variables with the lowest (or highest) predicted response.

    Args:
        law: The law.
        over: Variables to choose. Shares of a mixture are chosen together and sum to one.
        fixed: Values of all other variables.
        bounds: Ranges of the search. Default: one standard deviation beyond the runs.
        budget: Largest cost, if the law was fitted with a cost that is an expression.
        maximise: Whether a high response is good.
        seed: Seed of the search and of the draws.
    """
    over = list(over)
    require(bool(over), "optimum.over", "name at least one variable", over)
    for name in over:
        require(name in law.table.names, "optimum.over", "name numeric variables", name)
    given = law.first_labels() | dict(fixed)
    missing = [v for v in law.variables if v not in over and v not in given]
    if missing:
        raise InputError(
            f"optimum must be given the other variables; got no {', '.join(missing)}."
        )
    rng = np.random.default_rng(seed)
    search = _Search(law, over, given, dict(bounds), budget, -1.0 if maximise else 1.0)
    best, points = search.run(rng)
    return _answer(law, search, best, points, rng)


@final
@dataclass(frozen=True)
class _Search:
    law: "VariableLaw"
    over: list[str]
    given: dict[str, Any]
    bounds: dict[str, tuple[float, float]]
    budget: float | None
    sign: float

    def described(self, name: str) -> Variable:
        return self.law.table.variables[self.law.table.names.index(name)]

    @property
    def shares(self) -> list[str]:
        return [name for name in self.over if self.described(name).role == "share"]

    @property
    def plain(self) -> list[str]:
        return [name for name in self.over if self.described(name).role != "share"]

    def range(self, name: str) -> tuple[float, float]:
        """Ends of the search in a variable's own unit."""
        if name in self.bounds:
            low, high = self.bounds[name]
            require(low <= high, f"optimum.bounds[{name!r}]", "be (low, high)", (low, high))
            return float(low), float(high)
        v, x = self.described(name), self.law.table.X[self.law.table.names.index(name)]
        if v.role == "share":
            return 0.0, 1.0
        if v.kind == "log":
            room = np.exp(BEYOND * v.spread)
            return float(x.min() / room), float(x.max() * room)
        if v.kind == "complement":
            return float(x.min()), float(x.max())
        return float(x.min() - BEYOND * v.scale), float(x.max() + BEYOND * v.scale)

    def run(self, rng: np.random.Generator) -> tuple[dict[str, float], dict[str, ndarray]]:
        """The best point, and the points of the first search."""
        first: dict[str, ndarray] = {}
        best: dict[str, float] = {}
        for turn in range(ROUNDS):
            points = self.points(rng, best, 0.25**turn)
            values = self.sign * self.law(**self.given, **points)
            values = np.where(self.allowed(points), values, np.inf)
            require(
                bool(np.isfinite(values).any()),
                "optimum",
                "have a point within the budget and bounds",
                self.budget,
            )
            i = int(np.argmin(values))
            best = {name: float(points[name][i]) for name in self.over}
            first = first or points
        return best, first

    def points(
        self, rng: np.random.Generator, best: dict[str, float], size: float
    ) -> dict[str, ndarray]:
        """A grid or random points around the best so far, the best itself included."""
        out: dict[str, ndarray] = {}
        plain = self.plain
        each = max(5, int(GRID ** (1 / max(len(plain), 1))) | 1)
        axes = []
        for name in plain:
            low, high = self.range(name)
            log = self.described(name).kind == "log" and low > 0
            a, b = (np.log(low), np.log(high)) if log else (low, high)
            if best:
                middle = np.log(best[name]) if log else best[name]
                half = 0.5 * size * (b - a)
                a, b = max(a, middle - half), min(b, middle + half)
            axis = np.linspace(a, b, each)
            axes.append(np.exp(axis) if log else axis)
        grid = np.meshgrid(*axes, indexing="ij") if axes else []
        out |= {name: g.reshape(-1) for name, g in zip(plain, grid, strict=True)}
        if self.shares:
            mixtures = self.mixtures(rng, best, size)
            count = len(mixtures)
            if plain:
                pick = rng.integers(0, len(out[plain[0]]), count)
                out = {name: column[pick] for name, column in out.items()}
            out |= {name: mixtures[:, j] for j, name in enumerate(self.shares)}
        if best:
            out = {name: np.append(column, best[name]) for name, column in out.items()}
        return out

    def mixtures(
        self, rng: np.random.Generator, best: dict[str, float], size: float
    ) -> Float[ndarray, "k r"]:
        """Random mixtures: of the runs' and sparse ones at first, then around the best."""
        names = self.shares
        rest = 1.0 - sum(
            float(self.given[v.name])
            for v in self.law.table.variables
            if v.role == "share" and v.name not in names
        )
        if best:
            centre = np.array([best[name] for name in names]) / rest
            other = rng.dirichlet(np.full(len(names), 0.3), GRID)
            step = size * rng.random((GRID, 1))
            W = (1 - step) * centre + step * other
        else:
            rows = [self.law.table.names.index(name) for name in names]
            seen = self.law.table.X[rows].T
            seen = seen / np.maximum(seen.sum(1, keepdims=True), 1e-12)
            pairs = rng.integers(0, len(seen), (GRID, 2))
            share = rng.random((GRID, 1))
            W = share * seen[pairs[:, 0]] + (1 - share) * seen[pairs[:, 1]]
        W = W * rest
        for j, name in enumerate(names):
            low, high = self.range(name)
            W[:, j] = np.clip(W[:, j], low, high)
        return W

    def allowed(self, points: dict[str, ndarray]) -> ndarray:
        """Whether points are within the budget, and mixtures sum to one."""
        count = len(next(iter(points.values())))
        fine = np.ones(count, bool)
        if self.shares:
            fixed = sum(
                float(self.given[v.name])
                for v in self.law.table.variables
                if v.role == "share" and v.name not in self.shares
            )
            total = fixed + np.sum([points[name] for name in self.shares], 0)
            fine &= np.abs(total - 1) < 0.02
        if self.budget is not None:
            require(
                self.law.cost is not None,
                "optimum.budget",
                "come with a law that was fitted with cost='...'",
                self.budget,
            )
            columns = {k: np.broadcast_to(v, count) for k, v in self.given.items()} | points
            fine &= cost_at(self.law, columns) <= self.budget * (1 + 1e-9)
        return fine


def cost_at(law: "VariableLaw", columns: Mapping[str, Any]) -> Float[ndarray, " k"]:
    """The cost at some points: by the law's expression, or by a power law of the measured column.

    A measured cost, such as GPU-hours, is predicted by a regression of its log on the variables'
    coordinates.
    """
    if not measured_cost(law):
        paid = costs(columns, law.cost)
        assert paid is not None
        return paid
    table = law.table
    assert table.cost is not None
    keep = np.isfinite(table.cost) & (table.cost > 0)
    require(bool(keep.sum() >= 3), "law.cost", "be positive in three runs", law.cost)
    X = np.stack([np.asarray(columns[name], float) for name in table.names])
    seen, asked = coordinates(table.variables, table.X[:, keep]), coordinates(table.variables, X)
    rows = np.concatenate([np.ones((1, seen.shape[1])), seen])
    gram = rows @ rows.T + 1e-6 * rows.shape[1] * np.eye(len(rows))
    slopes = np.linalg.solve(gram, rows @ np.log(table.cost[keep]))
    return np.exp(slopes[0] + slopes[1:] @ asked)


def measured_cost(law: "VariableLaw") -> bool:
    """Whether the law's cost is a column of the runs rather than an expression of variables."""
    if law.cost is None:
        return False
    try:
        return not set(parse(law.cost).names()) <= set(law.table.names)
    except InputError:  # a column whose name is no expression, such as "GPU hours"
        return True


def _answer(
    law: "VariableLaw",
    search: _Search,
    best: dict[str, float],
    points: dict[str, ndarray],
    rng: np.random.Generator,
) -> Optimum:
    """The optimum with intervals from random laws on the points of the first search."""
    keep = np.flatnonzero(search.allowed(points))
    if len(keep) > 1200:
        keep = rng.permutation(keep)[:1200]
    near = {k: np.append(v[keep], best[k]) for k, v in points.items()}
    X, group, _ = law.points({**search.given, **near})
    values = search.sign * draws(law, X, group, DRAWS, rng)
    chosen = values.argmin(1)
    at, notes, given_up = {}, [], {}
    if search.budget is not None and measured_cost(law):
        notes.append(f"The cost is predicted from {law.cost} of the runs by a power law.")
    lo, mid, hi = (float(a) for a in law.band(**search.given, **best))
    for name in search.over:
        # The grid is coarse: the interval includes the optimum itself.
        ends = np.quantile(near[name][chosen], [0.025, 0.975])
        value = best[name]
        at[name] = Estimate(
            value,
            lo=min(float(ends[0]), value),
            hi=max(float(ends[1]), value),
            n=law.n,
            method=f"{DRAWS} random laws",
        )
        v = search.described(name)
        low, high = search.range(name)
        if v.role == "share":
            continue
        if search.budget is None and (value <= low * (1 + 1e-6) or value >= high * (1 - 1e-6)):
            notes.append(
                f"The best {name} is at the edge of the search ({low:g} to {high:g}): these runs "
                "show no interior optimum."
            )
        if v.kind == "log":
            around = law(**search.given, **(best | {name: np.array([value / 2, value * 2])}))
            size = abs(mid) or 1.0
            given_up[name] = (float(around[0] - mid) / size, float(around[1] - mid) / size)
    response = Estimate(mid, lo=lo, hi=hi, n=law.n, method="prediction interval of a new run")
    return Optimum(at, response, given_up, notes)
