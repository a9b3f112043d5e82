"""The rows of a pool, of the finished runs and of the targets, in one table.

Letters: n runs, k candidates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from allometry._core.errors import require
from allometry._core.number_parsing import LARGEST_NUMBER
from allometry.laws.multivariate.expression_forms import Link
from allometry.laws.multivariate.variable_runs import (
    Table,
    column_names,
    is_label,
    link_of,
    numeric,
    read,
    rises,
)


def usable(data: Any, variables: Sequence[str], what: str) -> Bool[ndarray, " n"]:
    """Rows whose variables are labels or finite numbers."""
    for name in variables:
        require(
            name in column_names(data),
            f"choose_runs.{what}",
            f"have the column {name!r}",
            column_names(data),
        )
    fine = np.ones(_length(data, variables[0]), bool)
    for name in variables:
        column = np.asarray(data[name], dtype=object).reshape(-1)
        require(
            len(column) == len(fine),
            f"choose_runs.{what}.{name}",
            f"have {len(fine)} rows",
            len(column),
        )
        if not is_label(data[name]):
            fine &= np.abs(numeric(data, name, f"choose_runs.{what}.{name}")) <= LARGEST_NUMBER
    return fine


def finished(data: Any, variables: Sequence[str], response: str) -> Bool[ndarray, " n"]:
    """Rows of the observed runs that are finite; failed runs have no response and are left out."""
    if data is None or not column_names(data) or not _length(data, variables[0]):
        return np.zeros(0, bool)
    fine = usable(data, variables, "observed")
    y = numeric(data, response, "choose_runs.observed")
    require(len(y) == len(fine), "choose_runs.observed", f"have {len(fine)} responses", len(y))
    return fine & (np.abs(y) <= LARGEST_NUMBER)


@final
@dataclass(frozen=True)
class PoolProblem:
    """All points in one table: observed runs, then candidates, then targets."""

    table: Table
    n: int
    k: int

    @property
    def candidates(self) -> slice:
        """Columns of the candidates."""
        return slice(self.n, self.n + self.k)

    @property
    def targets(self) -> slice:
        """Columns of the targets."""
        return slice(self.n + self.k, None)


def _length(data: Any, name: str) -> int:
    if data is None or name not in column_names(data):
        return 0
    return len(np.asarray(data[name]).reshape(-1))


def assemble(
    observed: tuple[Any, ndarray],
    pool: tuple[Any, ndarray],
    target: tuple[Any, ndarray],
    variables: list[str],
    response: str,
    roles: Mapping[str, str] | None,
) -> PoolProblem:
    """The rows of the three frames that are usable, one below the other."""
    parts = [(data, rows) for data, rows in (observed, pool, target) if rows.any()]
    columns = {
        name: np.concatenate(
            [np.asarray(data[name], dtype=object).reshape(-1)[rows] for data, rows in parts]
        )
        for name in variables
    }
    n, k, t = (int(rows.sum()) for _, rows in (observed, pool, target))
    y = numeric(observed[0], response, "choose_runs.observed")[observed[1]] if n else np.zeros(0)
    # Candidates and targets have no response yet; a stand-in keeps their rows.
    filler = float(np.median(y)) if n else 1.0
    stand_in = "_response"
    while stand_in in variables:
        stand_in += "_"
    columns[stand_in] = np.concatenate([y, np.full(k + t, filler)])
    table = read(columns, variables, stand_in, None, roles)
    link, up = Link(True, abs(filler) or 1.0), False
    if n >= 2 and float(np.ptp(y)) > 0:
        up = rises(table.variables, table.X[:, :n], y)
        link = link_of(y, up)
    return PoolProblem(replace(table, link=link, rising=up), n, k)
