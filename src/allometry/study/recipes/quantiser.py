"""Vector quantisers of any size: distortion against the number of codes.

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
from allometry.study.recipes.density import Vectors
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import Images, Points
from allometry.train import checkpoint
from allometry.train.budget import Budget
from allometry.train.loop import Progress

ROUNDS = 12
"""Of Lloyd's iteration after each split: fixed, so that compute is known beforehand."""

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
        examples: n, what it is made for.
        seed: Of the examples and the splits.
        rung: Which size of the ladder this is, from 0.
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
        return {
            "family": "quantiser",
            "target": self.target.name,
            "shape": f"{self.K} codes",
            "rung": self.rung,
            "seed": self.seed,
        }

    def budget(self) -> Budget:
        """Codes times dimensions; a multiplication and an addition for each of a distance."""
        sizes, k = [1], 1
        while k < self.K:
            k = min(2 * k, self.K)
            sizes.append(k)
        d = self.target.dim
        # Every split also looks for the cells that err most.
        passes = ROUNDS * sum(sizes) + sum(sizes[:-1]) + self.K
        return Budget(self.K * d, 0, self.examples, 2.0 * d * passes * self.examples)

    def work(self) -> float:
        """Distances at a modest rate."""
        return 0.1 + self.budget().C / 2e9

    def __call__(self, place: RunContext) -> Outcome:
        """Make the codebook, then measure it on validation and test."""
        started = time.monotonic()
        torch.set_default_dtype(torch.float32)
        x = self._examples()
        rng = torch.Generator().manual_seed(self.seed)
        # Below 0 the tolerance never stops a round early.
        made = lbg(x, self.K, tolerance=-1.0, most=ROUNDS, rng=rng)
        loss, test = (self._distortion(made.codes, split) for split in ("validation", "test"))
        place.watch(Progress(1, 1, loss.value))
        about = {"family": "quantiser", "target": self.target.name, "unit": UNIT}
        book = torch.nn.ParameterDict({"codes": torch.nn.Parameter(made.codes)})
        checkpoint.save_weights(place.weights, book, about)
        budget = self.budget()
        return Outcome(
            columns=self.columns
            | {
                "N": budget.N,
                "N_embedding": 0,
                "D": budget.D,
                "D_unique": min(self.target.D_unique, budget.D),
                "C": budget.C,
                "C_6ND": budget.C_6ND,
                "loss": loss.value,
                "loss_se": loss.se,
                "test_loss": test.value,
                "test_loss_se": test.se,
                "seconds": time.monotonic() - started,
            }
        )

    def _examples(self) -> Tensor:
        fresh = isinstance(self.target, Points) and self.target.size is None
        if fresh:
            return self.target.batch(0, size=self.examples, seed=self.seed)
        return rows(self.target, self.target.split("train")[: self.examples])

    def _distortion(self, codes: Tensor, split: str) -> Estimate:
        x = rows(self.target, self.target.split(split))
        squares = nearest(x, codes)[1].double() / x.shape[1]
        se = squares.std().item() / len(x) ** 0.5
        return Estimate(squares.mean().item(), se, n=len(x), method="independent rows")


def quantiser(
    target: Vectors, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
) -> list[Spec]:
    r"""Requests for codebooks of each size N = K d, number of examples and seed, by LBG.

    On a law with a density the distortion falls as $K^{-2/d}$, which a study can be held against.

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
