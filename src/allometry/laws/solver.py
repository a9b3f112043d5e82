"""One solver for all fits: damped Newton steps on many problems at once.

Letters: m problems (starts or bootstrap draws), p parameters, n runs, v variables.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from allometry.laws.forms import Form

Prior = tuple[Float[ndarray, "..."], Float[ndarray, "..."]]
"""Means and precisions of a quadratic penalty, each shared or one row per problem."""

State = tuple[ndarray, ...]
"""Objective, gradient, log loss, Jacobian and residuals' weights of problems where they are."""

CHUNK = 100_000
"""Elements of an (m, p, n) array worked on at once: what fits the cache, and bounds the memory."""


FLAT = 0.01
"""Damping of directions in which the curve hardly moves, relative to the steepest direction."""


ROUGH = 1e-9
"""Promised relative decrease of the objective to which every start is followed."""

SLOW = 1e-7
"""Relative decrease per step at which a start counts as crawling."""

IDLE = 12
"""Steps without a decrease worth having after which a problem is done."""

WARM = 8
"""Steps of least squares that bring every start near: more would bring all to its optimum."""

STEPS = 100
"""Steps that every start is given (half of them in backtests); what takes longer crawls."""

GOOD = 0.35
"""Share of the promised decrease from which on a step earns less damping."""

AHEAD = 0.1
"""How much of a step is looked ahead to see whether the valley bends."""

BENT = 0.75
"""Greatest bend of a step that is allowed for, relative to the step."""

BEST = 4
"""How many of the best starts are followed further."""


@final
@dataclass(frozen=True)
class Solution:
    """Where each of m problems came to rest.

    `decrement` is the decrease of the objective that one more step would promise, relative to the
    objective: an optimum has (nearly) none, a start that never moved has much.
    """

    theta: Float[ndarray, "m p"]
    objective: Float[ndarray, " m"]
    decrement: Float[ndarray, " m"]
    converged: Bool[ndarray, " m"]

    ARRAYS: ClassVar = ("theta", "objective", "decrement", "converged")


def minimise(
    form: Form,
    X: Float[ndarray, "v *each n"],
    y: Float[ndarray, "..."],
    theta: Float[ndarray, "m p"],
    *,
    weights: Float[ndarray, "..."] | None = None,
    delta: float = 1e-3,
    prior: Prior | None = None,
    iterations: int = 300,
    tolerance: float = 1e-13,
    crawl: float = 0.0,
    raw: bool = False,
) -> Solution:
    r"""Minimise $\sum_i w_i \rho_\delta(y_i - f_\theta(x_i))$ for every row of `theta` as start.

    $\rho_\delta(r)$ is Huber's: $r^2/2$ inside $\pm\delta$, $\delta(|r| - \delta/2)$ outside.
    The matrix of each step is $J^T \mathrm{diag}(\rho'' + \lambda\,\rho'/r) J$: Newton's (without
    the form's own curvature) for small $\lambda$, and for large $\lambda$ a short step of
    iteratively reweighted least squares, which always points downhill. $\lambda$ falls after a
    success that keeps what it promised and rises after a failure, for each problem by itself.
    Each step also follows its valley's bend (see `_step`).

    Args:
        form: The law's form.
        X: Centred logs of the variables, shared or one set per problem.
        y: Log losses, `(n,)` or one row per problem.
        theta: Starts.
        weights: One per run, or one row per problem (bootstrap counts).
        delta: Where Huber's loss turns from square to linear; infinity for least squares.
        prior: Means and precisions of a quadratic penalty, each shared or one row per problem.
        iterations: Limit on the steps; what is not done by then is reported as not converged.
        tolerance: Promised relative decrease of the objective at which a problem is done.
        crawl: Relative decrease per step below which a problem that has made `IDLE` such steps
            is given up: it creeps along a valley towards an optimum at infinity.
        raw: Whether `y` holds losses rather than their logs, to be met as they are.
    """
    if delta == 0:
        return _absolute(form, X, y, theta, weights, prior, iterations, raw)
    m, n = len(theta), X.shape[-1]
    rows = max(1, CHUNK // (n * form.p))
    if m <= rows:
        limits = iterations, tolerance, crawl
        return _minimise(form, X, y, theta, weights, delta, prior, limits, raw)
    parts = [
        minimise(
            form,
            X if X.ndim == 2 else X[:, i : i + rows],
            _rows(y, slice(i, i + rows)),
            theta[i : i + rows],
            weights=None if weights is None else _rows(weights, slice(i, i + rows)),
            delta=delta,
            prior=_prior_rows(prior, slice(i, i + rows)),
            iterations=iterations,
            tolerance=tolerance,
            crawl=crawl,
            raw=raw,
        )
        for i in range(0, m, rows)
    ]
    return Solution(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in Solution.ARRAYS)
    )


