"""Runs of anyone's as columns: from a study's folder or a CSV file."""

from pathlib import Path
from typing import TYPE_CHECKING

from allometry._core.errors import InputError
from allometry._core.files import storage
from allometry.study.runs import Runs

if TYPE_CHECKING:
    import pandas as pd


def read(
    path: Path,
    *,
    N: str = "N",
    D: str = "D",
    C: str = "C",
    loss: str = "loss",
    family: str | None = None,
) -> "pd.DataFrame":
    """Columns N, D, C, loss (and seed, where there is one) of the finished runs in `path`.

    Args:
        path: A study's folder or a CSV file.
        N: Name of the column of parameters; a column that is not there is left out.
        D: Of training tokens.
        C: Of FLOPs.
        loss: Of the loss, which must be there.
        family: Keep this family alone. A study of several trained families needs it; count
            models, which have no C, are left out of themselves.
    """
    import pandas as pd

    if path.is_dir():
        frame = Runs(path).frame()
        frame = frame[frame["status"] == "done"]
        frame = frame[frame["family"] == family] if family else frame[frame["C"].notna()]
        if frame.empty:
            raise InputError(f"{path} must hold finished runs; got none. See `allometry status`.")
    else:
        with storage("read", path):
            frame = pd.read_csv(path)
    wanted = {"N": N, "D": D, "C": C, "loss": loss, "seed": "seed"}
    if loss not in frame.columns:
        has = ", ".join(map(str, frame.columns))
        raise InputError(f"{path} must have a column {loss!r}; got {has}. Name it with --loss.")
    there = {name: column for name, column in wanted.items() if column in frame.columns}
    return pd.DataFrame({name: frame[column] for name, column in there.items()})
