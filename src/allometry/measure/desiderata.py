r"""The audit: controlled experiments for Borji's seven desiderata of each metric.

Held-out rows of the data play the samples of a perfect model. They are corrupted in known ways.
The effect of a corruption on a metric is the change of its badness (the metric oriented so that
more is worse) in standard deviations of one evaluation: at 3 or more, one evaluation detects it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from allometry._core.errors import require
from allometry.measure.catalogue import ENTRIES
from allometry.measure.context import QUICK, Effort, MeasureContext
from allometry.measure.corruptions import collapsed, drop_modes, found_modes, frozen, noisy, turned
from allometry.measure.features import Features, identity
from allometry.measure.sample_inputs import Array, class_labels, tensor, whole_seed
from allometry.measure.score_table import evaluate

SEEN = 3.0
"""Standard deviations at which an effect counts as detected."""

EXPERIMENTS = {
    "noise": "Gaussian noise of 0.25 standard deviations of the data",
    "drop": "30 % of the modes left out",
    "collapse": "20 rows repeated, with a little noise",
    "memorise": "the training rows themselves",
    "frozen": "half of the principal components fixed at their mean",
    "shift": "shifted by one pixel, or 0.1 standard deviations",
    "rotate": "rotated by 10 degrees",
    "size": "a quarter as many uncorrupted samples",
}

DESIDERATA = (
    "fidelity: detects noise",
    "diversity: detects dropped modes, collapse and memorised rows",
    "control: detects fixed components of variation",
    "bounds: has a finite minimum and maximum",
    "invariance: does not detect a small shift or rotation",
    "judgment: ranks four levels of noise in order",
    "cost: a quarter of the samples gives the same result, in under a second",
)


@final
@dataclass(frozen=True)
class MeasureVerdict:
    """The effects of the experiments on one metric.

    Args:
        name: The metric.
        features: Its feature map.
        effects: For each experiment the change of badness in standard deviations.
        ranking: Rank correlation of badness with the level of noise.
        bounded: Whether both bounds are finite.
        seconds: Runtime of one evaluation.
    """

    name: str
    features: str
    effects: dict[str, float]
    ranking: float
    bounded: bool
    seconds: float

    def sees(self, experiment: str) -> bool:
        """Whether one evaluation shows the corrupted samples as worse."""
        return self.effects.get(experiment, math.nan) >= SEEN

    @property
    def meets(self) -> list[float]:
        """For each of the seven desiderata: 1 (met), 0 (not met), or the share of its parts."""
        diversity = [self.sees(e) for e in ("drop", "collapse", "memorise")]
        still = [abs(self.effects.get(e, math.inf)) < SEEN for e in ("shift", "rotate")]
        steady = abs(self.effects.get("size", math.inf)) < 1.0
        return [
            float(self.sees("noise")),
            float(np.mean(diversity)),
            float(self.sees("frozen")),
            float(self.bounded),
            float(np.mean(still)),
            float(self.ranking > 0.89),
            float(steady and self.seconds < 1.0),
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        kept = {k: round(v, 3) for k, v in self.effects.items() if math.isfinite(v)}
        return {
            "features": self.features,
            "effects": kept,
            "ranking": None if math.isnan(self.ranking) else self.ranking,
            "bounded": self.bounded,
            "seconds": self.seconds,
            "desiderata": self.meets,
        }


@final
@dataclass(frozen=True)
class Audit:
    """The verdicts of all metrics, and why others were skipped."""

    verdicts: list[MeasureVerdict]
    skipped: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: one object for each metric."""
        return {v.name: v.to_dict() for v in self.verdicts}


