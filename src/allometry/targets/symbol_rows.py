"""Symbol sequences of fixed length as a target: images, tunes and time series.

Letters: n rows, L symbols of a row, V symbols of the alphabet, K levels.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from numpy import ndarray
from scipy import special
from torch import Tensor

from allometry._core.errors import require
from allometry._core.spec import Spec
from allometry.targets import music
from allometry.targets.images import Images
from allometry.targets.row_batches import SPLITS, cut, epoch_rows
from allometry.targets.series import AutoregressiveSeries


@final
class Symbols:
    r"""Predict each symbol of a row from the previous ones; every row begins with a start symbol.

    The symbols are pixels, notes or quantised values, so that one study can train the same model
    on all of them.

    Args:
        rows: (n, L), integers from 0.
        size: V, number of symbols without the start. Default: one more than the largest.
        name: Short name.
        splits: Shares of train, validation and test, in the order of the rows.
        floor: Irreducible loss in nats per symbol, if known.

    Attributes:
        train: Rows of the training part; likewise `validation`, `test`.
        size: V + 1, including the start symbol (the last).
        unit: Unit of the loss.

    Example:
        >>> from allometry.targets import Symbols
        >>> tunes = Symbols.tunes(200)
        >>> tunes.batch(0, size=4, context=64, seed=0).shape
        torch.Size([4, 65])

    References: `henighan2020` for one model on many kinds of data.
    """

    unit = "nats per symbol"

    def __init__(
        self,
        rows: Shaped[ndarray, "..."],
        size: int | None = None,
        name: str = "symbols",
        splits: Sequence[float] = (0.9, 0.05, 0.05),
        floor: float | None = None,
    ) -> None:
        require(rows.ndim == 2, "Symbols.rows", "have two axes", rows.shape)
        least = int(rows.min(initial=0))
        require(rows.size > 0 and least >= 0, "Symbols.rows", "be whole numbers from 0", least)
        top = int(rows.max()) + 1
        require(size is None or size >= top, "Symbols.size", f"be at least {top}", size)
        parts = cut(len(rows), splits, "Symbols.splits")
        symbols = torch.from_numpy(rows.astype(np.int64))
        self.train, self.validation, self.test = (symbols[a:b] for a, b in parts)
        self.name, self.floor, self.length = name, floor, rows.shape[1]
        self.size = 1 + (top if size is None else size)
        self.fingerprint = hashlib.sha256(
            f"{name} {self.size} {parts} {rows.shape}".encode() + symbols.numpy().tobytes()
        ).hexdigest()
        self._maker: Any = None
        self._arguments: dict[str, Any] = {}

    @staticmethod
    def digits(splits: Sequence[float] = (0.9, 0.05, 0.05), seed: int = 0) -> "Symbols":
        """The 1,797 handwritten digits of scikit-learn, 8 x 8 pixels of 17 values, row by row.

        Args:
            splits: See `Symbols`.
            seed: Seed of the order of the digits.
        """
        images = Images.digits(splits=splits, seed=seed)
        rows = torch.cat([images.train, images.validation, images.test]).flatten(1).numpy()
        target = Symbols(rows, images.levels, "digits", splits)
        return target._from(Symbols.digits, {"splits": list(splits), "seed": seed})

    @staticmethod
    def tunes(
        n: int = 4000, seed: int = 0, splits: Sequence[float] = (0.9, 0.05, 0.05)
    ) -> "Symbols":
        r"""Tunes of seven bars in random keys from `music.tunes`, whose distribution is known.

        The floor is the mean of $-\log p$ of the validation tunes.

        Args:
            n: Number of tunes.
            seed: Seed of the tunes.
            splits: See `Symbols`.
        """
        rows = music.tunes(n, seed)
        target = Symbols(rows, music.SIZE, "tunes", splits)
        target.floor = float(-music.log_prob(target.validation.numpy()).mean())
        return target._from(Symbols.tunes, {"n": n, "seed": seed, "splits": list(splits)})

    @staticmethod
    def series(
        phi: Sequence[float] = (1.6, -0.81),
        n: int = 4000,
        length: int = 64,
        levels: int = 32,
        seed: int = 0,
        splits: Sequence[float] = (0.9, 0.05, 0.05),
    ) -> "Symbols":
        r"""Values of a Gaussian AR(p) process, quantised to K equally likely intervals.

        A fine quantiser keeps the mutual information of the past and the next value, so the
        irreducible loss is about $\log K - \tfrac12 \log(\sigma_x^2/\sigma_e^2)$ nats, with the
        variances of the process and of its innovations. Coarse intervals keep somewhat less
        information, and a row starts without a past.

        Args:
            phi: Coefficients of the process.
            n: Number of rows.
            length: Values in a row.
            levels: K.
            seed: Seed of the values.
            splits: See `Symbols`.
        """
        require(levels >= 2, "Symbols.levels", "be at least 2", levels)
        series = AutoregressiveSeries(phi, length=n * length, seed=seed, splits=(0.9, 0.05, 0.05))
        x = torch.cat([series.train, series.validation, series.test]).numpy()
        # The scale is estimated from the training part only.
        sd = float(np.std(x[: int(n * splits[0]) * length]))
        level = np.minimum((special.ndtr(x / sd) * levels).astype(np.int64), levels - 1)
        floor = math.log(levels) - math.log(sd)
        target = Symbols(level.reshape(n, length), levels, "series", splits, floor)
        arguments = {"phi": list(phi), "n": n, "length": length, "levels": levels}
        return target._from(Symbols.series, arguments | {"seed": seed, "splits": list(splits)})

    def _from(self, maker: Any, arguments: dict[str, Any]) -> "Symbols":
        self._maker, self._arguments = maker, arguments
        return self

    @property
    def spec(self) -> Spec:
        """The spec that recreates this target in another process."""
        fix = "Use Symbols.digits, Symbols.tunes or Symbols.series, or a function of your own."
        require(
            self._maker is not None, "Symbols", "know how it was made to be studied", "rows", fix
        )
        return Spec(self._maker, **self._arguments)

    @property
    def D_unique(self) -> int:
        """Number of training symbols."""
        return self.train.numel()

    def split(self, name: str) -> Int[Tensor, "n L"]:
        """The rows of `"train"`, `"validation"` or `"test"`."""
        require(name in SPLITS, "split", "be train, validation or test", name)
        return getattr(self, name)

    def batch(
        self, step: int, *, size: int, context: int, seed: int
    ) -> Int[Tensor, "{size} {context}+1"]:
        """Training rows with the start symbol; a pure function of its arguments."""
        self._require_row(context)
        return self._with_start(self.train[epoch_rows(len(self.train), step, size, seed)])

    def blocks(
        self, split: str, context: int
    ) -> tuple[Int[Tensor, "n L"], Int[Tensor, "n L"], Bool[Tensor, "n L"]]:
        """A whole split as `(inputs, targets, mask)`; every symbol counts."""
        self._require_row(context)
        rows = self._with_start(self.split(split))
        return rows[:, :-1], rows[:, 1:], torch.ones_like(rows[:, 1:], dtype=torch.bool)

    def entropy(self, split: str = "train") -> float:
        """Entropy of the symbol frequencies of a split in nats: a baseline."""
        share = torch.bincount(self.split(split).flatten()).double()
        share = share[share > 0] / share.sum()
        return float(-(share * share.log()).sum())

    def describe(self) -> dict[str, Any]:
        """A description of the target for the journal, in plain values."""
        return {
            "target": self.name,
            "name": self.name,
            **self._arguments,
            "size": self.size,
            "rows": {s: len(self.split(s)) for s in SPLITS},
            "length": self.length,
            "D_unique": self.D_unique,
            "unit": self.unit,
            "floor": self.floor,
            "fingerprint": self.fingerprint,
        }

    def _with_start(self, rows: Tensor) -> Tensor:
        return torch.nn.functional.pad(rows, (1, 0), value=self.size - 1)

    def _require_row(self, context: int) -> None:
        require(context == self.length, "context", f"be a row of {self.length}", context)

    def __repr__(self) -> str:
        return f"Symbols({self.name}: {self.D_unique:,} training symbols of {self.size} kinds)"
