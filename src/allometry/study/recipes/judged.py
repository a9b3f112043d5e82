"""What a trained density is worth: its samples, and its distance from the truth where known."""

import numpy as np
import torch
from torch import nn

from allometry._core.estimate import Estimate
from allometry.measure import energy_distance, prdc
from allometry.study.recipes.latent import code_measures
from allometry.targets import Images, NumericTable, Points

JUDGED, LEAST = 1000, 20
"""Samples that are scored at most, and held-out rows below which nothing is."""

DRAWN = 400
"""Points that a picture of samples shows; images are a tenth of that."""


@torch.no_grad()
def drawn(model: nn.Module, seed: int) -> np.ndarray:
    """Samples for pictures, from the same noise every time."""
    many = DRAWN if len(model.shape) == 1 else DRAWN // 10  # pyright: ignore
    rng = torch.Generator().manual_seed(seed)
    return model.sample(many, rng=rng).numpy().astype(np.float32)  # pyright: ignore


def worth(
    model: nn.Module, target: Points | NumericTable | Images, seed: int
) -> dict[str, Estimate]:
    """What samples are worth beside as many held-out rows, in the rows' own coordinates."""
    real = target.split("validation")[:JUDGED]
    if len(real) < LEAST:
        return {}
    rng = torch.Generator().manual_seed(seed + 1)
    made = model.sample(len(real), rng=rng)  # pyright: ignore
    a, b = (torch.as_tensor(x).flatten(1).double() for x in (real, made))
    found = {"energy_distance": energy_distance(a, b)} | prdc(a, b)
    if isinstance(target, Points):
        found["gap"] = gap(model, target)
    return found | (code_measures(model, target, seed) if isinstance(target, Images) else {})


@torch.no_grad()
def gap(model: nn.Module, target: Points) -> Estimate:
    r"""$\mathrm{KL}(p \| q)$ in nats: by how much the true density scores better on test points.

    Both densities see the same points, so the chance of the draw, far larger than the difference,
    falls out of it; the model's loss less the entropy would keep it.
    """
    rows = target.split("test")
    own = torch.cat([model.log_prob(part) for part in rows.split(1000)])  # pyright: ignore
    lost = target.density.log_prob(rows.double()) - own.double()
    se = lost.std().item() / len(lost) ** 0.5
    return Estimate(lost.mean().item(), se, n=len(lost), method="independent rows")