def audit(
    real: Array | None = None,
    *,
    labels: Array | None = None,
    features: Features | None = None,
    rows: int = 400,
    repeats: int = 5,
    effort: Effort = QUICK,
    seed: int = 0,
    only: Sequence[str] | None = None,
    watch: Callable[[str, float], None] | None = None,
) -> Audit:
    """Which corruptions each metric detects: noise, dropped modes, collapse, memorisation, ...

    Args:
        real: Data for the experiments. Default: scikit-learn's digits.
        labels: Their classes. Default: k-means clusters serve as modes.
        features: Feature map for distances.
        rows: Rows of each of the three parts: training, held out, samples.
        repeats: Random partitions of the data; their spread is the unit of the effects.
        effort: Work limits for training and resampling.
        seed: Random seed.
        only: Names of metrics, or prefixes of names.
        watch: Called with the current experiment and the share done.

    References: `borji2019` for the desiderata; `xu2018` for the experiments.
    """
    require(repeats >= 2, "audit.repeats", "be at least 2", repeats)
    x, y, labelled = _data(real, labels)
    rows = min(rows, len(x) // 3)
    require(rows >= 50, "real", "hold at least 150 rows for an audit", len(x))
    space = features or identity()
    entries = [e for e in ENTRIES if only is None or any(e.matches(name) for name in only)]
    seen: dict[str, dict[str, list[float]]] = {}
    spaces: dict[str, str] = {}
    seconds: dict[str, list[float]] = {}
    skipped: dict[str, str] = {}
    for repeat in range(repeats):
        cases = _cases(x, y, labelled, rows, space, effort, seed + repeat)
        for done, (name, case) in enumerate(cases.items()):
            if watch is not None:
                watch(name, (repeat + done / len(cases)) / repeats)
            for entry in entries:
                scores, reason = evaluate(entry, case)
                if reason:
                    skipped[entry.names[0]] = reason
                for row in scores:
                    bad = badness(row.estimate.value, row.better, row.name)
                    seen.setdefault(row.name, {}).setdefault(name, []).append(bad)
                    spaces[row.name] = row.features
                    if name == "honest":
                        seconds.setdefault(row.name, []).append(row.seconds)
    bounds = {name: entry.bounds[name] for entry in entries for name in entry.names}
    verdicts = [
        _verdict(name, spaces[name], values, bounds[name], float(np.mean(seconds[name])))
        for name, values in seen.items()
        if name in seconds
    ]
    return Audit(verdicts, skipped)


def badness(value: float, better: str, name: str) -> float:
    """The value of a metric oriented so that more is worse; p-values and counts as logarithms."""
    if better.startswith("near"):
        return abs(value - float(better.removeprefix("near ")))
    if name.endswith("p_value"):
        return -math.log10(max(value, 1e-300))
    if name == "birthday_support":
        return -math.log(min(value, 1e9))
    return -value if better == "higher" else value


def _data(real: Array | None, labels: Array | None) -> tuple[Tensor, Tensor, bool]:
    """Rows, their modes, and whether the modes are given labels."""
    if real is None:
        from sklearn.datasets import load_digits

        digits: Any = load_digits()
        real, labels = digits.images, digits.target
    assert real is not None
    x = tensor(real, "real", rows=150)
    if labels is not None:
        return x, class_labels(labels, len(x)), True
    return x, found_modes(x), False


def _cases(
    x: Tensor, y: Tensor, labelled: bool, rows: int, space: Features, effort: Effort, seed: int
) -> dict[str, MeasureContext]:
    rng = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(x), generator=rng)
    train, test, fresh = (order[i * rows : (i + 1) * rows] for i in range(3))
    honest = x[fresh]
    spare = x[order[2 * rows :]], y[order[2 * rows :]]

    def case(samples: Tensor) -> MeasureContext:
        return MeasureContext(
            x[test],
            samples,
            labels=y[test] if labelled else None,
            training=x[train],
            features=space,
            effort=effort,
            seed=whole_seed(rng),
        )

    spread = float(x.std())
    levels = {f"level {i}": noisy(honest, s * spread, rng) for i, s in enumerate((0.1, 0.5, 1.0))}
    corrupted = {
        "honest": honest,
        "noise": noisy(honest, 0.25 * spread, rng),
        "drop": drop_modes(*spare, rows, 0.3, rng),
        "collapse": collapsed(honest, 20, 0.01 * spread, rng),
        "memorise": x[train],
        "frozen": frozen(honest, x),
        "shift": turned(honest, degrees=0.0, pixels=1),
        "rotate": turned(honest, degrees=10.0, pixels=0),
        "size": honest[: rows // 4],
        **levels,
    }
    return {name: case(samples) for name, samples in corrupted.items()}


def _verdict(
    name: str,
    space: str,
    values: dict[str, list[float]],
    bounds: tuple[float, float],
    seconds: float,
) -> MeasureVerdict:
    from scipy import stats  # imported here because it is slow

    honest = np.array(values["honest"])
    effects = {}
    for experiment in EXPERIMENTS:
        if experiment in values:
            corrupted = np.array(values[experiment])
            spread = math.sqrt((_variance(honest) + _variance(corrupted)) / 2)
            # For a constant metric the unit is rounding: any change is detected.
            spread = max(spread, 1e-6 * (abs(float(honest.mean())) + 1e-6))
            effects[experiment] = float((corrupted.mean() - honest.mean()) / spread)
    levels = ["honest", "level 0", "noise", "level 1", "level 2"]
    found = [float(np.mean(values[step])) for step in levels if step in values]
    varied = len(found) == len(levels) and len(set(found)) > 1
    ranking = float(stats.spearmanr(range(len(found)), found).statistic) if varied else math.nan
    return MeasureVerdict(name, space, effects, ranking, all(map(math.isfinite, bounds)), seconds)


def _variance(a: np.ndarray) -> float:
    return float(a.var(ddof=1)) if len(a) > 1 else 0.0
