"""Generative adversarial networks on points and images, grown by the generator's size."""

import functools
import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import DivergedError, require
from allometry._core.files import atomic_write, make_folder, path_inside
from allometry._core.spec import Spec
from allometry.measure import sliced_wasserstein
from allometry.models.gan import Discriminator, Generator
from allometry.study.recipes.imitated import (
    JUDGED,
    Imitated,
    as_images,
    distance,
    measures,
    modes,
    noise_size,
    recovered,
    rows,
    shares,
    training_rows,
)
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import Images
from allometry.train import checkpoint
from allometry.train.budget import Budget, count_parameters
from allometry.train.game.gan import GANSettings, GANTraining
from allometry.train.gan_costs import MINIMAX, NON_SATURATING, WASSERSTEIN, Costs
from allometry.train.loop import Progress, Stopped
from allometry.train.lr_schedule import log_spaced
from allometry.train.packed.stack import StackedModels

SHOWN = 500
"""Samples kept at each mark for the report."""

PICTURED = 64
"""The same for images."""

LOOKS = 48
"""Even steps at which the modes are looked at: cycling among them is quicker than learning."""

TRACED = 4000
"""Passes through the discriminator from which on tracing, which takes a second or two, pays."""


@final
@dataclass(frozen=True)
class GanRun(Request):
    """One generator against one discriminator on points or images, under one budget and seed.

    Its loss is the sliced 2-Wasserstein distance of 2,500 samples to held-out rows: a generator
    has no likelihood. Images are rows of numbers in [0, 1]. A run that is stopped begins
    anew when the study goes on.

    Args:
        target: Points or images.
        width: Of the generator's hidden layers; the discriminator's have half of that.
        depth: Layers of each.
        steps: Of the generator.
        batch: Points in a step.
        lr: Adam's rate for both, falling to a hundredth.
        seed: Of weights, data and noise.
        rung: Which size of the ladder this is, from 0.
        pack: Points that the discriminator judges together.
        unroll: Discriminator's steps that the generator looks ahead.
        wasserstein: Play with the gradient penalty instead of the non-saturating cost.
    """

    target: Imitated
    width: int
    depth: int
    steps: int
    batch: int
    lr: float
    seed: int
    rung: int
    pack: int = 1
    unroll: int = 0
    wasserstein: bool = False

    @property
    def family(self) -> str:
        """GAN, by its remedy."""
        name = "WGAN-GP" if self.wasserstein else f"PacGAN{self.pack}" if self.pack > 1 else "GAN"
        return f"{name}, unrolled {self.unroll}" if self.unroll else name

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape, rung and seed."""
        shape = f"{self.depth} layers, width {self.width}"
        return {"family": self.family, "target": self.target.name, "shape": shape,
                "rung": self.rung, "seed": self.seed}  # fmt: skip

    @property
    def shapes(self) -> tuple[Spec, Spec]:
        """Both players without their numbers."""
        d = self.target.dim
        made = Spec(Generator, dim=d, width=self.width, depth=self.depth, norm=False,
                    latent=noise_size(self.target))  # fmt: skip
        width = max(4, self.width // 2)
        pieces = 1 if self.wasserstein else 3
        judge = Spec(Discriminator, dim=d, width=width, depth=self.depth, pieces=pieces,
                     pack=self.pack)  # fmt: skip
        return made, judge

    def contest(self, data: Tensor) -> GANTraining:
        """The players at the start."""
        rng = torch.Generator().manual_seed(self.seed)
        made: dict[str, Any]
        judge: dict[str, Any]
        made, judge = ({**s.arguments, "rng": rng} for s in self.shapes)
        rules = GANSettings(
            costs=self._costs,
            batch=self.batch,
            lr=self.lr,
            unroll=self.unroll,
            turns=3 if self.wasserstein else 1,
            penalty=0.1 if self.wasserstein else 0.0,
            decay=self.steps,
        )
        G, D = Generator(**made), Discriminator(**judge)
        # The costs are functions of tensors alone and nothing keeps statistics: all can be traced.
        long = self.steps * (rules.turns + rules.unroll) >= TRACED
        return GANTraining(
            StackedModels([G]), StackedModels([D]), data, rules, [self.seed], traced=long
        )

    @property
    def _costs(self) -> Costs:
        if self.wasserstein:
            return WASSERSTEIN
        # What is unrolled is the value of the zero-sum game.
        return MINIMAX if self.unroll else NON_SATURATING

    def budget(self) -> Budget:
        """N is the generator's; C counts both players."""
        N, per_step = _cost(*self.shapes, self.batch, self.unroll, self.wasserstein)
        return Budget(N, 0, self.steps * self.batch, per_step * self.steps)

    def work(self) -> float:
        """A fixed price per step and layer, and the arithmetic."""
        turns = (3 if self.wasserstein else 1) + self.unroll
        return self.steps * 0.0012 * self.depth * (1 + turns) + self.budget().C / 3e10

    def __call__(self, place: RunContext) -> Outcome:
        """Play, score the generator along the way and at the end, keep both players."""
        torch.set_default_dtype(torch.float32)
        started = time.monotonic()
        data = training_rows(self.target, self.seed)
        contest = self.contest(data)
        marks, curve, seen = (
            set(log_spaced(self.steps, 12)),
            _curve(),
            TrainingSnapshots(self.target),
        )
        looks = {round(self.steps * i / LOOKS) for i in range(1, LOOKS + 1)}
        per_step = self.budget().C / self.steps
        for step in range(1, self.steps + 1):
            contest.step()
            if step % 20 == 0 or step in marks:
                self._check(contest, step, place)
            if step in marks:
                made = contest.samples(JUDGED)[0]
                seen.show(step, made)
                _note(curve, step, self.batch, per_step, contest, made, self.target)
            if step in looks:
                seen.look(step, contest.samples(SHOWN)[0])
        made = contest.samples(JUDGED, seed=1)[0]
        loss = distance(made, self.target, "validation")
        test = distance(contest.samples(JUDGED, seed=2)[0], self.target, "test")
        self._keep(place, contest, seen)
        budget = self.budget()
        return Outcome(
            columns=self.columns
            | {
                "N": budget.N,
                "N_embedding": 0,
                "D": budget.D,
                "D_unique": len(data),
                "C": budget.C,
                "C_6ND": budget.C_6ND,
                "loss": loss.value,
                "loss_se": loss.se,
                "test_loss": test.value,
                "test_loss_se": test.se,
                "seconds": time.monotonic() - started,
            },
            curve=curve,
            measures=measures(made, self.target),
        )

    def _check(self, contest: GANTraining, step: int, place: RunContext) -> None:
        cost = float(contest.cost_G)
        if not math.isfinite(cost) or not math.isfinite(float(contest.cost_D)):
            raise DivergedError(
                f"a player's cost became {cost} at step {step} of {self.steps}; "
                "a smaller learning rate may help."
            )
        place.watch(Progress(step, self.steps, cost))
        if place.stop() and step < self.steps:
            raise Stopped

    def _keep(self, place: RunContext, contest: GANTraining, seen: "TrainingSnapshots") -> None:
        made, judge = self.shapes
        about = {"family": self.family, "target": self.target.name, "unit": self.target.unit}
        weights = torch.nn.ModuleDict(
            {"generator": contest.G.member(0), "discriminator": contest.D.member(0)}
        )
        about |= {
            "generator": json.dumps(made.to_dict()),
            "discriminator": json.dumps(judge.to_dict()),
        }
        checkpoint.save_weights(place.weights, weights, about)
        folder = make_folder(path_inside(place.folder, "samples"))
        with atomic_write(folder / f"{place.key}.npz", "wb") as file:
            np.savez(file, allow_pickle=False, **seen.arrays())


