r"""Next-symbol prediction on concatenated words of a bounded Dyck language.

Letters: b sequences, n symbols, v symbols of the alphabet with the end.
"""

import hashlib
import math
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec


@final
class Brackets:
    r"""Predict the next symbol of concatenated words of $\mathrm{Dyck}_{k,D}$.

    Words have the distribution of `targets.Dyck`. Each is followed by the end symbol, whose id is
    2k; it also precedes the first word. The next-symbol distribution is known at every position,
    so losses can be computed without sampling error of the targets.

    Args:
        k: Number of bracket types.
        depth: Largest nesting depth D.
        length: Length of a training sequence.
        p: Probability of an opening bracket.

    Example:
        >>> job = Brackets(2, 3, length=8)
        >>> job.batch(0, size=4, seed=0).shape
        torch.Size([4, 9])
        >>> round(float(job.entropy_rate), 4)
        0.8912

    References:
        `hewitt2020` for the language and the measure of closing; `yao2021`.
    """

    unit = "nats per symbol"
    D_unique = math.inf

    def __init__(self, k: int = 8, depth: int = 4, length: int = 48, p: float = 0.5) -> None:
        require(k >= 1, "Brackets.k", "be at least 1", k)
        require(depth >= 1, "Brackets.depth", "be at least 1", depth)
        require(length >= 2, "Brackets.length", "be at least 2", length)
        require(0 < p < 1, "Brackets.p", "lie between 0 and 1", p)
        self.k, self.depth, self.length, self.p = k, depth, length, p
        self.size = 2 * k + 1
        self.name = f"brackets of {k} types, {depth} deep"

    @property
    def spec(self) -> Spec:
        """The spec that recreates this target in another process."""
        return Spec(Brackets, k=self.k, depth=self.depth, length=self.length, p=self.p)

    @property
    def fingerprint(self) -> str:
        """Identifies this target."""
        return hashlib.sha256(f"{self.name} {self.length} {self.p}".encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """A description of the target for the journal, in plain values."""
        shape = {"k": self.k, "depth": self.depth, "length": self.length, "p": self.p}
        rest = {"unit": self.unit, "entropy_rate": float(self.entropy_rate)}
        return (
            {"target": self.name, "name": self.name}
            | shape
            | rest
            | {"fingerprint": self.fingerprint}
        )

    @cached_property
    def entropy_rate(self) -> Estimate:
        """Irreducible loss in nats per symbol, from the stationary distribution of the depth."""
        D, p = self.depth, self.p
        # Depth rises with p and falls with 1 - p; at 0 it stays (a word ends), at D it falls.
        weights = [1.0]
        for h in range(1, D + 1):
            down = 1.0 if h == D else 1 - p
            weights.append(weights[-1] * p / down)
        chance = -p * math.log(p / self.k) - (1 - p) * math.log(1 - p)
        value = sum(weights[:-1]) / sum(weights) * chance
        return Estimate(value, exact=True, method="stationary distribution of the depth")

    def batch(
        self, step: int, *, size: int, seed: int, length: int | None = None
    ) -> Int[Tensor, "b n_plus_1"]:
        """Sequences of a step, starting with the end symbol: a pure function of the arguments.

        Args:
            step: Number of the training step; negative ones are for evaluation.
            size: Number of sequences.
            seed: Seed of the training data.
            length: Length of a sequence. Default: the training length.
        """
        return torch.from_numpy(self._draw(step, size, seed, length)[0])

    def exact(
        self, step: int, *, size: int, seed: int, length: int | None = None
    ) -> tuple[
        Int[Tensor, "b n_plus_1"],
        Float[Tensor, "b n v"],
        Int[Tensor, "b n"],
        Int[Tensor, "b n"],
    ]:
        """A batch with next-symbol distributions, depths and innermost open types (-1: none).

        Args:
            step: See `batch`.
            size: Number of sequences.
            seed: Seed of the data.
            length: Length of a sequence.
        """
        words, heights, tops = self._draw(step, size, seed, length)
        probability = np.zeros((*heights.shape, self.size))
        opens = np.where(heights == self.depth, 0.0, self.p)
        probability[..., 0:-1:2] = (opens / self.k)[..., None]
        closing = np.where(heights > 0, 2 * tops + 1, 2 * self.k)
        np.put_along_axis(probability, closing[..., None], (1 - opens)[..., None], axis=-1)
        tokens, probabilities = torch.from_numpy(words), torch.from_numpy(probability)
        return tokens, probabilities, torch.from_numpy(heights), torch.from_numpy(tops)

    def _draw(
        self, step: int, size: int, seed: int, length: int | None
    ) -> tuple[Int[ndarray, "b n_plus_1"], Int[ndarray, "b n"], Int[ndarray, "b n"]]:
        n, D = length or self.length, self.depth
        rng = np.random.default_rng([seed, step + 2**32])
        chance, kinds = rng.random((n, size)), rng.integers(self.k, size=(n, size))
        words = np.full((size, n + 1), 2 * self.k)
        heights, tops = np.zeros((size, n), dtype=np.int64), np.zeros((size, n), dtype=np.int64)
        stack, rows = np.full((size, D + 2), -1), np.arange(size)
        height = np.zeros(size, dtype=np.int64)
        for t in range(n):
            top = stack[rows, height]
            heights[:, t], tops[:, t] = height, top
            opening = (chance[t] < self.p) & (height < D)
            closing = ~opening & (height > 0)
            words[:, t + 1] = np.where(
                opening, 2 * kinds[t], np.where(closing, 2 * top + 1, 2 * self.k)
            )
            height = height + opening - closing
            stack[rows[opening], height[opening]] = kinds[t][opening]
        return words, heights, tops
