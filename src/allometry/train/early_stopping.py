"""Early stopping: end runs whose extrapolated final loss is above that of the best."""

import itertools
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from allometry import laws
from allometry._core.errors import AllometryError, require
from allometry._core.estimate import Estimate
from allometry.train.loop import Curve, Progress

POINTS = 8
"""Number of averaged training losses that a curve is fitted to."""


@final
class EarlyStopping:
    r"""Ends runs of a `BatchedTrainer` whose final loss is predicted to be worse than the best.

    The training losses of each run after warm-up are averaged over logarithmically spaced bins.
    $L(t) = E + A t^{-\alpha}$ is fitted to the means and extrapolated to the end. A run is ended
    if its whole interval lies above the interval of the best run. Runs with the same data have the
    same noise, so differences are mostly due to the learning rate. As in successive halving, the
    test is repeated during training, with narrower intervals each time.

    A high learning rate looks worse before its decay than at the end: `slack` allows for the gain
    of the cool-down.

    Args:
        begin: Fraction of the training before which no run is ended.
        slack: Distance in nats above the best interval at which a run is still kept.
        warmup: Fraction of the training whose losses are ignored.

    Example:
        >>> import numpy as np
        >>> from allometry.train.loop import Progress
        >>> judge = EarlyStopping()
        >>> for t in range(1, 201):
        ...     for name, floor in (("good", 1.0), ("bad", 3.0)):
        ...         judge.watch(name, Progress(t, 400, floor + t**-0.5))
        >>> judge(200, {"good": None, "bad": None})
        ['bad']

    References: `jamieson2016` for successive halving; `domhan2015` for stopping by extrapolation.
    """

    def __init__(self, begin: float = 0.15, slack: float = 0.1, warmup: float = 0.05) -> None:
        require(0 < begin < 1, "EarlyStopping.begin", "lie between 0 and 1", begin)
        require(slack >= 0, "EarlyStopping.slack", "be at least 0", slack)
        self.begin, self.slack, self.warmup = begin, slack, warmup
        self.losses: dict[str, list[float]] = {}
        self.steps: dict[str, int] = {}
        self.ends: dict[str, Estimate] = {}
        """The last extrapolation of each run."""

    def watch(self, name: str, progress: Progress) -> None:
        """Record one step of one run; the `watch` argument of the trainer."""
        self.losses.setdefault(name, []).append(progress.loss)
        self.steps[name] = progress.steps

    def __call__(self, step: int, curves: Mapping[str, Curve | None]) -> Sequence[str]:
        """Names of the runs to end; the `judge` argument of the trainer."""
        eligible = [n for n in curves if n in self.steps and step >= self.begin * self.steps[n]]
        for name in eligible:
            end = self._end(name)
            if end is not None:
                self.ends[name] = end
        ends = {name: self.ends[name] for name in eligible if name in self.ends}
        if len(ends) < 2:
            return []
        best = min(ends.values(), key=lambda end: end.value)
        return [n for n, end in ends.items() if end.interval[0] > best.interval[1] + self.slack]

    def _end(self, name: str) -> Estimate | None:
        losses, steps = np.asarray(self.losses[name]), self.steps[name]
        first = max(1, round(self.warmup * steps))
        edges = np.unique(np.geomspace(first, len(losses), POINTS + 1).round().astype(int))
        if len(edges) < 6:
            return None
        pairs = list(itertools.pairwise(edges))
        x = np.array([np.sqrt((a + 1) * b) for a, b in pairs])
        y = np.array([losses[a:b].mean() for a, b in pairs])
        if not (np.isfinite(y).all() and np.ptp(y) > 0):
            return None
        try:
            return laws.extrapolate(x, y, [steps], form="floor", bootstrap=100)[0]
        except AllometryError:
            return None  # a run without a fit is kept
