"""Who need not train on: members whose extrapolated end lies above that of the best."""

import itertools
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from allometry import laws
from allometry._core.errors import AllometryError, require
from allometry._core.estimate import Estimate
from allometry.train.loop import Curve, Progress

POINTS = 8
"""Means of the training loss that a curve is fitted to."""


@final
class EarlyStopping:
    r"""Sends members of a `Crowd` away whose final loss would be worse than the best one's.

    Of each member the losses of its own steps after the warm-up are averaged in stretches of equal
    length in the logarithm, the law $L(t) = E + A t^{-\alpha}$ is fitted to the means, and the end
    is extrapolated with its interval. Whoever's interval lies wholly above the interval of the
    lowest is hopeless. Members that see the same data make the same chance errors, so what decides
    is nearly all rate. As under successive halving, judgement falls several times on the way, with
    narrower intervals each time.

    A rate that is high looks worse before the rate falls than it will at the end: `slack` is what
    a cool-down may still win for it.

    Args:
        begin: Share of the training before which nobody is sent away.
        slack: Nats that an interval may lie above the best one's and yet be kept.
        warmup: Share of the training whose losses are left out.

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
        """The last extrapolation of each member."""

    def watch(self, name: str, progress: Progress) -> None:
        """Take in one step of one member; pass it to the crowd as `watch`."""
        self.losses.setdefault(name, []).append(progress.loss)
        self.steps[name] = progress.steps

    def __call__(self, step: int, curves: Mapping[str, Curve | None]) -> Sequence[str]:
        """Who shall leave, of those who are there; pass it to the crowd as `judge`."""
        there = [n for n in curves if n in self.steps and step >= self.begin * self.steps[n]]
        for name in there:
            end = self._end(name)
            if end is not None:
                self.ends[name] = end
        ends = {name: self.ends[name] for name in there if name in self.ends}
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
            return None  # what can't be fitted is not judged
