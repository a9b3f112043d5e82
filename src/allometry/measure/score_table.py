"""All metrics of two sets in one table: `score` computes those that the data allow.

Each entry has a feature space, an orientation (which values are better) and bounds. The audit in
`desiderata.py` tests the same entries.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from allometry._core.errors import AllometryError, require
from allometry._core.estimate import Estimate
from allometry.measure import features as feature_maps
from allometry.measure.catalogue import ENTRIES
from allometry.measure.context import FULL, Effort, MeasureContext
from allometry.measure.entries import Entry
from allometry.measure.features import Features
from allometry.measure.sample_inputs import Array, tensor
from allometry.measure.threads import SMALL, one_thread
from allometry.measure.verdict import SampleVerdict, judge


@final
@dataclass(frozen=True)
class Score:
    """A computed metric: its value, features and runtime."""

    name: str
    estimate: Estimate
    features: str
    better: str
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        extra = {"features": self.features, "better": self.better, "method": self.estimate.method}
        return self.estimate.to_dict() | extra | {"n": self.estimate.n}


@final
@dataclass(frozen=True)
class Scores:
    """The computed metrics, why others were skipped, and a verdict.

    Args:
        rows: The metrics.
        skipped: The reason for each skipped metric.
        verdict: The verdict with its reasons; None if metrics that it needs are missing.
    """

    rows: list[Score]
    skipped: dict[str, str]
    verdict: SampleVerdict | None = None

    def __getitem__(self, name: str) -> Estimate:
        for row in self.rows:
            if row.name == name:
                return row.estimate
        raise KeyError(name)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """`{name: {"value", "se", "lo", "hi", "features", ...}}`, with `verdict` as one more name.

        The verdict has the same five keys, which are empty, and `kind`, `summary`, `reasons`.
        """
        found = {row.name: row.to_dict() for row in self.rows}
        return found if self.verdict is None else {"verdict": self.verdict.to_dict()} | found


def score(
    real: Array,
    samples: Array,
    *,
    labels: Array | None = None,
    sample_labels: Array | None = None,
    training: Array | None = None,
    rivals: Mapping[str, Array] | None = None,
    features: "Features | nn.Module | Callable[[Tensor], Tensor] | None" = None,
    only: Sequence[str] | None = None,
    effort: Effort = FULL,
    seed: int = 0,
    watch: Callable[[str], None] | None = None,
) -> Scores:
    """Compute every metric that the data allow, with its interval and features.

    Args:
        real: Held-out data: (n, d) rows or (n, h, w) or (n, c, h, w) images.
        samples: Samples of the model, any number.
        labels: A class for each real row, for the metrics that train classifiers.
        sample_labels: A class for each sample, if the model has classes.
        training: The rows the model was trained on, for the tests of copying.
        rivals: Samples of other models by name. Default: samples of a fitted Gaussian.
        features: Feature map for distances. Default: the data themselves.
        only: Names of metrics, or prefixes of names. Default: all.
        effort: Work limits for training and resampling.
        seed: Random seed.
        watch: Called with the name of each metric before it starts.

    References: `borji2019`.
    """
    space = feature_maps.resolve(features)
    # Validate once, so that an error is not repeated for every metric.
    tensor(real, "real")
    tensor(samples, "samples")
    case = MeasureContext(
        real, samples, labels, sample_labels, training, rivals or {}, space, effort, seed
    )
    x, y = case.pair  # fails here if the features fail
    small = max(tensor(real, "real").numel(), x.numel()) + y.numel() < SMALL
    wanted = [e for e in ENTRIES if only is None or any(e.matches(name) for name in only)]
    known = ", ".join(name for e in ENTRIES for name in e.names)
    require(len(wanted) > 0, "only", "name metrics", list(only or []), f"There are: {known}.")
    rows: list[Score] = []
    skipped: dict[str, str] = {}
    for entry in wanted:
        if watch is not None:
            watch(entry.names[0])
        with one_thread(small):
            scores, reason = evaluate(entry, case)
        rows += [
            row for row in scores if only is None or any(row.name.startswith(o) for o in only)
        ]
        if reason:
            skipped[entry.names[0]] = reason
    verdict = judge({row.name: row.estimate for row in rows}, x, y)
    return Scores(rows, skipped, verdict)


def evaluate(entry: Entry, case: MeasureContext) -> tuple[list[Score], str]:
    """The scores of one entry, or none and the reason."""
    started = time.perf_counter()
    try:
        found = entry.run(case)
    except AllometryError as error:
        return [], str(error)
    except OverflowError:
        return [], "values must have finite squares; got larger ones. Rescale the columns."
    seconds = time.perf_counter() - started
    space = entry.space(case)
    return [
        Score(name, estimate, space, entry.better.get(name, "lower"), seconds / len(found))
        for name, estimate in found.items()
        if not math.isnan(estimate.value)
    ], ""


def feature_map(name: str, real: Array, labels: Array | None, seed: int = 0) -> Features:
    """The feature map of a name: identity, pca, pca:K, random, classifier, a .onnx file."""
    kind, _, size = name.partition(":")
    if name.endswith(".onnx"):
        return feature_maps.onnx(Path(name))
    require(
        kind in ("identity", "pca", "random", "classifier"),
        "features",
        "be identity, pca, pca:K, random, classifier or a .onnx file",
        name,
    )
    require(not size or size.isdigit(), "features", "have a whole number after the colon", name)
    if kind == "identity":
        return feature_maps.identity()
    if kind == "pca":
        x = tensor(real, "real")
        most = min(len(x) - 1, x[0].numel())
        return feature_maps.pca(x, int(size) if size else min(64, most))
    if kind == "random":
        return feature_maps.random_network(real, int(size) if size else 64, seed)
    require(labels is not None, "labels", "be given for features of a classifier", None)
    assert labels is not None
    rng = torch.Generator().manual_seed(seed)
    return feature_maps.classifier(real, labels, rng=rng)[0]
