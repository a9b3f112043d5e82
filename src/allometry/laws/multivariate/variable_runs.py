"""The runs of a law in any variables: columns checked, roles found, unusable rows reported.

Letters: n runs, v variables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from allometry._core.errors import InputError, require
from allometry._core.number_parsing import LARGEST_NUMBER
from allometry._core.user_files import shorten
from allometry.laws.multivariate.expression_forms import Link
from allometry.laws.multivariate.law_expressions import FUNCTIONS, parse
from allometry.laws.multivariate.roles import Variable, described, guess, symbols
from allometry.laws.multivariate.tapes import compiled

RANGE = 4.0
"""Standard deviations of a response of either sign per unit of the link. Losses have a standard
deviation of the log of about a quarter, for which thresholds and priors are set."""


SEPARATOR = "\x1f"
"""Stands between the labels of a group that several columns make."""


@final
@dataclass(frozen=True)
class Table:
    """Usable runs.

    Args:
        variables: The numeric variables with roles.
        X: Their values, one row per variable.
        y: The response.
        link: The scale of the residuals.
        cost: The cost of each run, or None.
        group: Index of each run's group.
        groups: Labels of the groups; one empty label if there are none.
        by: Columns of the groups.
        notes: Sentences on what was left out.
        response: The column of the response.
        rising: Whether the response grows with scale, as an accuracy does.
    """

    variables: tuple[Variable, ...]
    X: Float[ndarray, "v n"]
    y: Float[ndarray, " n"]
    link: Link
    cost: Float[ndarray, " n"] | None
    group: Int[ndarray, "..."]
    groups: tuple[str, ...]
    by: tuple[str, ...]
    notes: tuple[str, ...]
    response: str = "loss"
    rising: bool = False

    @property
    def n(self) -> int:
        """Number of runs."""
        return len(self.y)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numeric variables."""
        return tuple(v.name for v in self.variables)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the numeric variables in expressions."""
        return tuple(v.symbol for v in self.variables)

    def places(self, variables: Sequence[str]) -> tuple[int, ...]:
        """Rows of `X` of a form's variables, by symbol or name."""
        symbols, names = self.symbols, self.names
        return tuple(symbols.index(v) if v in symbols else names.index(v) for v in variables)

    @property
    def z(self) -> Float[ndarray, " n"]:
        """The response on the scale of the link."""
        return self.link(self.y)

    def coordinates(self) -> Float[ndarray, "v n"]:
        """The coordinates of the runs, in which powers are straight lines."""
        return coordinates(self.variables, self.X)


def coordinates(variables: Sequence[Variable], X: ndarray) -> Float[ndarray, "v n"]:
    """Coordinates of some points in units of the variables' spread over the runs."""
    rows = [v.coordinate(x) / (v.spread or 1.0) for v, x in zip(variables, X, strict=True)]
    return np.stack(rows) if rows else np.empty((0, X.shape[-1]))


def column_names(data: Any) -> list[str]:
    """Names of a frame's or mapping's columns."""
    return [str(name) for name in (data.keys() if hasattr(data, "keys") else data)]


def numeric(data: Any, name: str, what: str) -> Float[ndarray, " n"]:
    """A column as numbers; a cell that is none is refused."""
    require(
        name in column_names(data),
        what,
        "name a column of the data",
        name,
        f"Columns: {shorten(', '.join(column_names(data)), 200)}.",
    )
    try:
        return np.array(data[name], dtype=float).reshape(-1)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{what} must hold numbers; got {shorten(str(error), 60)!r} in the column {name!r}. "
            "Give it the role 'group' if it holds labels."
        ) from None


def is_label(column: Any) -> bool:
    """Whether a column holds labels and no numbers."""
    values = list(np.asarray(column).reshape(-1)[:50])
    return any(isinstance(v, str) and not _numeric(v) for v in values)


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return not text.strip()
    return True


def costs(data: Any, cost: str | Sequence[float] | None) -> Float[ndarray, " n"] | None:
    """The cost of each row: a column, an expression of columns such as `6*N*D`, or numbers."""
    if cost is None:
        return None
    if not isinstance(cost, str):
        return np.array(cost, dtype=float).reshape(-1)
    if cost in column_names(data):
        return numeric(data, cost, "cost")
    tape = compiled(parse(cost))
    at = {name: numeric(data, name, f"The cost {cost!r}") for name in tape.names}
    require(bool(at), "cost", "name a column or an expression of columns", cost)
    with np.errstate(all="ignore"):
        return np.asarray(tape.values(at)[-1], float).reshape(-1)


