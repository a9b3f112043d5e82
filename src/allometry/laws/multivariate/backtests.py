"""Backtests of a law in any variables: fit the smaller runs, predict the larger.

Letters: n runs, v variables, k points asked for, t grid values of tau.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy import special

from allometry.laws.multivariate.roles import Variable
from allometry.laws.multivariate.variable_runs import Table, coordinates

TAU = np.exp(np.linspace(np.log(5e-4), np.log(0.5), 41))
"""Grid of the extrapolation error per standard deviation of the coordinates."""

TAU_PRIOR = (0.01, 1.0)
"""Its prior: median, and standard deviation of the log."""

UNTESTED = 0.1
"""Extrapolation error per standard deviation of a variable that takes two values."""

BETWEEN = 1.0
"""Share of the variance between forms that counts towards the error of their average."""

BIN = 0.5
"""Distance beyond which errors of one law count as independent."""

RECENCY = 1.0
"""Change of a run's log weight per standard deviation of log cost, for many runs."""

SPARSE = 30
"""Runs at which it is half as large."""

NOISY = 0.015
"""Noise at which it is half as large."""

NOISE_PRIOR = (4, 0.004)
"""Prior of the noise: equivalent to so many runs with this standard deviation."""

NODES = 7
"""Quantiles of the chi-square of the noise in an interval."""

MOST_ROWS = 600
"""Runs used for backtests; larger tables are subsampled."""


@final
@dataclass(frozen=True)
class Fold:
    """Rows to fit and larger runs to predict, with the variable that separates them."""

    train: Int[ndarray, "..."]
    test: Int[ndarray, "..."]
    by: str


def folds(table: Table, rows: Int[ndarray, "..."], rng: np.random.Generator) -> list[Fold]:
    """Rolling-origin folds in cost and in each scale variable, and random ones.

    Cost orders the runs; without one, the sum of the scale variables' coordinates does. The law
    may be asked for larger values of any one variable, so each also has folds of its own: its
    highest values are left out. Random folds judge interpolation in other variables.
    """
    orders = orders_of(table)
    scale = [v for v in table.variables if v.role in ("scale", "bits", "fraction")]
    out: list[Fold] = []
    for name, t in orders.items():
        for low in _cuts(t[rows], aggregate=name in ("cost", "size") or len(scale) == 1):
            train, test = rows[t[rows] <= low], rows[t[rows] > low]
            if len(train) >= 4 and len(test):
                out.append(Fold(train, test, name))
    if len(scale) < len(table.variables) and len(rows) >= 9:
        part = rng.permutation(len(rows)) % 3
        out += [Fold(rows[part != k], rows[part == k], "random") for k in range(3)]
    return out


def orders_of(table: Table) -> dict[str, Float[ndarray, " n"]]:
    """Orders of the runs from small to large: by each scale variable, and by cost or size."""
    Z = coordinates(table.variables, table.X)
    scale = [i for i, v in enumerate(table.variables) if v.role in ("scale", "bits", "fraction")]
    orders = {
        table.variables[i].name: Z[i] * (-1 if table.variables[i].kind == "complement" else 1)
        for i in scale
    }
    if table.cost is not None and np.all(table.cost > 0):
        orders["cost"] = np.log(table.cost)
    elif len(scale) > 1:
        orders["size"] = Z[scale].sum(0)
    return orders


def main_order(table: Table) -> Float[ndarray, " n"] | None:
    """The order by cost or size; None for mixtures and where no variable is a scale."""
    orders = orders_of(table)
    if not orders or any(v.role == "share" for v in table.variables):
        return None
    return orders.get("cost", orders.get("size", next(iter(orders.values()))))


def weights(table: Table, noise: float) -> Float[ndarray, " n"] | None:
    """Weights of the runs: larger for runs of more cost, which are nearer to what is asked for.

    No form is right for all runs, so those near the target count more. Where noise between runs
    dominates, equal weights lose less.

    Args:
        table: The runs; cost is measured in standard deviations of its log.
        noise: Noise of a run on the scale of the link.
    """
    t = main_order(table)
    spread = 0.0 if t is None else float(t.std())
    if t is None or not spread:
        return None
    power = RECENCY * table.n / (table.n + SPARSE) / (1 + (noise / NOISY) ** 2)
    return np.exp(power * np.maximum((t - t.max()) / spread, -4.0))


def _cuts(t: Float[ndarray, " n"], *, aggregate: bool) -> list[float]:
    """Values up to which runs are fitted: a few quantiles, or all levels but the top ones."""
    levels = np.unique(np.round(t, 9))
    if len(levels) < 3:
        return []
    if aggregate:
        shares = (0.5, 0.7, 0.85)
    elif len(levels) <= 12:
        tops = [levels[-2]] if len(levels) < 5 else [levels[-3], levels[-2]]
        return [float(x) + 1e-9 for x in tops]
    else:
        shares = (0.7, 0.85)
    cuts = {float(np.quantile(t, share)) for share in shares}
    return sorted(c for c in cuts if levels[1] <= c < levels[-1])


