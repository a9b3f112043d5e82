"""The adversarial game of generators and discriminators, many pairs at once.

Letters: M members, b batch, d size of a point, P parameters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn, optim

from allometry._core.errors import DivergedError, require
from allometry.train.adversarial import NON_SATURATING, Costs, gradient_penalty
from allometry.train.packed import Packed, Stepper, together

CHUNK = 100
"""Steps whose random numbers are drawn at once."""


@final
@dataclass(frozen=True)
class Rules:
    """How a game is played.

    Args:
        costs: What the players minimise.
        batch: Points from each side in a step; a multiple of the discriminator's pack.
        lr: The generator's rate.
        lr_discriminator: The discriminator's; the same if not given.
        betas: Adam's.
        turns: Steps of the discriminator for each of the generator.
        unroll: Steps of the discriminator that the generator looks ahead and differentiates
            through.
        penalty: Weight of the gradient penalty.
        clip: Largest absolute value of the discriminator's parameters, for Wasserstein's critic.
        decay: Steps over which both rates fall linearly to a hundredth; held if not given.

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
class Draws:
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
class Contest:
    """M generators against M discriminators, stepped together.

    Args:
        generators: One for each member.
        discriminators: Likewise.
        data: What to imitate, (n, d), or (M, n, d) for data of each member's own.
        rules: How it is played.
        seeds: Of each member's data and noise.
    """

    def __init__(
        self,
        generators: Packed,
        discriminators: Packed,
        data: Tensor,
        rules: Rules,
        seeds: Sequence[int] | None = None,
    ) -> None:
        M, pack = len(generators), getattr(discriminators.skeleton, "pack", 1)
        require(len(discriminators) == M, "discriminators", f"be {M}", len(discriminators))
        require(
            rules.batch % pack == 0,
            "Rules.batch",
            f"be a multiple of the pack {pack}",
            rules.batch,
        )
        seeds = range(M) if seeds is None else seeds
        require(len(seeds) == M, "seeds", f"be {M}", len(seeds))
        self.G, self.D, self.rules = generators, discriminators, rules
        latent = int(getattr(generators.skeleton, "latent"))  # noqa: B009 - a module's attribute
        self.draws = Draws(data, latent, rules.batch, seeds)
        rate = rules.lr if rules.lr_discriminator is None else rules.lr_discriminator
        self.rate = rate
        self.step_G = generators.optimiser(optim.Adam, lr=rules.lr, betas=rules.betas)
        self.step_D = discriminators.optimiser(optim.Adam, lr=rate, betas=rules.betas)
        self.taken = 0
        self.cost_G = self.cost_D = torch.full((M,), torch.nan)

    def step(self) -> None:
        """The discriminators' turns, then the generators'."""
        if self.rules.decay is not None:
            factor = max(0.01, 1 - self.taken / self.rules.decay)
            for group in (*self.step_G.param_groups, *self.step_D.param_groups):
                group["lr"] = group["peak_lr"] * factor
        for _ in range(self.rules.turns):
            self.step_judge()
        z = self.draws.latents()
        ahead = self._ahead(z) if self.rules.unroll else self.D.flat.detach()
        costs = together(self._generator_cost, [self.G, (self.D, ahead)], z)
        self.step_G.descend(costs)
        self.cost_G = costs.detach()
        self.taken += 1

    def step_judge(self) -> None:
        """One turn of the discriminators."""
        x = self.draws.real()
        with torch.no_grad():
            made = self.G(self.draws.latents())
        costs = self.D.map(self._discriminator_cost, x, made)
        self.step_D.descend(costs)
        if self.rules.clip is not None:
            with torch.no_grad():
                self.D.flat.clamp_(-self.rules.clip, self.rules.clip)
        self.cost_D = costs.detach()

    def _discriminator_cost(self, D: Any, x: Tensor, made: Tensor) -> Tensor:
        if getattr(D, "minibatch", None) is None:
            real, fake = D(torch.cat([x, made])).chunk(2)
        else:
            # Rows of a batch look at one another, so data and samples come apart.
            real, fake = D(x), D(made)
        cost = self.rules.costs.discriminator(real, fake)
        if self.rules.penalty:
            cost = cost + self.rules.penalty * gradient_penalty(D, x, made)
        return cost

    def _generator_cost(self, G: nn.Module, D: nn.Module, z: Tensor) -> Tensor:
        return self.rules.costs.generator(D(G(z)))

    def _ahead(self, z: Tensor) -> Float[Tensor, "M P"]:
        """Where the discriminators will be after `unroll` of their steps, as a function of G."""
        x = self.draws.real()

        def cost(G: nn.Module, D: nn.Module, points: Tensor, noise: Tensor) -> Tensor:
            return self._discriminator_cost(D, points, G(noise))

        theta = self.D.flat
        moments = moments_of(self.step_D, theta)
        for _ in range(self.rules.unroll):
            loss = together(cost, [self.G, (self.D, theta)], x, z)
            (slope,) = torch.autograd.grad(loss.sum(), theta, create_graph=True)
            theta, moments = adam_ahead(theta, slope, moments, self.rate, self.rules.betas)
        return theta

    @torch.no_grad()
    def samples(self, n: int, seed: int = 0) -> Float[Tensor, "M n d"]:
        """`n` points of every generator, with the norms' running statistics."""
        skeleton = self.G.skeleton
        streams = [torch.Generator().manual_seed(1_000_003 * (seed + 1) + i) for i in
                   range(len(self.G))]  # fmt: skip
        size, kind = self.draws.latent, self.G.flat.dtype
        z = torch.stack([torch.randn(n, size, generator=g, dtype=kind) for g in streams])
        skeleton.eval()
        made = self.G(z)
        skeleton.train()
        return made


Moments = tuple[Tensor, Tensor, int]


def moments_of(stepper: Stepper, like: Tensor) -> Moments:
    """Adam's two moments and its clock, as they stand."""
    states = [stepper.inner.state[row] for row in stepper.rows]
    if not states[0]:
        return torch.zeros_like(like), torch.zeros_like(like), 0
    first = torch.cat([s["exp_avg"].reshape(-1, like.shape[1]) for s in states])
    second = torch.cat([s["exp_avg_sq"].reshape(-1, like.shape[1]) for s in states])
    return first, second, int(states[0]["step"])


def adam_ahead(
    theta: Float[Tensor, "M P"],
    slope: Float[Tensor, "M P"],
    moments: Moments,
    lr: float,
    betas: tuple[float, float],
    eps: float = 1e-8,
) -> tuple[Float[Tensor, "M P"], Moments]:
    """One step of Adam that can be differentiated through.

    References: `kingma2015` Algorithm 1.
    """
    first, second, t = moments
    first = betas[0] * first + (1 - betas[0]) * slope
    second = betas[1] * second + (1 - betas[1]) * slope.square()
    t += 1
    # The root has no slope at 0; parameters that were never moved stay.
    scale = (second / (1 - betas[1] ** t) + eps**2).sqrt()
    return theta - lr * first / (1 - betas[0] ** t) / scale, (first, second, t)


def play(
    contest: Contest,
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
