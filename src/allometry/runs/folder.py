"""Read the runs of a study from its folder."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from allometry._core.arrays import read_arrays
from allometry._core.errors import AllometryError, InputError, StorageError
from allometry._core.files import atomic_write, path_exists, path_inside, storage_errors
from allometry._core.notebook import chart, html_table
from allometry._core.user_files import exists, shorten
from allometry.runs import study_file
from allometry.runs.frame import frame
from allometry.runs.journal import STATUSES, Journal
from allometry.runs.schedule_file import read_schedule

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = [
    "key",
    "family",
    "target",
    "shape",
    "rung",
    "seed",
    "N",
    "N_embedding",
    "D",
    "D_unique",
    "C",
    "C_6ND",
    "loss",
    "loss_se",
    "test_loss",
    "test_loss_se",
    "seconds",
    "status",
    "error",
    "versions",
]
"""The columns of every frame in this order; columns of a family follow them."""

CURVE = ("step", "tokens", "flops", "loss")
"""The columns of a curve."""


@final
class Runs:
    """A study's folder, for reading; safe to use while the study is running.

    Args:
        folder: The folder given to `Study.run`.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        if not exists(self.folder):  # also for names that no path can have
            raise InputError(f"{shorten(folder)} must be a study folder; got no such folder.")
        if self.folder.is_file():
            raise InputError(
                f"{folder} must be a study folder; got a file. For a table of runs: "
                f"`allometry fit {folder} --report page.html`."
            )
        if not self.folder.is_dir():
            raise InputError(f"{folder} must be a study folder; got no such folder.")
        if not study_file.exists(self.folder):
            raise InputError(
                f"{folder} must be a study folder; got one without study.json. "
                "Make a study with `allometry run`."
            )
        self.journal = Journal(path_inside(self.folder, "journal.jsonl"))
        self._cache: tuple[tuple[int, ...], pd.DataFrame, list[str]] | None = None

    def __repr__(self) -> str:
        """The folder and its progress: `Runs('runs/notes': 30 done, 2 waiting)`."""
        try:
            counts = [f"{n} {name}" for name, n in self.state().items() if n]
        except AllometryError as error:  # a repr must not fail, even if `frame` does
            counts = [str(error)]
        return f"Runs({str(self.folder)!r}: {', '.join(counts) or 'no runs'})"

    def _repr_html_(self) -> str:
        try:
            frame = self._read()[0]
            done = frame[frame["status"] == "done"]
            rows = [
                (name, len(group), *(_span(group[column]) for column in ("N", "D", "loss")))
                for name, group in done.groupby("family")
            ]
            counts = [f"{n} {name}" for name, n in self.state().items() if n]
        except AllometryError as error:
            return html_table(f"Runs of {self.folder}", (), (), [error])
        title = f"Runs of {self.folder}: {', '.join(counts) or 'no runs'}"
        return html_table(title, ("family", "runs", "N", "D", "loss"), rows)

    def plot(self) -> Any:
        """An Altair chart of loss against compute, with each family's law (extra `plot`)."""
        return chart(self)

    @property
    def about(self) -> dict[str, Any]:
        """The content of `study.json`: target, keys of the planned runs, versions."""
        return study_file.read(self.folder) | {"folder": str(self.folder)}

    def frame(self) -> "pd.DataFrame":
        """One row per finished or failed run, with the columns of `COLUMNS` first."""
        return self._read()[0].copy(deep=False)

    def _read(self) -> tuple["pd.DataFrame", list[str]]:
        """The frame, and the names of the measures; cached until the journal changes."""
        stamp = self.journal.stamp()
        if self._cache is None or self._cache[0] != stamp:
            names: dict[str, None] = {}

            def batches() -> Iterator[list[dict[str, Any]]]:
                for batch in self.journal.batches():
                    for record in batch:
                        if record.get("measures"):
                            names.update(dict.fromkeys(map(str, record["measures"])))
                    yield batch

            runs = frame(batches(), COLUMNS)
            self._cache = (stamp, runs, [name for name in names if name in runs.columns])
        return self._cache[1:]

    def state(self) -> dict[str, int]:
        """Number of runs that are done, failed, diverged and waiting."""
        runs = self._read()[0]
        statuses = runs["status"].value_counts()
        counts = {name: int(statuses.get(name, 0)) for name in STATUSES}
        return counts | {"waiting": len(self._waiting(runs))}

    def _waiting(self, runs: "pd.DataFrame") -> list[str]:
        """Keys of planned runs that have not ended."""
        ended = set(runs["key"].tolist())
        return [key for key in dict.fromkeys(self.about.get("runs", ())) if key not in ended]

    def left(self, workers: int = 1) -> float | None:
        """Expected seconds until all runs are done; `None` without a schedule.

        The scheduled seconds of waiting runs, scaled by the pace of finished ones and divided by
        the number of workers.
        """
        runs = self._read()[0]
        waiting = self._waiting(runs)
        if not waiting:
            return 0.0
        expected: dict[str, float] = {}
        try:
            for about in read_schedule(self.folder).values():
                expected |= about["work"]
        except StorageError:
            return None  # a damaged schedule only hides the remaining time
        if any(key not in expected for key in waiting):
            return None
        done = [
            (seconds, expected[key])
            for key, seconds in zip(runs["key"], runs["seconds"].astype(float), strict=True)
            if key in expected and seconds > 0 and expected[key] > 0
        ]
        pace = sum(s for s, _ in done) / sum(e for _, e in done) if done else 1.0
        return sum(expected[key] for key in waiting) * pace / workers

    def samples(self) -> dict[str, str]:
        """Generated texts by run key."""
        each = ((r["key"], r.get("sample")) for b in self.journal.batches() for r in b)
        return {key: sample for key, sample in dict(each).items() if sample}

    def measures(self) -> list[str]:
        """Names of the measures of all runs; each is a column, its standard error `NAME_se`."""
        return self._read()[1]

    def curved(self) -> list[str]:
        """Keys of the runs with a learning curve, in the journal's order; opens no file."""
        curves = path_inside(self.folder, "curves")
        if not path_exists(curves):
            return []
        with storage_errors("read", curves):
            names = {path.name for path in curves.iterdir()}
        return [key for key in self._read()[0]["key"] if f"{key}.npz" in names]

    def curves(self, keys: Iterable[str] | None = None) -> "pd.DataFrame":
        """Learning curves (validation loss): key, step, tokens, flops, loss.

        Args:
            keys: Runs with a curve. Default: all of them (`curved`).
        """
        import pandas as pd

        parts = []
        for key in self.curved() if keys is None else keys:
            path = curve_path(self.folder, key)
            parts.append(pd.DataFrame({"key": key} | read_arrays(path, _is_curve)))
        if not parts:
            return pd.DataFrame(columns=["key", *CURVE])
        return pd.concat(parts, ignore_index=True)


def curve_path(folder: Path, key: str) -> Path:
    """The file of a run's learning curve."""
    return path_inside(folder, "curves", f"{key}.npz")


def _is_curve(arrays: dict[str, np.ndarray]) -> bool:
    """Whether these are columns of equal length with the names of a curve."""
    lengths = {array.shape for array in arrays.values()}
    return set(CURVE) <= set(arrays) and len(lengths) == 1 and len(*lengths) == 1


def write_curve(folder: Path, key: str, curve: dict[str, list[float]]) -> None:
    """Save the learning curve of a run atomically."""
    with atomic_write(curve_path(folder, key), "wb") as file:
        arrays = {name: np.asarray(values, dtype=float) for name, values in curve.items()}
        np.savez(file, allow_pickle=False, **arrays)


def _span(column: "pd.Series") -> str:
    """The least and largest value of a column of numbers."""
    found = column.dropna()
    if not len(found):
        return ""
    low, high = float(found.min()), float(found.max())
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
