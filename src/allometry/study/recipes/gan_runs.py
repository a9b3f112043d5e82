"""Generative adversarial networks on points and images, by the size of the generator."""

import functools
import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import DivergedError, require
from allometry._core.files import atomic_write, make_folder, path_inside
from allometry._core.spec import Spec
from allometry.measure import sliced_wasserstein
from allometry.models.gan import Discriminator, Generator
from allometry.study.recipes.base import WIDEST, CountedRun, grid
from allometry.study.recipes.run_outcome import journal_columns
from allometry.study.recipes.sample_scores import (
    GAN_SAMPLES,
    GanTarget,
    as_images,
    gan_loss,
    gan_metrics,
    mode_metrics,
    mode_shares,
    modes,
    noise_size,
    rows,
    training_rows,
)
from allometry.study.request import Outcome, RunContext
from allometry.targets import Images
from allometry.train import checkpoint
from allometry.train.budget import Budget, count_parameters
from allometry.train.game.gan import GANSettings, GANTraining
from allometry.train.gan_costs import MINIMAX, NON_SATURATING, WASSERSTEIN, Costs
from allometry.train.loop import Progress, Stopped
from allometry.train.lr_schedule import log_spaced
from allometry.train.packed.stack import StackedModels

SHOWN = 500
"""Samples kept at each point of the curve, for the report."""

PICTURED = 64
"""Images kept at each point of the curve."""

LOOKS = 48
"""Evenly spaced steps at which mode shares are recorded: cycling is faster than learning."""

TRACED = 4000
"""Discriminator updates above which tracing, which takes a second or two, is worthwhile."""


