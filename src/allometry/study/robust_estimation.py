r"""Adversarial training as robust estimation of a Gaussian's mean from contaminated data.

Data come from $(1 - \epsilon) N(\mu, I)$ with a share $\epsilon$ of outliers (Huber's model). A
generator that can only translate its Gaussian is fitted by an adversarial loss. The error of its
mean as a function of $\epsilon$ shows how robust the loss is. Letters: M members, d dimensions,
n rows.
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
    # A critic with steep slopes saturates and gives the generator no gradient: hence the clip, the
    # lower rate of the generator, the larger batch and the decay.
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
"""GAN settings by the divergence or distance that they minimise."""


def contaminated(
    share: float, n: int, dim: int, outlier: float, rng: np.random.Generator
) -> Float[ndarray, "n d"]:
    """Samples of a standard Gaussian, a `share` of them replaced by outliers on the diagonal.

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

    All seeds and shares of a loss are trained in one vectorised GAN. The sample mean and median
    are baselines. The estimate averages the last quarter of the generator's iterates.

    Args:
        losses: Settings by name. Default: `LOSSES`.
        shares: Of outliers.
        seeds: Data sets of each share.
        n: Rows of a data set.
        dim: d.
        outlier: Coordinate of the outliers on every axis.
        steps: Of the generator.
        scaled: Whether the generator can also scale: a larger class.

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
    for share, data_sets in sets.items():
        for name, centre in (("mean", np.mean), ("median", np.median)):
            errors = [float(np.linalg.norm(centre(x, axis=0))) / math.sqrt(dim) for x in data_sets]
            rows.append({"loss": name, "share": share, "error": _mean_error(errors)})
    data = torch.from_numpy(
        np.stack([x for data_sets in sets.values() for x in data_sets])
    ).float()
    for name, settings in (losses or LOSSES).items():
        means = _fit(settings, data, steps, scaled)
        errors = (means.norm(dim=1) / math.sqrt(dim)).reshape(len(shares), seeds)
        for share, each in zip(shares, errors.tolist(), strict=True):
            rows.append({"loss": name, "share": share, "error": _mean_error(each)})
    return rows


def _mean_error(errors: list[float]) -> Estimate:
    """Their mean with an interval on the log scale, since norms are positive."""
    found = mean(np.array(errors), f"Student's on the log, over {len(errors)} data sets")
    if found.value == 0 or found.hi is None:
        return found
    factor = math.exp((found.hi - found.value) / found.value)
    return replace(found, lo=found.value / factor, hi=found.value * factor)


def _fit(settings: GANSettings, data: torch.Tensor, steps: int, scaled: bool) -> torch.Tensor:
    """The estimated mean of each member."""
    M, _, dim = data.shape
    rngs = [torch.Generator().manual_seed(i) for i in range(M)]
    G = StackedModels([Location(dim, scaled).float() for _ in range(M)])
    D = StackedModels([Discriminator(dim, 16, 1, pieces=1, rng=g).float() for g in rngs])
    with torch.no_grad():
        # Start from the coordinatewise median, as the theory of these estimators requires.
        G.flat[:, :dim] = data.median(1).values
    training = GANTraining(G, D, data, settings, list(range(M)))
    iterates = []
    for step in range(steps):
        training.step()
        if step >= 3 * steps // 4:
            iterates.append(G.flat.detach()[:, :dim].clone())
    return torch.stack(iterates).mean(0)
