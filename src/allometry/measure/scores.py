r"""Scores from class probabilities: inception, modified inception, mode, AM.

Letters: $p_i = p(y \mid x_i)$ a row of probabilities over K classes, $\bar p$ their mean, $\bar q$
that of the real rows, $H$ entropy. The inputs are probabilities, such as those of `classifier` in
`features`; scores of different classifiers are not comparable.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure import uncertainty
from allometry.measure.sample_inputs import Array, matrix

_TINY = 1e-12


def label_probabilities(data: Array, name: str = "probabilities") -> Float[Tensor, "n k"]:
    """Rows of probabilities, validated: nonnegative, sum 1."""
    p = matrix(data, name).double()
    require(p.shape[1] >= 2, name, "have at least 2 classes", p.shape[1])
    # float32 probabilities sum to 1 within about 1e-6.
    worst = float((p.sum(1) - 1).abs().max())
    require(float(p.min()) >= 0, name, "not be negative", float(p.min()), "Give softmax outputs.")
    require(worst < 1e-4, name, "sum to 1 in each row", 1 + worst, "Give softmax outputs.")
    return p / p.sum(1, keepdim=True)


def inception_score(probabilities: Array) -> Estimate:
    r"""$\exp(H(\bar p) - \overline{H(p_i)})$, from 1 (all equal) to K, without the bias in 1/n.

    The jackknife gives the correction and the interval, on the logarithm.

    References: `salimans2016`; `barratt2018` for its problems.
    """
    p = label_probabilities(probabilities)
    n, K = p.shape
    own = _entropy(p)
    total, rows = p.sum(0), float(own.sum())
    value = float(_entropy(total / n)) - rows / n
    without = _entropy((total - p) / (n - 1)) - (rows - own) / (n - 1)
    return _exponentiated(uncertainty.jackknife(value, without), K)


def modified_inception_score(probabilities: Array) -> Estimate:
    r"""$\exp(E_{i \ne j} KL(p_i \| p_j))$ within each class, averaged over classes.

    It measures diversity within a class: a class of identical samples scores 1. Rows belong to
    their most likely class; classes of fewer than 3 rows are left out.

    References: `gurumurthy2017`
    """
    p = label_probabilities(probabilities).clamp(min=_TINY)
    label = p.argmax(1)
    parts = [_within_class(p[label == c]) for c in label.unique() if int((label == c).sum()) >= 3]
    require(len(parts) >= 1, "probabilities", "have a class with 3 rows", len(p))
    value = float(np.mean([e.value for e in parts]))
    se = math.sqrt(sum((e.se or 0.0) ** 2 for e in parts)) / len(parts)
    method = f"jackknife within {len(parts)} classes"
    return Estimate(value, se=se, lo=max(1.0, value - 1.96 * se), n=len(p), method=method)


def _within_class(p: Float[Tensor, "n k"]) -> Estimate:
    n, logs = len(p), p.log()
    own = (p * logs).sum(1)
    P, L, S = p.sum(0), logs.sum(0), float(own.sum())

    def mean_divergence(P: Tensor, L: Tensor, S: Tensor | float, n: int) -> Tensor:
        return torch.as_tensor(S) / n - ((P * L).sum(-1) - S) / (n * (n - 1))

    value = float(mean_divergence(P, L, S, n))
    without = mean_divergence(P - p, L - logs, S - own, n - 1)
    return _exponentiated(uncertainty.jackknife(value, without, correct=False), math.inf)


def mode_score(real_probabilities: Array, probabilities: Array) -> Estimate:
    r"""$\exp(\overline{KL(p_i \| \bar q)} - KL(\bar p \| \bar q))$.

    As published it equals the inception score of the samples for any real labels: the terms in
    $\bar q$ cancel. `label_divergence` compares the label frequencies.

    References: `che2017`.
    """
    q = label_probabilities(real_probabilities, "real_probabilities")
    p = label_probabilities(probabilities)
    _same_classes(q, p)
    n, K = p.shape
    logq = q.mean(0).clamp(min=_TINY).log()
    own = -_entropy(p) - p @ logq
    total, rows = p.sum(0), float(own.sum())

    def score(mean: Tensor, first: Tensor | float) -> Tensor:
        return first + _entropy(mean) + mean @ logq

    value = float(score(total / n, rows / n))
    without = score((total - p) / (n - 1), (rows - own) / (n - 1))
    return _exponentiated(uncertainty.jackknife(value, without), K)


def label_divergence(real_probabilities: Array, probabilities: Array) -> Estimate:
    r"""$KL(\bar q \| \bar p)$ in nats: divergence of the label frequencies.

    Large if a mode is missing. The jackknife over both sets removes the bias, so that it may be
    below 0 by chance; the interval is conservative for equal distributions.
    """
    q = label_probabilities(real_probabilities, "real_probabilities")
    p = label_probabilities(probabilities)
    _same_classes(q, p)
    return _two_sided(q, p, entropies=False)


def am_score(real_probabilities: Array, probabilities: Array) -> Estimate:
    r"""$KL(\bar q \| \bar p) + \overline{H(p_i)}$ in nats; lower is better.

    References: `zhou2018`.
    """
    q = label_probabilities(real_probabilities, "real_probabilities")
    p = label_probabilities(probabilities)
    _same_classes(q, p)
    return _two_sided(q, p, entropies=True)


def _two_sided(q: Float[Tensor, "m k"], p: Float[Tensor, "n k"], *, entropies: bool) -> Estimate:
    n, m = len(p), len(q)
    own = _entropy(p) if entropies else torch.zeros(n, dtype=p.dtype)
    a, b, rows = q.mean(0), p.mean(0), float(own.mean())

    def score(a: Tensor, b: Tensor, rows: Tensor | float) -> Tensor:
        return -_entropy(a) - (a * b.clamp(min=_TINY).log()).sum(-1) + rows

    value = float(score(a, b, rows))
    over_samples = score(a, (n * b - p) / (n - 1), (n * rows - own) / (n - 1))
    over_real = score((m * a - q) / (m - 1), b, rows)
    return uncertainty.jackknife(value, over_samples, over_real)


def _entropy(p: Float[Tensor, "... k"]) -> Float[Tensor, "..."]:
    return -torch.special.xlogy(p, p).sum(-1)


def _exponentiated(logarithm: Estimate, most: float) -> Estimate:
    slope = math.exp(logarithm.value)
    ceiling = math.inf if math.isinf(most) else float(most)
    return uncertainty.transformed(logarithm, math.exp, slope, floor=1.0, ceiling=ceiling)


def _same_classes(q: Tensor, p: Tensor) -> None:
    K = q.shape[1]
    require(p.shape[1] == K, "probabilities", f"have {K} classes like the real ones", p.shape[1])
