"""Baselines without gradient training: histograms of pixels and fitted Gaussians."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.study.recipes.base import identity
from allometry.study.recipes.density_runs import Vectors
from allometry.study.recipes.run_outcome import journal_columns
from allometry.study.recipes.sample_scores import (
    GAN_DATA,
    GAN_SAMPLES,
    GanTarget,
    gan_loss,
    gan_metrics,
    training_rows,
)
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import Images, NumericTable, Points
from allometry.train.budget import Budget
from allometry.train.loop import Progress

FIT_POINTS = 50_000
"""Points that a Gaussian is fitted to if every batch is new."""


@final
@dataclass(frozen=True)
class BaselineRun(Request):
    """The likelihood baseline of a density: a histogram per pixel, or one Gaussian.

    Args:
        target: Points, a table or images.
        fingerprint: Of the target's content.
    """

    target: Vectors
    fingerprint: str

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target and shape; no seed."""
        if isinstance(self.target, Images):
            return identity("histogram", self.target.name, f"{self.target.levels} bins a pixel")
        return identity("gaussian", self.target.name, "full covariance")

    def budget(self) -> Budget:
        """Bins, or means and covariances."""
        d, t = self.target.dim, self.target
        N = d * (t.levels - 1) if isinstance(t, Images) else d + d * (d + 1) // 2
        return Budget(N, 0, int(min(t.D_unique, FIT_POINTS)), 0.0)

    def work(self) -> float:
        """Nearly none."""
        return 0.1

    def __call__(self, context: RunContext) -> Outcome:
        """Fit, then evaluate on validation and test."""
        started = time.monotonic()
        loss, test = (self._loss(split) for split in ("validation", "test"))
        context.watch(Progress(1, 1, loss.value))
        return Outcome(columns=_columns(self, loss, test, started))

    def _loss(self, split: str) -> Estimate:
        from scipy import stats  # slow to import

        target = self.target
        if isinstance(target, Images):
            rows = target.histogram_bits_each(split).numpy()
        else:
            fresh = isinstance(target, Points) and target.size is None
            train = target.batch(0, size=FIT_POINTS, seed=0) if fresh else target.split("train")
            x = train.double().numpy()
            gaussian = stats.multivariate_normal(x.mean(0), np.atleast_2d(np.cov(x.T)))
            rows = -gaussian.logpdf(target.split(split).double().numpy())
            rows = rows + (target.log_scale if isinstance(target, NumericTable) else 0.0)
        se = float(rows.std(ddof=1)) / math.sqrt(len(rows))
        return Estimate(float(rows.mean()), se, n=len(rows), method="independent rows")


@final
@dataclass(frozen=True)
class MomentsRun(Request):
    """The baseline of generators: samples of a Gaussian with the data's mean and covariance.

    `data_loss` is the loss of training rows themselves, a floor for every generator.

    Args:
        target: Points or images.
        fingerprint: Of the target's content.
    """

    target: GanTarget
    fingerprint: str

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target and shape; no seed."""
        return identity("gaussian", self.target.name, "full covariance")

    def budget(self) -> Budget:
        """Means and covariances."""
        d, target = self.target.dim, self.target
        D = (target.size or GAN_DATA) if isinstance(target, Points) else target.D_unique
        return Budget(d + d * (d + 1) // 2, 0, int(D), 0.0)

    def work(self) -> float:
        """Evaluation dominates."""
        return 0.5

    def __call__(self, context: RunContext) -> Outcome:
        """Fit by moments, sample, evaluate."""
        started = time.monotonic()
        data = training_rows(self.target, 0)
        samples = gaussian_samples(data, GAN_SAMPLES, seed=1)
        loss = gan_loss(samples, self.target, "validation")
        test = gan_loss(gaussian_samples(data, GAN_SAMPLES, seed=2), self.target, "test")
        # The distance between finite samples is above 0 even for two samples of the data.
        floor = gan_loss(data[:GAN_SAMPLES], self.target, "validation")
        context.watch(Progress(1, 1, loss.value))
        columns = _columns(self, loss, test, started)
        return Outcome(
            columns=columns | {"data_loss": floor.value, "data_loss_se": floor.se},
            measures=gan_metrics(samples, self.target),
        )


def _columns(run: Request, loss: Estimate, test: Estimate, started: float) -> dict[str, Any]:
    budget = run.budget()
    seconds = time.monotonic() - started
    costs = {"D_unique": budget.D, "seconds": seconds, "counted": False}
    return run.columns | journal_columns(budget, loss, test, **costs)


def gaussian_samples(data: Float[Tensor, "n d"], count: int, seed: int) -> Float[Tensor, "m d"]:
    r"""Samples of $\mathcal N(\bar x, S)$ with the mean and the covariance of rows.

    Pixels may be constant, so the square root of the covariance is by eigenvectors.
    """
    x = data.double()
    values, vectors = torch.linalg.eigh(torch.cov(x.T).reshape(x.shape[1], -1))
    rng = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, x.shape[1], generator=rng, dtype=torch.float64)
    return (x.mean(0) + noise * values.clamp(min=0).sqrt() @ vectors.T).to(data.dtype)


def baseline(
    target: Vectors, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
) -> list[Spec]:
    """One request: a histogram for images, otherwise a Gaussian; sizes and seeds are ignored."""
    return [Spec(BaselineRun, target=target.spec, fingerprint=target.fingerprint)]


def moments(
    target: GanTarget, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
) -> list[Spec]:
    """One request: the Gaussian with the data's moments; sizes and seeds are ignored."""
    return [Spec(MomentsRun, target=target.spec, fingerprint=target.fingerprint)]
