"""Small polynomial networks fitted to Chebyshev polynomials by second-order steps."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch

from allometry._core.estimate import Estimate, proportion
from allometry._core.spec import Spec
from allometry.study.recipes.base import identity
from allometry.study.recipes.polynomial_stacks import SMALL, Stack
from allometry.study.recipes.run_outcome import journal_columns
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import high_rank_functions
from allometry.train.budget import Budget
from allometry.train.loop import Progress
from allometry.train.second_order import fit_with_kicks, residuals_of

SOLVED = 1e-3
"""Relative squared error on new points below which a polynomial counts as solved."""


@final
@dataclass(frozen=True)
class ChebyshevRun(Request):
    """One small stack fitted to a Chebyshev polynomial from many starts.

    Args:
        k: Degree of the polynomial, of the mean of two inputs in [-1, 1].
        stack: Its layers.
        name: Name in `SMALL`.
        starts: Random initialisations.
        kicks: Random perturbations of each fit, at most.
        size: Of the perturbations.
        steps: Of each fit.
        rung: Index of the stack, from 0.
    """

    k: int
    stack: Stack
    name: str
    starts: int
    kicks: int
    size: float
    steps: int
    rung: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target and shape; one run has all starts."""
        family = f"{self.name}, six forms" if self.name[0] == "T" else self.name
        return identity(family, f"Chebyshev {self.k}", self.stack.words, self.rung)

    def budget(self) -> Budget:
        """Of one start; the Jacobians are not counted."""
        return Budget(self.stack.size(2), 0, 200, 0.0)

    def work(self) -> float:
        """By the number of fits; most are solved before their last perturbation."""
        return 1.0 + 1.2e-5 * self.starts * self.steps * (1 + self.kicks) * self.stack.size(2)

    def __call__(self, context: RunContext) -> Outcome:
        """Fit from every start; count those that solve new points."""
        started = time.monotonic()
        solved = solve_chebyshev(
            self.k, self.stack, self.starts, kicks=self.kicks, size=self.size, steps=self.steps
        )
        context.watch(Progress(1, 1, 1 - solved.value))
        budget = self.budget()
        columns = journal_columns(
            budget,
            Estimate(1 - solved.value, solved.se),
            D_unique=budget.D,
            seconds=time.monotonic() - started,
            counted=False,
            part="solving",
            solved=solved.value,
            solved_lo=solved.interval[0],
            solved_hi=solved.interval[1],
            seeds=self.starts,
            k=self.k,
        )
        return Outcome(columns=self.columns | columns)


def solve_chebyshev(
    k: int, stack: Stack, starts: int, *, kicks: int = 10, size: float = 0.3, steps: int = 100
) -> Estimate:
    """The share of starts from which a stack learns the Chebyshev polynomial of degree k.

    Fitted on 200 points, evaluated on 2,000 others.
    """
    dtype = torch.float64
    rng = torch.Generator().manual_seed(1)
    x, fresh = (2 * torch.rand(n, 2, generator=rng, dtype=dtype) - 1 for n in (200, 2000))
    teacher = high_rank_functions.chebyshev(k)
    y, truth = teacher(x), teacher(fresh)
    nets = [
        stack.network(2, False, torch.Generator().manual_seed(s)).to(dtype) for s in range(starts)
    ]
    first = torch.stack([torch.cat([p.detach().flatten() for p in n.parameters()]) for n in nets])
    found = fit_with_kicks(
        residuals_of(nets[0], x, y), first, kicks=kicks, size=size, steps=steps, enough=1e-5
    )
    judge = torch.vmap(residuals_of(nets[0], fresh, truth))
    error = judge(found.parameters).square().mean(1) / truth.square().mean()
    return proportion(int((error < SOLVED).sum()), starts)


def chebyshevs(
    chosen: Sequence[str] = ("T_2", "T_3"),
    *,
    starts: int = 48,
    kicks: int = 10,
    size: float = 0.3,
    steps: int = 100,
) -> list[Spec]:
    """Requests for small stacks on Chebyshev 9 and 8; with T_3 also two counterexamples.

    Args:
        chosen: Of `STACKS`; only T_2 and T_3 have a stack of six forms.
        starts: Random initialisations of every stack.
        kicks: Random perturbations of every fit.
        size: Of the perturbations.
        steps: Of each fit.
    """
    nine, eight = (
        ("T_2", "T_3", "half cubic", "tied cubes"),
        ("T_2", "T_3", "T_2 wide", "T_3 wide"),
    )
    cases = [*((9, name) for name in nine), *((8, name) for name in eight)]
    return [
        Spec(
            ChebyshevRun,
            k=k,
            stack=SMALL[name].spec,
            name=name,
            starts=starts,
            kicks=kicks,
            size=size,
            steps=steps,
            rung=list(SMALL).index(name),
        )
        for k, name in cases
        if (name[:3] if name[0] == "T" else "T_3") in chosen
    ]
