"""Rows of symbols of one length as a target: pictures, tunes and series read like text.

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
    r"""Predict each symbol of a row from those before it; every row begins with one start symbol.

    What a transformer reads as text it reads here as pixels, notes or levels of a series, so that
    one study can grow the same model on all of them.

    Args:
        rows: (n, L), whole numbers from 0.
        size: V, symbols of the alphabet without the start; one more than the largest unless told.
        name: In one word.
        splits: Shares of train, validation and test, in the order of the rows.
        floor: Nats per symbol that no model can beat, where that is known.

    Attributes:
        train: Rows of the training part; likewise `validation`, `test`.
        size: V + 1, the start symbol (the last) among them.
        unit: What a loss is measured in.

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
        held = torch.from_numpy(rows.astype(np.int64))
        self.train, self.validation, self.test = (held[a:b] for a, b in parts)
        self.name, self.floor, self.length = name, floor, rows.shape[1]
        self.size = 1 + (top if size is None else size)
        self.fingerprint = hashlib.sha256(
            f"{name} {self.size} {parts} {rows.shape}".encode() + held.numpy().tobytes()
        ).hexdigest()
        self._maker: Any = None
        self._arguments: dict[str, Any] = {}

    @staticmethod
    def digits(splits: Sequence[float] = (0.9, 0.05, 0.05), seed: int = 0) -> "Symbols":
        """The 1,797 handwritten digits of scikit-learn, 8 x 8 pixels of 17 values, line by line.

        Args:
            splits: As for `Symbols`.
            seed: Of the order of the digits.
        """
        images = Images.digits(splits=splits, seed=seed)
        rows = torch.cat([images.train, images.validation, images.test]).flatten(1).numpy()
        made = Symbols(rows, images.levels, "digits", splits)
        return made._from(Symbols.digits, {"splits": list(splits), "seed": seed})

    @staticmethod
    def tunes(
        n: int = 4000, seed: int = 0, splits: Sequence[float] = (0.9, 0.05, 0.05)
    ) -> "Symbols":
        r"""Tunes of seven bars in random keys, drawn by `music.tunes`, whose exact law is known.

        The floor is the mean of $-\log p$ of the validation tunes under that law.

        Args:
            n: How many.
            seed: Of the tunes.
            splits: As for `Symbols`.
        """
        rows = music.tunes(n, seed)
        made = Symbols(rows, music.SIZE, "tunes", splits)
        made.floor = float(-music.log_prob(made.validation.numpy()).mean())
        return made._from(Symbols.tunes, {"n": n, "seed": seed, "splits": list(splits)})

    @staticmethod
    def series(
        phi: Sequence[float] = (1.6, -0.81),
        n: int = 4000,
        length: int = 64,
        levels: int = 32,
        seed: int = 0,
        splits: Sequence[float] = (0.9, 0.05, 0.05),
    ) -> "Symbols":
        r"""Values of a Gaussian AR(p), each told by which of K equally likely intervals it is in.

        A fine quantiser keeps the information that the past has of the next value, so no model
        does better than about $\log K - \tfrac12 \log(\sigma_x^2/\sigma_e^2)$ nats, with the
        variances of the process and of its innovations; coarse intervals keep somewhat less, and
        a row begins without a past.

        Args:
            phi: Coefficients of the process.
            n: Rows.
            length: Values in a row.
            levels: K.
            seed: Of the values.
            splits: As for `Symbols`.
        """
        require(levels >= 2, "Symbols.levels", "be at least 2", levels)
        whole = AutoregressiveSeries(phi, length=n * length, seed=seed, splits=(0.9, 0.05, 0.05))
        x = torch.cat([whole.train, whole.validation, whole.test]).numpy()
        # The scale is known from the training part alone.
        sd = float(np.std(x[: int(n * splits[0]) * length]))
        level = np.minimum((special.ndtr(x / sd) * levels).astype(np.int64), levels - 1)
        floor = math.log(levels) - math.log(sd)
        made = Symbols(level.reshape(n, length), levels, "series", splits, floor)
        arguments = {"phi": list(phi), "n": n, "length": length, "levels": levels}
        return made._from(Symbols.series, arguments | {"seed": seed, "splits": list(splits)})

    def _from(self, maker: Any, arguments: dict[str, Any]) -> "Symbols":
        self._maker, self._arguments = maker, arguments
        return self

    @property
    def spec(self) -> Spec:
        """The request that makes this very target again in another process."""
        fix = "Use Symbols.digits, Symbols.tunes or Symbols.series, or a function of your own."
        require(
            self._maker is not None, "Symbols", "know how it was made to be studied", "rows", fix
        )
        return Spec(self._maker, **self._arguments)

    @property
    def D_unique(self) -> int:
        """Training symbols there are."""
        return self.train.numel()

    def split(self, name: str) -> Int[Tensor, "n L"]:
        """The rows of `"train"`, `"validation"` or `"test"`."""
        require(name in SPLITS, "split", "be train, validation or test", name)
        return getattr(self, name)

    def batch(
        self, step: int, *, size: int, context: int, seed: int
    ) -> Int[Tensor, "{size} {context}+1"]:
        """Rows of the training part, each after the start symbol; a pure function."""
        self._whole(context)
        return self._begun(self.train[epoch_rows(len(self.train), step, size, seed)])

    def blocks(
        self, split: str, context: int
    ) -> tuple[Int[Tensor, "n L"], Int[Tensor, "n L"], Bool[Tensor, "n L"]]:
        """All of a split as `(inputs, targets, mask)`; every symbol counts."""
        self._whole(context)
        rows = self._begun(self.split(split))
        return rows[:, :-1], rows[:, 1:], torch.ones_like(rows[:, 1:], dtype=torch.bool)

    def entropy(self, split: str = "train") -> float:
        """Nats of one symbol alone, by its share in a split: what to beat."""
        share = torch.bincount(self.split(split).flatten()).double()
        share = share[share > 0] / share.sum()
        return float(-(share * share.log()).sum())

    def describe(self) -> dict[str, Any]:
        """What a journal should remember of the target, in plain values."""
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

    def _begun(self, rows: Tensor) -> Tensor:
        return torch.nn.functional.pad(rows, (1, 0), value=self.size - 1)

    def _whole(self, context: int) -> None:
        require(context == self.length, "context", f"be a row of {self.length}", context)

    def __repr__(self) -> str:
        return f"Symbols({self.name}: {self.D_unique:,} training symbols of {self.size} kinds)"
