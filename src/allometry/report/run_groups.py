"""The runs of a study, grouped into configurations."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast, final, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
from numpy import ndarray

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.runs.folder import Runs

if TYPE_CHECKING:
    import pandas as pd

NEEDED = ("family", "N", "D", "loss")


@runtime_checkable
class RunsLike(Protocol):
    """The part of `allometry.runs.Runs` that the report uses."""

    def frame(self) -> "pd.DataFrame":
        """One row per run."""
        ...

    def curves(self) -> "pd.DataFrame":
        """Validation loss during training: key, step, tokens, flops, loss."""
        ...

    def samples(self) -> dict[str, str]:
        """Generated text by the run's key."""
        ...


@final
@dataclass(frozen=True)
class Configuration:
    """One shape of one family at one budget, its finished runs averaged over seeds.

    The standard error of `loss` combines the spread between seeds with the evaluation error, which
    all seeds share because they are scored on the same data. `spread` is the standard error of
    the mean from seeds alone. It is 0 for an n-gram, which has no seeds, and `None` for one seed.
    """

    family: str
    shape: str
    N: float
    D: float
    C: float
    loss: Estimate
    spread: float | None
    seeds: int
    keys: tuple[str, ...]
    test: Estimate | None = None
    """The loss on the test split, if measured."""
    target: str = ""
    """The target's name; losses on different targets of a study do not compare."""
    exact: bool = False
    """Whether it is a construction of the exact distribution, so that its loss is the entropy."""


@final
@dataclass(frozen=True)
class UnfinishedRun:
    """A run without a finite loss, and the reason."""

    key: str
    family: str
    shape: str
    seed: int
    N: float
    status: str
    error: str


_tables: "WeakKeyDictionary[Runs, tuple[tuple[int, ...], pd.DataFrame]]" = WeakKeyDictionary()
_configurations: "WeakKeyDictionary[Runs, tuple[tuple[int, ...], tuple[Configuration, ...]]]"
_configurations = WeakKeyDictionary()


def table(runs: RunsLike) -> "pd.DataFrame":
    """The runs' frame with every column that the report reads; missing ones get defaults.

    Every section of a page calls it. The table of a folder is made once for each state of its
    journal; the caller gets a shallow copy and may add columns.
    """
    if not isinstance(runs, Runs):
        return _table(runs)
    stamp = runs.journal.stamp()
    if runs not in _tables or _tables[runs][0] != stamp:
        _tables[runs] = stamp, _table(runs)
    return _tables[runs][1].copy(deep=False)


def configurations_of(runs: RunsLike) -> tuple[Configuration, ...]:
    """`configurations` of all runs, made once for each state of a folder's journal."""
    if not isinstance(runs, Runs):
        return configurations(table(runs))
    stamp = runs.journal.stamp()
    if runs not in _configurations or _configurations[runs][0] != stamp:
        _configurations[runs] = stamp, configurations(table(runs))
    return _configurations[runs][1]


def _table(runs: RunsLike) -> "pd.DataFrame":
    import pandas as pd

    frame = runs.frame().copy()
    for name in NEEDED:
        require(
            name in frame or frame.empty, "runs.frame()", f"have a column {name!r}", list(frame)
        )
    blank: dict[str, Any] = {"key": "", "target": "", "shape": "", "status": "done", "error": ""}
    blank |= {"family": "", "seed": 0, "rung": 0}
    for name, value in blank.items():
        if name not in frame:
            frame[name] = value if name != "key" else [f"run {i + 1}" for i in range(len(frame))]
    numbers = ("N", "N_embedding", "D", "D_unique", "C", "C_6ND", "loss", "loss_se", "seconds")
    numbers += ("test_loss", "test_loss_se")
    for name in numbers:
        values = frame[name] if name in frame else pd.Series(math.nan, index=frame.index)
        frame[name] = pd.to_numeric(values, errors="coerce").astype(float)
    for name in ("key", "family", "target", "shape", "status", "error"):
        # A text column that is empty in every run has a numeric dtype.
        frame[name] = frame[name].astype(object).where(frame[name].notna(), "").astype(str)
    if frame["seed"].isna().any():
        # A run that failed early has no seed.
        frame["seed"] = pd.to_numeric(frame["seed"], errors="coerce").fillna(0).astype(int)
    if frame["C"].isna().all():
        # Imported runs often have no FLOPs: 6 N D is the usual approximation.
        frame["C"] = frame["C_6ND"].fillna(6 * frame["N"] * frame["D"])
    # If other runs have compute, a run without it trained nothing: it only counted its data.
    frame["C"] = frame["C"].fillna(0.0)
    return frame.reset_index(drop=True)