@final
class TrainingSnapshots:
    """What a run's generator made along the way: samples at marks, shares of modes at looks."""

    def __init__(self, target: Imitated) -> None:
        self.target = target
        self.steps: list[int] = []
        self.samples: list[np.ndarray] = []
        self.looks: list[int] = []
        self.shares: list[np.ndarray] = []

    def show(self, step: int, made: Float[Tensor, "n d"]) -> None:
        """Keep some samples for pictures."""
        if isinstance(self.target, Images):
            made = as_images(made[:PICTURED], self.target)
        self.steps.append(step)
        self.samples.append(made[:SHOWN].numpy())

    def look(self, step: int, made: Float[Tensor, "n d"]) -> None:
        """Keep what share of samples is of each mode."""
        if modes(self.target):
            self.looks.append(step)
            self.shares.append(shares(made, self.target).numpy())

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it, with as much real data."""
        real = self.target.split("validation")[:SHOWN].numpy()
        found = {"step": np.array(self.steps), "samples": np.stack(self.samples), "real": real}
        if self.shares:
            found |= {"look": np.array(self.looks), "shares": np.stack(self.shares)}
        return found


def _curve() -> dict[str, list[float]]:
    names = ("step", "tokens", "flops", "loss", "cost_generator", "cost_discriminator",
             "modes", "high_quality")  # fmt: skip
    return {name: [] for name in names}


def _note(
    curve: dict[str, list[float]],
    step: int,
    batch: int,
    per_step: float,
    contest: GANTraining,
    made: Tensor,
    target: Imitated,
) -> None:
    real = rows(target, "validation")[: len(made)]
    row = {
        "step": step,
        "tokens": step * batch,
        "flops": step * per_step,
        "loss": sliced_wasserstein(real, made, projections=50).value,
        "cost_generator": float(contest.cost_G),
        "cost_discriminator": float(contest.cost_D),
        "modes": math.nan,
        "high_quality": math.nan,
    }
    found = recovered(made, target)
    row |= {k: found[k].value for k in ("modes", "high_quality") if k in found}
    for name, value in row.items():
        curve[name].append(float(value))


@functools.cache
def _cost(
    made: Spec, judge: Spec, batch: int, unroll: int, wasserstein: bool
) -> tuple[int, float]:
    """N and the FLOPs of one round, counted operator by operator."""
    G: Generator = made().float()
    D: Discriminator = judge().float()
    rules = GANSettings(
        costs=WASSERSTEIN if wasserstein else NON_SATURATING,
        batch=batch,
        turns=3 if wasserstein else 1,
    )
    contest = GANTraining(
        StackedModels([G]), StackedModels([D]), torch.zeros(2, G.dim).float(), rules
    )
    judging, making = contest.flops()
    # The counter fails on second derivatives. A backward pass of a backward pass costs two of the
    # first: a step ahead is three of the discriminator's own, a penalty one more turn.
    turns = rules.turns + 3 * unroll + (rules.turns if wasserstein else 0)
    return count_parameters(G)[0], turns * judging + making


def grow(N: float, depth: int = 3, dim: int = 2, latent: int = 2) -> int:
    r"""Width of a generator of about N parameters: $(\ell - 1) w^2 + (\ell + z + d) w + d$."""
    least = 2 * (2 * (depth - 1) + depth + latent + dim) + dim
    require(0.9 * least <= N, "gan size", f"be about {least} parameters or more", N)
    a, b = depth - 1, depth + latent + dim
    return max(2, round((math.sqrt(b * b + 4 * a * max(0.0, N - dim)) - b) / (2 * a)))


def gan(
    target: Imitated,
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
    """Requests for a generator of each size, number of points seen and seed, with its rival.

    Args:
        target: Points with a known law, or images.
        ladder: Wanted sizes N of the generator.
        tokens: Points seen in training.
        seeds: Repetitions.
        batch: Points in a step; a multiple of `pack`.
        lr: Adam's.
        depth: Layers.
        pack: Points judged together: PacGAN's m.
        unroll: Steps the generator looks ahead.
        wasserstein: WGAN with gradient penalty.

    References: `goodfellow2014`; `lin2018` for packing; `metz2017` for unrolling;
        `gulrajani2017` for the penalty.
    """
    least = {"batch": (batch, 1), "pack": (pack, 1), "unroll": (unroll, 0), "depth": (depth, 2)}
    for name, (value, bound) in least.items():
        require(value >= bound, f"gan.{name}", f"be at least {bound}", value)
    require(lr > 0, "gan.lr", "be above 0", lr)
    require(batch % pack == 0, "gan.batch", f"be a multiple of the pack {pack}", batch)
    return [
        Spec(
            GanRun,
            target=target.spec,
            width=width,
            depth=depth,
            steps=max(1, round(D / batch)),
            batch=batch,
            lr=lr,
            seed=seed,
            rung=rung,
            pack=pack,
            unroll=unroll,
            wasserstein=wasserstein,
        )
        for rung, width in enumerate(
            dict.fromkeys(grow(N, depth, target.dim, noise_size(target)) for N in ladder)
        )
        for D in sorted(set(tokens))
        for seed in range(seeds)
    ]
