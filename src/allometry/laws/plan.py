"""Plans: how to spend a compute budget by a law, and the cost of its uncertainty.

Letters: m draws, g grid points.
"""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate
from allometry._core.notebook import chart, html_table, interval
from allometry.laws.allocation import matching_data
from allometry.laws.inverse import central_size, first_below, frontier, lowest, points_along

if TYPE_CHECKING:
    from allometry.laws.law import Law

GRID = 600
INFERENCE = 2.0
"""FLOPs per parameter and token of a forward pass."""

REPETITION_SCALE = 15.39
"""R*_D of Muennighoff et al.: the number of repetitions after which repeated data have lost most
of their value."""


@final
@dataclass(frozen=True)
class Plan:
    """The size and data to spend a budget on, with the predicted loss.

    Args:
        compute: The budget in FLOPs.
        N: Parameters.
        D: Data.
        loss: Loss of such a run, with its 95 % prediction interval.
        form: The law's form.
        warnings: Limits of the plan.
        method: How N and D were determined.
        lost: FLOPs wasted because the law is uncertain: what the plan spends beyond the
            compute-optimal allocation of the same loss, as the mean over draws and the 97.5 %
            quantile.
        law: The law, for charts.
    """

    compute: float
    N: Estimate | None
    D: Estimate | None
    loss: Estimate
    form: str
    warnings: list[str] = field(default_factory=list)
    method: str = ""
    lost: Estimate | None = None
    law: "Law | None" = field(default=None, repr=False, compare=False)

    def plot(self, kind: str | None = None) -> Any:
        """An Altair chart (extra `plot`).

        Args:
            kind: `size`, the loss against size at this budget, or `fit`, the law and the plan.
                Default: `size` if the law is one in N and D.
        """
        return chart(self, kind)

    def _repr_html_(self) -> str:
        rows = [
            (name, *interval(value))
            for name, value in (("N", self.N), ("D", self.D), ("loss", self.loss))
        ]
        if self.lost is not None:
            rows.append(("FLOPs lost to uncertainty", *interval(self.lost)))
        title = f"Plan of {self.compute:.4g} FLOPs ({self.form})"
        return html_table(title, ("", "value", "95 % interval"), rows, self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, ready for JSON."""
        none = {"value": None, "se": None, "lo": None, "hi": None}
        return {
            "compute": self.compute,
            "N": none if self.N is None else self.N.to_dict(),
            "D": none if self.D is None else self.D.to_dict(),
            "loss": self.loss.to_dict(),
            "form": self.form,
            "warnings": list(self.warnings),
            "method": self.method,
            "lost": None if self.lost is None else self.lost.to_dict(),
        }

    def __str__(self) -> str:
        lines = [f"with {self.compute:.3g} FLOPs ({self.form}):"]
        lines += [f"  {k} = {v}" for k, v in (("N", self.N), ("D", self.D), ("loss", self.loss))]
        if self.lost is not None:
            lines.append(f"  FLOPs lost to uncertainty about the allocation = {self.lost}")
        return "\n".join(lines + [f"  warning: {sentence}" for sentence in self.warnings])


def plan(
    law: "Law",
    compute: float,
    *,
    N: float | None = None,
    D: float | None = None,
    unique: float | None = None,
    inference_tokens: float = 0.0,
) -> Plan:
    r"""How to spend a budget according to a law.

    For a law in N and D this is the compute-optimal allocation, also computed on each bootstrap
    draw, so that N and D have intervals. For an average of forms it comes from the runs near the
    frontier, and the interval includes the backtested error of the optimal size
    (`allometry.laws.allocation`). For a law in one variable it is the point of that compute on
    the path of the runs.

    Args:
        law: A fitted law.
        compute: The budget in FLOPs, inference included if it is asked for.
        N: Fix the size; the budget then determines the data.
        D: Fix the data; the budget then determines the size.
        unique: Amount of unique data; beyond it data are repeated and lose value
            (Muennighoff et al.; by the law's own $R_D^*$ if it has one).
        inference_tokens: Tokens to generate over the model's lifetime at 2N FLOPs each, paid from
            the same budget.

    References:
        `hoffmann2022` Eq. (4), approach 3; `muennighoff2023` Eq. (5); `sardana2024` section 2.
    """
    require(compute > 0 and math.isfinite(compute), "plan.compute", "be positive", compute)
    for name, value in (("N", N), ("D", D), ("unique", unique)):
        require(value is None or value > 0, f"plan.{name}", "be positive", value)
    require(inference_tokens >= 0, "plan.inference_tokens", "be 0 or more", inference_tokens)
    require(N is None or D is None, "plan", "fix N or D, not both", (N, D))
    warnings = [*law.warnings, *_far_budget(law, compute)]
    c = math.log(compute)
    if {"N", "D"} <= set(law.variables):
        made = _allocate(law, c, N, D, unique, inference_tokens, warnings)
        return replace(
            made, compute=compute
        )  # the exponential of a log differs in the last digits
    if N is not None or D is not None or unique is not None or inference_tokens:
        raise InputError(
            "plan must have a law in both N and D for a fixed N or D, unique data or inference "
            f"tokens; got a law in {' and '.join(law.variables)}. Fit the form 'chinchilla'."
        )
    if law.path is not None:
        return replace(_along_path(law, c, warnings), compute=compute)
    if law.variables == ("C",):
        warnings.append(
            "The law is in compute alone: it predicts the loss but not how to allocate the budget "
            "to N and D."
        )
        n, d = _trend(law, c)
        loss = law.predict(C=[compute])[0]
        return Plan(compute, n, d, loss, law.form, warnings, "trend of runs")
    raise InputError(
        f"law must depend on N and D, or on C, to plan a compute budget; got a law in "
        f"{' and '.join(law.variables)}. Give the runs a C column, or both N and D."
    )


def _far_budget(law: "Law", compute: float) -> list[str]:
    """A warning if the budget is far beyond the runs."""
    if "C" not in law.table.logs:
        return []
    ratio = compute / float(np.exp(law.table.logs["C"].max()))
    span = float(np.exp(np.ptp(law.table.logs["C"])))
    most = float(np.exp(2 * law.calibration.reach)) if law.calibration.reach else math.inf
    found = []
    if ratio > max(span, 10.0):
        found.append(
            f"The budget is {ratio:.3g} times the largest run, further than the runs themselves "
            f"span ({span:.3g} times): backtests don't reach that far."
        )
    if ratio > most:
        found.append(
            f"The budget is {ratio:.3g} times the largest run, further than the families that the "
            f"intervals are calibrated on ({most:.3g} times): the interval of the loss is widened."
        )
    return found


def _allocate(
    law: "Law",
    c: float,
    N: float | None,
    D: float | None,
    unique: float | None,
    tokens: float,
    warnings: list[str],
) -> Plan:
    """The compute-optimal allocation, or the one that a fixed size or fixed data leave."""
    if N is not None:
        n = np.array([math.log(N)])
        method = "size fixed"
    elif D is not None:
        n = law.cost.size(np.array([c]), np.array([math.log(D)]))
        if tokens:
            n = n + np.log(1 / (1 + INFERENCE * tokens / (np.exp(law.cost.log_ratio(n)) * D)))
        method = "data fixed"
    else:
        middle = float(central_size(law, np.array([c]))[0])
        n = np.linspace(middle - 12.0, middle + 12.0, GRID)
        method = "least loss at that compute"
    chooser = law.allocation.law if len(n) > 1 else law
    curves, d = _losses(chooser, c, n, unique, tokens)
    lost = None
    if len(n) > 1:
        best, edge = lowest(n, curves)
        share = float(edge[1:].mean()) if len(edge) > 1 else 0.0
        if edge[0] or share > 0.025:
            warnings = [
                *warnings,
                "The allocation between N and D is not identified: in "
                f"{max(share, float(edge[0])):.0%} of the fits no finite size is optimal.",
            ]
        shifts = law.allocation.prior_shifts(c)
        enough = unique is None or float(np.interp(best[0] + shifts[0], n, d)) <= math.log(unique)
        lost = _lost(chooser, c, n, curves, best, shifts) if enough and not tokens else None
        n_at = law.allocation.size_estimate(best + shifts, c)
        d_at = matching_data(n_at, lambda size: float(np.interp(size, n, d)))
    else:
        found = N or float(np.exp(n[0])), D or float(np.exp(d[0]))
        n_at, d_at = (Estimate(value, exact=True, method=method) for value in found)
        require(math.isfinite(d_at.value), "plan.compute", "buy some training beside inference", c)
    at = {"N": [n_at.value], "D": [_effective_data(law, d_at.value, unique)]}
    if unique and "D_unique" in law.variables:
        at = {"N": [n_at.value], "D": [d_at.value], "D_unique": [unique]}
    if unique and d_at.value > unique:
        warnings = [*warnings, f"Data are repeated {d_at.value / unique:.2g} times."]
    loss = law.predict(**at)[0]
    return Plan(math.exp(c), n_at, d_at, loss, law.form, warnings, method, lost)


def _losses(
    law: "Law", c: float, n: Float[ndarray, " g"], unique: float | None, tokens: float
) -> tuple[Float[ndarray, "m g"], Float[ndarray, " g"]]:
    """Log loss of the law and each draw at log sizes `n`, and the log data that each leaves."""
    left = np.full_like(n, c)
    if tokens:
        with np.errstate(divide="ignore", invalid="ignore"):
            left = c + np.log(np.maximum(1 - INFERENCE * tokens * np.exp(n - c), 0.0))
    d = law.cost.data(left, n)
    logs = {"N": n, "D": d, "C": left}
    if unique is not None:
        logs["D_unique"] = np.minimum(np.full_like(n, math.log(unique)), d)
        if "D_unique" not in law.variables:
            effective = [_effective_data(law, float(np.exp(x)), unique) for x in d]
            with np.errstate(divide="ignore"):  # inference may leave no data
                logs["D"] = np.log(effective)
    usable = np.isfinite(d)
    curves = np.full((len(law.members[0].draws) + 1, len(n)), np.inf)
    curves[:, usable] = law.curves({k: v[usable] for k, v in logs.items()})
    return curves, d


def _effective_data(law: "Law", data: float, unique: float | None) -> float:
    """The amount of unique data that is equivalent to repeated data."""
    if unique is None or data <= unique or "D_unique" in law.variables:
        return data
    scale = REPETITION_SCALE
    return unique * (1 - scale * math.expm1(-(data / unique - 1) / scale))


def _lost(
    law: "Law",
    c: float,
    n: Float[ndarray, " g"],
    curves: Float[ndarray, "m g"],
    best: Float[ndarray, " m"],
    shifts: Float[ndarray, " m"],
) -> Estimate | None:
    """FLOPs that the planned allocation wastes if a draw, shifted by the prior, is the truth."""
    if len(curves) < 20:
        return None
    planned = best[0] + shifts[0]
    reached = np.array(
        [np.interp(planned - shift, n, row) for shift, row in zip(shifts, curves, strict=True)][1:]
    )
    grid = np.linspace(c - 3.0, c, 61)
    least = frontier(law, grid)[1:]
    # The compute at which the frontier of each draw has the loss that the plan reaches.
    at = np.array([np.interp(-r, -row, grid) for r, row in zip(reached, least, strict=True)])
    wasted = math.exp(c) * (1 - np.exp(np.minimum(at - c, 0.0)))
    return Estimate(
        float(wasted.mean()),
        lo=0.0,
        hi=float(np.quantile(wasted, 0.975)),
        method="draws of the law as truths",
    )


def _along_path(law: "Law", c: float, warnings: list[str]) -> Plan:
    """The point of that compute on the path of the runs."""
    assert law.path is not None
    n, d = (law.path.at(name, np.array([c])) for name in ("N", "D"))
    if law.path.of["D"][1] == 0.0:
        n = law.cost.size(np.array([c]), d)
    warnings = [
        *warnings,
        "N and D of the runs follow one path (such as a fixed tokens-per-parameter ratio), and "
        "so does the plan. These runs do not identify the compute-optimal allocation.",
    ]
    N, D = (Estimate(float(np.exp(v[0])), method="the runs' own path") for v in (n, d))
    loss = law.predict(N=[float(N)], D=[float(D)])[0]
    return Plan(math.exp(c), N, D, loss, law.form, warnings, "path")


def _trend(law: "Law", c: float) -> tuple[Estimate | None, Estimate | None]:
    """The trend of the runs' N and D at that compute, which is not an optimum."""
    if not {"N", "D"} <= set(law.table.logs):
        return None, None
    x, n = law.table.logs["C"], law.table.logs["N"]
    slope = float(np.cov(x, n)[0, 1] / x.var(ddof=1))
    at = float(n.mean() + slope * (c - x.mean()))
    d = float(law.cost.data(np.array([c]), np.array([at]))[0])
    method = "the runs' own trend, not an optimum"
    return Estimate(float(np.exp(at)), method=method), Estimate(float(np.exp(d)), method=method)


def crossing_of(first: "Law", second: "Law", variable: str = "C") -> Estimate:
    """The crossover of two laws: where the second becomes better, with an interval.

    Both laws are evaluated along `variable`: compute at their optimal allocation (or path), or N
    or D if both are laws in it alone. The interval covers every point where the two losses may be
    equal by their 95 % bands; `hi` is infinite if the first may stay the better one.
    """
    require(variable in ("N", "D", "C"), "crossing_of.variable", "be N, D or C", variable)
    both = []
    for law in (first, second):
        seen = law.table.logs.get(variable)
        require(seen is not None, "crossing_of", f"be given laws whose runs have {variable}", None)
        both.append((law, seen))
    low = min(float(seen.min()) for _, seen in both)
    high = max(float(seen.max()) for _, seen in both)
    x = np.linspace(low, high + 1.5 * (high - low), 160)

    def gap(x: Float[ndarray, " g"]) -> Float[ndarray, "3 g"]:
        bands = [law.log_band(points_along(law, variable, x)) for law, _ in both]
        lo, mid, hi = np.stack(bands, 1)
        ahead = np.hypot(mid[1] - lo[1], hi[0] - mid[0])
        behind = np.hypot(hi[1] - mid[1], mid[0] - lo[0])
        away = mid[1] - mid[0]
        return np.stack([away - ahead, away, away + behind])

    # The second law is worse before the crossover. If it is better everywhere, the result is the
    # start of the range.
    lo, value, hi = (float(v) for v in np.exp(first_below(gap, x, 0.0)))
    if min(len(law.members[0].draws) for law, _ in both) < 20:
        return Estimate(value, method="no bootstrap draws")
    return Estimate(value, lo=min(lo, value), hi=max(hi, value), method="95 % bands of both")
