r"""The bias and spread of predictions beyond the runs, learnt across families of runs.

A law fitted to small runs predicts the decline $\delta$ of the log loss beyond them. In public
families the actual decline is $(1 + \kappa)\,\delta + \rho\,b$ at b e-folds beyond the runs, where
$\kappa$ is much the same for all larger runs of a family. The mean and spread of $\kappa$ between
families and the rate $\rho$ are constants (`calibration_table`). The backtests of the law at hand
are a measurement of its own $\kappa$, with an error that was also learnt across families, and the
two are combined by their precisions.

Letters: n runs, k points asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry.laws.calibration_table import TABLE, Kind, KindConstants, constants
from allometry.laws.component import Component
from allometry.laws.compute_cost import vary_independently
from allometry.laws.intervals import bin_shares
from allometry.laws.runs_table import RunsTable

if TYPE_CHECKING:
    from allometry.laws.backtests import Fold

BARE = ("power", "kaplan", "steps", "frontier_power")
"""Forms without an irreducible loss."""

LARGEST = 2.0
"""Bound of the error per unit of predicted decline that one backtest may show."""

SURPRISING = 3.0
"""Standard deviations from the mean of all families at which a family is called unlike them."""


@final
@dataclass(frozen=True)
class Calibration:
    r"""How predictions beyond the runs are corrected, and by which table.

    The log loss at a point is $f - \kappa\,\delta - \rho \min(b, r)$, where f is the average of
    the forms, $\delta$ its decline from the nearest point within the runs (`pulled_back`), b the
    e-folds from there and r the `reach`. The interval includes the standard deviation
    $s\,\delta$. Beyond the reach every e-fold counts twice in its width.

    Args:
        kappa: Posterior mean of $\kappa$; positive if the forms predict losses too high.
        rate: $\rho$, the part of the error that grows with the distance alone.
        spread: Posterior standard deviation s of $\kappa$.
        own: What the backtests alone show; None if they show nothing.
        own_sd: Standard error of `own`.
        kind: `grid`, `line` or `curve`.
        reach: E-folds beyond the runs up to which the table has evidence.
        few_runs: Constants of `intervals.few_runs_variance`.
        noise_prior: So many runs of this noise are the prior of the noise.
        draws: Share of the variance of the draws that counts an e-fold or more beyond the runs.
        moves_value: Whether the predicted value is corrected, and not only the interval. False
            for a form asked for by name, whose value is that of its formula.
        version: Version of the table.
        groups: Groups of families that the table was learnt from.
        digest: Hash of the errors that the table was learnt from.
    """

    kappa: float
    rate: float
    spread: float
    own: float | None
    own_sd: float | None
    kind: Kind
    reach: float
    few_runs: tuple[float, float, float]
    noise_prior: tuple[float, float]
    draws: float = 1.0
    moves_value: bool = True
    version: str = TABLE["version"]
    groups: tuple[str, ...] = tuple(TABLE["groups"])
    digest: str = TABLE["hash"]

    def correction(
        self, decline: Float[ndarray, " k"], beyond: Float[ndarray, " k"]
    ) -> Float[ndarray, " k"]:
        """What to subtract from the log loss of the average of forms."""
        return self.kappa * decline + self.rate * np.minimum(beyond, self.reach)

    def unproven(self, beyond: Float[ndarray, " k"]) -> Float[ndarray, " k"]:
        """E-folds beyond the reach of the table; 0 within it and without a table."""
        return np.maximum(beyond - self.reach, 0.0) * bool(self.reach)

    def draws_share(self, distance: Float[ndarray, " k"]) -> Float[ndarray, " k"]:
        """Share of the variance of the draws that counts: all of it among the runs."""
        return self.draws ** np.minimum(distance, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """The calibration as plain values, ready for JSON."""
        return {
            "version": self.version,
            "hash": self.digest,
            "groups": list(self.groups),
            "kind": self.kind,
            "kappa": self.kappa,
            "rate": self.rate,
            "spread": self.spread,
            "own": self.own,
            "own_sd": self.own_sd,
            "reach": self.reach,
        }


UNCALIBRATED = Calibration(
    *(0.0, 0.0, 0.0, None, None, "grid", 0.0, (0.09, 0.0, 2.0), (8, 0.004)),
    version="",
    groups=(),
    digest="",
)
"""No correction, and the constants of laws that were saved before there was a table."""


def kind_of(table: RunsTable) -> Kind:
    """Which families of runs these resemble."""
    if set(table.logs) == {"D"}:
        return "curve"
    return "grid" if vary_independently(table) else "line"


def pulled_back(
    logs: Mapping[str, Float[ndarray, " k"]],
    seen: Mapping[str, Float[ndarray, " n"]],
    variables: Sequence[str],
) -> dict[str, Float[ndarray, " k"]]:
    """Each point moved back to the upper ends of the runs, as logs of the variables.

    Every variable is cut at the largest of the runs. Where size and data both vary, both then
    shrink by one factor until the compute is at most the largest of the runs.

    Args:
        logs: The points.
        seen: The runs.
        variables: Variables of the law.
    """
    back = {v: np.minimum(logs[v], seen[v].max()) for v in variables if v in logs}
    if {"N", "D"} <= set(back) and "C" in logs and "C" in seen:
        compute = logs["C"] - (logs["N"] - back["N"]) - (logs["D"] - back["D"])
        excess = np.maximum(compute - seen["C"].max(), 0.0)
        back |= {"N": back["N"] - excess / 2, "D": back["D"] - excess / 2, "C": compute - excess}
    return back


def e_folds_beyond(
    logs: Mapping[str, Float[ndarray, " k"]], back: Mapping[str, Float[ndarray, " k"]]
) -> Float[ndarray, " k"]:
    """E-folds from the points pulled back to the points: of size or data, or half of compute."""
    if "C" in back:
        return (logs["C"] - back["C"]) / 2
    return np.stack([logs[v] - back[v] for v in back]).max(0)


def as_factor(e_folds: float, variables: Sequence[str]) -> tuple[float, str]:
    """E-folds of `e_folds_beyond` as a factor, and the variable that it multiplies."""
    one = "C" not in variables and not {"N", "D"} <= set(variables)
    return float(np.exp(min(e_folds * (1 if one else 2), 600.0))), variables[0] if one else "C"


def beyond_evidence(calibration: Calibration, beyond: float, variables: Sequence[str]) -> str:
    """What to say of a prediction beyond the reach of the table; empty within it.

    Args:
        calibration: The calibration.
        beyond: E-folds beyond the runs.
        variables: Variables of the law.
    """
    if not calibration.reach or beyond <= calibration.reach:
        return ""
    ratio, name = as_factor(beyond, variables)
    most, _ = as_factor(calibration.reach, variables)
    return (
        f"; {name} is {ratio:.3g} times that of the runs, and the calibration has evidence up to "
        f"{most:.3g} times: the interval is widened"
    )


def own_slope(
    folds: Sequence["Fold"], known: KindConstants, configurations: int
) -> tuple[float, float] | None:
    r"""The $\kappa$ of backtests and its standard error; None if they predict no decline.

    In each fold it is the weighted regression of the errors on the predicted declines. Folds
    share runs, so their mean has the error of one fold. The error has a part that no number of
    held-out runs removes: the fit of all runs errs otherwise than those of fewer. It falls with
    the number of configurations and rises with the scatter between folds.
    """
    few = (1 + known.own_runs / configurations) ** 2
    excess = few * known.own_sd**2
    slopes, variances, weights = [], [], []
    for fold in folds:
        decline = np.maximum(fold.decline, 0.0)
        variance = fold.variance + fold.noise**2 + (known.tau * fold.distance) ** 2
        share = bin_shares(fold.distance) / np.maximum(variance, 1e-8)
        precision = float((share * decline**2).sum())
        if precision > 1e-6:
            rest = fold.error + known.rate * np.minimum(fold.beyond, known.reach)
            slope = -float((share * decline * rest).sum()) / precision
            slopes.append(float(np.clip(slope, -LARGEST, LARGEST)))
            variances.append(1 / precision)
            weights.append(fold.trained / (1 / precision + excess))
    if not slopes:
        return None
    mean = float(np.average(slopes, weights=weights))
    scatter = float(np.average((np.array(slopes) - mean) ** 2, weights=weights))
    chance = float(np.average(variances, weights=weights))
    return mean, float(np.sqrt(chance + excess + few * known.own_scatter * scatter))


def irreducible_weight(members: Sequence[Component]) -> float:
    """Weight of the forms that have an irreducible loss."""
    return sum(m.weight for m in members if m.form.name not in BARE)


def calibrate(
    folds: Sequence["Fold"],
    table: RunsTable,
    form: str | None = None,
    *,
    irreducible: float = 1.0,
) -> Calibration:
    """The calibration of a law from its backtests and the table of families.

    Args:
        folds: The backtests.
        table: The runs.
        form: Name of the form if it was asked for by name.
        irreducible: Weight of the forms with an irreducible loss. A law without one does not
            level off. It gets no correction by the distance, and below half of the weight
            none by the other families' mean.
    """
    kind = kind_of(table)
    known = constants(kind, form)
    mean = known.kappa if irreducible >= 0.5 else 0.0
    known = replace(known, kappa=mean, rate=known.rate * irreducible)
    own = own_slope(folds, known, table.configurations)
    kappa, variance = known.kappa, known.kappa_sd**2
    if own is not None:
        share = variance / (variance + own[1] ** 2)
        kappa, variance = kappa + share * (own[0] - kappa), variance * (1 - share)
    return Calibration(
        kappa,
        known.rate,
        float(np.sqrt(variance)),
        None if own is None else own[0],
        None if own is None else own[1],
        kind,
        known.reach,
        known.few_runs,
        known.noise_prior,
        known.share_of_draws(table.configurations) if form is None else 1.0,
        moves_value=form is None,
    )


def calibration_warnings(calibration: Calibration, form: str | None = None) -> list[str]:
    """A warning if the backtests lie far outside those of the calibration families."""
    own, se = calibration.own, calibration.own_sd
    if own is None or se is None:
        return []
    known = constants(calibration.kind, form)
    away = (own - known.kappa) / float(np.hypot(known.kappa_sd, se))
    if abs(away) < SURPRISING:
        return []
    side = "more" if own > 0 else "less"
    return [
        f"In backtests the loss fell {abs(own):.0%} {side} than predicted, unlike in the "
        f"{len(calibration.groups)} groups of public families that the intervals are calibrated "
        "on: they may be too narrow. Check for runs of another recipe or schedule."
    ]
