"""A fitted law in any variables: predictions with intervals, effects and optima.

Letters: n runs, v variables, k points asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from allometry._core.errors import InputError, require
from allometry._core.estimate import Estimate
from allometry._core.notebook import chart, html_table, interval
from allometry.laws.multivariate.backtests import BETWEEN, Errors, distance, half_width, untested
from allometry.laws.multivariate.groups import Fitted
from allometry.laws.multivariate.processes import Process
from allometry.laws.multivariate.roles import Variable
from allometry.laws.multivariate.variable_runs import SEPARATOR, Table

if TYPE_CHECKING:
    from allometry.laws.multivariate.optimum import Optimum

Predictor = Fitted | Process

WIDEST = 10.0
"""Largest half-width of an interval on the scale of the link; exp of more would overflow."""


@final
@dataclass(frozen=True)
class VariableLaw:
    """A fitted law of a response in any variables, with its uncertainty.

    Call it for point values: `law(params=1e9, experts=64)`. See `band` for intervals.

    Args:
        form: Name of the form with the largest weight.
        equation: Its equation.
        params: Its parameters with standard errors and 95 % intervals.
        n: Number of runs.
        backtest: Mean error, coverage and number of backtests.
        warnings: Sentences on what the runs do not identify.
        why: Why these forms were chosen.
        members: The fitted candidates with weights, largest first.
        tau: Posterior weights of the extrapolation error.
        errors: Errors of the law in the backtests.
        table: The runs.
        cost: The expression or column of the cost, if one was given.
        narrowing: Factor of the half-width of intervals, by the backtests: above 1 where they
            find it too narrow.
    """

    form: str
    equation: str
    params: dict[str, Estimate]
    n: int
    backtest: dict[str, float | int | None]
    warnings: list[str]
    why: str
    members: tuple[Predictor, ...] = field(repr=False)
    tau: Float[ndarray, " t"] = field(repr=False)
    errors: tuple[Errors, ...] = field(repr=False)
    table: Table = field(repr=False)
    cost: str | None = None
    narrowing: float = 1.0

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables: numeric ones first, then columns of groups."""
        return (*self.table.names, *self.table.by)

    @property
    def roles(self) -> dict[str, str]:
        """The role of each variable."""
        numeric = {v.name: v.role for v in self.table.variables}
        return numeric | dict.fromkeys(self.table.by, "group")

    @property
    def noise(self) -> float:
        """Standard deviation of a run on the scale of the link."""
        return sum(m.weight * m.noise for m in self.members)

    def __call__(self, **at: Any) -> Float[ndarray, "..."]:
        """The predicted response at some values of the variables."""
        X, group, shape = self.points(at)
        return self.table.link.inverse(self._values(X, group)[0]).reshape(shape)

    def band(
        self, *, level: float = 0.95, **at: Any
    ) -> tuple[Float[ndarray, "..."], Float[ndarray, "..."], Float[ndarray, "..."]]:
        """Lower end, value and upper end of the prediction interval of a new run, as arrays.

        It includes parameter and model uncertainty, noise between runs and the extrapolation
        error of the backtests.

        Args:
            level: Nominal coverage.
            **at: Values of the variables, each a number or an array; labels for groups.
        """
        require(0 < level < 1, "band.level", "be between 0 and 1", level)
        X, group, shape = self.points(at)
        middle, variance = self._values(X, group)
        variance = variance + untested(self.table.variables, X, self.table.X)
        half = half_width(variance, self.noise, self._dof, self._far(X), self.tau, level)
        half = np.minimum(self.narrowing * half, WIDEST)
        ends = (middle - half, middle, middle + half)
        lo, mid, hi = (self.table.link.inverse(f).reshape(shape) for f in ends)
        return lo, mid, hi

    def predict(self, **at: Any) -> "ndarray | Estimate":
        """95 % prediction intervals: one `Estimate`, or an array of them for arrays."""
        lo, mid, hi = self.band(**at)
        method = "linearised parameters, forms, noise and backtested extrapolation error"
        out = np.empty(mid.shape, dtype=object)
        for i in np.ndindex(mid.shape):
            out[i] = Estimate(
                float(mid[i]), lo=float(lo[i]), hi=float(hi[i]), n=self.n, method=method
            )
        return out if out.shape else out.item()

    def effects(self, count: int = 40, **at: Any) -> dict[str, dict[str, ndarray]]:
        """Partial effects: the band along each variable, the others as given or at the centre.

        Args:
            count: Points along each variable.
            **at: Values of the variables that are not varied.

        Returns:
            For each numeric variable the arrays `x`, `lower`, `value` and `upper`.
        """
        centre: dict[str, Any] = {v.name: self._centre(v.name) for v in self.table.variables}
        centre |= self.first_labels() | at
        out = {}
        for v, x in zip(self.table.variables, self.table.X, strict=True):
            if v.role == "share":
                continue
            grid = np.linspace(x.min(), x.max(), count)
            if v.kind == "log":
                grid = np.exp(np.linspace(np.log(x.min()), np.log(x.max()), count))
            lower, value, upper = self.band(**(centre | {v.name: grid}))
            out[v.name] = {"x": grid, "lower": lower, "value": value, "upper": upper}
        return out

    def optimum(
        self,
        over: Sequence[str],
        *,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        budget: float | None = None,
        maximise: bool = False,
        seed: int = 0,
        **fixed: Any,
    ) -> "Optimum":
        """The best values of some variables, with intervals; see `optimum.optimum`."""
        from allometry.laws.multivariate.optimum import optimum

        return optimum(
            self, over, fixed, bounds=bounds or {}, budget=budget, maximise=maximise, seed=seed
        )

    def save(self, path: Path | str) -> Path:
        """Write the law to a JSON file for `laws.load` and return its path."""
        from allometry.laws.law_files import save

        return save(self, path)

    def to_dict(self) -> dict[str, Any]:
        """The law as plain values, ready for JSON."""
        return {
            "form": self.form,
            "equation": self.equation,
            "n": self.n,
            "response": self.table.response,
            "variables": self.roles,
            "cost": self.cost,
            "params": {name: e.to_dict() for name, e in self.params.items()},
            "backtest": dict(self.backtest),
            "warnings": list(self.warnings),
            "why": self.why,
            "members": {_name(m): m.weight for m in self.members},
        }

    def __str__(self) -> str:
        lines = [f"{self.form}: {self.table.response} = {self.equation}  (n = {self.n})"]
        lines += [f"  {name} = {value}" for name, value in self.params.items()]
        lines.append(f"  {self.why}")
        lines += [f"  warning: {sentence}" for sentence in self.warnings]
        return "\n".join(lines)

    def plot(self, kind: str = "effects") -> Any:
        """An Altair chart (extra `plot`).

        Args:
            kind: `effects`, the response along each variable, or `fit`, measured against fitted.
        """
        return chart(self, kind)

    def _repr_html_(self) -> str:
        rows = [(name, *interval(value)) for name, value in self.params.items()]
        title = f"{self.form}: {self.table.response} = {self.equation}, fitted to {self.n} runs"
        notes = [self.why, *self.warnings]
        return html_table(title, ("parameter", "value", "95 % interval"), rows, notes)

    @property
    def _dof(self) -> int:
        return max(self.members, key=lambda m: m.weight).dof

    def _far(self, X: Float[ndarray, "v k"]) -> Float[ndarray, " k"]:
        return distance(self.table.variables, X, self.table.X)

    def _values(
        self, X: Float[ndarray, "v k"], group: Int[ndarray, "..."]
    ) -> tuple[Float[ndarray, " k"], Float[ndarray, " k"]]:
        """Mean over the members, and the variance of parameters and between forms."""
        w = np.array([m.weight for m in self.members])[:, None]
        each = np.stack([m.value(X, group) for m in self.members])
        inside = np.stack([m.variance(X, group) for m in self.members])
        mean = (w * each).sum(0)
        return mean, (w * inside).sum(0) + BETWEEN * (w * (each - mean) ** 2).sum(0)

    def points(
        self, at: Mapping[str, Any]
    ) -> tuple[Float[ndarray, "v k"], Int[ndarray, "..."], tuple[int, ...]]:
        """Points as columns, their groups, and the shape of the result.

        Args:
            at: A value or array of each variable; other columns are ignored.
        """
        missing = [name for name in self.variables if name not in at]
        if missing:
            raise InputError(
                f"law must be given {', '.join(self.variables)}; got no {', '.join(missing)}."
            )
        arrays = [
            _nudged(np.asarray(at[v.name], dtype=float), v, x)
            for v, x in zip(self.table.variables, self.table.X, strict=True)
        ]
        labels = [np.asarray(at[name], dtype=object) for name in self.table.by]
        whole = np.broadcast_arrays(*arrays, *labels)
        shape = whole[0].shape if whole else ()
        for v, array in zip(self.table.variables, arrays, strict=True):
            fine = np.isfinite(array)
            if v.kind == "log":
                fine &= array > 0
            if v.kind == "offset":
                fine &= array > -v.scale
            if v.kind == "complement":
                fine &= array < 1
            words = {"log": "positive and finite", "complement": "below 1", "offset": "0 or more"}
            wanted = words.get(v.kind, "finite")
            require(bool(np.all(fine)), f"law.{v.name}", f"be {wanted}", at[v.name])
        rows = [np.asarray(a, float).reshape(-1) for a in whole[: len(arrays)]]
        X = np.stack(rows) if rows else np.empty((0, int(np.prod(shape))))
        group = np.zeros(X.shape[1], int)
        if self.table.by:
            known = {label: i for i, label in enumerate(self.table.groups)}
            columns = [a.reshape(-1) for a in whole[len(arrays) :]]
            group = np.array(
                [
                    known.get(SEPARATOR.join(str(c[i]) for c in columns), -1)
                    for i in range(X.shape[1])
                ],
                dtype=int,
            )
        return X, group, shape

    def _centre(self, name: str) -> float:
        i = self.table.names.index(name)
        x = self.table.X[i]
        log = self.table.variables[i].kind == "log"
        return float(np.exp(np.log(x).mean()) if log else x.mean())

    def first_labels(self) -> dict[str, str]:
        """Labels of the group with most runs."""
        if not self.table.by:
            return {}
        most = int(np.bincount(self.table.group).argmax())
        return dict(zip(self.table.by, self.table.groups[most].split(SEPARATOR), strict=False))


def _nudged(a: ndarray, v: Variable, x: Float[ndarray, " n"]) -> Float[ndarray, "..."]:
    """Values with a small positive number for 0 where the law has logs of the variable."""
    return np.where(a == 0, 1e-3 * x.min(), a) if v.kind == "log" else a


def _name(member: Predictor) -> str:
    return member.name if isinstance(member, Process) else member.form.name
