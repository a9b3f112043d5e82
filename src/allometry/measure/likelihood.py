"""Likelihood: means of dependent losses with standard errors, and their units."""

import math

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate


def block_mean(
    losses: "Float[Tensor, ' n'] | Float[ndarray, ' n']", *, blocks: int | None = None
) -> Estimate:
    r"""Mean of a dependent sequence; its standard error from the means of contiguous blocks.

    Neighbouring losses of a text are correlated, so $s/\sqrt n$ is too small. Blocks much longer
    than the correlation length are nearly independent. With block means $m_1..m_B$ the standard
    error is $\sqrt{\sum_b (m_b - m)^2 / (B(B-1))}$, and the interval uses Student's quantile with
    $B-1$ degrees of freedom.

    Args:
        losses: One value for each token, in the order of the text.
        blocks: B. Default: 30, or fewer for short sequences, so that a block has 8 values.

    References: `flegal2010` for batch means.
    """
    from scipy import stats  # imported here because it is slow

    values = np.asarray(losses, dtype=np.float64)
    n = len(values)
    require(n >= 1, "block_mean.losses", "hold at least one value", n)
    chosen = max(2, min(30, n // 8)) if blocks is None else blocks
    require(chosen >= 2, "block_mean.blocks", "be at least 2", chosen)
    mean = float(values.mean())
    if n < chosen:
        return Estimate(mean, n=n, method="too few values for a standard error")
    edges = np.linspace(0, n, chosen + 1).astype(np.int64)
    lengths = np.diff(edges)
    means = np.add.reduceat(values, edges[:-1]) / lengths
    # Weighted, because lengths differ by one if B does not divide n.
    weights = lengths / n
    variance = chosen / (chosen - 1) * float(np.sum(weights**2 * (means - mean) ** 2))
    se = math.sqrt(variance)
    half = float(stats.t.ppf(0.975, chosen - 1)) * se
    return Estimate(
        mean, se=se, lo=mean - half, hi=mean + half, n=n, method=f"{chosen} contiguous blocks"
    )


def bits(loss: Estimate) -> Estimate:
    r"""Nats converted to bits: divided by $\ln 2$."""
    return scaled(loss, 1 / math.log(2))


def per_character(loss: Estimate, characters_per_token: float | int) -> Estimate:
    """Nats per token converted to nats per character."""
    require(characters_per_token > 0, "characters_per_token", "be positive", characters_per_token)
    return scaled(loss, 1 / characters_per_token)


def perplexity(loss: Estimate) -> Estimate:
    r"""$e^{\text{loss}}$ with the transformed interval and a delta-method standard error."""
    return loss.through(math.exp, math.exp(loss.value))


def scaled(loss: Estimate, factor: float) -> Estimate:
    """An estimate in another unit; `factor` is positive."""
    require(factor > 0, "scaled.factor", "be positive", factor)
    return loss.through(lambda x: factor * x, factor)