def finished(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The rows that are done and have a finite loss; only these enter a fit."""
    good = (frame["status"] == "done") & np.isfinite(frame["loss"])
    return cast("pd.DataFrame", frame[good])


def unfinished(frame: "pd.DataFrame") -> tuple[UnfinishedRun, ...]:
    """The rows that `finished` leaves out, each with its reason."""
    rest = frame.drop(index=finished(frame).index)
    return tuple(
        UnfinishedRun(
            key=str(row.key),
            family=str(row.family),
            shape=str(row.shape),
            seed=int(cast("int", row.seed)),
            N=float(cast("float", row.N)),
            status=str(row.status) if row.status != "done" else "no finite loss",
            error=str(row.error) or "no reason was recorded",
        )
        for row in rest.itertuples()
    )


def counted(frame: "pd.DataFrame") -> bool:
    """Whether these runs of one family are a baseline without gradient training.

    That is a family without compute; an n-gram is one even if no run has compute.
    """
    return not bool((frame["C"] > 0).any()) or bool((frame["family"] == "ngram").all())


def configurations(frame: "pd.DataFrame") -> tuple[Configuration, ...]:
    """The finished runs by family, shape, N and D, smallest compute first."""
    groups = [
        _configuration(group)
        for _, group in finished(frame).groupby(["family", "shape", "N", "D"], sort=False)
    ]
    return tuple(sorted(groups, key=lambda c: (c.family, c.C, c.N)))


def _configuration(group: "pd.DataFrame") -> Configuration:
    losses = group["loss"].to_numpy(float)
    n = len(losses)
    between = losses.var(ddof=1) / n if n > 1 else 0.0
    tests = group["test_loss"].to_numpy(float)
    first = group.iloc[0]
    return Configuration(
        family=str(first["family"]),
        shape=str(first["shape"]),
        N=float(first["N"]),
        D=float(first["D"]),
        C=float(group["C"].mean()),
        loss=_pooled(losses, group["loss_se"].to_numpy(float)),
        spread=math.sqrt(between) if n > 1 else (0.0 if counted(group) else None),
        seeds=n,
        keys=tuple(group["key"]),
        test=_pooled(tests, group["test_loss_se"].to_numpy(float))
        if np.isfinite(tests).all()
        else None,
        target=str(first["target"]),
        exact="kind" in group and bool((group["kind"] == "construction").all()),
    )


def _pooled(losses: ndarray, scoring: ndarray) -> Estimate:
    """The mean over seeds; its error combines their spread and the shared evaluation error."""
    n = len(losses)
    within = float(np.nanmean(scoring) ** 2) if np.isfinite(scoring).any() else math.nan
    if n > 1:
        between = losses.var(ddof=1) / n
        se = math.sqrt(between + (within if math.isfinite(within) else 0.0))
        method = "between seeds" + (" and of the evaluation" if math.isfinite(within) else "")
    else:
        se = math.sqrt(within) if math.isfinite(within) else None
        method = "of the evaluation; one seed" if se is not None else "one seed"
    return Estimate(float(losses.mean()), se=se, n=n, method=method)


def curved(runs: RunsLike) -> list[str]:
    """Keys of the runs that have a learning curve."""
    keys = getattr(runs, "curved", None)
    return keys() if keys is not None else list(runs.curves()["key"].drop_duplicates())


def curves_of(runs: RunsLike, most: int) -> "pd.DataFrame":
    """The curves of at most `most` runs, evenly chosen; other files are not opened."""
    keys = curved(runs)
    keys = keys[:: math.ceil(len(keys) / most)] if len(keys) > most else keys
    if hasattr(runs, "curved"):
        return cast("Any", runs).curves(keys)
    whole = runs.curves()
    return cast("pd.DataFrame", whole[whole["key"].isin(keys)])


def about(runs: RunsLike) -> dict[str, Any]:
    """`runs.about`, or an empty mapping."""
    return dict(getattr(runs, "about", None) or {})
