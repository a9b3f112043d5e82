r"""Adversarial projection as robust estimation: a Gaussian's mean from contaminated data.

Data come from $(1 - \epsilon) N(\mu, I) + \epsilon\,\delta$-like outliers (Huber's model). A
generator that can only move its Gaussian is fitted by an adversarial loss; how far its mean ends
from $\mu$, against $\epsilon$, tells how robust the distance behind the loss is. Letters: M
members, d dimensions, n rows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from allometry._core.errors import require
from allometry._core.estimate import Estimate
from allometry.measure.uncertainty import mean
from allometry.models.gan import Discriminator, Location
from allometry.train.f_divergences import TOTAL_VARIATION
from allometry.train.game.gan import GANSettings, GANTraining
from allometry.train.gan_costs import MINIMAX, WASSERSTEIN, f_gan
from allometry.train.packed.stack import StackedModels

LOSSES: Mapping[str, GANSettings] = {
    # A critic of steep slopes saturates, and its player is left to wander: hence the clip, the
    # generator's slower pace, the larger batch and rates that fall.
    "total variation": GANSettings(
        costs=f_gan(TOTAL_VARIATION),
        batch=500,
        lr=0.003,
        lr_discriminator=0.02,
        turns=4,
        clip=0.5,
        decay=400,
    ),
    "Jensen-Shannon": GANSettings(costs=MINIMAX, batch=250, lr=0.02, turns=2),
    "Wasserstein": GANSettings(costs=WASSERSTEIN, batch=250, lr=0.02, turns=2, penalty=1.0),
}
"""The games by the distance they stand for."""


def contaminated(
    share: float, n: int, dim: int, outlier: float, rng: np.random.Generator
) -> Float[ndarray, "n d"]:
    """Draws of a standard Gaussian with `share` of them moved to `outlier` along every axis.

    References: `huber1964`.
    """
    require(0 <= share < 0.5, "share", "lie in [0, 0.5)", share)
    x = rng.normal(size=(n, dim))
    bad = rng.random(n) < share
    x[bad] = outlier + 0.5 * rng.normal(size=(int(bad.sum()), dim))
    return x


def contamination(
    losses: Mapping[str, GANSettings] | None = None,
    shares: Sequence[float] = (0.0, 0.1, 0.2),
    *,
    seeds: int = 10,
    n: int = 2000,
    dim: int = 2,
    outlier: float = 4.0,
    steps: int = 400,
    scaled: bool = False,
) -> list[dict[str, object]]:
    r"""Error of the estimated mean, $\|\hat\mu - \mu\|/\sqrt d$, by loss and share of outliers.

    All seeds and shares of a loss are one packed game. The sample mean and the median stand
    beside. The last quarter of the generator's way is averaged.

    Args:
        losses: Rules by name; `LOSSES` if not given.
        shares: Of outliers.
        seeds: Data sets of each share.
        n: Rows of a data set.
        dim: d.
        outlier: Where outliers lie, along every axis.
        steps: Of the generator.
        scaled: Whether the generator may stretch too: a larger class.

    Returns:
        Rows with loss, share and error, an `Estimate` over data sets.

    References: `gao2019`; `huber1964`.
    """
    require(seeds >= 2, "seeds", "be at least 2", seeds)
    sets = {
        share: [
            contaminated(share, n, dim, outlier, np.random.default_rng([i, round(1e6 * share)]))
            for i in range(seeds)
        ]
        for share in shares
    }
    rows: list[dict[str, object]] = []
    for share, many in sets.items():
        for name, middle in (("mean", np.mean), ("median", np.median)):
            errors = [float(np.linalg.norm(middle(x, axis=0))) / math.sqrt(dim) for x in many]
            rows.append({"loss": name, "share": share, "error": _over(errors)})
    data = torch.from_numpy(np.stack([x for many in sets.values() for x in many])).float()
    for name, rules in (losses or LOSSES).items():
        found = _fit(rules, data, steps, scaled)
        errors = (found.norm(dim=1) / math.sqrt(dim)).reshape(len(shares), seeds)
        for share, each in zip(shares, errors.tolist(), strict=True):
            rows.append({"loss": name, "share": share, "error": _over(each)})
    return rows


def _over(errors: list[float]) -> Estimate:
    """Their mean, with an interval on the log: no norm is below 0."""
    found = mean(np.array(errors), f"Student's on the log, over {len(errors)} data sets")
    if found.value == 0 or found.hi is None:
        return found
    factor = math.exp((found.hi - found.value) / found.value)
    return replace(found, lo=found.value / factor, hi=found.value * factor)


def _fit(rules: GANSettings, data: torch.Tensor, steps: int, scaled: bool) -> torch.Tensor:
    """The mean that each member's generator ends at."""
    M, _, dim = data.shape
    rngs = [torch.Generator().manual_seed(i) for i in range(M)]
    G = StackedModels([Location(dim, scaled).float() for _ in range(M)])
    D = StackedModels([Discriminator(dim, 16, 1, pieces=1, rng=g).float() for g in rngs])
    with torch.no_grad():
        # From the coordinatewise median, as the theory of these estimators has it.
        G.flat[:, :dim] = data.median(1).values
    contest = GANTraining(G, D, data, rules, list(range(M)))
    kept = []
    for step in range(steps):
        contest.step()
        if step >= 3 * steps // 4:
            kept.append(G.flat.detach()[:, :dim].clone())
    return torch.stack(kept).mean(0)