def distance(
    variables: Sequence[Variable], X: Float[ndarray, "v k"], seen: Float[ndarray, "v n"]
) -> Float[ndarray, " k"]:
    """Distance of points beyond the runs, in standard deviations of the coordinates.

    It is the distance beyond the box of the runs. A point inside the box that is larger in all
    scale variables together than any run counts by the sum of their coordinates.

    Args:
        variables: The variables.
        X: The points.
        seen: The runs.
    """
    if not len(X):
        return np.zeros(X.shape[1])
    Z, S = coordinates(variables, X), coordinates(variables, seen)
    above = Z - S.max(1)[:, None]
    below = S.min(1)[:, None] - Z
    box = np.sqrt((np.maximum(np.maximum(above, below), 0.0) ** 2).sum(0))
    scale = [i for i, v in enumerate(variables) if v.role == "scale"]
    if len(scale) < 2:
        return box
    size = S[scale].sum(0)
    deep = (Z[scale].sum(0) - size.max()) / max(float(size.std()), 1e-9)
    return np.maximum(box, deep)


def untested(
    variables: Sequence[Variable], X: Float[ndarray, "v k"], seen: Float[ndarray, "v n"]
) -> Float[ndarray, " k"]:
    """Variance of an extrapolation along scale variables of two values, which have no backtest."""
    out = np.zeros(X.shape[1])
    for v, x, known in zip(variables, X, seen, strict=True):
        if v.role == "scale" and v.levels == 2:
            z, s = v.coordinate(x) / (v.spread or 1.0), v.coordinate(known) / (v.spread or 1.0)
            out += (UNTESTED * np.maximum(np.maximum(z - s.max(), s.min() - z), 0.0)) ** 2
    return out


@final
@dataclass(frozen=True)
class Errors:
    """Errors of one law in the held-out runs of a fold, with their variance without tau."""

    error: Float[ndarray, " k"]
    variance: Float[ndarray, " k"]
    distance: Float[ndarray, " k"]
    by: str


def posterior(errors: Sequence[Errors]) -> Float[ndarray, " t"]:
    """Posterior weights of `TAU` given backtest errors.

    Runs of a fold at about the same distance count as one observation: a law errs alike there.
    """
    log = -0.5 * ((np.log(TAU) - np.log(TAU_PRIOR[0])) / TAU_PRIOR[1]) ** 2
    for e in errors:
        total = e.variance + TAU[:, None] ** 2 * np.maximum(e.distance, 0.1) ** 2
        each = -0.5 * (np.log(total) + e.error**2 / total)
        bins = np.unique(np.floor(e.distance / BIN).astype(int), return_inverse=True)[1]
        log = log + each @ (1 / np.bincount(bins)[bins])
    weight = np.exp(log - log.max())
    return weight / weight.sum()


def half_width(
    variance: Float[ndarray, " k"],
    noise: float,
    dof: int,
    far: Float[ndarray, " k"],
    tau: Float[ndarray, " t"],
    level: float = 0.95,
) -> Float[ndarray, " k"]:
    """Half-width of the interval that covers a new run with probability `level`.

    The error is a mixture of normals: parameter variance and noise are known up to a chi-square,
    the extrapolation error up to its posterior `tau` on the grid `TAU`.
    """
    free, typical = NOISE_PRIOR
    squared = (dof * noise**2 + free * typical**2) / (dof + free)
    nodes = (np.arange(NODES) + 0.5) / NODES
    inflation = (dof + free) / special.chdtri(dof + free, nodes)
    known = (variance + squared)[:, None, None] * inflation[:, None]
    scale = np.sqrt(known + TAU**2 * far[:, None, None] ** 2).reshape(
        len(variance), NODES * len(TAU)
    )
    weight = np.tile(tau / len(nodes), len(nodes))
    low, high = np.zeros(len(variance)), 40 * scale.max(1, initial=0.0)
    target = 0.5 + level / 2
    for _ in range(50):
        middle = 0.5 * (low + high)
        short = special.ndtr(middle[:, None] / scale) @ weight < target
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return 0.5 * (low + high)


FEWEST_FOLDS = 3
"""Backtests from which the widths of intervals are judged."""

WIDENED = 1.6
"""Largest factor by which backtests widen intervals."""

NARROWED = 40
"""Runs at which backtests narrow the log of the width by half of what they find."""


def error_ratios(errors: Sequence[Errors]) -> list[Float[ndarray, "..."]]:
    """Errors of each fold over the half-width of its interval, with the other folds' tau."""
    out = []
    for i, e in enumerate(errors):
        tau = posterior([other for j, other in enumerate(errors) if j != i])
        out.append(np.abs(e.error) / half_width(e.variance, 0.0, 1000, e.distance, tau))
    return out


def narrowing(ratios: Sequence[Float[ndarray, "..."]], n: int) -> float:
    """Factor of the half-width that would cover 95 % of the errors of every fold.

    With few runs the priors of noise and of the extrapolation error, and the variance between
    forms, may add up to more than the errors that backtests find. The worst fold decides, so
    intervals become narrower only if they were too wide in all folds, and less so with few runs.
    They become wider if one fold shows them to be too narrow.

    Args:
        ratios: Errors of each fold over the half-width of its interval.
        n: Number of runs.

    Example:
        >>> narrowing([np.array([0.2, 0.4]), np.array([0.1]), np.array([0.5])], n=10**6)
        0.5
        >>> narrowing([np.array([0.2]), np.array([1.4]), np.array([0.5])], n=20)
        1.4
    """
    if len(ratios) < FEWEST_FOLDS:
        return 1.0
    worst = max(float(np.quantile(each, 0.95)) for each in ratios)
    return round(min(worst, WIDENED) if worst > 1 else worst ** (n / (n + NARROWED)), 4)
