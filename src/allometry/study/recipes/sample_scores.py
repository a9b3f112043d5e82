"""Evaluation metrics of a model's samples, and the samples that reports show.

Letters: n rows or examples, d numbers in a row, k modes, u latent units, v values or steps, c
channels, h height, w width.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor, nn

from allometry._core.estimate import Estimate
from allometry._core.files import atomic_write, make_folder, path_inside
from allometry.measure import energy_distance, prdc, sliced_wasserstein
from allometry.measure.modes import nearest_classes, nearest_modes, recovery
from allometry.models import autoencoders as ae
from allometry.study.request import RunContext
from allometry.targets import Images, NumericTable
from allometry.targets.points import Modal, Points
from allometry.train.device import device_of

SCORED, LEAST = 1000, 20
"""Most samples of a density that are scored, and fewest held-out rows that are enough for it."""

SHOWN = 400
"""Points that a figure of samples shows; a tenth as many images."""

UNITS, REACH, STEPS, EXAMPLES = 8, 2.5, 9, 10
"""Latent units traversed, how far in each direction, images of an interpolation, and examples
that are reconstructed."""

GAN_DATA, GAN_SAMPLES = 100_000, 2500
"""Training points where the target gives no number, and generated samples scored (PacGAN's)."""

GanTarget = Points | Images
"""Targets of generative adversarial networks."""


# Densities


def independent(values: Tensor) -> Estimate:
    """The mean over independent rows with its standard error."""
    se = values.std().item() / len(values) ** 0.5
    return Estimate(values.mean().item(), se, n=len(values), method="independent rows")


@torch.no_grad()
def figure_samples(model: nn.Module, seed: int) -> ndarray:
    """Samples for figures, from the same noise at every call."""
    n = SHOWN if len(model.shape) == 1 else SHOWN // 10  # pyright: ignore
    rng = torch.Generator().manual_seed(seed)
    return model.sample(n, rng=rng).cpu().numpy().astype(np.float32)  # pyright: ignore


def save_figures(
    context: RunContext, samples: Sequence[ndarray], steps: Sequence[int], **more: ndarray
) -> None:
    """Write the samples along a training, and further arrays, for the report."""
    pictures = make_folder(path_inside(context.folder, "pictures"))
    with atomic_write(pictures / f"{context.key}.npz", "wb") as file:
        # After a resume only the samples of the last steps are there.
        last = np.asarray(steps[-len(samples) :])
        np.savez(file, allow_pickle=False, samples=np.stack(samples), step=last, **more)


def two_sample(real: Tensor, sample: Callable[[int], Tensor]) -> dict[str, Estimate]:
    """Energy distance, precision, recall, density and coverage; nothing for too few rows.

    Args:
        real: Held-out rows.
        sample: Draws as many samples as it is asked for.
    """
    real = real[:SCORED]
    if len(real) < LEAST:
        return {}
    a, b = (torch.as_tensor(x).cpu().flatten(1).double() for x in (real, sample(len(real))))
    return {"energy_distance": energy_distance(a, b)} | prdc(a, b)


def density_metrics(
    model: nn.Module,
    target: Points | NumericTable | Images,
    seed: int,
    limit: int | None = None,
) -> dict[str, Estimate]:
    """Metrics of samples against as many held-out rows, in the rows' own coordinates.

    Args:
        model: With `sample` and `log_prob`.
        target: The data.
        seed: Of the samples.
        limit: Most rows whose likelihood is evaluated.
    """
    rng = torch.Generator().manual_seed(seed + 1)
    scores = two_sample(
        target.split("validation"),
        lambda n: model.sample(n, rng=rng),  # pyright: ignore
    )
    if not scores:
        return {}
    if isinstance(target, Points):
        scores["gap"] = divergence(model, target, limit)
    return scores | (code_metrics(model, target, seed) if isinstance(target, Images) else {})


@torch.no_grad()
def divergence(model: nn.Module, target: Points, limit: int | None = None) -> Estimate:
    r"""$\mathrm{KL}(p \| q)$ in nats from the true density p to the model q, on test points.

    Both densities are evaluated on the same points, which cancels most of the sampling error. The
    model's loss minus the entropy would keep it.
    """
    rows, device = target.split("test")[:limit], device_of(model)
    own = torch.cat([model.log_prob(part.to(device)) for part in rows.split(1000)])  # pyright: ignore
    return independent(target.density.log_prob(rows.double()) - own.cpu().double())


# Latent codes


@torch.no_grad()
def latent_figures(model: nn.Module, target: Images) -> dict[str, ndarray]:
    """Images in the target's own values; nothing if the model has no latent code.

    `reconstruction` is (2, n, c, h, w): held-out examples and their reconstructions.
    `interpolation` is (n, v, c, h, w): between pairs of examples, linear in the code.
    `traversal`, of VAEs, is (u, v, c, h, w): the units of largest variance, each moved through
    its values while the others stay at those of the first example.
    """
    if not isinstance(model, ae.VAE | ae.GenerativeVQVAE):
        return {}
    held_out = target.split("validation").to(device_of(model))
    x = held_out[:EXAMPLES]
    pairs = [x[i : i + 2] for i in range(0, min(8, len(x) - 1), 2)]
    figures: dict[str, Tensor] = {}
    if isinstance(model, ae.VAE):
        mean, _ = model.posterior(x)
        reconstructions = model.likelihood.mean(model.decoder(mean))
        variance = model.posterior(held_out)[0].var(0)
        units = variance.argsort(descending=True)[:UNITS].tolist()
        values = np.linspace(-REACH, REACH, STEPS).tolist()
        figures["traversal"] = torch.stack([model.traverse(x, u, values) for u in units])
    else:
        reconstructions = model.decode(model.encode(x))
    if pairs:
        figures["interpolation"] = torch.stack([model.interpolate(p, STEPS) for p in pairs])
    figures["reconstruction"] = torch.stack([x.to(reconstructions.dtype), reconstructions])
    return {name: t.cpu().numpy().astype(np.float32) for name, t in figures.items()}


@torch.no_grad()
def code_metrics(model: nn.Module, target: Images, seed: int) -> dict[str, Estimate]:
    """How much of the latent code is in use on held-out examples; nothing without a code."""
    x = target.split("validation").to(device_of(model))
    if isinstance(model, ae.VAE):
        rng = torch.Generator().manual_seed(seed)
        return {
            "active_units": ae.active_units(model, x),
            "mutual_information": ae.mutual_information(model, x[:1000], rng),
        }
    if isinstance(model, ae.GenerativeVQVAE):
        use = ae.perplexity(model.encode(x), model.K)
        method = "of these examples' codes"
        return {"code_perplexity": Estimate(use, exact=True, method=method, n=len(x))}
    return {}


# Generative adversarial networks


def noise_size(target: GanTarget) -> int:
    """Size of a generator's noise: PacGAN's 2 for points, 16 for images."""
    return 16 if isinstance(target, Images) else 2


def training_rows(target: GanTarget, seed: int) -> Float[Tensor, "n d"]:
    """The training data of a discriminator: fixed for a seed."""
    if isinstance(target, Images):
        return rows(target, "train")
    size = target.size or GAN_DATA
    drawn = target.density.draw(size, np.random.default_rng([7, seed]))
    return torch.from_numpy(drawn).float()


@functools.lru_cache(maxsize=4)
def rows(target: GanTarget, split: str) -> Float[Tensor, "n d"]:
    """A split as rows; images as numbers in [0, 1] with uniform dequantisation noise.

    Without the noise a discriminator recognises data as whole numbers.
    """
    if isinstance(target, Points):
        return target.split(split)
    whole = target.split(split).flatten(1).float()
    noise = torch.rand(whole.shape, generator=torch.Generator().manual_seed(0))
    return (whole + noise) / target.levels


def as_images(samples: Float[Tensor, "n d"], target: Images) -> Float[Tensor, "n c h w"]:
    """Rows as the images' own values 0 ... levels - 1."""
    whole = (samples * target.levels).floor().clamp(0, target.levels - 1)
    return whole.unflatten(1, target.shape)


@functools.lru_cache(maxsize=4)
def modes(target: GanTarget) -> int:
    """Number of modes: of a mixture, or classes of labelled images; 0 if unknown."""
    if isinstance(target, Images):
        return 0 if target.labels is None else int(target.labels["train"].max()) + 1
    return len(target.density.means) if isinstance(target.density, Modal) else 0


def nearest_mode(
    samples: Float[Tensor, "n d"], target: GanTarget
) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
    """The mode or class of each sample, and whether the sample is of high quality."""
    if isinstance(target, Images):
        assert target.labels is not None
        known = (rows(target, "validation"), target.labels["validation"])
        return nearest_classes(samples, *known, rows(target, "test"))
    assert isinstance(target.density, Modal)
    sd = float(getattr(target.density, "sd")[0])  # noqa: B009 - mixtures have one
    return nearest_modes(samples, target.density.means, sd)


def mode_shares(samples: Float[Tensor, "n d"], target: GanTarget) -> Float[Tensor, " k"]:
    """Share of samples that are nearest to each mode, of high quality or not."""
    nearest, _ = nearest_mode(samples, target)
    return torch.bincount(nearest, minlength=modes(target)) / len(samples)


def mode_metrics(samples: Float[Tensor, "n d"], target: GanTarget) -> dict[str, Estimate]:
    """Modes found, share of high quality, reverse KL; nothing if no modes are known."""
    k = modes(target)
    return recovery(*nearest_mode(samples, target), k) if k else {}


def gan_loss(samples: Float[Tensor, "n d"], target: GanTarget, split: str) -> Estimate:
    """A generator's loss: the sliced 2-Wasserstein distance of samples to held-out rows."""
    return sliced_wasserstein(rows(target, split)[: len(samples)], samples, projections=100)


def gan_metrics(samples: Float[Tensor, "n d"], target: GanTarget) -> dict[str, Estimate]:
    """Metrics of samples against as many held-out rows, in the rows' own coordinates."""
    real = rows(target, "validation")[: len(samples)]
    few = samples[: len(real)]
    scores = {"energy_distance": energy_distance(real, few)} | prdc(real, few)
    return scores | mode_metrics(samples, target)
