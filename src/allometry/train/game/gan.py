"""The adversarial game of generators and discriminators, many pairs at once.

Shapes: M members, b batch, d size of a point, P parameters.
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
from allometry.train.game.traced_turn import listed
from allometry.train.gan_costs import NON_SATURATING, Costs, gradient_penalty
from allometry.train.packed.stack import StackedModels, StackedStep, together

CHUNK = 100
"""Steps whose random numbers are drawn at once."""


@final
@dataclass(frozen=True)
class GANSettings:
    """How a game is played.

    Args:
        costs: What the players minimise.
        batch: Points from each side in a step; a multiple of the discriminator's pack.
        lr: The generator's rate.
        lr_discriminator: The discriminator's; the same if not given.
        betas: Adam's.
        turns: Steps of the discriminator for each of the generator.
        unroll: Steps of the discriminator that the generator looks ahead and differentiates
            through. Its paper plays the zero-sum game (`MINIMAX`), whose value unrolling makes
            fairer; with the non-saturating cost it sharpens samples and loses modes.
        penalty: Weight of the gradient penalty.
        clip: Largest absolute value of the discriminator's parameters, for Wasserstein's critic.
        decay: Steps over which both rates fall linearly to a hundredth; held if not given.
        hold: Share of those steps before they begin to fall.

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
        """Refuse what could not be played, before anything is built."""
        for name, least in (("batch", 1), ("turns", 1), ("unroll", 0), ("penalty", 0)):
            value = getattr(self, name)
            require(value >= least, f"Rules.{name}", f"be at least {least}", value)
        for name in ("lr", "lr_discriminator", "clip", "decay"):
            value = getattr(self, name)
            require(value is None or value > 0, f"Rules.{name}", "be above 0", value)
        require(0 <= self.hold < 1, "GANSettings.hold", "be at least 0 and below 1", self.hold)


@final
@dataclass
class History:
    """A game along its way: equal-length lists, one entry for each mark.

    Attributes:
        step: Of the generator.
        samples: (M, n, d) from every generator.
        generator: Its cost, (M,).
        discriminator: Its cost, (M,).
    """

    step: list[int] = field(default_factory=list)
    samples: list[Float[Tensor, "M n d"]] = field(default_factory=list)
    generator: list[Float[Tensor, " M"]] = field(default_factory=list)
    discriminator: list[Float[Tensor, " M"]] = field(default_factory=list)


@final
class GANBatches:
    """Batches of data and noise, for each member from a stream of its own.

    A member gets the same numbers alone as in company, whatever the others are.

    Args:
        data: (n, d), or (M, n, d) where members have data of their own.
        latent: Size of the noise.
        batch: b.
        seeds: Of the members.
    """

    def __init__(self, data: Tensor, latent: int, batch: int, seeds: Sequence[int]) -> None:
        self.data, self.latent, self.batch = data, latent, batch
        self.streams = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.rows: list[Tensor] = []
        self.noise: list[Tensor] = []

    def real(self) -> Float[Tensor, "M b d"]:
        """The next batch of data."""
        if not self.rows:
            n, shape = self.data.shape[-2], (CHUNK, self.batch)
            drawn = [torch.randint(n, shape, generator=g) for g in self.streams]
            self.rows = list(torch.stack(drawn, 1).flip(0))
        rows = self.rows.pop()
        if self.data.ndim == 2:
            return self.data[rows]
        return self.data.gather(1, rows[..., None].expand(-1, -1, self.data.shape[2]))

    def latents(self) -> Float[Tensor, "M b z"]:
        """The next batch of noise."""
        if not self.noise:
            shape, kind = (CHUNK, self.batch, self.latent), self.data.dtype
            drawn = [torch.randn(shape, generator=g, dtype=kind) for g in self.streams]
            self.noise = list(torch.stack(drawn, 1).flip(0))
        return self.noise.pop()


