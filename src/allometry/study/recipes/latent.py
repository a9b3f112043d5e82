"""What there is to see and to count of a code: traversals, ways between examples, its use.

Letters: n examples, u units, v values or steps, c channels, h height, w width.
"""

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from allometry._core.estimate import Estimate
from allometry.models import autoencoders as ae
from allometry.targets import Images

UNITS, REACH, STEPS, SHOWN = 8, 2.5, 9, 10
"""Units that are traversed, how far either way, pictures of a way, examples with their copies."""


@torch.no_grad()
def latent_pictures(model: nn.Module, target: Images) -> dict[str, ndarray]:
    """Arrays of images in the target's own values; nothing where the model has no code.

    `reconstruction` is (2, n, c, h, w): held-out examples, and what their codes stand for.
    `interpolation` is (n, v, c, h, w): ways between pairs of them, straight in the code.
    `traversal`, of VAEs, is (u, v, c, h, w): the units that tell most, each taken through its
    values while the others stay at those of the first example.
    """
    if not isinstance(model, ae.VAE | ae.GenerativeVQVAE):
        return {}
    x = target.split("validation")[:SHOWN]
    pairs = [x[i : i + 2] for i in range(0, min(8, len(x) - 1), 2)]
    seen: dict[str, Tensor] = {}
    if isinstance(model, ae.VAE):
        mean, _ = model.posterior(x)
        seen["reconstruction"] = model.likelihood.mean(model.decoder(mean))
        spread = model.posterior(target.split("validation"))[0].var(0)
        units = spread.argsort(descending=True)[:UNITS].tolist()
        values = np.linspace(-REACH, REACH, STEPS).tolist()
        seen["traversal"] = torch.stack([model.traverse(x, u, values) for u in units])
    else:
        seen["reconstruction"] = model.decode(model.encode(x))
    if pairs:
        seen["interpolation"] = torch.stack([model.interpolate(p, STEPS) for p in pairs])
    copies = seen["reconstruction"]
    seen["reconstruction"] = torch.stack([x.to(copies.dtype), copies])
    return {name: t.numpy().astype(np.float32) for name, t in seen.items()}


@torch.no_grad()
def code_measures(model: nn.Module, target: Images, seed: int) -> dict[str, Estimate]:
    """How much of a code is in use on held-out examples; nothing where the model has no code."""
    x = target.split("validation")
    if isinstance(model, ae.VAE):
        rng = torch.Generator().manual_seed(seed)
        return {
            "active_units": ae.active_units(model, x),
            "mutual_information": ae.mutual_information(model, x[:1000], rng),
        }
    if isinstance(model, ae.GenerativeVQVAE):
        use = ae.perplexity(model.encode(x), model.K)
        told = {"exact": True, "method": "of these examples' codes", "n": len(x)}
        return {"code_perplexity": Estimate(use, **told)}
    return {}
