"""Regression vectorised over seeds and rates (see `packed`), on fresh points in every step.

Each model has its own weights and its own stream of points. The rate is chosen on a validation
set, and models are tested on points used neither for training nor for that choice.

Shapes: M models, b points of a batch, i inputs, n points of an evaluation.
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
"""Builds an untrained model from the generator of its weights; it maps (b, i) to (b, 1)."""
RATES = (3e-3, 1e-2, 3e-2, 1e-1)


@final
class RegressionResult(NamedTuple):
    """Result of `learn`."""

    rate: float
    """The chosen rate."""
    validation: dict[float, float]
    """Median relative squared error by rate, on the validation points."""
    test: list[float]
    """Relative squared error of each seed at that rate, on fresh points."""


def uniform_points(n: int, inputs: int, rng: torch.Generator) -> Float[Tensor, "n i"]:
    """Uniform points of a cube, with mean 0 and variance 1 in every input."""
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
    """Choose a rate for Adam on a few seeds, then train other seeds at it, vectorised.

    The teacher is standardised on separate points, so that errors are relative to predicting its
    mean. A diverged model has an infinite error.

    Args:
        make: Builds the model.
        teacher: The function.
        inputs: i.
        seeds: Number of seeds at the chosen rate; none of them is used for the choice.
        rates: Peak rates to choose from, with warm-up and cosine decay to zero.
        trials: Seeds per rate for the choice.
        steps: Updates of every model.
        batch: b, fresh in every step.
        judged: n.
        watch: Called with the progress.
        stop: Called after every step; if true, raise `Stopped`.

    Raises:
        Stopped: `stop` returned true.
    """
    require(seeds >= 1, "learn_function.seeds", "be at least 1", seeds)
    require(len(rates) >= 1, "learn_function.rates", "name at least one", rates)
    x = uniform_points(4 * judged, inputs, torch.Generator().manual_seed(1))
    values = teacher(x)
    centre, scale = values.mean(), values.std()

    def standard(x: Tensor) -> Tensor:
        return (teacher(x) - centre) / scale

    def report(done: int, losses: Tensor) -> None:
        if watch is not None and done % 20 == 0:
            watch(Progress(done, 2 * steps, float(losses.median().nan_to_num(1.0))))
        if stop is not None and stop():
            raise Stopped

    tried = _trained(
        *(make, standard, inputs, [r for r in rates for _ in range(trials)], steps, batch),
        first_seed=10_000,
        report=report,
    )
    errors = _errors(tried, standard, inputs, judged, seed=2).view(len(rates), trials)
    median = errors.median(1).values
    chosen = list(rates)[int(median.argmin())]
    trained = _trained(
        *(make, standard, inputs, [chosen] * seeds, steps, batch),
        first_seed=0,
        report=lambda k, losses: report(steps + k, losses),
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
    report: Callable[[int, Tensor], None],
) -> StackedModels:
    """One model for each rate, trained on its own stream of points."""
    M = len(rates)
    models = StackedModels([make(torch.Generator().manual_seed(first_seed + m)) for m in range(M)])
    stepper = models.optimiser(optim.Adam, lr=rates, betas=(0.9, 0.99))
    rng = torch.Generator().manual_seed(1_000_003 + first_seed)
    for k in range(steps):
        factor = warmup_decay(k, steps=steps, warmup=max(1, steps // 20))
        for group in stepper.param_groups:
            group["lr"] = group["peak_lr"] * factor
        x = uniform_points(M * batch, inputs, rng)
        y = teacher(x).view(M, batch)
        losses = (models(x.view(M, batch, inputs)).squeeze(-1) - y).square().mean(1)
        stepper.descend(losses, clip=1.0)
        report(k + 1, losses.detach())
    return models


@torch.no_grad()
def _errors(
    models: StackedModels, teacher: Teacher, inputs: int, n: int, *, seed: int
) -> Float[Tensor, " M"]:
    """Mean squared error of each model at n points; the teacher has variance 1."""
    x = uniform_points(n, inputs, torch.Generator().manual_seed(seed))
    y, total = teacher(x), torch.zeros(len(models))
    for a, b in zip(x.split(2048), y.split(2048), strict=True):
        found = models(a.expand(len(models), -1, -1)).squeeze(-1)
        total += (found - b).square().sum(1)
    return (total / n).nan_to_num(nan=math.inf, posinf=math.inf)