@final
class GANTraining:
    """M generators against M discriminators, stepped together.

    Args:
        generators: One for each member.
        discriminators: Likewise.
        data: What to imitate, (n, d), or (M, n, d) for data of each member's own.
        rules: How it is played.
        seeds: Of each member's data and noise.
        traced: Trace both turns once and run them as lists of kernels; `"fused"` compiles them
            too. Not for norms that keep running statistics.
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
        self.draws = GANBatches(data, latent, rules.batch, seeds)
        self.taken = 0
        self.cost_G = self.cost_D = torch.full((M,), torch.nan)
        self._judge, self._make = self._judged, self._made
        if traced:
            self._trace(fuse=traced == "fused")

    @functools.cached_property
    def step_G(self) -> StackedStep:
        """The generators' optimiser."""
        return self.G.optimiser(optim.Adam, lr=self.rules.lr, betas=self.rules.betas)

    @functools.cached_property
    def step_D(self) -> StackedStep:
        """The discriminators'."""
        rules = self.rules
        rate = rules.lr if rules.lr_discriminator is None else rules.lr_discriminator
        return self.D.optimiser(optim.Adam, lr=rate, betas=rules.betas)

    def flops(self) -> tuple[float, float]:
        """Operations of one turn of the discriminators, and of the generators'."""
        x, z = self.draws.real(), self.draws.latents()
        G, D = self.G.flat.detach(), self.D.flat.detach()
        with Flops() as judging:
            self._judged(D, G, x, z)
        with Flops() as making:
            self._made(G, D, z)
        return judging.total, making.total

    def step(self) -> None:
        """The discriminators' turns, then the generators'."""
        if self.rules.decay is not None:
            left = (1 - self.taken / self.rules.decay) / (1 - self.rules.hold)
            factor = min(1.0, max(0.01, left))
            for group in (*self.step_G.param_groups, *self.step_D.param_groups):
                group["lr"] = group["peak_lr"] * factor
        for _ in range(self.rules.turns):
            self.step_judge()
        z, flats = self.draws.latents(), (self.G.flat.detach(), self.D.flat.detach())
        more = self._foresight() if self.rules.unroll else ()
        self.cost_G, slope = self._make(*flats, z, *more)
        self.step_G.follow(slope)
        self.taken += 1

    def step_judge(self) -> None:
        """One turn of the discriminators."""
        x, z = self.draws.real(), self.draws.latents()
        self.cost_D, slope = self._judge(self.D.flat.detach(), self.G.flat.detach(), x, z)
        self.step_D.follow(slope)
        if self.rules.clip is not None:
            with torch.no_grad():
                self.D.flat.clamp_(-self.rules.clip, self.rules.clip)

    def _judged(self, D: Tensor, G: Tensor, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """Costs of discriminators with parameters D, and their slopes."""
        with torch.no_grad():
            made = together(lambda model, noise: model(noise), [(self.G, G)], z)
        leaf = D.detach().requires_grad_(True)
        costs = together(self._discriminator_cost, [(self.D, leaf)], x, made)
        return costs.detach(), torch.autograd.grad(costs.sum(), leaf)[0]

    def _made(self, G: Tensor, D: Tensor, z: Tensor, *more: Tensor) -> tuple[Tensor, Tensor]:
        """Costs of generators with parameters G, and their slopes."""
        leaf = G.detach().requires_grad_(True)
        made = together(lambda model, noise: model(noise), [(self.G, leaf)], z)
        if self.rules.unroll:
            costs = together(
                self._foreseen, [(self.D, self._ahead(made, D, *more))], more[0], made
            )
        else:
            costs = together(self._generator_cost, [(self.D, D)], made)
        return costs.detach(), torch.autograd.grad(costs.sum(), leaf)[0]

    def _trace(self, *, fuse: bool) -> None:
        kept = [name for pack in (self.G, self.D) for name in pack.buffers]
        fix = "Use Generator(running=False)."
        require(not kept, "traced players", "keep no running statistics", kept, fix)
        G, D = self.G.flat.detach(), self.D.flat.detach()
        x = torch.zeros(len(G), self.rules.batch, self.draws.data.shape[-1]).to(G)
        z = torch.zeros(len(G), self.rules.batch, self.draws.latent).to(G)
        one = torch.ones(()).to(G)
        more = (x, one, torch.zeros_like(D), torch.zeros_like(D), one)
        self._judge = listed(self._judged, (D, G, x, z), fuse=fuse)
        self._make = listed(self._made, (G, D, z, *(more if self.rules.unroll else ())), fuse=fuse)

    def _discriminator_cost(self, D: Any, x: Tensor, made: Tensor) -> Tensor:
        cost = self.rules.costs.discriminator(*self._logits(D, x, made))
        if self.rules.penalty:
            cost = cost + self.rules.penalty * gradient_penalty(D, x, made)
        return cost

    def _generator_cost(self, D: nn.Module, made: Tensor) -> Tensor:
        return self.rules.costs.generator(D(made))

    def _foreseen(self, D: nn.Module, x: Tensor, made: Tensor) -> Tensor:
        """The generator's cost against a discriminator that has moved because of it.

        In a zero-sum game what that costs on data depends on the generator as well, and is part of
        the value that both play for.
        """
        if not self.rules.costs.zero_sum:
            return self._generator_cost(D, made)
        return -self.rules.costs.discriminator(*self._logits(D, x, made))

    def _logits(self, D: Any, x: Tensor, made: Tensor) -> tuple[Tensor, Tensor]:
        if getattr(D, "minibatch", None) is None:
            real, fake = D(torch.cat([x, made])).chunk(2)
        else:
            # Rows of a batch look at one another, so data and samples come apart.
            real, fake = D(x), D(made)
        return real, fake

    def _foresight(self) -> tuple[Tensor, ...]:
        """For steps ahead: data, the discriminators' present rate, moments and clock."""
        flat = self.D.flat.detach()
        rate = torch.tensor(self.step_D.param_groups[0]["lr"]).to(flat)
        return self.draws.real(), rate, *moments_of(self.step_D, flat)

    def _ahead(
        self, made: Tensor, D: Tensor, x: Tensor, rate: Tensor, *moments: Tensor
    ) -> Float[Tensor, "M P"]:
        """Where the discriminators will be after `unroll` of their steps, as a function of `made`.

        All steps are on one batch, so the generator's way is gone only once, there and back.
        """
        theta, state = D.detach().requires_grad_(True), cast("Moments", moments)
        for _ in range(self.rules.unroll):
            loss = together(self._discriminator_cost, [(self.D, theta)], x, made)
            (slope,) = torch.autograd.grad(loss.sum(), theta, create_graph=True)
            theta, state = adam_ahead(theta, slope, state, rate, self.rules.betas)
        return theta

    @torch.no_grad()
    def samples(self, n: int, seed: int = 0) -> Float[Tensor, "M n d"]:
        """`n` points of every generator, with the norms' running statistics if they keep any."""
        skeleton = self.G.skeleton
        streams = [torch.Generator().manual_seed(1_000_003 * (seed + 1) + i) for i in
                   range(len(self.G))]  # fmt: skip
        size, kind = self.draws.latent, self.G.flat.dtype
        z = torch.stack([torch.randn(n, size, generator=g, dtype=kind) for g in streams])
        skeleton.eval()
        made = self.G(z)
        skeleton.train()
        return made


Moments = tuple[Tensor, Tensor, Tensor]


def moments_of(stepper: StackedStep, like: Tensor) -> Moments:
    """Adam's two moments and its clock, as they stand."""
    states = [stepper.inner.state[row] for row in stepper.rows]
    if not states[0]:
        return torch.zeros_like(like), torch.zeros_like(like), torch.zeros(()).to(like)
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
    """One step of Adam that can be differentiated through.

    References: `kingma2015` Algorithm 1.
    """
    first, second, t = moments
    first = betas[0] * first + (1 - betas[0]) * slope
    second = betas[1] * second + (1 - betas[1]) * slope.square()
    t = t + 1
    # The root has no slope at 0; parameters that were never moved stay.
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
    """Play `steps` rounds; look at every generator's samples at `marks`.

    Args:
        contest: The players; changed in place, and may be played on.
        steps: Of the generators.
        marks: Steps after which to keep samples and costs.
        shown: Samples kept at each mark.
        watch: Told the step and both players' costs after every round.

    Raises:
        DivergedError: A cost of some member was not finite at a mark or at the end.
    """
    history, wanted = History(), set(marks)
    for step in range(1, steps + 1):
        contest.step()
        if watch is not None:
            watch(step, contest.cost_G, contest.cost_D)
        if step in wanted or step == steps:
            both = torch.stack([contest.cost_G, contest.cost_D])
            if not bool(both.isfinite().all()):
                members = (~both.isfinite().all(0)).nonzero()[:, 0].tolist()
                raise DivergedError(f"the costs of members {members} broke down by step {step}.")
            if step in wanted:
                history.step.append(contest.taken)
                history.samples.append(contest.samples(shown))
                history.generator.append(contest.cost_G)
                history.discriminator.append(contest.cost_D)
    return history
