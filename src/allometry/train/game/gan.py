"""GAN training, vectorised over pairs of generator and discriminator.

Shapes: M pairs, b batch, d size of a point, P parameters.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, final

import torch
from jaxtyping import Float
from torch import Tensor, nn, optim

from allometry._core.errors import DivergedError, require
from allometry.train.budget import Flops
from allometry.train.device_batches import to_device
from allometry.train.gan_costs import NON_SATURATING, Costs, gradient_penalty
from allometry.train.packed.stack import StackedModels, StackedStep, together
from allometry.train.packed.trace import traced_function

CHUNK = 100
"""Number of steps whose random numbers are drawn in one call."""


@final
@dataclass(frozen=True)
class GANSettings:
    """Settings of GAN training.

    Args:
        costs: Costs of generator and discriminator.
        batch: Real and generated points in a step; a multiple of the discriminator's pack.
        lr: Learning rate of the generator.
        lr_discriminator: Learning rate of the discriminator; default: `lr`.
        betas: Decay rates of Adam.
        turns: Steps of the discriminator per step of the generator.
        unroll: Discriminator steps that the generator differentiates through (unrolled GAN). Its
            paper uses the zero-sum game (`MINIMAX`). With the non-saturating cost, unrolling
            sharpens samples and loses modes.
        penalty: Weight of the gradient penalty.
        clip: Largest absolute value of the discriminator's parameters, for Wasserstein critics.
        decay: Steps over which both rates decay linearly to 1 %; default: constant rates.
        hold: Fraction of those steps before the decay begins.

    References: `metz2017` section 2.2 for unrolling; `arjovsky2017` for clipping;
        `gulrajani2017` for the penalty.
    """

    costs: Costs = NON_SATURATING
    batch: int = 100
    lr: float = 1e-3
    lr_discriminator: float | None = None
    betas: tuple[float, float] = (0.5, 0.999)
    turns: int = 1
    unroll: int = 0
    penalty: float = 0.0
    clip: float | None = None
    decay: int | None = None
    hold: float = 0.0

    def __post_init__(self) -> None:
        """Check the settings before anything is built."""
        for name, least in (("batch", 1), ("turns", 1), ("unroll", 0), ("penalty", 0)):
            value = getattr(self, name)
            require(value >= least, f"GANSettings.{name}", f"be at least {least}", value)
        for name in ("lr", "lr_discriminator", "clip", "decay"):
            value = getattr(self, name)
            require(value is None or value > 0, f"GANSettings.{name}", "be above 0", value)
        require(0 <= self.hold < 1, "GANSettings.hold", "be at least 0 and below 1", self.hold)


@final
@dataclass
class History:
    """Records of GAN training: equal-length lists, one entry for each recorded step.

    Attributes:
        step: Step of the generator.
        samples: (M, n, d) from every generator.
        generator: Cost of the generators, (M,).
        discriminator: Cost of the discriminators, (M,).
    """

    step: list[int] = field(default_factory=list)
    samples: list[Float[Tensor, "M n d"]] = field(default_factory=list)
    generator: list[Float[Tensor, " M"]] = field(default_factory=list)
    discriminator: list[Float[Tensor, " M"]] = field(default_factory=list)


@final
class GANBatches:
    """Batches of data and noise, with a separate random stream for each pair.

    The numbers of a pair do not depend on the other pairs.

    Args:
        data: (n, d), or (M, n, d) if pairs have separate data.
        latent: Size of the noise.
        batch: b.
        seeds: Seeds of the pairs.
    """

    def __init__(self, data: Tensor, latent: int, batch: int, seeds: Sequence[int]) -> None:
        self.data, self.latent, self.batch, self.device = data, latent, batch, data.device
        self.streams = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.rows: list[Tensor] = []
        self.noise: list[Tensor] = []
        self.mixtures: list[Tensor] = []

    def real(self) -> Float[Tensor, "M b d"]:
        """The next batch of data."""
        if not self.rows:
            n, shape = self.data.shape[-2], (CHUNK, self.batch)
            drawn = [torch.randint(n, shape, generator=g) for g in self.streams]
            self.rows = list(to_device(torch.stack(drawn, 1).flip(0), self.device))
        rows = self.rows.pop()
        if self.data.ndim == 2:
            return self.data[rows]
        return self.data.gather(1, rows[..., None].expand(-1, -1, self.data.shape[2]))

    def latents(self) -> Float[Tensor, "M b z"]:
        """The next batch of noise."""
        if not self.noise:
            shape, kind = (CHUNK, self.batch, self.latent), self.data.dtype
            drawn = [torch.randn(shape, generator=g, dtype=kind) for g in self.streams]
            self.noise = list(to_device(torch.stack(drawn, 1).flip(0), self.device))
        return self.noise.pop()

    def shares(self) -> Float[Tensor, "M b 1"]:
        """The next shares of data in the points of the gradient penalty, uniform in (0, 1)."""
        if not self.mixtures:
            shape, kind = (CHUNK, self.batch, 1), self.data.dtype
            drawn = [torch.rand(shape, generator=g, dtype=kind) for g in self.streams]
            self.mixtures = list(to_device(torch.stack(drawn, 1).flip(0), self.device))
        return self.mixtures.pop()


@final
class GANTraining:
    """M pairs of generator and discriminator, vectorised.

    Args:
        generators: M stacked generators.
        discriminators: M stacked discriminators.
        data: Training data, (n, d), or (M, n, d) for each pair; copied to the generators' device.
        rules: Settings.
        seeds: Seed of data and noise of each pair.
        traced: Trace the steps of both players once and run them as lists of kernels; `"fused"`
            compiles them too. Not for norms with running statistics.
    """

    def __init__(
        self,
        generators: StackedModels,
        discriminators: StackedModels,
        data: Tensor,
        rules: GANSettings,
        seeds: Sequence[int] | None = None,
        traced: bool | Literal["fused"] = False,
    ) -> None:
        M, pack = len(generators), getattr(discriminators.skeleton, "pack", 1)
        require(len(discriminators) == M, "discriminators", f"be {M}", len(discriminators))
        require(
            rules.batch % pack == 0,
            "GANSettings.batch",
            f"be a multiple of the pack {pack}",
            rules.batch,
        )
        seeds = range(M) if seeds is None else seeds
        require(len(seeds) == M, "seeds", f"be {M}", len(seeds))
        self.G, self.D, self.rules = generators, discriminators, rules
        latent = int(getattr(generators.skeleton, "latent"))  # noqa: B009 - a module's attribute
        self.draws = GANBatches(data.to(generators.flat.device), latent, rules.batch, seeds)
        self.taken = 0
        self.cost_G = self.cost_D = generators.flat.new_full((M,), torch.nan).detach()
        self._discriminator, self._generator = self._discriminator_step, self._generator_step
        if traced:
            self._trace(fuse=traced == "fused")

    @functools.cached_property
    def step_G(self) -> StackedStep:
        """Optimiser of the generators."""
        return self.G.optimiser(optim.Adam, lr=self.rules.lr, betas=self.rules.betas)

    @functools.cached_property
    def step_D(self) -> StackedStep:
        """Optimiser of the discriminators."""
        rules = self.rules
        rate = rules.lr if rules.lr_discriminator is None else rules.lr_discriminator
        return self.D.optimiser(optim.Adam, lr=rate, betas=rules.betas)

    def flops(self) -> tuple[float, float]:
        """FLOPs of one step of the discriminators, and of the generators."""
        x, z = self.draws.real(), self.draws.latents()
        G, D = self.G.flat.detach(), self.D.flat.detach()
        with Flops() as discriminator:
            self._discriminator_step(D, G, x, z, *self._shares())
        with Flops() as generator:
            self._generator_step(G, D, z)
        return discriminator.total, generator.total

    def step(self) -> None:
        """Steps of the discriminators, then one step of the generators."""
        if self.rules.decay is not None:
            left = (1 - self.taken / self.rules.decay) / (1 - self.rules.hold)
            factor = min(1.0, max(0.01, left))
            for group in (*self.step_G.param_groups, *self.step_D.param_groups):
                group["lr"] = group["peak_lr"] * factor
        for _ in range(self.rules.turns):
            self.step_judge()
        z, flats = self.draws.latents(), (self.G.flat.detach(), self.D.flat.detach())
        more = self._unroll_arguments() if self.rules.unroll else ()
        self.cost_G, gradient = self._generator(*flats, z, *more)
        self.step_G.apply(gradient)
        self.taken += 1

    def step_judge(self) -> None:
        """One step of the discriminators."""
        x, z = self.draws.real(), self.draws.latents()
        flats = self.D.flat.detach(), self.G.flat.detach()
        self.cost_D, gradient = self._discriminator(*flats, x, z, *self._shares())
        self.step_D.apply(gradient)
        if self.rules.clip is not None:
            with torch.no_grad():
                self.D.flat.clamp_(-self.rules.clip, self.rules.clip)

    def _shares(self) -> tuple[Tensor, ...]:
        """Random numbers of the gradient penalty, if there is one."""
        return (self.draws.shares(),) if self.rules.penalty else ()

    def _discriminator_step(
        self, D: Tensor, G: Tensor, x: Tensor, z: Tensor, *shares: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Costs of discriminators with parameters D, and their gradients."""
        with torch.no_grad():
            fake = together(lambda model, noise: model(noise), [(self.G, G)], z)
        leaf = D.detach().requires_grad_(True)
        costs = together(self._discriminator_cost, [(self.D, leaf)], x, fake, *shares)
        return costs.detach(), torch.autograd.grad(costs.sum(), leaf)[0]

    def _generator_step(
        self, G: Tensor, D: Tensor, z: Tensor, *more: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Costs of generators with parameters G, and their gradients."""
        leaf = G.detach().requires_grad_(True)
        fake = together(lambda model, noise: model(noise), [(self.G, leaf)], z)
        if self.rules.unroll:
            ahead = self._unrolled(fake, D, *more)
            costs = together(self._unrolled_cost, [(self.D, ahead)], more[0], fake)
        else:
            costs = together(self._generator_cost, [(self.D, D)], fake)
        return costs.detach(), torch.autograd.grad(costs.sum(), leaf)[0]

    def _trace(self, *, fuse: bool) -> None:
        buffers = [name for models in (self.G, self.D) for name in models.buffers]
        fix = "Use Generator(running=False)."
        require(not buffers, "traced players", "keep no running statistics", buffers, fix)
        G, D = self.G.flat.detach(), self.D.flat.detach()
        x = G.new_zeros(len(G), self.rules.batch, self.draws.data.shape[-1])
        z = G.new_zeros(len(G), self.rules.batch, self.draws.latent)
        one = G.new_ones(())
        shares = (x[..., :1],) if self.rules.penalty else ()
        more = (x, one, torch.zeros_like(D), torch.zeros_like(D), one, *shares)
        examples = (D, G, x, z, *shares)
        self._discriminator = traced_function(self._discriminator_step, examples, fuse=fuse)
        examples = (G, D, z, *(more if self.rules.unroll else ()))
        self._generator = traced_function(self._generator_step, examples, fuse=fuse)

    def _discriminator_cost(self, D: Any, x: Tensor, fake: Tensor, *shares: Tensor) -> Tensor:
        cost = self.rules.costs.discriminator(*self._logits(D, x, fake))
        if self.rules.penalty:
            cost = cost + self.rules.penalty * gradient_penalty(D, x, fake, *shares)
        return cost

    def _generator_cost(self, D: nn.Module, fake: Tensor) -> Tensor:
        return self.rules.costs.generator(D(fake))

    def _unrolled_cost(self, D: nn.Module, x: Tensor, fake: Tensor) -> Tensor:
        """The generator's cost against the unrolled discriminator.

        In a zero-sum game the discriminator's cost on data depends on the generator as well, and
        is part of the value.
        """
        if not self.rules.costs.zero_sum:
            return self._generator_cost(D, fake)
        return -self.rules.costs.discriminator(*self._logits(D, x, fake))

    def _logits(self, D: Any, x: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
        if getattr(D, "minibatch", None) is None:
            on_real, on_fake = D(torch.cat([x, fake])).chunk(2)
        else:
            # Minibatch discrimination compares rows, so data and samples are separate batches.
            on_real, on_fake = D(x), D(fake)
        return on_real, on_fake

    def _unroll_arguments(self) -> tuple[Tensor, ...]:
        """For unrolled steps: data, the discriminators' rate, moments, step count, and shares."""
        flat = self.D.flat.detach()
        rate = flat.new_full((), self.step_D.param_groups[0]["lr"])
        return self.draws.real(), rate, *moments_of(self.step_D, flat), *self._shares()

    def _unrolled(
        self, fake: Tensor, D: Tensor, x: Tensor, rate: Tensor, *more: Tensor
    ) -> Float[Tensor, "M P"]:
        """Parameters of the discriminators after `unroll` steps, as a function of `fake`.

        All steps use one batch, so the generator is evaluated and differentiated only once.
        """
        theta, state, shares = D.detach().requires_grad_(True), cast("Moments", more[:3]), more[3:]
        for _ in range(self.rules.unroll):
            loss = together(self._discriminator_cost, [(self.D, theta)], x, fake, *shares)
            (gradient,) = torch.autograd.grad(loss.sum(), theta, create_graph=True)
            theta, state = adam_ahead(theta, gradient, state, rate, self.rules.betas)
        return theta

    @torch.no_grad()
    def samples(self, n: int, seed: int = 0) -> Float[Tensor, "M n d"]:
        """`n` points of every generator, with running statistics if its norms keep any."""
        skeleton = self.G.skeleton
        streams = [torch.Generator().manual_seed(1_000_003 * (seed + 1) + i) for i in
                   range(len(self.G))]  # fmt: skip
        size, kind = self.draws.latent, self.G.flat.dtype
        z = torch.stack([torch.randn(n, size, generator=g, dtype=kind) for g in streams])
        skeleton.eval()
        points = self.G(z.to(self.draws.device))
        skeleton.train()
        return points


Moments = tuple[Tensor, Tensor, Tensor]


def moments_of(stepper: StackedStep, like: Tensor) -> Moments:
    """The two moments and the step count of Adam."""
    states = [stepper.inner.state[row] for row in stepper.rows]
    if not states[0]:
        return torch.zeros_like(like), torch.zeros_like(like), like.new_zeros(())
    first = torch.cat([s["exp_avg"].reshape(-1, like.shape[1]) for s in states])
    second = torch.cat([s["exp_avg_sq"].reshape(-1, like.shape[1]) for s in states])
    return first, second, states[0]["step"].to(like)


def adam_ahead(
    theta: Float[Tensor, "M P"],
    slope: Float[Tensor, "M P"],
    moments: Moments,
    lr: float | Tensor,
    betas: tuple[float, float],
    eps: float = 1e-8,
) -> tuple[Float[Tensor, "M P"], Moments]:
    """One differentiable step of Adam.

    References: `kingma2015` Algorithm 1.
    """
    first, second, t = moments
    first = betas[0] * first + (1 - betas[0]) * slope
    second = betas[1] * second + (1 - betas[1]) * slope.square()
    t = t + 1
    # The root has no derivative at 0; eps keeps it finite.
    scale = (second / (1 - betas[1] ** t) + eps**2).sqrt()
    return theta - lr * first / (1 - betas[0] ** t) / scale, (first, second, t)


def play(
    contest: GANTraining,
    steps: int,
    *,
    marks: Sequence[int] = (),
    shown: int = 512,
    watch: Callable[[int, Tensor, Tensor], None] | None = None,
) -> History:
    """Train for `steps` steps; record samples and costs at `marks`.

    Args:
        contest: The training; changed in place, and may be continued.
        steps: Steps of the generators.
        marks: Steps after which to record samples and costs.
        shown: Number of samples to record.
        watch: Called with the step and both costs after every step.

    Raises:
        DivergedError: A cost of some pair is not finite at a mark or at the end.
    """
    history, wanted = History(), set(marks)
    for step in range(1, steps + 1):
        contest.step()
        if watch is not None:
            watch(step, contest.cost_G, contest.cost_D)
        if step in wanted or step == steps:
            both = torch.stack([contest.cost_G, contest.cost_D])
            if not bool(both.isfinite().all()):
                pairs = (~both.isfinite().all(0)).nonzero()[:, 0].tolist()
                raise DivergedError(f"the costs of pairs {pairs} are not finite at step {step}.")
            if step in wanted:
                history.step.append(contest.taken)
                history.samples.append(contest.samples(shown))
                history.generator.append(contest.cost_G)
                history.discriminator.append(contest.cost_D)
    return history
