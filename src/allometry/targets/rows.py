"""What targets made of rows share: the order in which training goes through them."""

import functools

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from allometry._core.errors import require

SPLITS = ("train", "validation", "test")


def epoch_rows(rows: int, step: int, size: int, seed: int) -> Int[Tensor, " {size}"]:
    """Numbers of the rows of one batch: every row once in each epoch, in a shuffled order.

    A pure function of its arguments, so a resumed run sees what it would have seen.
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