@final
@dataclass(frozen=True, kw_only=True)
class GanRun(CountedRun):
    """One generator against one discriminator, for one budget and seed.

    The loss is the sliced 2-Wasserstein distance of 2,500 samples to held-out rows: a generator
    has no likelihood. Images are rows of numbers in [0, 1]. A run that is stopped starts from the
    beginning when the study resumes.

    Further arguments: see `CountedRun`.

    Args:
        target: Points or images.
        width: Of the generator's hidden layers; the discriminator's are half as wide.
        depth: Layers of each network.
        batch: Points in a step.
        lr: Adam's rate for both networks, decaying to a hundredth.
        pack: Points that the discriminator sees at once (PacGAN).
        unroll: Discriminator steps that the generator looks ahead.
        wasserstein: Wasserstein cost with gradient penalty instead of the non-saturating cost.
    """

    target: GanTarget
    width: int
    depth: int
    pack: int = 1
    unroll: int = 0
    wasserstein: bool = False

    @property
    def family(self) -> str:
        """The variant, as the journal names it."""
        name = "WGAN-GP" if self.wasserstein else f"PacGAN{self.pack}" if self.pack > 1 else "GAN"
        return f"{name}, unrolled {self.unroll}" if self.unroll else name

    @property
    def family_name(self) -> str:
        """The variant, as the journal names it."""
        return self.family

    @property
    def shape_name(self) -> str:
        """Layers and width of the generator."""
        return f"{self.depth} layers, width {self.width}"

    @property
    def shapes(self) -> tuple[Spec, Spec]:
        """Generator and discriminator without their weights."""
        d = self.target.dim
        generator = Spec(Generator, dim=d, width=self.width, depth=self.depth, norm=False,
                         latent=noise_size(self.target))  # fmt: skip
        width = max(4, self.width // 2)
        pieces = 1 if self.wasserstein else 3
        discriminator = Spec(Discriminator, dim=d, width=width, depth=self.depth, pieces=pieces,
                             pack=self.pack)  # fmt: skip
        return generator, discriminator

    def game(self, data: Tensor, device: str = "cpu") -> GANTraining:
        """Both networks at the start of training, on a device."""
        rng = torch.Generator().manual_seed(self.seed)
        generator, discriminator = self.shapes
        settings = GANSettings(
            costs=self._costs,
            batch=self.batch,
            lr=self.lr,
            unroll=self.unroll,
            turns=3 if self.wasserstein else 1,
            penalty=0.1 if self.wasserstein else 0.0,
            decay=self.steps,
        )
        G = Generator(**generator.arguments | {"rng": rng})  # pyright: ignore
        D = Discriminator(**discriminator.arguments | {"rng": rng})  # pyright: ignore
        # The costs depend on tensors alone and no layer keeps statistics: all can be traced.
        traced = self.steps * (settings.turns + settings.unroll) >= TRACED
        return GANTraining(
            StackedModels([G.to(device)]),
            StackedModels([D.to(device)]),
            data,
            settings,
            [self.seed],
            traced=traced,
        )

    @property
    def _costs(self) -> Costs:
        if self.wasserstein:
            return WASSERSTEIN
        # Unrolling needs the value of the zero-sum game.
        return MINIMAX if self.unroll else NON_SATURATING

    def cost(self) -> tuple[int, int, float]:
        """The generator's N, no embeddings, and FLOPs of both networks per step."""
        N, per_step = _cost(*self.shapes, self.batch, self.unroll, self.wasserstein)
        return N, 0, per_step

    def budget(self) -> Budget:
        """N is the generator's; C counts both networks."""
        N, _, per_step = self.cost()
        return Budget(N, 0, self.steps * self.batch, per_step * self.steps)

    def work(self) -> float:
        """A fixed overhead per step and layer, and the FLOPs."""
        turns = (3 if self.wasserstein else 1) + self.unroll
        return self.steps * 0.0012 * self.depth * (1 + turns) + self.budget().C / 3e10

    def __call__(self, context: RunContext) -> Outcome:
        """Train, evaluate the generator along the way and at the end, save both networks."""
        started = time.monotonic()
        data = training_rows(self.target, self.seed)
        game = self.game(data, context.on.device)
        snapshots = TrainingSnapshots(self.target)
        curve: dict[str, list[float]] = {}
        curve_steps = set(log_spaced(self.steps, 12))
        share_steps = {round(self.steps * i / LOOKS) for i in range(1, LOOKS + 1)}
        for step in range(1, self.steps + 1):
            game.step()
            if step % 20 == 0 or step in curve_steps:
                self._check(game, step, context)
            if step in curve_steps:
                samples = game.samples(GAN_SAMPLES)[0].cpu()
                snapshots.add_samples(step, samples)
                self._add_point(curve, step, game, samples)
            if step in share_steps:
                snapshots.add_shares(step, game.samples(SHOWN)[0].cpu())
        samples = game.samples(GAN_SAMPLES, seed=1)[0].cpu()
        loss = gan_loss(samples, self.target, "validation")
        test = gan_loss(game.samples(GAN_SAMPLES, seed=2)[0].cpu(), self.target, "test")
        self._save(context, game, snapshots)
        seconds, D_unique = time.monotonic() - started, len(data)
        columns = journal_columns(self.budget(), loss, test, D_unique=D_unique, seconds=seconds)
        scores = gan_metrics(samples, self.target)
        return Outcome(columns=self.columns | columns, curve=curve, measures=scores)

    def _check(self, game: GANTraining, step: int, context: RunContext) -> None:
        """Report progress; refuse to continue with costs that are not finite."""
        cost = float(game.cost_G)
        if not math.isfinite(cost) or not math.isfinite(float(game.cost_D)):
            raise DivergedError(
                f"a network's cost became {cost} at step {step} of {self.steps}; "
                "a smaller learning rate may help."
            )
        context.watch(Progress(step, self.steps, cost))
        if context.stop() and step < self.steps:
            raise Stopped

    def _add_point(
        self, curve: dict[str, list[float]], step: int, game: GANTraining, samples: Tensor
    ) -> None:
        """Evaluate the generator at one step of the curve."""
        real = rows(self.target, "validation")[: len(samples)]
        row = {
            "step": step,
            "tokens": step * self.batch,
            "flops": step * (self.budget().C / self.steps),
            "loss": sliced_wasserstein(real, samples, projections=50).value,
            "cost_generator": float(game.cost_G),
            "cost_discriminator": float(game.cost_D),
        }
        # Targets without known modes have no such columns.
        scores = mode_metrics(samples, self.target)
        row |= {k: scores[k].value for k in ("modes", "high_quality") if k in scores}
        for name, value in row.items():
            curve.setdefault(name, []).append(float(value))

    def _save(
        self, context: RunContext, game: GANTraining, snapshots: "TrainingSnapshots"
    ) -> None:
        """Write the weights of both networks and the samples along the way."""
        generator, discriminator = (json.dumps(shape.to_dict()) for shape in self.shapes)
        metadata = {"family": self.family, "target": self.target.name, "unit": self.target.unit}
        metadata |= {"generator": generator, "discriminator": discriminator}
        weights = torch.nn.ModuleDict(
            {"generator": game.G.member(0), "discriminator": game.D.member(0)}
        )
        checkpoint.save_weights(context.weights, weights, metadata)
        folder = make_folder(path_inside(context.folder, "samples"))
        with atomic_write(folder / f"{context.key}.npz", "wb") as file:
            np.savez(file, allow_pickle=False, **snapshots.arrays())


@final
class TrainingSnapshots:
    """A generator's samples and mode shares along its training."""

    def __init__(self, target: GanTarget) -> None:
        self.target = target
        self.steps: list[int] = []
        self.samples: list[np.ndarray] = []
        self.share_steps: list[int] = []
        self.shares: list[np.ndarray] = []

    def add_samples(self, step: int, samples: Float[Tensor, "n d"]) -> None:
        """Keep some samples for figures."""
        if isinstance(self.target, Images):
            samples = as_images(samples[:PICTURED], self.target)
        self.steps.append(step)
        self.samples.append(samples[:SHOWN].numpy())

    def add_shares(self, step: int, samples: Float[Tensor, "n d"]) -> None:
        """Keep the share of samples of each mode."""
        if modes(self.target):
            self.share_steps.append(step)
            self.shares.append(mode_shares(samples, self.target).numpy())

    def arrays(self) -> dict[str, np.ndarray]:
        """All snapshots, with as many real examples."""
        real = self.target.split("validation")[:SHOWN].numpy()
        arrays = {"step": np.array(self.steps), "samples": np.stack(self.samples), "real": real}
        if self.shares:
            arrays |= {"look": np.array(self.share_steps), "shares": np.stack(self.shares)}
        return arrays


@functools.cache
def _cost(
    generator: Spec, discriminator: Spec, batch: int, unroll: int, wasserstein: bool
) -> tuple[int, float]:
    """N and the FLOPs of one step, counted operator by operator."""
    G: Generator = generator().float()
    D: Discriminator = discriminator().float()
    settings = GANSettings(
        costs=WASSERSTEIN if wasserstein else NON_SATURATING,
        batch=batch,
        turns=3 if wasserstein else 1,
    )
    game = GANTraining(
        StackedModels([G]), StackedModels([D]), torch.zeros(2, G.dim).float(), settings
    )
    discriminator_flops, generator_flops = game.flops()
    # The counter fails on second derivatives. Backward through a backward pass costs two of the
    # first: an unrolled step costs three discriminator updates, the penalty one more update.
    turns = settings.turns + 3 * unroll + (settings.turns if wasserstein else 0)
    return count_parameters(G)[0], turns * discriminator_flops + generator_flops


def grow(N: float, depth: int = 3, dim: int = 2, latent: int = 2) -> int:
    r"""Width of a generator of about N parameters: $(\ell - 1) w^2 + (\ell + z + d) w + d$.

    At most `WIDEST`, like the width of every other family.
    """
    least = 2 * (2 * (depth - 1) + depth + latent + dim) + dim
    require(0.9 * least <= N, "gan size", f"be about {least} parameters or more", N)
    a, b = depth - 1, depth + latent + dim
    width = round((math.sqrt(b * b + 4 * a * max(0.0, N - dim)) - b) / (2 * a))
    return min(max(2, width), WIDEST)


def gan(
    target: GanTarget,
    ladder: Iterable[float],
    *,
    tokens: Sequence[float],
    seeds: int,
    batch: int = 96,
    lr: float = 2e-3,
    depth: int = 3,
    pack: int = 1,
    unroll: int = 0,
    wasserstein: bool = False,
) -> list[Spec]:
    """Requests for a generator and a discriminator of each size, number of points and seed.

    Args:
        target: Points with a known distribution, or images.
        ladder: Sizes N of the generator.
        tokens: Points seen in training.
        seeds: Repetitions.
        batch: Points in a step; a multiple of `pack`.
        lr: Adam's learning rate.
        depth: Layers.
        pack: Points that the discriminator sees at once: PacGAN's m.
        unroll: Discriminator steps that the generator looks ahead.
        wasserstein: WGAN with gradient penalty.

    References: `goodfellow2014`; `lin2018` for packing; `metz2017` for unrolling;
        `gulrajani2017` for the penalty.
    """
    least = {"batch": (batch, 1), "pack": (pack, 1), "unroll": (unroll, 0), "depth": (depth, 2)}
    for name, (value, bound) in least.items():
        require(value >= bound, f"gan.{name}", f"be at least {bound}", value)
    require(lr > 0, "gan.lr", "be above 0", lr)
    require(batch % pack == 0, "gan.batch", f"be a multiple of the pack {pack}", batch)
    shapes = [{"width": grow(N, depth, target.dim, noise_size(target))} for N in ladder]
    common = {"depth": depth, "batch": batch, "lr": lr}
    common |= {"pack": pack, "unroll": unroll, "wasserstein": wasserstein}
    return grid(GanRun, target, shapes, tokens, seeds, batch, **common)
