"""Evidence that a form describes all runs of a grid, or that its residuals have structure.

Letters: n runs, p parameters, k columns.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry.laws.component import Component, fit_component
from allometry.laws.coupled_forms import Coupled
from allometry.laws.forms import chinchilla
from allometry.laws.objective import EFFICIENT, FORECAST, above_frontier
from allometry.laws.runs_table import RunsTable

DEGREES = (2, 3, 4)
"""Degrees of the polynomials in log size and log data that may explain the residuals."""


def whole_grid_fits(
    table: RunsTable, *, measured: bool = False, starts: int = 8
) -> list[Component]:
    """The additive and the coupled form fitted to all runs with equal weights.

    Args:
        table: The runs.
        measured: Weight runs by the inverse square of their own standard errors.
        starts: Number of starts.
    """
    equal = replace(FORECAST, recency=0.0, measured=measured)
    rng = np.random.default_rng(0)
    return [
        fit_component(form, table, equal, starts=starts, rng=rng)
        for form in (chinchilla(), Coupled())
    ]


def evidence_for_forms(table: RunsTable, *, measured: bool = False) -> float:
    """Evidence that a form describes all runs of a grid, from 0 to 1; see `whole_grid_weights`."""
    return float(whole_grid_weights(whole_grid_fits(table, measured=measured), table).sum())


def whole_grid_weights(members: list[Component], table: RunsTable) -> Float[ndarray, " f"]:
    r"""Akaike weight of each form; the rest of 1 is the weight of its rivals.

    The rivals are the first form plus a polynomial of degree 2, 3 or 4 in log N and log D (the
    residuals have structure), and the first form with noise that grows as $1 + h/h_0$, where h is
    the log loss above the frontier and $h_0$ is `EFFICIENT` (the form suits the frontier only). A
    form is taken as linear about its optimum. Each model has the weight $e^{-\mathrm{AICc}/2}$,

    $$\mathrm{AICc} = n \log(\mathrm{RSS}/n) + 2 q + \frac{2 q (q + 1)}{n - q - 1},$$

    where q counts the parameters, the noise and its growth. A model with q of n - 1 or more has no
    weight.

    Args:
        members: Forms fitted to all runs with equal weights.
        table: The runs.

    References:
        `hurvich1989` Eq. (4); `burnham2002` section 2.9 (weights).
    """
    first, equal = members[0], np.ones(table.n)
    none = np.empty((table.n, 0))
    uneven = 1 + above_frontier(table) / EFFICIENT
    every = np.array(
        [
            *(_corrected_criterion(m, table, none, equal) for m in members),
            *(_corrected_criterion(first, table, _powers(table, k), equal) for k in DEGREES),
            _corrected_criterion(first, table, none, uneven),
        ]
    )
    if not np.isfinite(every).any():
        return np.full(len(members), 1 / len(members))
    weight = np.exp(-0.5 * (every - every.min()))
    return (weight / weight.sum())[: len(members)]


def _corrected_criterion(
    member: Component,
    table: RunsTable,
    columns: Float[ndarray, "n k"],
    scale: Float[ndarray, " n"],
) -> float:
    """AICc of a form with more columns and noise of some scale, about the form's optimum."""
    value, jacobian = member.form.evaluate(member.theta[None], member.at(table.logs))
    r = (table.y - value[0]) / scale
    design = np.hstack([jacobian[0].T, columns]) / scale[:, None]
    left, singular, _ = np.linalg.svd(design, full_matrices=False)
    left = left[:, singular > 1e-8 * singular[0]]
    n, q = table.n, max(left.shape[1], member.form.p) + 1 + bool(np.ptp(scale))
    if n - q - 1 <= 0:
        return np.inf
    # Below rounding of the losses the residuals say nothing about the form.
    rss = max(float(((r - left @ (left.T @ r)) ** 2).sum()), n * 1e-12)
    fit = n * np.log(rss / n) + 2 * float(np.log(scale).sum())
    return fit + 2 * q + 2 * q * (q + 1) / (n - q - 1)


def _powers(table: RunsTable, degree: int) -> Float[ndarray, "n k"]:
    """Products of powers of log N and log D up to a total degree, both standardised."""
    x, z = (
        (v - v.mean()) / max(float(v.std()), 1e-12) for v in (table.logs["N"], table.logs["D"])
    )
    return np.stack(
        [x**i * z**j for i in range(degree + 1) for j in range(degree + 1 - i)], axis=1
    )
