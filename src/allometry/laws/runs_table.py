"""The runs of a fit: columns checked, missing ones derived, unusable rows reported.

Letters: n runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from allometry._core.errors import InputError, require
from allometry._core.number_parsing import LARGEST_NUMBER, SMALLEST_NUMBER

VARIABLES = ("N", "D", "C")
_FAILED = {
    *("failed", "fail", "failure", "diverged", "error", "crashed", "crash", "killed", "running"),
    *("aborted", "cancelled", "canceled", "interrupted", "preempted", "timeout", "oom"),
    *("pending", "queued", "waiting", "scheduled", "unfinished"),
}
_FINISHED = {
    *("done", "finished", "finish", "complete", "completed", "success", "succeeded", "successful"),
    *("ok", "okay", "ended", "converged", "true", "yes", "1", "", "nan", "none"),
}


@final
@dataclass(frozen=True)
class RunsTable:
    """Usable runs: positive, finite, one row per run.

    `logs` holds the log of each known variable; `y` the log of the loss; `cluster` the index of
    the configuration, shared by its seeds.
    """

    logs: dict[str, Float[ndarray, " n"]]
    y: Float[ndarray, " n"]
    se: Float[ndarray, " n"] | None
    cluster: Int[ndarray, " n"]
    given: frozenset[str]
    notes: tuple[str, ...]

    @property
    def n(self) -> int:
        """Number of runs."""
        return len(self.y)

    @property
    def configurations(self) -> int:
        """Number of configurations; seeds of one configuration count once."""
        return int(self.cluster.max()) + 1

    def varies(self, name: str) -> bool:
        """Whether a variable is known and takes more than one value."""
        return name in self.logs and float(np.ptp(self.logs[name])) > 1e-9

    def order(self) -> Float[ndarray, " n"]:
        """The variable that orders the runs from small to large: compute if it is known."""
        for name in ("C", "N", "D"):
            if self.varies(name):
                return self.logs[name]
        raise InputError(
            "The runs must differ in N, D or C; got the same in all. "
            "Add runs of at least three sizes."
        )

    def column(self, name: str) -> Float[ndarray, " n"]:
        """The losses or a variable, not as logs."""
        return np.exp(self.y if name == "loss" else self.logs[name])

    def take(self, rows: ndarray) -> "RunsTable":
        """The table of some of the rows."""
        return RunsTable(
            {k: v[rows] for k, v in self.logs.items()},
            self.y[rows],
            None if self.se is None else self.se[rows],
            np.unique(self.cluster[rows], return_inverse=True)[1],
            self.given,
            (),
        )


def read(
    data: Mapping[str, Any] | Any, *, drop_highest: int = 0, extra: tuple[str, ...] = ()
) -> RunsTable:
    """The runs in a mapping of columns or a data frame, with notes on what was left out.

    Args:
        data: Columns `loss` and at least one of `N`, `D`, `C`; optionally `loss_se`, `status` and
            `family`. A column `seed` distinguishes a duplicate row from another run of the same
            size. Other columns are ignored.
        drop_highest: Number of highest losses to leave out.
        extra: Further columns that a form needs.
    """
    wanted = dict.fromkeys((*VARIABLES, *extra))
    present = [name for name in wanted if name in data]
    require(
        "loss" in data,
        "data",
        "have a column 'loss'",
        column_names(data),
        "Rename your column, or pass {'loss': ..., 'N': ...}.",
    )
    require(
        bool(present),
        "data",
        "have at least one of the columns N, D, C",
        column_names(data),
        "Name the parameters N, the tokens or examples D, the FLOPs C.",
    )
    require(drop_highest >= 0, "drop_highest", "be 0 or more", drop_highest)
    notes: list[str] = []
    columns = {name: numbers(data[name], name) for name in ("loss", *present)}
    size = len(columns["loss"])
    for name, column in columns.items():
        require(len(column) == size, name, f"have {size} rows like loss", len(column))
    # An empty column counts as absent.
    present = [name for name in present if np.isfinite(columns[name]).any()]
    require(bool(present), "data", "have numbers in one of N, D, C", "none")
    keep = usable(data, columns, present, notes)
    keep = _drop_duplicates(data, columns, keep, notes)
    if drop_highest:
        rows = np.flatnonzero(keep)
        worst = rows[np.argsort(columns["loss"][rows], kind="stable")[-drop_highest:]]
        keep[worst] = False
        notes.append(f"The {len(worst)} highest losses were left out, as asked.")
    logs = {name: np.log(columns[name][keep]) for name in present}
    y = np.log(columns["loss"][keep])
    se = None
    if "loss_se" in data:
        se = numbers(data["loss_se"], "loss_se")[keep] / np.exp(y)
        se = se if np.isfinite(se).all() and (se > 0).all() else None
    given = frozenset(present)
    if _falling_rate(data, logs, keep):
        notes.append(
            "The learning rate falls with D at a fixed N: these look like checkpoints along a "
            "falling rate, not runs of different length. Their losses are higher than those of "
            "finished runs; use fit_schedule or forecast, or the last checkpoint of each run."
        )
    _derive(logs)
    keys = np.round(np.stack([logs[k] for k in sorted(logs)], 1), 9)
    cluster = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    return RunsTable(logs, y, se, cluster, given, tuple(notes))


def column_names(data: Any) -> list[str]:
    """The names of the columns of a mapping or a data frame."""
    return [str(name) for name in (data.keys() if hasattr(data, "keys") else data)]


def numbers(column: Any, name: str) -> Float[ndarray, " n"]:
    """A column as numbers; an error names it."""
    try:
        return np.array(column, dtype=float).reshape(-1)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name} must hold numbers only; got {str(error)!r}. Remove or convert other values."
        ) from error


def usable(
    data: Any, columns: dict[str, ndarray], present: list[str], notes: list[str]
) -> ndarray:
    """Which rows can be fitted; adds a note for each reason to leave rows out."""
    keep = np.ones(len(columns["loss"]), bool)
    if "status" in data:
        status = np.array([str(s).strip().casefold() for s in data["status"]], dtype=str)
        failed = np.isin(status, sorted(_FAILED))
        _note(notes, failed & keep, "did not finish (by their status)")
        odd = sorted(set(status.tolist()) - _FAILED - _FINISHED)
        if odd:
            notes.append(
                f"The status {', '.join(repr(s[:30]) for s in odd[:4])}"
                f"{', ...' if len(odd) > 4 else ''} is not a known one; such runs count as "
                "finished."
            )
        keep &= ~failed
    for name in ("loss", *present):
        with np.errstate(invalid="ignore"):
            in_range = (columns[name] >= SMALLEST_NUMBER) & (columns[name] <= LARGEST_NUMBER)
        bad = ~in_range
        _note(notes, bad & keep, f"have a {name} that is missing, infinite or not positive")
        keep &= ~bad
    if "family" in data:
        families = sorted({str(f) for f, k in zip(data["family"], keep, strict=True) if k})
        if len(families) > 1:
            notes.append(
                f"Runs of {len(families)} families ({', '.join(families[:4])}"
                f"{', ...' if len(families) > 4 else ''}) are fitted as one law; "
                "fit each family separately to compare them."
            )
    require(bool(keep.any()), "data", "have a run with finite, positive columns", "none")
    return keep


def _drop_duplicates(
    data: Any, columns: dict[str, ndarray], keep: ndarray, notes: list[str]
) -> Bool[ndarray, " n"]:
    """The rows to keep without duplicates of another row.

    A row is a duplicate if size, data, compute, seed, family and loss agree. Other seeds of one
    size are separate runs with other losses. Without a seed column, a loss of fewer than six
    digits is not compared: two runs may round to it.
    """
    known = [[str(v) for v in data[name]] for name in ("seed", "family") if name in data]
    cells = [columns[name].tolist() for name in sorted(columns)]
    rounded = "seed" not in data
    seen: set[tuple[Any, ...]] = set()
    duplicate = np.zeros(len(keep), bool)
    for i in np.flatnonzero(keep):
        loss = float(columns["loss"][i])
        if rounded and float(f"{loss:.5g}") == loss:
            continue
        row = (*(column[i] for column in cells), *(column[i] for column in known))
        duplicate[i] = row in seen
        seen.add(row)
    _note(notes, duplicate, "are duplicates (the same size, data, seed and loss)")
    return keep & ~duplicate


def _note(notes: list[str], rows: ndarray, reason: str) -> None:
    count = int(rows.sum())
    if count:
        where = ", ".join(str(i) for i in np.flatnonzero(rows)[:5])
        more = ", ..." if count > 5 else ""
        one = count == 1
        runs, were, place = ("run", "was", "row") if one else ("runs", "were", "rows")
        reason = reason.replace("have ", "has ").replace("their", "its") if one else reason
        notes.append(f"{count} {runs} {reason} and {were} left out ({place} {where}{more}).")


def _falling_rate(data: Any, logs: dict[str, ndarray], keep: ndarray) -> bool:
    """Whether rows of one size are checkpoints along a falling learning rate."""
    name = next((v for v in ("lr", "learning_rate") if v in data), None)
    if name is None or "D" not in logs:
        return False
    try:
        rate = numbers(data[name], name)
    except InputError:
        return False
    if len(rate) != len(keep):
        return False
    rate, size = rate[keep], logs.get("N", np.zeros(int(keep.sum())))
    falls = []
    for n in np.unique(size):
        rows = np.flatnonzero(size == n)
        later = rate[rows][np.argsort(logs["D"][rows])]
        if len(later) >= 5 and len(np.unique(logs["D"][rows])) == len(rows):
            falls.append(bool((np.diff(later) <= 0).all()) and later[-1] < 0.9 * later[0])
    return bool(falls) and all(falls)


def _derive(logs: dict[str, ndarray]) -> None:
    """Fill in the third of N, D, C from the other two by C = 6 N D."""
    six = np.log(6.0)
    if "N" in logs and "D" in logs and "C" not in logs:
        logs["C"] = six + logs["N"] + logs["D"]
    elif "N" in logs and "C" in logs and "D" not in logs:
        logs["D"] = logs["C"] - six - logs["N"]
    elif "D" in logs and "C" in logs and "N" not in logs:
        logs["N"] = logs["C"] - six - logs["D"]
