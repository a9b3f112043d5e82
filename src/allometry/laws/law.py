"""A fitted law: a frozen value that predicts with intervals, plans and answers inverse questions.

Letters: m draws, p parameters, n runs, v variables, k points asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, final, overload

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate
from allometry.laws.backtests import Backtest, Fold, distance
from allometry.laws.component import Component
from allometry.laws.compute_cost import ComputeCost, Path
from allometry.laws.forms import Form
from allometry.laws.intervals import BETWEEN, ExtrapolationError, half_width, unseen
from allometry.laws.objective import PLAIN, Objective
from allometry.laws.runs_table import RunsTable

if TYPE_CHECKING:
    from allometry.laws.allocation import Allocation

Values = float | int | list[Any] | tuple[Any, ...] | ndarray
"""What may be asked for: one number or many."""


@final
@dataclass(frozen=True)
class Starts:
    """How many starts were tried and how many of them reached the optimum."""

    tried: int
    agree: int

    def to_dict(self) -> dict[str, int]:
        """`{"tried", "agree"}`."""
        return {"tried": self.tried, "agree": self.agree}


@final
@dataclass(frozen=True)
class Law:
    """A fitted relation of loss to size, data and compute, with its uncertainty.

    Call it for point values: `law(N=1e9, D=2e10)`. See `predict` for intervals.

    Args:
        form: Name of the form.
        params: Each parameter under its paper's letter, with standard error and 95 % interval.
        n: Runs fitted.
        objective: Sum of the loss function at the optimum.
        starts: Starts tried and how many agree.
        backtest: What rolling-origin backtests say about extrapolation.
        warnings: Sentences on what the data can't tell.
        why: Why this form.
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
    drift: ExtrapolationError = field(repr=False)
    table: RunsTable = field(repr=False)
    cost: ComputeCost = field(repr=False)
    path: Path | None = field(repr=False)
    aim: Objective = field(default=PLAIN, repr=False)

    @property
    def shape(self) -> Form:
        """The form with the largest weight."""
        return self.members[0].form

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that some member of the law needs."""
        return tuple(dict.fromkeys(v for m in self.members for v in m.form.variables))

    @property
    def noise(self) -> float:
        """Standard deviation of a run's log loss around the form that leaves least of it."""
        return min(m.noise for m in self.members)

    @property
    def dof(self) -> int:
        """Degrees of freedom behind the noise."""
        return min(self.members, key=lambda m: m.noise).dof

    @cached_property
    def split(self) -> "Allocation":
        """What the best split of a budget into size and data is read from."""
        from allometry.laws.allocation import split_of

        return split_of(self)

    def curves(self, logs: dict[str, ndarray]) -> Float[ndarray, "m k"]:
        """Log loss of the law (first row) and of each bootstrap draw at points given as logs."""
        total = self.members[0].weight * self.members[0].curves(logs)
        for member in self.members[1:]:
            total = total + member.weight * member.curves(logs)
        return total

    def __call__(self, **at: Values) -> Float[ndarray, "..."]:
        """The law's value at the sizes, data or compute given (two of them, or the path's one).

        Compute alone, of a law in size and data whose runs lie on no path, is taken to be split
        as the law finds best: the value is that of the compute-optimal frontier.

        Args:
            **at: `N`, `D` and `C`, and what else the form takes (`D_unique`, `S`).
        """
        logs, shape = self.points(at)
        total = np.zeros(len(next(iter(logs.values()))))
        for m in self.members:
            total += m.weight * m.form.value(m.theta[None], m.at(logs))[0]
        return np.exp(total).reshape(shape)

    def band(
        self, *, level: float = 0.95, **at: Values
    ) -> tuple[Float[ndarray, "..."], Float[ndarray, "..."], Float[ndarray, "..."]]:
        """Lower end, value and upper end of the prediction interval, as arrays for charts."""
        return self._band(at, level)

    def _band(
        self, at: dict[str, Values], level: float
    ) -> tuple[Float[ndarray, "..."], Float[ndarray, "..."], Float[ndarray, "..."]]:
        logs, shape = self.points(at)
        with np.errstate(over="ignore"):  # draws that may go anywhere have no upper end
            lo, mid, hi = np.exp(self.log_band(logs, level))
        return lo.reshape(shape), mid.reshape(shape), hi.reshape(shape)

    def log_band(self, logs: dict[str, ndarray], level: float = 0.95) -> Float[ndarray, "3 k"]:
        """Logs of lower end, value and upper end at points given as logs of the variables."""
        far = np.stack([distance(m.form, logs, self.table.logs) for m in self.members]).max(0)
        mid, below, above = self._spread(logs)
        few = unseen(far, self.table.configurations, len(self.variables))
        below, above = below + few, above + few
        lo = mid - half_width(below, self.noise, self.dof, far, self.drift, level)
        hi = mid + half_width(above, self.noise, self.dof, far, self.drift, level)
        return np.stack([lo, mid, hi])

    @overload
    def predict(self, **at: float) -> Estimate: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def predict(self, **at: Values) -> ndarray: ...
    def predict(self, **at: Values) -> "ndarray | Estimate":
        """95 % prediction intervals for the loss of new runs.

        An `Estimate` where all that is given are numbers, an array of them for arrays.

        The interval holds what one more run would give: the parameters' uncertainty, the noise
        from run to run, and what the form gets wrong further out, as its backtests show.

        Args:
            **at: `N`, `D` and `C`, and what else the form takes, each a number or an array.
        """
        lo, mid, hi = self._band(at, 0.95)
        best = ", at the compute-optimal split" if self.splits(at) else ""
        out = np.empty(mid.shape, dtype=object)
        for i in np.ndindex(mid.shape):
            out[i] = Estimate(
                float(mid[i]),
                lo=float(lo[i]),
                hi=float(hi[i]),
                n=self.n,
                method=f"bootstrap, noise and backtested drift{best}",
            )
        return out if out.shape else out.item()

    def solve(self, loss: float, variable: str = "C", **fixed: float) -> Estimate:
        """Where the law reaches `loss`: the N, D or C needed, the others held at `fixed`.

        The interval holds every place where the 95 % band of `predict` holds `loss`; `hi` is
        infinite where the band's upper end never comes down to it. `.method` has the share of
        draws that never do.
        """
        from allometry.laws.inverse import reach

        return reach(self, loss, variable, fixed)

    def plan(self, compute: float, **options: Any) -> Any:
        """What to do with a budget: see `allometry.laws.plan.plan`."""
        from allometry.laws.plan import plan

        return plan(self, compute, **options)

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
        }

    def __str__(self) -> str:
        lines = [f"{self.form}: {self.shape.equation}  (n = {self.n})"]
        lines += [f"  {name} = {value}" for name, value in self.params.items()]
        lines.append(f"  {self.why}")
        lines += [f"  warning: {sentence}" for sentence in self.warnings]
        return "\n".join(lines)

    def _spread(
        self, logs: dict[str, ndarray]
    ) -> tuple[Float[ndarray, " k"], Float[ndarray, " k"], Float[ndarray, " k"]]:
        """The law's log loss, and its variance below and above.

        The variance is that of the draws, from their outer quantiles so that it may be lopsided,
        and that between the members, which is how much the choice of form matters there.
        """
        each = np.stack([m.form.value(m.theta[None], m.at(logs))[0] for m in self.members])
        weight = np.array([m.weight for m in self.members])[:, None]
        mid = (weight * each).sum(0)
        between = BETWEEN * (weight * (each - mid) ** 2).sum(0)
        if not len(self.members[0].draws):
            return mid, between, between
        low, high = np.quantile(self.curves(logs)[1:], [0.025, 0.975], axis=0)
        below, above = np.maximum(mid - low, 0) / 1.96, np.maximum(high - mid, 0) / 1.96
        # The bootstrap's bias is not believed: neither side may be less than half the mean width.
        least = (high - low) / (4 * 1.96)
        return (
            mid,
            np.maximum(below, least) ** 2 + between,
            np.maximum(above, least) ** 2 + between,
        )

    def points(self, at: dict[str, Values]) -> tuple[dict[str, ndarray], tuple[int, ...]]:
        """Logs of the law's variables at the points asked for, and the shape of the answer."""
        given: dict[str, ndarray] = {}
        for name, value in at.items():
            require(
                name in ("N", "D", "C", *self.variables),
                "law",
                f"be asked at {', '.join(dict.fromkeys((*self.variables, 'N', 'D', 'C')))}",
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
        if self.splits(given):
            from allometry.laws.inverse import best_size

            given["N"] = best_size(self, given["C"])
        logs = {name: self.coordinate(name, given) for name in self.variables}
        if "C" not in logs and {"N", "D"} <= set(logs):
            logs["C"] = self.cost.compute(logs["N"], logs["D"])
        return logs, shape

    def splits(self, at: Mapping[str, Any]) -> bool:
        """Whether compute alone is given where the law needs to know how it is split."""
        return set(at) == {"C"} and {"N", "D"} <= set(self.variables) and self.path is None

    def coordinate(self, name: str, given: dict[str, ndarray]) -> ndarray:
        """Log of a variable from whichever of N, D and C (as logs) are given."""
        if name in given:
            return given[name]
        if name == "C" and {"N", "D"} <= set(given):
            return self.cost.compute(given["N"], given["D"])
        if name == "D" and {"N", "C"} <= set(given):
            return self.cost.data(given["C"], given["N"])
        if name == "N" and {"D", "C"} <= set(given):
            return self.cost.size(given["C"], given["D"])
        if name == "D_unique":
            return self.coordinate("D", given)  # nothing repeated unless said
        if self.path is not None and len(given) == 1:
            other, value = next(iter(given.items()))
            if other != "C" and abs(self.path.of[other][1]) < 1e-6:
                raise InputError(
                    f"law must be given {name}; {other} alone says nothing, as it was the same "
                    "in all runs."
                )
            c = value if other == "C" else self.path.compute(other, value)
            return c if name == "C" else self.path.at(name, c)
        needs = " and ".join(self.variables)
        raise InputError(
            f"law must be given {needs} (or two of N, D, C); got {', '.join(given) or 'none'}."
        )
