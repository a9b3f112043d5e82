"""One solver for all fits: damped Newton steps on many problems at once.

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

STEPS = 200
"""Steps that every start is given (a third of them in backtests); what takes longer crawls."""

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
    iteratively reweighted least squares, which always points downhill. $\lambda$ falls after each
    success and rises after each failure, for each problem by itself.

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
    if np.isfinite(delta):
        starts = minimise(
            form, X, y, starts, weights=weights, delta=np.inf, prior=prior, iterations=15, raw=raw
        ).theta
    options = {"weights": weights, "delta": delta, "prior": prior, "raw": raw}
    if tolerance >= ROUGH:
        return minimise(
            form,
            X,
            y,
            starts,
            tolerance=tolerance,
            iterations=STEPS // 3,
            crawl=negligible(X.shape[-1]),
            **options,
        )
    found = minimise(form, X, y, starts, tolerance=ROUGH, iterations=STEPS, crawl=SLOW, **options)
    few = np.argsort(found.objective)[:BEST]
    polished = minimise(form, X, y, found.theta[few], tolerance=tolerance, crawl=SLOW, **options)
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
    m = len(theta)
    iterations, tolerance, crawl = limits
    theta = theta.astype(float, copy=True)
    best, decrement = np.full(m, np.inf), np.full(m, np.inf)
    live = np.arange(m)  # the problems still moving; the arrays below hold only these
    here = theta.copy()
    w = None if weights is None else np.broadcast_to(weights, (m, X.shape[-1]))
    y = np.broadcast_to(y, (m, X.shape[-1]))
    damping, idle = np.ones(m), np.zeros(m, int)
    state = _linearise(form, X, y, w, here, delta, prior, raw)
    for _ in range(iterations):
        objective, gradient, newton, reweighted = state
        H = newton + damping[:, None, None] * reweighted
        # A touch of the diagonal keeps flat directions solvable without moving the optimum.
        widest = np.einsum("mii->mi", reweighted).max(1)
        np.einsum("mii->mi", H)[:] += ((FLAT * damping + 1e-12) * widest + 1e-300)[:, None]
        step = -_solve(H, gradient)
        step = _shorten(step, gradient)
        trial = _linearise(form, X, y, w, here + step, delta, prior, raw)
        better = trial[0] < objective
        promised = -(gradient * step).sum(1) / np.maximum(objective, 1e-300)
        gain = np.where(better, 1 - trial[0] / np.maximum(objective, 1e-300), 0.0)
        here[better] += step[better]
        for old, new in zip(state, trial, strict=True):
            np.copyto(old, new, where=better.reshape(-1, *[1] * (new.ndim - 1)))
        damping = np.where(better, damping * 0.2, damping * 6.0)
        damping = np.clip(damping, 1e-7, 1e12)
        # A step refused may only mean that the damping has to rise; a short one says more.
        idle = np.where(gain > max(100 * tolerance, crawl), 0, idle + 1 + (better & (crawl > 0)))
        done = ((promised < tolerance) & (damping < 10)) | (idle >= IDLE)
        if done.any() or _ == iterations - 1:
            theta[live], best[live], decrement[live] = here, state[0], promised
            keep = ~done
            live, here, damping, idle = live[keep], here[keep], damping[keep], idle[keep]
            state = tuple(a[keep] for a in state)
            y, w = y[keep], None if w is None else w[keep]
            X = X if X.ndim == 2 else X[:, keep]
            prior = _prior_rows(prior, keep)
            if not len(live):
                break
    converged = decrement < 1e-6
    return Solution(theta, best, decrement, converged & np.isfinite(best))


def _shorten(
    step: Float[ndarray, "m p"], gradient: Float[ndarray, "m p"]
) -> Float[ndarray, "m p"]:
    """Steps of at most 1 in any parameter that still point downhill.

    Clipping each entry lets the rest move on when one parameter is nearly free (a floor near
    zero); where that would turn the step uphill, the whole step is shortened instead.
    """
    clipped = np.clip(step, -1.0, 1.0)
    scaled = step / np.maximum(np.abs(step).max(1), 1.0)[:, None]
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
) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """Objective, gradient, Newton's and the reweighted matrix at `theta`."""
    with np.errstate(over="ignore", invalid="ignore"):
        f, J = form.evaluate(theta, X)
        if raw:
            f = np.exp(f)
            J = J * f[:, None]
        r = y - f
    size = np.abs(r)
    psi = np.clip(r, -delta, delta)
    rho = psi * (r - 0.5 * psi)
    inside = (size <= delta).astype(float)
    shrink = np.minimum(1.0, delta / np.maximum(size, 1e-300))
    if w is not None:
        rho, psi, inside, shrink = rho * w, psi * w, inside * w, shrink * w
    objective = rho.sum(1)
    gradient = -np.matmul(J, psi[:, :, None])[:, :, 0]
    Jt = J.transpose(0, 2, 1)
    weighted = J * inside[:, None, :]
    newton = np.matmul(weighted, Jt)
    if np.isinf(delta):
        reweighted = newton.copy()
    else:
        reweighted = np.matmul(np.multiply(J, shrink[:, None, :], out=weighted), Jt)
    if prior is not None:
        mean, precision = prior
        away = theta - mean
        objective = objective + 0.5 * (precision * away**2).sum(1)
        gradient = gradient + precision * away
        np.einsum("mii->mi", newton)[:] += precision
    bad = ~np.isfinite(objective) | ~np.isfinite(gradient).all(1)
    if bad.any():
        objective = np.where(bad, np.inf, objective)
        gradient[bad], newton[bad], reweighted[bad] = 0.0, 0.0, np.eye(theta.shape[1])
    return objective, gradient, newton, reweighted


def _solve(H: Float[ndarray, "m p p"], g: Float[ndarray, "m p"]) -> Float[ndarray, "m p"]:
    """`H x = g` for each problem, after scaling each matrix to a unit diagonal."""
    scale = 1.0 / np.sqrt(np.maximum(np.einsum("mii->mi", H), 1e-300))
    scaled = H * scale[:, :, None] * scale[:, None, :]
    for ridge in (1e-14, 1e-9, 1e-4):  # more only where a matrix is singular to rounding
        np.einsum("mii->mi", scaled)[:] += ridge
        try:
            return np.linalg.solve(scaled, (g * scale)[:, :, None])[:, :, 0] * scale
        except np.linalg.LinAlgError:
            continue
    return g * scale**2