def _absolute(
    form: Form,
    X: Float[ndarray, "v *each n"],
    y: Float[ndarray, "..."],
    theta: Float[ndarray, "m p"],
    weights: Float[ndarray, "..."] | None,
    prior: Prior | None,
    iterations: int,
    raw: bool,
) -> Solution:
    """Least absolute deviations, the limit of Huber's loss over delta, by ever smaller deltas."""
    found = None
    for delta in (1e-3, 1e-4, 1e-5, 1e-6, 1e-7):
        found = minimise(
            form,
            X,
            y,
            theta,
            weights=weights,
            delta=delta,
            prior=prior,
            iterations=iterations,
            raw=raw,
        )
        theta = found.theta
        found = replace(found, objective=found.objective / delta)
    assert found is not None
    return found


def _rows(a: Float[ndarray, "..."], rows: slice | ndarray) -> Float[ndarray, "..."]:
    """Some problems' rows of what may also be shared by all."""
    return a[rows] if a.ndim == 2 else a


def _prior_rows(prior: Prior | None, rows: slice | ndarray) -> Prior | None:
    return None if prior is None else (_rows(prior[0], rows), _rows(prior[1], rows))


def search(
    form: Form,
    X: Float[ndarray, "v *each n"],
    y: Float[ndarray, " n"],
    starts: Float[ndarray, "m p"],
    *,
    weights: Float[ndarray, "..."] | None = None,
    delta: float = 1e-3,
    prior: Prior | None = None,
    tolerance: float = 1e-13,
    raw: bool = False,
) -> Solution:
    """Minimise from spread-out starts: a few steps of least squares first, then Huber's loss.

    Far from the optimum nearly every residual is beyond delta and Huber's loss is all kinks; least
    squares is smooth there and brings the starts close. All starts are then followed to `ROUGH`,
    in which one that crawls along a flat valley is given up, and the best of them to `tolerance`.
    A coarse tolerance is for backtests, whose folds are searched all at once.
    """
    options: dict[str, Any] = {"weights": weights, "delta": delta, "prior": prior, "raw": raw}
    if np.isfinite(delta):
        smooth = {**options, "delta": np.inf}
        starts = minimise(form, X, y, starts, iterations=WARM, **smooth).theta
    if tolerance >= ROUGH:
        return minimise(
            form,
            X,
            y,
            starts,
            tolerance=tolerance,
            iterations=STEPS // 2,
            crawl=negligible(X.shape[-1]),
            **options,
        )
    found = minimise(form, X, y, starts, tolerance=ROUGH, iterations=STEPS, crawl=SLOW, **options)
    few = np.argsort(found.objective)[:BEST]
    polished = minimise(
        form,
        X,
        y,
        found.theta[few],
        tolerance=tolerance,
        iterations=3 * STEPS // 2,
        crawl=SLOW,
        **options,
    )
    for name in Solution.ARRAYS:
        getattr(found, name)[few] = getattr(polished, name)
    return found


def negligible(n: int) -> float:
    """Relative decrease of the objective of n runs that no statistics would see.

    An objective divided by the noise's variance is about n/2, so that this is a few hundredths of
    a unit of log likelihood in `IDLE` steps.
    """
    return 5e-3 / n


def _minimise(
    form: Form,
    X: Float[ndarray, "v *each n"],
    y: Float[ndarray, "..."],
    theta: Float[ndarray, "m p"],
    weights: Float[ndarray, "..."] | None,
    delta: float,
    prior: Prior | None,
    limits: tuple[int, float, float],
    raw: bool,
) -> Solution:
    m, n = len(theta), X.shape[-1]
    iterations, tolerance, crawl = limits
    theta = theta.astype(float, copy=True)
    best, decrement = np.full(m, np.inf), np.full(m, np.inf)
    live = np.arange(m)  # the problems still moving; the arrays below hold only these
    here = theta.copy()
    w = None if weights is None else np.broadcast_to(weights, (m, n))
    y = np.broadcast_to(y, (m, n))
    damping, idle, done = np.ones(m), np.zeros(m, int), np.zeros(m, bool)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        state = _linearise(form, X, y, w, here, delta, prior, raw)
        for turn in range(iterations):
            objective, gradient = state[:2]
            step, move = _step(form, X, w, here, state, damping, prior, raw)
            there = here + move
            trial = _linearise(form, X, y, w, there, delta, prior, raw)
            ceiling = np.maximum(objective, 1e-300)
            promised = -np.einsum("mi,mi->m", gradient, step) / ceiling
            gain = 1 - trial[0] / ceiling
            better = gain > 0
            worse = np.flatnonzero(~better)
            for old, new in zip((here, *state), (there, *trial), strict=True):
                new[worse] = old[worse]
            here, state = there, trial
            damping *= np.where(gain > GOOD * promised, 0.2, np.where(better, 1.0, 4.0))
            np.clip(damping, 1e-7, 1e12, out=damping)
            # A step refused may only mean that the damping has to rise; a short one says more.
            idle += 1 + (better & (crawl > 0))
            idle[gain > max(100 * tolerance, crawl)] = 0
            done |= ((promised < tolerance) & (damping < 10)) | (idle >= IDLE)
            # Problems that are done go with others, as each parting copies all the rest.
            if 12 * done.sum() > len(live) or turn == iterations - 1:
                theta[live], best[live], decrement[live] = here, state[0], promised
                keep = ~done
                live, here, damping, idle = live[keep], here[keep], damping[keep], idle[keep]
                if not len(live):
                    break
                done = done[keep]
                state = tuple(a[keep] for a in state)
                y, w = y[keep], None if w is None else w[keep]
                X = X if X.ndim == 2 else X[:, keep]
                prior = _prior_rows(prior, keep)
    converged = decrement < 1e-6
    return Solution(theta, best, decrement, converged & np.isfinite(best))


