"""The solver of all fits: damped Newton steps on many problems at once.

Letters: m problems (starts or bootstrap draws), p parameters, n runs, v variables.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from allometry.laws.forms import Form

Prior = tuple[Float[ndarray, "..."], Float[ndarray, "..."]]
"""Means and precisions of a quadratic penalty, each shared or one row per problem."""

State = tuple[ndarray, ...]
"""Objective, gradient, log loss, Jacobian and residual weights of each problem."""

CHUNK = 100_000
"""Elements of an (m, p, n) array per chunk: it fits the cache and bounds the memory."""


FLAT = 0.01
"""Damping of flat directions, relative to the steepest direction."""


ROUGH = 1e-9
"""Predicted relative decrease of the objective at which every start stops."""

SLOW = 1e-7
"""Relative decrease per step below which progress counts as too slow."""

IDLE = 12
"""Steps without a sufficient decrease after which a problem stops."""

WARM = 8
"""Least-squares steps at the start of a search. More would move all starts to one optimum."""

STEPS = 100
"""Step limit of every start (half of it in backtests)."""

GOOD = 0.35
"""Share of the predicted decrease above which the damping is reduced."""

AHEAD = 0.1
"""Share of a step at which the second directional derivative is evaluated."""

BENT = 0.75
"""Largest accepted second-order correction, relative to the step."""

BEST = 4
"""How many of the best starts are refined."""


@final
@dataclass(frozen=True)
class Problem:
    r"""The objective $\sum_i w_i \rho_\delta(y_i - f_\theta(x_i))$ plus a quadratic penalty.

    $\rho_\delta(r)$ is Huber's loss: $r^2/2$ inside $\pm\delta$, $\delta(|r| - \delta/2)$ outside.

    Args:
        form: The functional form.
        X: Centred logs of the variables, shared or one set per problem.
        y: Log losses (losses if `raw`), `(n,)` or one row per problem.
        weights: One per run, or one row per problem (bootstrap counts).
        delta: Threshold of Huber's loss; infinity for least squares, 0 for absolute deviations.
        prior: Means and precisions of the penalty, each shared or one row per problem.
        raw: Whether `y` holds losses, so that residuals are of the loss and not of its log.
    """

    form: Form
    X: Float[ndarray, "v *each n"]
    y: Float[ndarray, "..."]
    weights: Float[ndarray, "..."] | None = None
    delta: float = 1e-3
    prior: Prior | None = None
    raw: bool = False

    def rows(self, rows: slice | ndarray) -> "Problem":
        """The problem restricted to some rows of the arrays that have one row per problem."""
        return replace(
            self,
            X=self.X if self.X.ndim == 2 else self.X[:, rows],
            y=_picked(rows, self.y),
            weights=None if self.weights is None else _picked(rows, self.weights),
            prior=None
            if self.prior is None
            else (_picked(rows, self.prior[0]), _picked(rows, self.prior[1])),
        )


def _picked(rows: slice | ndarray, a: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
    """The rows of an array that has one row per problem; one for all problems as it is."""
    return a[rows] if a.ndim == 2 else a


@final
@dataclass(frozen=True)
class Solution:
    """The final parameters of each of m problems.

    `decrement` is the predicted relative decrease of the objective in one more step. It is near
    zero at an optimum.
    """

    theta: Float[ndarray, "m p"]
    objective: Float[ndarray, " m"]
    decrement: Float[ndarray, " m"]
    converged: Bool[ndarray, " m"]

    ARRAYS: ClassVar = ("theta", "objective", "decrement", "converged")

    def rows(self, rows: slice | ndarray) -> "Solution":
        """The solution of some of the problems."""
        return Solution(*(getattr(self, name)[rows] for name in self.ARRAYS))

    def update(self, rows: ndarray | list[int], other: "Solution") -> None:
        """Overwrite some rows in place with those of another solution."""
        for name in self.ARRAYS:
            getattr(self, name)[rows] = getattr(other, name)


def minimise(
    problem: Problem,
    theta: Float[ndarray, "m p"],
    *,
    iterations: int = 300,
    tolerance: float = 1e-13,
    crawl: float = 0.0,
) -> Solution:
    r"""Minimise the objective of a problem from every row of `theta`.

    The matrix of each step is $J^T \mathrm{diag}(\rho'' + \lambda\,\rho'/r) J$. For small
    $\lambda$ this is a Gauss-Newton step. For large $\lambda$ it is a short step of iteratively
    reweighted least squares, which is always a descent direction. Each problem has its own
    $\lambda$: it falls after a step that achieves most of its predicted decrease and rises after
    a rejected step. A geodesic acceleration corrects each step (see `_step`).

    Args:
        problem: What is minimised.
        theta: Starting points.
        iterations: Step limit; unfinished problems are reported as not converged.
        tolerance: Predicted relative decrease of the objective at which a problem stops.
        crawl: Relative decrease per step that counts as too slow. A problem stops after `IDLE`
            such steps: it moves along a valley towards an optimum at infinity.
    """
    if problem.delta == 0:
        return _absolute(problem, theta, iterations)
    m, n = len(theta), problem.X.shape[-1]
    size = max(1, CHUNK // (n * problem.form.p))
    chunks = [slice(i, i + size) for i in range(0, m, size)] if m > size else [slice(None)]
    parts = [
        _minimise(problem.rows(rows), theta[rows], iterations, tolerance, crawl) for rows in chunks
    ]
    if len(parts) == 1:
        return parts[0]
    return Solution(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in Solution.ARRAYS)
    )


def _absolute(problem: Problem, theta: Float[ndarray, "m p"], iterations: int) -> Solution:
    """Least absolute deviations, the limit of Huber's loss over delta, by decreasing deltas."""
    found = None
    for delta in (1e-3, 1e-4, 1e-5, 1e-6, 1e-7):
        found = minimise(replace(problem, delta=delta), theta, iterations=iterations)
        theta = found.theta
        found = replace(found, objective=found.objective / delta)
    assert found is not None
    return found


def search(
    problem: Problem, starts: Float[ndarray, "m p"], *, tolerance: float = 1e-13
) -> Solution:
    """Minimise from random starts: a few steps of least squares first, then Huber's loss.

    Far from the optimum nearly all residuals exceed delta, where Huber's loss has kinks. Least
    squares is smooth there and moves the starts close. All starts then run to `ROUGH`, without
    those that crawl along a flat valley; the best of them run to `tolerance`. Backtests use a
    coarse tolerance and search all folds at once.
    """
    if np.isfinite(problem.delta):
        starts = minimise(replace(problem, delta=np.inf), starts, iterations=WARM).theta
    if tolerance >= ROUGH:
        crawl = negligible(problem.X.shape[-1])
        return minimise(problem, starts, tolerance=tolerance, iterations=STEPS // 2, crawl=crawl)
    found = minimise(problem, starts, tolerance=ROUGH, iterations=STEPS, crawl=SLOW)
    few = np.argsort(found.objective)[:BEST]
    polished = minimise(
        problem, found.theta[few], tolerance=tolerance, iterations=3 * STEPS // 2, crawl=SLOW
    )
    found.update(few, polished)
    return found


def negligible(n: int) -> float:
    """Relative decrease of the objective of n runs that is statistically negligible.

    The objective divided by the noise variance is about n/2, so `IDLE` such steps change the log
    likelihood by a few hundredths.
    """
    return 5e-3 / n


def _minimise(
    problem: Problem,
    theta: Float[ndarray, "m p"],
    iterations: int,
    tolerance: float,
    crawl: float,
) -> Solution:
    m, n = len(theta), problem.X.shape[-1]
    theta = theta.astype(float, copy=True)
    best, decrement = np.full(m, np.inf), np.full(m, np.inf)
    live = np.arange(m)  # the unfinished problems; the arrays below hold only these
    here = theta.copy()
    weights = None if problem.weights is None else np.broadcast_to(problem.weights, (m, n))
    problem = replace(problem, y=np.broadcast_to(problem.y, (m, n)), weights=weights)
    damping, idle, done = np.ones(m), np.zeros(m, int), np.zeros(m, bool)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        state = _linearise(problem, here)
        for turn in range(iterations):
            objective, gradient = state[:2]
            step, move = _step(problem, here, state, damping)
            candidate = here + move
            trial = _linearise(problem, candidate)
            ceiling = np.maximum(objective, 1e-300)
            predicted = -np.einsum("mi,mi->m", gradient, step) / ceiling
            gain = 1 - trial[0] / ceiling
            better = gain > 0
            worse = np.flatnonzero(~better)
            for old, new in zip((here, *state), (candidate, *trial), strict=True):
                new[worse] = old[worse]
            here, state = candidate, trial
            damping *= np.where(gain > GOOD * predicted, 0.2, np.where(better, 1.0, 4.0))
            np.clip(damping, 1e-7, 1e12, out=damping)
            # A rejected step may only mean that the damping must rise; a short accepted one
            # counts double.
            idle += 1 + (better & (crawl > 0))
            idle[gain > max(100 * tolerance, crawl)] = 0
            done |= ((predicted < tolerance) & (damping < 10)) | (idle >= IDLE)
            # Remove finished problems in groups, as each removal copies all other arrays.
            if 12 * done.sum() > len(live) or turn == iterations - 1:
                theta[live], best[live], decrement[live] = here, state[0], predicted
                keep = ~done
                live, here, damping, idle = live[keep], here[keep], damping[keep], idle[keep]
                if not len(live):
                    break
                done = done[keep]
                state = tuple(a[keep] for a in state)
                problem = problem.rows(keep)
    converged = decrement < 1e-6
    return Solution(theta, best, decrement, converged & np.isfinite(best))


def _step(
    problem: Problem,
    theta: Float[ndarray, "m p"],
    state: State,
    damping: Float[ndarray, " m"],
) -> tuple[Float[ndarray, "m p"], Float[ndarray, "m p"]]:
    r"""Each problem's damped step, and the same step with geodesic acceleration.

    To second order a step $s$ changes the form by $J s + f_{ss}/2$. The correction
    $a = -\frac12 H^{-1} J^T W f_{ss}$ cancels the second term, with $f_{ss}$ from one more
    evaluation at a tenth of the step. It is dropped where it is not small relative to the step.

    References:
        `transtrum2012` section 3 (geodesic acceleration).
    """
    form, prior = problem.form, problem.prior
    _, gradient, f, J, shrink = state
    p = form.p
    W = damping[:, None] * shrink
    W += shrink >= 1
    if problem.weights is not None:
        W *= problem.weights
    JW = J * W[:, None]
    H = np.matmul(JW, J.transpose(0, 2, 1))
    diagonal = H.reshape(len(H), p * p)[:, :: p + 1]
    # A small multiple of the diagonal keeps flat directions solvable and the optimum unchanged.
    widest = diagonal.max(1) / (1 + damping)
    diagonal += ((FLAT * damping + 1e-12) * widest + 1e-300)[:, None]
    if prior is not None:
        diagonal += prior[1]
    step = _shorten(-_solve(H, gradient), gradient)
    ahead = form.value(theta + AHEAD * step, problem.X)
    change = (np.exp(ahead) if problem.raw else ahead) - f
    change -= np.matmul((AHEAD * step)[:, None], J)[:, 0]  # the second-order part remains
    bend = _solve(H, np.matmul(JW, change[:, :, None])[:, :, 0]) / -(AHEAD**2)
    small = np.abs(bend).max(1) <= BENT * np.abs(step).max(1)
    return step, step + np.where(small[:, None], bend, 0.0)


def _shorten(
    step: Float[ndarray, "m p"], gradient: Float[ndarray, "m p"]
) -> Float[ndarray, "m p"]:
    """Steps of at most 1 in any parameter that are still descent directions.

    Clipping each entry lets the others move when one parameter is nearly free (an irreducible
    loss near zero). Where the clipped step would ascend, the whole step is scaled instead.
    """
    longest = np.abs(step).max(1)
    if float(longest.max(initial=0.0)) <= 1:
        return step
    clipped = np.clip(step, -1.0, 1.0)
    scaled = step / np.maximum(longest, 1.0)[:, None]
    downhill = (clipped * gradient).sum(1) < 0.1 * (scaled * gradient).sum(1)
    return np.where(downhill[:, None], clipped, scaled)


def _linearise(problem: Problem, theta: Float[ndarray, "m p"]) -> State:
    r"""Objective, gradient, log loss, Jacobian and $\rho'/r$ at `theta`."""
    delta = problem.delta
    f, J = problem.form.evaluate(theta, problem.X)
    if problem.raw:
        f = np.exp(f)
        J = J * f[:, None]
    r = problem.y - f
    if np.isinf(delta):
        shrink, psi = np.ones_like(r), r
    else:
        shrink = np.abs(r)
        np.maximum(shrink, delta, out=shrink)
        np.divide(delta, shrink, out=shrink)
        psi = r * shrink
    weighted = psi if problem.weights is None else psi * problem.weights
    objective = np.einsum("mn,mn->m", weighted, r - 0.5 * psi)
    gradient = -np.matmul(J, weighted[:, :, None])[:, :, 0]
    if problem.prior is not None:
        mean, precision = problem.prior
        away = theta - mean
        pull = precision * away
        objective += 0.5 * (pull * away).sum(1)
        gradient += pull
    bad = ~np.isfinite(objective + gradient.sum(1))
    if bad.any():
        objective[bad], gradient[bad], J[bad], shrink[bad] = np.inf, 0.0, 0.0, 1.0
    return objective, gradient, f, J, shrink


def _solve(H: Float[ndarray, "m p p"], g: Float[ndarray, "m p"]) -> Float[ndarray, "m p"]:
    """`H x = g` for each problem."""
    for _ in range(3):
        try:
            return np.linalg.solve(H, g[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:  # singular to rounding
            H += 1e-9 * np.einsum("mii->m", H)[:, None, None] * np.eye(H.shape[1])
    return g * 0
