"""The runs of a study, read back from its folder."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from allometry._core.arrays import read_arrays
from allometry._core.errors import AllometryError, InputError, StorageError
from allometry._core.files import atomic_write, path_exists, path_inside, storage_errors
from allometry.runs import study_file as said
from allometry.runs.frame import frame
from allometry.runs.journal import STATUSES, Journal
from allometry.runs.schedule_file import read_schedule

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = [
    *("key", "family", "target", "shape", "rung", "seed", "N", "N_embedding", "D", "D_unique"),
    *("C", "C_6ND", "loss", "loss_se", "test_loss", "test_loss_se", "seconds", "status"),
    *("error", "versions"),
]
"""The columns every frame has, in this order; a family's own come after them."""

CURVE = ("step", "tokens", "flops", "loss")
"""The columns of a curve."""


@final
class Runs:
    """A study's folder, for reading; safe to use while the study is at work.

    Args:
        folder: As given to `Study.run`.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        if self.folder.is_file():
            raise InputError(
                f"{folder} must be a study folder; got a file. For a table of runs: "
                f"`allometry fit {folder} --report page.html`."
            )
        if not self.folder.is_dir():
            raise InputError(f"{folder} must be a study folder; got no such folder.")
        if not said.there(self.folder):
            raise InputError(
                f"{folder} must be a study folder; got one without study.json. "
                "Make a study with `allometry run`."
            )
        self.journal = Journal(path_inside(self.folder, "journal.jsonl"))
        self._kept: tuple[tuple[int, ...], pd.DataFrame, list[str]] | None = None

    def __repr__(self) -> str:
        """Where it is and how far: `Runs('runs/notes': 30 done, 2 waiting)`."""
        try:
            counts = [f"{n} {name}" for name, n in self.state().items() if n]
        except AllometryError as error:  # a repr must not fail where a frame would
            counts = [str(error)]
        return f"Runs({str(self.folder)!r}: {', '.join(counts) or 'no runs'})"

    @property
    def about(self) -> dict[str, Any]:
        """What the study is: its target, its plan of runs, versions."""
        return said.read(self.folder) | {"folder": str(self.folder)}

    def frame(self) -> "pd.DataFrame":
        """One row per run, finished or failed, with the columns of `COLUMNS` first."""
        return self._read()[0].copy(deep=False)

    def _read(self) -> tuple["pd.DataFrame", list[str]]:
        """The frame, and the names of the measures; read again only when the journal has grown."""
        stamp = self.journal.stamp()
        if self._kept is None or self._kept[0] != stamp:
            names: dict[str, None] = {}

            def batches() -> Iterator[list[dict[str, Any]]]:
                for batch in self.journal.batches():
                    for record in batch:
                        if record.get("measures"):
                            names.update(dict.fromkeys(map(str, record["measures"])))
                    yield batch

            made = frame(batches(), COLUMNS)
            self._kept = (stamp, made, [name for name in names if name in made.columns])
        return self._kept[1:]

    def state(self) -> dict[str, int]:
        """How many runs are done, failed, diverged and waiting."""
        made = self._read()[0]
        there = made["status"].value_counts()
        counts = {name: int(there.get(name, 0)) for name in STATUSES}
        return counts | {"waiting": len(self._waiting(made))}

    def _waiting(self, made: "pd.DataFrame") -> list[str]:
        """Keys of the runs that are asked for and have not ended."""
        ended = set(made["key"].tolist())
        return [key for key in dict.fromkeys(self.about.get("runs", ())) if key not in ended]

    def left(self, workers: int = 1) -> float | None:
        """Expected seconds until all runs are done; `None` where no schedule says.

        The schedule's seconds of what waits, at the pace of what is done, shared by the workers.
        """
        made = self._read()[0]
        waiting = self._waiting(made)
        if not waiting:
            return 0.0
        expected: dict[str, float] = {}
        try:
            for about in read_schedule(self.folder).values():
                expected |= about["work"]
        except StorageError:
            return None  # how long it takes is all that a reader wants of it
        if any(key not in expected for key in waiting):
            return None
        done = [
            (seconds, expected[key])
            for key, seconds in zip(made["key"], made["seconds"].astype(float), strict=True)
            if key in expected and seconds > 0 and expected[key] > 0
        ]
        pace = sum(s for s, _ in done) / sum(e for _, e in done) if done else 1.0
        return sum(expected[key] for key in waiting) * pace / workers

    def samples(self) -> dict[str, str]:
        """Generated text by the run's key."""
        each = ((r["key"], r.get("sample")) for b in self.journal.batches() for r in b)
        return {key: sample for key, sample in dict(each).items() if sample}

    def measures(self) -> list[str]:
        """Names of the measures that some run has; each is a column, its error `NAME_se`."""
        return self._read()[1]

    def curved(self) -> list[str]:
        """Keys of the runs that have a curve, in the journal's order; no file is opened."""
        place = path_inside(self.folder, "curves")
        if not path_exists(place):
            return []
        with storage_errors("read", place):
            names = {path.name for path in place.iterdir()}
        return [key for key in self._read()[0]["key"] if f"{key}.npz" in names]

    def curves(self, keys: Iterable[str] | None = None) -> "pd.DataFrame":
        """Validation loss along every training: key, step, tokens, flops, loss.

        Args:
            keys: Of these runs alone, which have one (`curved`); of all if not given.
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
    """The columnar file of one run's curve."""
    return path_inside(folder, "curves", f"{key}.npz")


def _is_curve(arrays: dict[str, np.ndarray]) -> bool:
    """Whether these are columns of one length with the names that every curve has."""
    lengths = {array.shape for array in arrays.values()}
    return set(CURVE) <= set(arrays) and len(lengths) == 1 and len(*lengths) == 1


def write_curve(folder: Path, key: str, curve: dict[str, list[float]]) -> None:
    """Save the curve of a run, whole or not at all."""
    with atomic_write(curve_path(folder, key), "wb") as file:
        arrays = {name: np.asarray(values, dtype=float) for name, values in curve.items()}
        np.savez(file, allow_pickle=False, **arrays)