def _step(
    form: Form,
    X: Float[ndarray, "v *each n"],
    w: Float[ndarray, "m n"] | None,
    theta: Float[ndarray, "m p"],
    state: State,
    damping: Float[ndarray, " m"],
    prior: Prior | None,
    raw: bool,
) -> tuple[Float[ndarray, "m p"], Float[ndarray, "m p"]]:
    r"""Each problem's damped step, and the same with the valley's bend allowed for.

    A step $s$ along the tangent leaves a valley that bends. To second order the form changes by
    $J s + f_{ss}/2$; what the second term does is undone by
    $a = -\frac12 H^{-1} J^T W f_{ss}$, with $f_{ss}$ by one more value a tenth of the step on. It
    is left out where it isn't small beside the step.

    References:
        `transtrum2012` section 3 (geodesic acceleration).
    """
    _, gradient, f, J, shrink = state
    p = form.p
    W = damping[:, None] * shrink
    W += shrink >= 1
    if w is not None:
        W *= w
    JW = J * W[:, None]
    H = np.matmul(JW, J.transpose(0, 2, 1))
    diagonal = H.reshape(len(H), p * p)[:, :: p + 1]
    # A touch of the diagonal keeps flat directions solvable without moving the optimum.
    widest = diagonal.max(1) / (1 + damping)
    diagonal += ((FLAT * damping + 1e-12) * widest + 1e-300)[:, None]
    if prior is not None:
        diagonal += prior[1]
    step = _shorten(-_solve(H, gradient), gradient)
    ahead = form.value(theta + AHEAD * step, X)
    change = (np.exp(ahead) if raw else ahead) - f
    change -= np.matmul((AHEAD * step)[:, None], J)[:, 0]  # what is left is bend
    bend = _solve(H, np.matmul(JW, change[:, :, None])[:, :, 0]) / -(AHEAD**2)
    small = np.abs(bend).max(1) <= BENT * np.abs(step).max(1)
    return step, step + np.where(small[:, None], bend, 0.0)


def _shorten(
    step: Float[ndarray, "m p"], gradient: Float[ndarray, "m p"]
) -> Float[ndarray, "m p"]:
    """Steps of at most 1 in any parameter that still point downhill.

    Clipping each entry lets the rest move on when one parameter is nearly free (a floor near
    zero); where that would turn the step uphill, the whole step is shortened instead.
    """
    longest = np.abs(step).max(1)
    if float(longest.max(initial=0.0)) <= 1:
        return step
    clipped = np.clip(step, -1.0, 1.0)
    scaled = step / np.maximum(longest, 1.0)[:, None]
    downhill = (clipped * gradient).sum(1) < 0.1 * (scaled * gradient).sum(1)
    return np.where(downhill[:, None], clipped, scaled)


def _linearise(
    form: Form,
    X: Float[ndarray, "v *each n"],
    y: Float[ndarray, "m n"],
    w: Float[ndarray, "m n"] | None,
    theta: Float[ndarray, "m p"],
    delta: float,
    prior: Prior | None,
    raw: bool,
) -> State:
    r"""Objective, gradient, log loss, Jacobian and $\rho'/r$ at `theta`."""
    f, J = form.evaluate(theta, X)
    if raw:
        f = np.exp(f)
        J = J * f[:, None]
    r = y - f
    if np.isinf(delta):
        shrink, psi = np.ones_like(r), r
    else:
        shrink = np.abs(r)
        np.maximum(shrink, delta, out=shrink)
        np.divide(delta, shrink, out=shrink)
        psi = r * shrink
    weighted = psi if w is None else psi * w
    objective = np.einsum("mn,mn->m", weighted, r - 0.5 * psi)
    gradient = -np.matmul(J, weighted[:, :, None])[:, :, 0]
    if prior is not None:
        mean, precision = prior
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
