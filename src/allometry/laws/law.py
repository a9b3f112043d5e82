"""A fitted scaling law: predictions with intervals, plans and inverse questions.

Letters: m draws, p parameters, n runs, v variables, k points asked for.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any, final, overload

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate
from allometry._core.notebook import chart, html_table
from allometry.laws.allocation import Allocation, allocation_of
from allometry.laws.averages import (
    carried,
    described,
    heading,
    parameter_lines,
    parameter_rows,
)
from allometry.laws.backtests import Backtest, Fold, distance
from allometry.laws.calibration import (
    UNCALIBRATED,
    Calibration,
    beyond_evidence,
    e_folds_beyond,
    pulled_back,
)
from allometry.laws.component import Component
from allometry.laws.compute_cost import ComputeCost, Path
from allometry.laws.forms import Form
from allometry.laws.intervals import (
    BETWEEN_FORMS,
    ExtrapolationError,
    few_runs_variance,
    half_width,
)
from allometry.laws.inverse import best_size, solve
from allometry.laws.objective import PLAIN, Objective
from allometry.laws.plan import Plan, plan
from allometry.laws.runs_table import RunsTable

Values = float | int | list[Any] | tuple[Any, ...] | ndarray
"""One number or many."""


@final
@dataclass(frozen=True)
class Starts:
    """The number of starts, and how many of them reached the optimum."""

    tried: int
    agree: int

    def to_dict(self) -> dict[str, int]:
        """`{"tried", "agree"}`."""
        return {"tried": self.tried, "agree": self.agree}


@final
@dataclass(frozen=True)
class Law:
    """A fitted scaling law of loss in size, data and compute, with its uncertainty.

    Call it for point values: `law(N=1e9, D=2e10)`. See `predict` for intervals.

    Args:
        form: Name of the form.
        params: Parameters by the letters of the paper, with standard error and 95 % interval.
        n: Number of runs.
        objective: Value of the objective at the optimum.
        starts: The number of starts and how many agree.
        backtest: Summary of rolling-origin backtests of extrapolation.
        warnings: Sentences on what the runs do not identify.
        why: Why this form was chosen.
        members: The fitted forms with their weights, largest weight first.
        folds: The backtests.
        extrapolation_error: Error beyond the runs, learnt from the backtests.
        table: The runs.
        cost: Compute as a function of size and data.
        path: The line of N and D on which the runs lie, if any.
        criterion: What the fit minimises.
        calibration: The correction of predictions beyond the runs, learnt across families.
    """

    form: str
    params: dict[str, Estimate]
    n: int
    objective: float
    starts: Starts
    backtest: Backtest
    warnings: list[str]
    why: str
    members: tuple[Component, ...] = field(repr=False)
    folds: tuple[Fold, ...] = field(repr=False)
    extrapolation_error: ExtrapolationError = field(repr=False)
    table: RunsTable = field(repr=False)
    cost: ComputeCost = field(repr=False)
    path: Path | None = field(repr=False)
    criterion: Objective = field(default=PLAIN, repr=False)
    calibration: Calibration = field(default=UNCALIBRATED, repr=False)

    @property
    def shape(self) -> Form:
        """The form with the largest weight."""
        return self.members[0].form

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of all members."""
        return tuple(dict.fromkeys(v for m in self.members for v in m.form.variables))

    @property
    def noise(self) -> float:
        """Standard deviation of the log loss of a run, by the form with the smallest residuals."""
        return min(m.noise for m in self.members)

    @property
    def dof(self) -> int:
        """Degrees of freedom of the noise estimate."""
        return min(self.members, key=lambda m: m.noise).dof

    @cached_property
    def allocation(self) -> Allocation:
        """The compute-optimal allocation of a budget to size and data."""
        return allocation_of(self)

    @property
    def split(self) -> Allocation:
        """Deprecated name of `allocation`."""
        warnings.warn("law.split is now law.allocation.", DeprecationWarning, stacklevel=2)
        return self.allocation

    def curves(self, logs: dict[str, ndarray]) -> Float[ndarray, "m k"]:
        """Log loss of the law (first row) and of each bootstrap draw at points given as logs."""
        total = self.members[0].weight * self.members[0].curves(logs)
        for member in self.members[1:]:
            total = total + member.weight * member.curves(logs)
        return total

    def __call__(self, **at: Values) -> Float[ndarray, "..."]:
        """The predicted loss at given size, data or compute (two of them, or one on a path).

        If only compute is given for a law in size and data whose runs lie on no path, the value
        is that of the compute-optimal frontier.

        Args:
            **at: `N`, `D`, `C`, and other variables of the form (`D_unique`, `S`).
        """
        logs, shape = self.points(at)
        total = self.average(logs)
        if self.calibration.moves_value:
            total = total - self.calibration.correction(*self.beyond_runs(logs))
        return np.exp(total).reshape(shape)

    def average(self, logs: dict[str, ndarray]) -> Float[ndarray, " k"]:
        """The weighted average of the members' log loss at points given as logs."""
        total = self.members[0].weight * self.members[0].value(logs)
        for m in self.members[1:]:
            total = total + m.weight * m.value(logs)
        return total

    def beyond_runs(
        self, logs: dict[str, ndarray]
    ) -> tuple[Float[ndarray, " k"], Float[ndarray, " k"]]:
        """Decline of the average from the nearest point within the runs, and e-folds from there.

        Both are 0 among the runs.
        """
        back = pulled_back(logs, self.table.logs, self.variables)
        fall = np.maximum(self.average(back) - self.average(logs), 0.0)
        return fall, e_folds_beyond(logs, back)

    def band(
        self, *, level: float = 0.95, **at: Values
    ) -> tuple[Float[ndarray, "..."], Float[ndarray, "..."], Float[ndarray, "..."]]:
        """Lower end, value and upper end of the prediction interval, as arrays."""
        return self._band(at, level)

    def _band(
        self, at: dict[str, Values], level: float
    ) -> tuple[Float[ndarray, "..."], Float[ndarray, "..."], Float[ndarray, "..."]]:
        logs, shape = self.points(at)
        with np.errstate(over="ignore"):  # unbounded draws have an infinite upper end
            lo, mid, hi = np.exp(self.log_band(logs, level))
        return lo.reshape(shape), mid.reshape(shape), hi.reshape(shape)

    def log_band(self, logs: dict[str, ndarray], level: float = 0.95) -> Float[ndarray, "3 k"]:
        """Logs of lower end, value and upper end at points given as logs of the variables."""
        far = np.stack([distance(m.form, logs, self.table.logs) for m in self.members]).max(0)
        known = self.calibration
        mid, below, above = self._spread(logs, known.draws_share(far))
        decline, beyond = self.beyond_runs(logs)
        far = far + known.unproven(beyond)
        size = self.table.configurations, len(self.variables)
        extra = few_runs_variance(far, *size, decline, known.few_runs)
        extra = extra + (known.spread * decline) ** 2
        centre = mid - known.correction(decline, beyond)
        error, prior = self.extrapolation_error, known.noise_prior
        lo, hi = (
            half_width(side + extra, self.noise, self.dof, far, error, level, prior)
            for side in (below, above)
        )
        lo, hi = centre - lo, centre + hi
        if self.calibration.moves_value:
            return np.stack([lo, centre, hi])
        return np.stack([np.minimum(lo, mid), mid, np.maximum(hi, mid)])

    @overload
    def predict(self, **at: float) -> Estimate: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def predict(self, **at: Values) -> ndarray: ...
    def predict(self, **at: Values) -> "ndarray | Estimate":
        """95 % prediction intervals for the loss of new runs.

        Returns one `Estimate` if all arguments are numbers, else an array of them.

        The interval is for the loss of one more run. It includes parameter and model uncertainty,
        the noise between runs, and the extrapolation error of the backtests. `.method` says where
        a point is further beyond the runs than any family that the intervals are calibrated on.

        Args:
            **at: `N`, `D`, `C`, and other variables of the form, each a number or an array.
        """
        lo, mid, hi = self._band(at, 0.95)
        beyond = self.beyond_runs(self.points(at)[0])[1].reshape(mid.shape)
        best = ", at the compute-optimal allocation" if self.needs_allocation(at) else ""
        method = f"bootstrap, noise and backtested extrapolation error{best}"
        out = np.empty(mid.shape, dtype=object)
        for i in np.ndindex(mid.shape):
            far = beyond_evidence(self.calibration, float(beyond[i]), self.variables)
            value, low, high = float(mid[i]), float(lo[i]), float(hi[i])
            out[i] = Estimate(value, lo=low, hi=high, n=self.n, method=method + far)
        return out if out.shape else out.item()

    def solve(self, loss: float, variable: str = "C", **fixed: float) -> Estimate:
        """The N, D or C at which the law reaches `loss`, with the other variables fixed.

        The interval covers every point where the 95 % band of `predict` covers `loss`; `hi` is
        infinite if the upper end of the band never reaches it. `.method` states the share of
        draws that never do.

        Args:
            loss: The loss to reach.
            variable: `N`, `D` or `C`.
            **fixed: Values of the other variables; by default compute is allocated optimally.
        """
        return solve(self, loss, variable, fixed)

    def plan(
        self,
        compute: float,
        *,
        N: float | None = None,
        D: float | None = None,
        unique: float | None = None,
        inference_tokens: float = 0.0,
    ) -> Plan:
        """How to spend a compute budget; see `allometry.laws.plan.plan`.

        Args:
            compute: The budget in FLOPs.
            N: Fix the size.
            D: Fix the data.
            unique: Amount of unique data; beyond it data are repeated and lose value.
            inference_tokens: Tokens to generate, paid from the same budget.
        """
        made = plan(self, compute, N=N, D=D, unique=unique, inference_tokens=inference_tokens)
        return replace(made, law=self)

    def plot(self, kind: str = "fit") -> Any:
        """An Altair chart (extra `plot`).

        Args:
            kind: `fit`, `residuals`, `isoflop` or `backtest`.
        """
        return chart(self, kind)

    def save(self, path: FilePath | str) -> FilePath:
        """Write the law to a JSON file for `laws.load` and return its path."""
        from allometry.laws.law_files import save

        return save(self, path)

    def to_dict(self) -> dict[str, Any]:
        """The law as plain values, ready for JSON."""
        return {
            "form": self.form,
            "n": self.n,
            "objective": self.objective,
            "params": {name: e.to_dict() for name, e in self.params.items()},
            "starts": self.starts.to_dict(),
            "backtest": self.backtest.to_dict(),
            "warnings": list(self.warnings),
            "why": self.why,
            "members": {m.form.name: m.weight for m in self.members},
            "averaged": not carried(self.members),
            "forms": described(self.members, self.n),
            "calibration": self.calibration.to_dict(),
        }

    def __str__(self) -> str:
        lines = [*parameter_lines(self.members, self.n), f"  {self.why}"]
        return "\n".join(lines + [f"  warning: {sentence}" for sentence in self.warnings])

    def _repr_html_(self) -> str:
        title = f"{heading(self.members)}, fitted to {self.n} runs"
        rows = parameter_rows(self.members, self.n)
        notes = [self.why, self.backtest.words(), *self.warnings]
        return html_table(title, ("parameter", "value", "95 % interval"), rows, notes)

    def _spread(
        self, logs: dict[str, ndarray], share: Float[ndarray, " k"] | float = 1.0
    ) -> tuple[Float[ndarray, " k"], Float[ndarray, " k"], Float[ndarray, " k"]]:
        """The law's log loss, and its variance below and above.

        It is the sum of two variances: that of the draws, from their outer quantiles on either
        side (a `share` of it), and that between the members (model uncertainty).
        """
        each = np.stack([m.value(logs) for m in self.members])
        weight = np.array([m.weight for m in self.members])[:, None]
        mid = (weight * each).sum(0)
        between = BETWEEN_FORMS * (weight * (each - mid) ** 2).sum(0)
        if not len(self.members[0].draws):
            return mid, between, between
        low, high = np.quantile(self.curves(logs)[1:], [0.025, 0.975], axis=0)
        below, above = np.maximum(mid - low, 0) / 1.96, np.maximum(high - mid, 0) / 1.96
        # The bias of the bootstrap is ignored: each side is at least half the mean width.
        least = (high - low) / (4 * 1.96)
        return (
            mid,
            share * np.maximum(below, least) ** 2 + between,
            share * np.maximum(above, least) ** 2 + between,
        )

    def points(self, at: dict[str, Values]) -> tuple[dict[str, ndarray], tuple[int, ...]]:
        """Logs of the law's variables at some points, and the shape of the result."""
        given: dict[str, ndarray] = {}
        for name, value in at.items():
            require(
                name in ("N", "D", "C", *self.variables),
                "law",
                f"be evaluated at {', '.join(dict.fromkeys((*self.variables, 'N', 'D', 'C')))}",
                name,
            )
            array = np.asarray(value, dtype=float)
            require(
                bool(np.all(array > 0)) and bool(np.all(np.isfinite(array))),
                f"law.{name}",
                "be positive and finite",
                value,
            )
            given[name] = np.log(array)
        arrays = np.broadcast_arrays(*given.values()) if given else []
        given = dict(zip(given, arrays, strict=True))
        shape = arrays[0].shape if given else ()
        given = {name: array.reshape(-1) for name, array in given.items()}
        if self.needs_allocation(given):
            given["N"] = best_size(self, given["C"])
        logs = {name: self.coordinate(name, given) for name in self.variables}
        if "C" not in logs and {"N", "D"} <= set(logs):
            logs["C"] = self.cost.compute(logs["N"], logs["D"])
        return logs, shape

    def needs_allocation(self, at: Mapping[str, Any]) -> bool:
        """Whether only compute is given and the law needs its allocation to size and data."""
        return set(at) == {"C"} and {"N", "D"} <= set(self.variables) and self.path is None

    def coordinate(self, name: str, given: dict[str, ndarray]) -> ndarray:
        """Log of a variable from the given logs of N, D and C."""
        if name in given:
            return given[name]
        if name == "C" and {"N", "D"} <= set(given):
            return self.cost.compute(given["N"], given["D"])
        if name == "D" and {"N", "C"} <= set(given):
            return self.cost.data(given["C"], given["N"])
        if name == "N" and {"D", "C"} <= set(given):
            return self.cost.size(given["C"], given["D"])
        if name == "D_unique":
            return self.coordinate("D", given)  # by default no data are repeated
        if self.path is not None and len(given) == 1:
            other, value = next(iter(given.items()))
            if other != "C" and abs(self.path.of[other][1]) < 1e-6:
                raise InputError(
                    f"law must be given {name}; got {other} alone, which was the same in all runs."
                )
            c = value if other == "C" else self.path.compute(other, value)
            return c if name == "C" else self.path.at(name, c)
        needs = " and ".join(self.variables)
        raise InputError(
            f"law must be given {needs} (or two of N, D, C); got {', '.join(given) or 'none'}."
        )
