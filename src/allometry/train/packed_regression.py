"""Many small models of one shape fitted to one function at once, on points that never run out.

Seeds and rates are members of a pack (see `packed`); each member has its own weights and its own
stream of points. What a rate is worth is judged on points kept for that, and what a model is worth
on points that neither training nor that choice has seen.

Shapes: M members, b points of a batch, i inputs, n points of a judgement.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor, nn, optim

from allometry._core.errors import require
from allometry.train.loop import Progress, Stopped
from allometry.train.lr_schedule import warmup_decay
from allometry.train.packed.stack import StackedModels

Teacher = Callable[[Tensor], Tensor]
"""Points (n, i) to values (n,)."""
Make = Callable[[torch.Generator], nn.Module]
"""An untrained model from the source of its weights; it gives (b, 1) for (b, i)."""
RATES = (3e-3, 1e-2, 3e-2, 1e-1)


@final
class RegressionResult(NamedTuple):
    """What the members reached."""

    rate: float
    """That was chosen."""
    validation: dict[float, float]
    """Median relative squared error by rate, on the points that chose it."""
    test: list[float]
    """Relative squared error of each seed at that rate, on fresh points."""


def uniform_points(n: int, inputs: int, rng: torch.Generator) -> Float[Tensor, "n i"]:
    """Points of the cube, evenly, with mean 0 and variance 1 in every input."""
    return math.sqrt(3) * (2 * torch.rand(n, inputs, generator=rng) - 1)


def learn_function(
    make: Make,
    teacher: Teacher,
    inputs: int,
    *,
    seeds: int = 16,
    rates: Sequence[float] = RATES,
    trials: int = 3,
    steps: int = 2000,
    batch: int = 128,
    judged: int = 8192,
    watch: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> RegressionResult:
    """Choose a rate for Adam on a few seeds, then train many others at it, all members at once.

    The teacher is centred and scaled to variance 1 on points of its own, so that errors are
    relative to guessing its mean. A member that diverged counts as having an infinite error.

    Args:
        make: The model.
        teacher: The function.
        inputs: i.
        seeds: Trained at the chosen rate; none of them took part in the choice.
        rates: Peak rates to choose from; they warm up and fall to zero as a cosine.
        trials: Seeds at each rate to choose by.
        steps: Updates of every member.
        batch: b, fresh in every step.
        judged: n.
        watch: Told the progress.
        stop: Asked after every step; true means leave.

    Raises:
        Stopped: `stop` said so.
    """
    require(seeds >= 1, "learn_function.seeds", "be at least 1", seeds)
    require(len(rates) >= 1, "learn_function.rates", "name at least one", rates)
    x = uniform_points(4 * judged, inputs, torch.Generator().manual_seed(1))
    values = teacher(x)
    centre, scale = values.mean(), values.std()

    def standard(x: Tensor) -> Tensor:
        return (teacher(x) - centre) / scale

    def tell(done: int, losses: Tensor) -> None:
        if watch is not None and done % 20 == 0:
            watch(Progress(done, 2 * steps, float(losses.median().nan_to_num(1.0))))
        if stop is not None and stop():
            raise Stopped

    tried = _trained(
        *(make, standard, inputs, [r for r in rates for _ in range(trials)], steps, batch),
        first_seed=10_000,
        tell=tell,
    )
    errors = _errors(tried, standard, inputs, judged, seed=2).view(len(rates), trials)
    median = errors.median(1).values
    chosen = list(rates)[int(median.argmin())]
    trained = _trained(
        *(make, standard, inputs, [chosen] * seeds, steps, batch),
        first_seed=0,
        tell=lambda k, losses: tell(steps + k, losses),
    )
    test = _errors(trained, standard, inputs, judged, seed=3)
    by_rate = dict(zip(map(float, rates), median.tolist(), strict=True))
    return RegressionResult(float(chosen), by_rate, test.tolist())


def _trained(
    make: Make,
    teacher: Teacher,
    inputs: int,
    rates: list[float],
    steps: int,
    batch: int,
    *,
    first_seed: int,
    tell: Callable[[int, Tensor], None],
) -> StackedModels:
    """A member for each rate, trained on its own stream of points."""
    M = len(rates)
    pack = StackedModels([make(torch.Generator().manual_seed(first_seed + m)) for m in range(M)])
    stepper = pack.optimiser(optim.Adam, lr=rates, betas=(0.9, 0.99))
    rng = torch.Generator().manual_seed(1_000_003 + first_seed)
    for k in range(steps):
        factor = warmup_decay(k, steps=steps, warmup=max(1, steps // 20))
        for group in stepper.param_groups:
            group["lr"] = group["peak_lr"] * factor
        x = uniform_points(M * batch, inputs, rng)
        y = teacher(x).view(M, batch)
        losses = (pack(x.view(M, batch, inputs)).squeeze(-1) - y).square().mean(1)
        stepper.descend(losses, clip=1.0)
        tell(k + 1, losses.detach())
    return pack


@torch.no_grad()
def _errors(
    pack: StackedModels, teacher: Teacher, inputs: int, n: int, *, seed: int
) -> Float[Tensor, " M"]:
    """Mean squared error of each member at n points; the teacher has variance 1."""
    x = uniform_points(n, inputs, torch.Generator().manual_seed(seed))
    y, total = teacher(x), torch.zeros(len(pack))
    for a, b in zip(x.split(2048), y.split(2048), strict=True):
        found = pack(a.expand(len(pack), -1, -1)).squeeze(-1)
        total += (found - b).square().sum(1)
    return (total / n).nan_to_num(nan=math.inf, posinf=math.inf)
