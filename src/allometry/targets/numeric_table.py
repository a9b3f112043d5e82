"""Numeric columns of a CSV file as a target: learn their density.

Letters: n rows, d columns.
"""

import hashlib
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.delimited import read_csv, separator_of, table_text
from allometry._core.errors import InputError, require
from allometry._core.number_parsing import decimal_mark
from allometry._core.spec import Spec, identified_by_content
from allometry._core.user_files import shorten
from allometry.targets.row_batches import SPLITS, cut, epoch_rows, same_content

if TYPE_CHECKING:
    import pandas as pd

_NUMERIC = re.compile(r"^\s*[-+]?[\d.,]*\d[\d.,]*(?:[eE][-+]?\d+)?\s*$")


@final
@identified_by_content("path", since=("fingerprint",))
class NumericTable:
    """The numeric columns of a CSV file, standardised by the training rows.

    The loss is in nats per row in the units of the file: the logs of the scales are added back.
    Rows with a missing number are left out and counted.

    Args:
        path: The file, with a header.
        columns: Names of columns. Default: all numeric columns.
        splits: Shares of train, validation and test, split at random.
        seed: Seed of the split.
        fingerprint: Expected fingerprint: a study resumes only on the same rows.

    Attributes:
        columns: Names of the columns.
        dropped: Number of rows left out.
        notes: How commas in numbers were interpreted.
        scale: Standard deviation of each column in the training rows.
    """

    def __init__(
        self,
        path: str,
        columns: Sequence[str] | None = None,
        splits: Sequence[float] = (0.8, 0.1, 0.1),
        seed: int = 0,
        fingerprint: str | None = None,
    ) -> None:
        file = Path(path).expanduser().absolute()
        frame, self.notes = _frame(file)
        known = [str(c) for c in frame.select_dtypes("number").columns]
        chosen = known if columns is None else list(columns)
        missing = [c for c in chosen if c not in known]
        require(not missing, "NumericTable.columns", f"be numeric columns of {path}", missing)
        require(len(chosen) >= 1, f"{path}", "have a numeric column", list(frame.columns))
        complete = frame[chosen].replace([np.inf, -np.inf], np.nan).dropna()
        self.columns, self.dropped = chosen, len(frame) - len(complete)
        values = complete.to_numpy(dtype=np.float64)
        order = np.random.default_rng(seed).permutation(len(values))
        parts = cut(len(values), splits, "NumericTable.splits")
        train = values[order[slice(*parts[0])]]
        self.mean, self.scale = train.mean(0), train.std(0)
        constant = [c for c, s in zip(chosen, self.scale, strict=True) if s == 0]
        require(not constant, "NumericTable.columns", "vary among the training rows", constant)
        rows = torch.from_numpy((values[order] - self.mean) / self.scale)
        self.train, self.validation, self.test = (rows[a:b] for a, b in parts)
        self.name, self.levels = file.stem, None
        self.shape = (len(chosen),)
        self.log_scale = float(np.log(self.scale).sum())
        self.unit = "nats per row"
        self._arguments: dict[str, Any] = {"path": str(file), "columns": chosen}
        self._arguments |= {"splits": list(splits), "seed": seed}
        head = repr((chosen, tuple(splits), seed)).encode()
        self.fingerprint = hashlib.sha256(head + values.tobytes()).hexdigest()
        same_content("NumericTable", self.name, self.fingerprint, fingerprint)

    @property
    def spec(self) -> Spec:
        """The spec that recreates this target in another process."""
        return Spec(NumericTable, **self._arguments, fingerprint=self.fingerprint)

    @property
    def dim(self) -> int:
        """Number of columns."""
        return math.prod(self.shape)

    @property
    def D_unique(self) -> int:
        """Number of training rows."""
        return len(self.train)

    def split(self, name: str) -> Float[Tensor, "n d"]:
        """The standardised rows of a split, in the default dtype."""
        require(name in SPLITS, "split", "be train, validation or test", name)
        return getattr(self, name).to(torch.get_default_dtype())

    def batch(self, step: int, *, size: int, seed: int) -> Float[Tensor, "{size} d"]:
        """The rows of a training step: a pure function of its arguments."""
        rows = epoch_rows(len(self.train), step, size, seed)
        return self.train[rows].to(torch.get_default_dtype())

    def describe(self) -> dict[str, Any]:
        """A description of the target for the journal, in plain values."""
        return {
            "target": self.name,
            "name": self.name,
            "kind": "table",
            **self._arguments,
            "rows": {s: len(self.split(s)) for s in SPLITS},
            "shape": list(self.shape),
            "dropped": self.dropped,
            "D_unique": self.D_unique,
            "unit": self.unit,
            "fingerprint": self.fingerprint,
        }

    def __repr__(self) -> str:
        return f"Table({self.name}: {self.D_unique:,} training rows, {len(self.columns)} columns)"


def _frame(path: Path) -> "tuple[pd.DataFrame, list[str]]":
    """The table in a file, and notes on how its commas were interpreted.

    Raises:
        InputError: Rows do not match the header, two columns share a name, or commas are
            ambiguous.
    """
    import pandas as pd

    sheet = read_csv(path)
    if sheet.bad:
        row = min(sheet.bad)
        raise InputError(f"{path} must be a table; line {sheet.lines[row]}: {sheet.bad[row]}.")
    fix = "Rename or remove the others."
    require(not sheet.twice, f"{path}", "name each column once", sorted(sheet.twice)[:4], fix)
    mark, notes = decimal_mark({k: v for k, v in sheet.cells.items() if _numeric(v)})
    separator, text, _ = separator_of(table_text(path))
    groups = "." if mark == "," else "," if notes else None
    try:
        # Keep pandas' parser: another may differ in the last digit, which changes the fingerprint.
        frame = pd.read_csv(
            io.StringIO(text), sep=separator, decimal=mark, thousands=groups, index_col=False
        )
    except (ValueError, OverflowError) as error:  # base classes of pandas' errors
        raise InputError(
            f"{path} must be a CSV file with a header; {shorten(error, 120)}."
        ) from None
    return frame, notes


def _numeric(cells: Sequence[str]) -> bool:
    """Whether most cells of a column look like numbers, with any meaning of commas."""
    filled = [cell for cell in cells if cell.strip()]
    return 2 * sum(bool(_NUMERIC.match(cell)) for cell in filled) > len(filled)
