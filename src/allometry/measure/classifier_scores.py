"""Metrics that train classifiers on samples and on data.

`labels` belong to `real`, `sample_labels` to `samples`. If the latter are not given, a classifier
trained on one half of the real rows predicts them.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import uncertainty
from allometry.measure.classifier import Classifier, fit_classifier
from allometry.measure.sample_inputs import Array, as_tensor, class_labels, generator, tensor


@final
@dataclass(frozen=True)
class TrainTest:
    """Real rows for training and for testing, samples with their labels."""

    train: Float[Tensor, "a ..."]
    train_labels: Int[Tensor, " a"]
    test: Float[Tensor, "b ..."]
    test_labels: Int[Tensor, " b"]
    samples: Float[Tensor, "m ..."]
    sample_labels: Int[Tensor, " m"]
    classes: int
    labelled: str

    def fitted(self, x: Tensor, y: Tensor, steps: int, rng: torch.Generator) -> Classifier:
        """A classifier of these classes."""
        return fit_classifier(x, y, classes=self.classes, steps=steps, rng=rng)


def split(
    real: Array,
    labels: Array,
    samples: Array,
    sample_labels: Array | None,
    *,
    steps: int,
    rng: torch.Generator,
) -> TrainTest:
    """One half of the real rows for training, the other for testing."""
    x, y = tensor(real, "real", rows=8), tensor(samples, "samples", rows=4)
    shape = tuple(x.shape[1:])
    require(
        shape == tuple(y.shape[1:]), "samples", f"be rows of shape {shape}", tuple(y.shape[1:])
    )
    known = as_tensor(labels).reshape(-1)
    ranked = class_labels(known, len(x))
    classes = int(ranked.max()) + 1
    order = torch.randperm(len(x), generator=rng)
    a, b = order[: len(x) // 2], order[len(x) // 2 :]
    if sample_labels is None:
        annotator = fit_classifier(x[a], ranked[a], classes=classes, steps=steps, rng=rng)
        given, source = annotator.probabilities(y).argmax(1), "samples labelled by a classifier"
    else:
        given = as_tensor(sample_labels).reshape(-1)
        require(len(given) == len(y), "sample_labels", f"have {len(y)} entries", len(given))
        names = torch.unique(known)
        unknown = ~torch.isin(given, names)
        require(not bool(unknown.any()), "sample_labels", "be labels of real", given[unknown][:1])
        given, source = torch.searchsorted(names, given.to(names)), "samples' own labels"
    return TrainTest(x[a], ranked[a], x[b], ranked[b], y, given, classes, source)


def classification(
    real: Array,
    labels: Array,
    samples: Array,
    sample_labels: Array | None = None,
    *,
    steps: int = 300,
    rng: torch.Generator | None = None,
) -> dict[str, Estimate]:
    """All metrics of this file from one classifier trained on samples and one on data.

    Both classifiers have equally many training rows and the same held-out real rows, so that
    differences have the interval of a paired difference, given the classifiers.

    References: `shmelkov2018`; `santurkar2018`; `yang2017`.
    """
    rng = generator(rng)
    s = split(real, labels, samples, sample_labels, steps=steps, rng=rng)
    size = min(len(s.train), len(s.samples))
    chosen = torch.randperm(len(s.samples), generator=rng)[:size]
    theirs = s.fitted(s.samples[chosen], s.sample_labels[chosen], steps, rng)
    ours = s.fitted(s.train[:size], s.train_labels[:size], steps, rng)
    a, b = theirs.correct(s.test, s.test_labels), ours.correct(s.test, s.test_labels)
    method = f"{s.labelled}; {size} training rows; held-out real rows, given the classifiers"
    found = {
        "train_on_samples_accuracy": uncertainty.proportion(int(a.sum()), len(a), method),
        "boundary_distortion": uncertainty.mean(b - a, method),
        "adversarial_accuracy": _ratio(a, b, method),
        "adversarial_divergence": uncertainty.mean(_divergence(ours, theirs, s.test), method),
    }
    if sample_labels is not None:
        right = ours.correct(s.samples, s.sample_labels)
        found["accuracy_on_samples"] = uncertainty.proportion(
            int(right.sum()), len(right), "samples, given the classifier"
        )
    return found


def _ratio(a: Float[Tensor, " n"], b: Float[Tensor, " n"], method: str) -> Estimate:
    bottom = float(b.mean())
    require(bottom > 0, "labels", "be learnable from real", "accuracy 0")
    ratio = float(a.mean()) / bottom
    return uncertainty.influence(ratio, (a - ratio * b) / bottom, method=method)


def _divergence(ours: Classifier, theirs: Classifier, x: Tensor) -> Float[Tensor, " n"]:
    p, q, tiny = ours.probabilities(x), theirs.probabilities(x), math.ulp(1.0)
    return (p * (p.clamp(min=tiny).log() - q.clamp(min=tiny).log())).sum(1)


def train_on_samples_accuracy(
    real: Array,
    labels: Array,
    samples: Array,
    sample_labels: Array | None = None,
    *,
    steps: int = 300,
    rng: torch.Generator | None = None,
) -> Estimate:
    """Accuracy on real rows of a classifier trained on samples.

    References: `shmelkov2018`, GAN-train; `ravuri2019`.
    """
    found = classification(real, labels, samples, sample_labels, steps=steps, rng=rng)
    return found["train_on_samples_accuracy"]


def accuracy_on_samples(
    real: Array,
    labels: Array,
    samples: Array,
    sample_labels: Array,
    *,
    steps: int = 300,
    rng: torch.Generator | None = None,
) -> Estimate:
    """Accuracy on the samples, by their own labels, of a classifier trained on real rows.

    References: `shmelkov2018`, GAN-test.
    """
    found = classification(real, labels, samples, sample_labels, steps=steps, rng=rng)
    return found["accuracy_on_samples"]


def boundary_distortion(
    real: Array,
    labels: Array,
    samples: Array,
    sample_labels: Array | None = None,
    *,
    steps: int = 300,
    rng: torch.Generator | None = None,
) -> Estimate:
    """Loss of accuracy on real rows from training on samples instead of equally many real rows.

    References: `santurkar2018`.
    """
    found = classification(real, labels, samples, sample_labels, steps=steps, rng=rng)
    return found["boundary_distortion"]


def adversarial_accuracy(
    real: Array,
    labels: Array,
    samples: Array,
    sample_labels: Array | None = None,
    *,
    steps: int = 300,
    rng: torch.Generator | None = None,
) -> Estimate:
    """Accuracy on real rows after training on samples over that after training on data.

    Differs from the paper: one ratio instead of two accuracies; 1 for equal distributions.

    References: `yang2017`
    """
    found = classification(real, labels, samples, sample_labels, steps=steps, rng=rng)
    return found["adversarial_accuracy"]


def adversarial_divergence(
    real: Array,
    labels: Array,
    samples: Array,
    sample_labels: Array | None = None,
    *,
    steps: int = 300,
    rng: torch.Generator | None = None,
) -> Estimate:
    r"""Mean over real rows of $KL(p_{real}(y|x) \| p_{samples}(y|x))$ of the two classifiers.

    References: `yang2017`
    """
    found = classification(real, labels, samples, sample_labels, steps=steps, rng=rng)
    return found["adversarial_divergence"]