def read(
    data: Any,
    variables: Sequence[str],
    response: str,
    cost: str | Sequence[float] | None = None,
    roles: Mapping[str, str] | None = None,
    *,
    constant: bool = False,
) -> Table:
    """The usable runs of a frame or mapping of columns.

    Args:
        data: Columns, such as a data frame.
        variables: Columns that the law depends on.
        response: The column to predict.
        cost: A column, an expression of columns, or numbers; orders the runs in backtests.
        roles: Roles of some variables; others are guessed.
        constant: Whether variables that take a single value stay in the table.
    """
    said = dict(roles or {})
    variables = list(dict.fromkeys(variables))
    require(bool(variables), "fit.variables", "name at least one column", variables)
    require(response not in variables, "fit.variables", "not name the response", response)
    names = column_names(data)
    for name in (*variables, *said):
        require(
            name in names,
            "fit.variables",
            "name columns of the data",
            name,
            f"Columns: {shorten(', '.join(names), 200)}.",
        )
    y = numeric(data, response, "fit.response")
    by = [v for v in variables if said.get(v) == "group" or (v not in said and is_label(data[v]))]
    plain = [v for v in variables if v not in by]
    columns = {v: numeric(data, v, f"The variable {v!r}") for v in plain}
    paid = costs(data, cost)
    for name, column in (*columns.items(), ("cost", y if paid is None else paid)):
        require(len(column) == len(y), name, f"have {len(y)} rows like {response}", len(column))
    notes: list[str] = []
    keep = np.ones(len(y), bool)
    for name, column in ((response, y), *columns.items()):
        bad = ~(np.abs(column) <= LARGEST_NUMBER)
        if (bad & keep).any():
            rows = ", ".join(map(str, np.flatnonzero(bad & keep)[:5]))
            notes.append(
                f"{int((bad & keep).sum())} runs have a {name} that is missing or infinite and "
                f"were left out (rows {rows})."
            )
        keep &= ~bad
    require(bool(keep.any()), "data", "have a run with finite columns", "none")
    y, columns = y[keep], {k: v[keep] for k, v in columns.items()}
    labels = None
    if by:
        columns_of = [np.asarray(data[b], dtype=object).reshape(-1) for b in by]
        labels = [SEPARATOR.join(str(c[i]) for c in columns_of) for i in np.flatnonzero(keep)]
    fixed = [v for v in columns if float(np.ptp(columns[v])) == 0]
    for name in fixed:
        end = "its effect is not identified" if constant else "it has no part in the law"
        notes.append(f"{name} takes a single value in these runs: {end}.")
    found = guess(columns, said)
    left = () if constant else fixed
    used = [(k, role) for k, role in found.items() if role != "group" and k not in left]
    safe = symbols([k for k, _ in used], FUNCTIONS)
    kept = tuple(
        described(k, role, columns[k], symbol)
        for (k, role), symbol in zip(used, safe, strict=True)
    )
    groups, group = (("",), np.zeros(len(y), int))
    if labels is not None:
        unique, group = np.unique(np.array(labels, dtype=str), return_inverse=True)
        groups, group = tuple(map(str, unique)), group.reshape(-1)
    X = np.stack([columns[v.name] for v in kept]) if kept else np.empty((0, len(y)))
    up = rises(kept, X, y)
    return Table(
        kept,
        X,
        y,
        link_of(y, up),
        None if paid is None else paid[keep],
        group,
        groups,
        tuple(by),
        tuple(notes),
        response,
        up,
    )


def rises(variables: Sequence[Variable], X: ndarray, y: Float[ndarray, " n"]) -> bool:
    """Whether the response grows along the scale variables, by a linear regression."""
    scale = [i for i, v in enumerate(variables) if v.role in ("scale", "bits")]
    if not scale or len(y) < 4 or not float(np.ptp(y)):
        return False
    Z = coordinates(variables, X)
    rows = np.concatenate([np.ones((1, len(y))), Z])
    slopes = np.linalg.solve(
        rows @ rows.T + 1e-3 * len(y) * np.eye(len(rows)), rows @ (y - y.mean())
    )[1:]
    return bool(slopes[scale].sum() > 0)


def link_of(y: Float[ndarray, " n"], rising: bool = False) -> Link:
    """Logs for a positive response that falls; else the response in units of its spread."""
    if y.min() > 0 and not rising:
        return Link(True, float(np.median(y)))
    return Link(False, RANGE * float(y.std()) or 1.0)
