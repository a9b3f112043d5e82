"""Shared code of targets made of rows: splits, batches and fingerprints."""

import functools
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from allometry._core.errors import InputError, require

SPLITS = ("train", "validation", "test")


def same_content(kind: str, name: str, actual: str, expected: str | None) -> None:
    """Refuse a target whose content has changed since its study was created.

    Args:
        kind: Kind of target.
        name: Its name.
        actual: Its fingerprint.
        expected: The fingerprint in the study, if any.
    """
    if expected not in (None, actual):
        raise InputError(
            f"{kind}.fingerprint must be {actual[:12]}... of {name}; got {str(expected)[:12]}.... "
            "Its content changed; start a new study for it."
        )


def epoch_rows(rows: int, step: int, size: int, seed: int) -> Int[Tensor, " {size}"]:
    """Row indices of one batch: every row once per epoch, in a shuffled order.

    A pure function of its arguments, so a resumed run sees the same batches.
    """
    require(rows >= 1, "rows", "be at least 1", rows)
    require(size >= 1, "size", "be at least 1", size)
    number = np.arange(step * size, (step + 1) * size)
    chosen = np.empty(size, dtype=np.int64)
    for epoch in range(number[0] // rows, number[-1] // rows + 1):
        here = number // rows == epoch
        chosen[here] = _order(rows, int(epoch), seed)[number[here] % rows]
    return torch.from_numpy(chosen)


@functools.lru_cache(maxsize=32)
def _order(rows: int, epoch: int, seed: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch, rows]).permutation(rows)


def cut(rows: int, shares: Sequence[float], name: str) -> list[tuple[int, int]]:
    """Start and end of train, validation and test among `rows` rows, none of them empty."""
    valid = len(shares) == 3 and min(shares) > 0 and abs(sum(shares) - 1) < 1e-9
    require(valid, name, "be three positive shares that sum to 1", tuple(shares))
    first, second = int(rows * shares[0]), int(rows * round(shares[0] + shares[1], 12))
    fix = "Give more rows or other splits."
    require(0 < first < second < rows, name, "leave no split empty", (rows, tuple(shares)), fix)
    return [(0, first), (first, second), (second, rows)]
