r"""Families trained at equal compute: at each budget C, each family has its own N and D.

The size follows from a fixed ratio of data to parameters, $D = r N$, so that
$C = f(N) \, r N$ where f is the family's number of FLOPs per example.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from allometry._core.errors import InputError, require
from allometry._core.spec import Spec
from allometry.study.request import Request
from allometry.study.study import Recipe
from allometry.train.budget import Budget

RATIO = 20.0
"""Examples or tokens per parameter."""

TOLERANCE = 1.25
"""Largest ratio of a run's compute to its budget; a family without such a model is left out."""

LEAST_STEPS = 100
"""Fewest updates. A small budget then trains a smaller model for longer."""


def at_compute(recipe: Recipe, *, ratio: float = RATIO) -> Recipe:
    """The recipe whose ladder is one of compute budgets in FLOPs; it ignores `tokens`.

    Args:
        recipe: Of a family whose runs train on examples or tokens.
        ratio: Examples or tokens per parameter.

    Example:
        >>> import allometry as al
        >>> moons = al.targets.Points(al.targets.points.TwoMoons())
        >>> equal = al.study.at_compute(al.study.recipes.affine_coupling)
        >>> runs = equal(moons, [1e9, 1e10], tokens=[], seeds=1)
        >>> [f"{spec().budget().C:.1g}" for spec in runs]
        ['1e+09', '1e+10']
    """
    require(ratio > 0, "at_compute.ratio", "be positive", ratio)

    def equal(
        target: Any, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
    ) -> list[Spec]:
        specs: list[Spec] = []
        shapes: set[str] = set()
        for rung, compute in enumerate(sorted(ladder)):
            made = _at(recipe, target, compute, ratio, seeds)
            shape = made[0]().columns["shape"] if made else None
            if shape is not None and shape not in shapes:
                shapes.add(shape)
                specs += [_on_rung(spec, rung) for spec in made]
        return specs

    equal.__name__ = equal.__qualname__ = getattr(recipe, "__name__", "equal")
    return equal


def _at(recipe: Recipe, target: Any, compute: float, ratio: float, seeds: int) -> list[Spec]:
    """Requests whose compute is close to the budget; none if the family has no such model."""
    try:
        N = _size(recipe, target, compute, ratio)
        step = _one_step(recipe, target, N)
    except InputError:  # the family has no model so small
        return []
    D = compute * step.D / step.C
    if D < 0.8 * LEAST_STEPS * step.D:
        return []
    made = recipe(target, [N], tokens=[D], seeds=seeds)
    reached = made[0]().budget().C
    return made if max(reached / compute, compute / reached) <= TOLERANCE else []


def _size(recipe: Recipe, target: Any, compute: float, ratio: float) -> float:
    """The size N at which D = `ratio` N examples cost the budget."""
    N = math.sqrt(compute / (6 * ratio))
    for _ in range(8):
        step = _one_step(recipe, target, N)
        least = LEAST_STEPS * step.D
        D = max(ratio * step.N, least)
        # FLOPs per example are nearly proportional to N.
        power = 1.0 if least > ratio * step.N else 0.5
        wanted = step.N * (compute * step.D / (step.C * D)) ** power
        if abs(math.log(wanted / N)) < 0.01:
            break
        N = max(wanted, 1.0)
    return N


def _one_step(recipe: Recipe, target: Any, N: float) -> Budget:
    """The budget of one update of a model of about N parameters."""
    request: Request = recipe(target, [N], tokens=[1.0], seeds=1)[0]()
    return request.budget()


def _on_rung(spec: Spec, rung: int) -> Spec:
    """The same request with another index in the ladder."""
    plain = spec.to_dict()
    plain["arguments"]["rung"] = rung
    return Spec.from_dict(plain, trusted=True)
