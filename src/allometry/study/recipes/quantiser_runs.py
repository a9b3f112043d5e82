"""Vector quantisers: distortion against the number of codes.

Letters: K codes, d dimensions, n points.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.models.quantisation import lbg, nearest
from allometry.study.recipes.base import identity
from allometry.study.recipes.density_runs import Vectors
from allometry.study.recipes.run_outcome import journal_columns
from allometry.study.recipes.sample_scores import independent
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import Images, Points
from allometry.train import checkpoint
from allometry.train.budget import Budget
from allometry.train.loop import Progress

ROUNDS = 12
"""Lloyd iterations after each split: fixed, so that compute is known in advance."""

UNIT = "squared error per dimension"


def rows(target: Vectors, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
    """Examples as rows of numbers; pixels between 0 and 1."""
    top = target.levels - 1 if isinstance(target, Images) else 1
    return x.flatten(1).to(torch.get_default_dtype()) / top


@final
@dataclass(frozen=True)
class QuantiserRun(Request):
    """One codebook for one target.

    Args:
        target: Points, a table or images.
        fingerprint: Of the target's content.
        K: Code vectors.
        examples: Number of training examples n.
        seed: Of the examples and the splits.
        rung: Index of the size in the ladder, from 0.
    """

    target: Vectors
    fingerprint: str
    K: int
    examples: int
    seed: int
    rung: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape, rung and seed."""
        shape = f"{self.K} codes"
        return identity("quantiser", self.target.name, shape, self.rung, self.seed)

    def budget(self) -> Budget:
        """N is codes times dimensions; a distance takes one multiply-add per dimension."""
        sizes, k = [1], 1
        while k < self.K:
            k = min(2 * k, self.K)
            sizes.append(k)
        d = self.target.dim
        # Every split also computes the distortion of each cell.
        passes = ROUNDS * sum(sizes) + sum(sizes[:-1]) + self.K
        return Budget(self.K * d, 0, self.examples, 2.0 * d * passes * self.examples)

    def work(self) -> float:
        """FLOPs of the distances at a modest rate."""
        return 0.1 + self.budget().C / 2e9

    def __call__(self, context: RunContext) -> Outcome:
        """Fit the codebook, then evaluate it on validation and test."""
        started = time.monotonic()
        rng = torch.Generator().manual_seed(self.seed)
        # A negative tolerance never stops the iteration early.
        codes = lbg(self._examples(), self.K, tolerance=-1.0, most=ROUNDS, rng=rng).codes
        loss, test = (self._distortion(codes, split) for split in ("validation", "test"))
        context.watch(Progress(1, 1, loss.value))
        metadata = {"family": "quantiser", "target": self.target.name, "unit": UNIT}
        codebook = torch.nn.ParameterDict({"codes": torch.nn.Parameter(codes)})
        checkpoint.save_weights(context.weights, codebook, metadata)
        budget = self.budget()
        D_unique, seconds = min(self.target.D_unique, budget.D), time.monotonic() - started
        columns = journal_columns(budget, loss, test, D_unique=D_unique, seconds=seconds)
        return Outcome(columns=self.columns | columns)

    def _examples(self) -> Tensor:
        fresh = isinstance(self.target, Points) and self.target.size is None
        if fresh:
            return self.target.batch(0, size=self.examples, seed=self.seed)
        return rows(self.target, self.target.split("train")[: self.examples])

    def _distortion(self, codes: Tensor, split: str) -> Estimate:
        x = rows(self.target, self.target.split(split))
        return independent(nearest(x, codes)[1].double() / x.shape[1])


def quantiser(
    target: Vectors, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
) -> list[Spec]:
    r"""Requests for codebooks of each size N = K d, number of examples and seed, by LBG.

    For a distribution with a density the distortion falls as $K^{-2/d}$.

    References: `linde1980`; `gersho1979`.
    """
    most = [int(min(target.D_unique, D)) for D in tokens]
    sizes = list(dict.fromkeys(max(1, round(N / target.dim)) for N in ladder))
    require(min(most) >= 2, "quantiser.tokens", "be at least 2 examples", min(most))
    return [
        Spec(
            QuantiserRun,
            target=target.spec,
            fingerprint=target.fingerprint,
            K=K,
            examples=n,
            seed=seed,
            rung=rung,
        )
        for rung, K in enumerate(sizes)
        for n in sorted(set(most))
        if n >= K
        for seed in range(seeds)
    ]
