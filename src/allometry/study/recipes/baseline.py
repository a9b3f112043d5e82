"""What a flow must beat: the per-pixel histogram of images, one Gaussian for points."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from allometry._core.estimate import Estimate
from allometry._core.spec import Spec
from allometry.study.recipes.density import Vectors
from allometry.study.recipes.run_outcome import untrained
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import Images, NumericTable, Points
from allometry.train.budget import Budget
from allometry.train.loop import Progress

DRAWS = 50_000
"""Points that a Gaussian is fitted to where every batch is fresh."""


@final
@dataclass(frozen=True)
class BaselineRun(Request):
    """A law with a formula instead of a training: its cost is counting.

    Args:
        target: Points, a table or images.
        fingerprint: Of the target's content.
    """

    target: Vectors
    fingerprint: str

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape; no seed."""
        images = isinstance(self.target, Images)
        return {
            "family": "histogram" if images else "gaussian",
            "target": self.target.name,
            "shape": f"{self.target.levels} bins a pixel" if images else "full covariance",
            "rung": 0,
            "seed": 0,
        }

    def budget(self) -> Budget:
        """Bins, or means and covariances."""
        d, t = self.target.dim, self.target
        N = d * (t.levels - 1) if isinstance(t, Images) else d + d * (d + 1) // 2
        return Budget(N, 0, self._seen, 0.0)

    @property
    def _seen(self) -> int:
        return int(min(self.target.D_unique, DRAWS))

    def work(self) -> float:
        """Next to nothing."""
        return 0.1

    def __call__(self, place: RunContext) -> Outcome:
        """Count, then measure on validation and test."""
        started = time.monotonic()
        loss, test = (self._loss(split) for split in ("validation", "test"))
        place.watch(Progress(1, 1, loss.value))
        seconds = time.monotonic() - started
        return Outcome(columns=self.columns | untrained(self.budget(), loss, test, seconds))

    def _loss(self, split: str) -> Estimate:
        from scipy import stats  # slow to import

        target = self.target
        if isinstance(target, Images):
            rows = target.histogram_bits_each(split).numpy()
        else:
            fresh = isinstance(target, Points) and target.size is None
            train = target.batch(0, size=DRAWS, seed=0) if fresh else target.split("train")
            x = train.double().numpy()
            law = stats.multivariate_normal(x.mean(0), np.atleast_2d(np.cov(x.T)))
            rows = -law.logpdf(target.split(split).double().numpy())
            rows = rows + (target.log_scale if isinstance(target, NumericTable) else 0.0)
        se = float(rows.std(ddof=1)) / math.sqrt(len(rows))
        return Estimate(float(rows.mean()), se, n=len(rows), method="independent rows")


def baseline(
    target: Vectors, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
) -> list[Spec]:
    """One request: the histogram of images, or a Gaussian; sizes and seeds do not concern it."""
    return [Spec(BaselineRun, target=target.spec, fingerprint=target.fingerprint)]
