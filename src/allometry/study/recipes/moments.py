"""What a generator must beat: the Gaussian with the data's mean and covariance, sampled."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.spec import Spec
from allometry.study.recipes.imitated import (
    DATA,
    JUDGED,
    Imitated,
    distance,
    measures,
    training_rows,
)
from allometry.study.recipes.run_outcome import untrained
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import Points
from allometry.train.budget import Budget
from allometry.train.loop import Progress


@final
@dataclass(frozen=True)
class MomentsRun(Request):
    """Samples of a fitted Gaussian, judged as those of a generator are.

    Also judges training rows themselves, `data_loss`: what no generator can be expected to beat.

    Args:
        target: Points or images.
        fingerprint: Of the target's content.
    """

    target: Imitated
    fingerprint: str

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape; no seed."""
        return {"family": "gaussian", "target": self.target.name, "shape": "full covariance",
                "rung": 0, "seed": 0}  # fmt: skip

    def budget(self) -> Budget:
        """Means and covariances."""
        d, target = self.target.dim, self.target
        seen = (target.size or DATA) if isinstance(target, Points) else target.D_unique
        return Budget(d + d * (d + 1) // 2, 0, int(seen), 0.0)

    def work(self) -> float:
        """As long as judging takes."""
        return 0.5

    def __call__(self, place: RunContext) -> Outcome:
        """Fit by moments, draw, judge."""
        torch.set_default_dtype(torch.float32)
        started = time.monotonic()
        data = training_rows(self.target, 0)
        made = gaussian_samples(data, JUDGED, seed=1)
        loss = distance(made, self.target, "validation")
        test = distance(gaussian_samples(data, JUDGED, seed=2), self.target, "test")
        # A distance of finite samples is above 0 even between data and data.
        floor = distance(data[:JUDGED], self.target, "validation")
        place.watch(Progress(1, 1, loss.value))
        found = untrained(self.budget(), loss, test, time.monotonic() - started)
        return Outcome(
            columns=self.columns | found | {"data_loss": floor.value, "data_loss_se": floor.se},
            measures=measures(made, self.target),
        )


def gaussian_samples(data: Float[Tensor, "n d"], count: int, seed: int) -> Float[Tensor, "m d"]:
    r"""Draws of $\mathcal N(\bar x, S)$ with the mean and the covariance of rows.

    Pixels may be constant, so the root of the covariance is by its eigenvectors.
    """
    x = data.double()
    values, vectors = torch.linalg.eigh(torch.cov(x.T).reshape(x.shape[1], -1))
    rng = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, x.shape[1], generator=rng, dtype=torch.float64)
    return (x.mean(0) + noise * values.clamp(min=0).sqrt() @ vectors.T).to(data.dtype)


def moments(
    target: Imitated, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
) -> list[Spec]:
    """One request: the Gaussian of the data's moments; sizes and seeds do not concern it."""
    return [Spec(MomentsRun, target=target.spec, fingerprint=target.fingerprint)]
