"""Stacks of six forms fitted to Chebyshev polynomials by second-order steps from many starts."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch

from allometry._core.estimate import Estimate, proportion
from allometry._core.spec import Spec
from allometry.study.recipes.polynomial_stacks import SMALL, Stack
from allometry.study.request import Outcome, Request, RunContext
from allometry.targets import high_rank_functions
from allometry.train.budget import Budget
from allometry.train.loop import Progress
from allometry.train.second_order import fit_with_kicks, residuals_of

SOLVED = 1e-3
"""Relative squared error on fresh points below which a Chebyshev polynomial counts as learnt."""


@final
@dataclass(frozen=True)
class ChebyshevRun(Request):
    """One small stack fitted to a Chebyshev polynomial by second-order steps from many starts.

    Args:
        k: Degree of the polynomial, of the mean of two inputs in [-1, 1].
        stack: Its layers.
        name: Its name in `SMALL`.
        starts: Fits.
        kicks: Of each, at most.
        size: Of the kicks.
        steps: Of each fit.
        rung: Which stack this is, from 0.
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
        """Family, teacher, shape; starts are inside."""
        return {
            "family": f"{self.name}, six forms" if self.name[0] == "T" else self.name,
            "target": f"Chebyshev {self.k}",
            "shape": self.stack.words,
            "rung": self.rung,
            "seed": 0,
        }

    def budget(self) -> Budget:
        """Of one start; a step costs a Jacobian, not counted."""
        return Budget(self.stack.size(2), 0, 200, 0.0)

    def work(self) -> float:
        """By the number of fits; most are solved before their last kick."""
        return 1.0 + 1.2e-5 * self.starts * self.steps * (1 + self.kicks) * self.stack.size(2)

    def __call__(self, place: RunContext) -> Outcome:
        """Fit from every start; count what is solved on fresh points."""
        started = time.monotonic()
        solved = solve_chebyshev(
            self.k, self.stack, self.starts, kicks=self.kicks, size=self.size, steps=self.steps
        )
        place.watch(Progress(1, 1, 1 - solved.value))
        N = self.stack.size(2)
        return Outcome(
            columns=self.columns
            | {
                "part": "solving",
                "N": N,
                "N_embedding": 0,
                "D": 200,
                "D_unique": 200,
                "C": None,
                "C_6ND": None,
                "loss": 1 - solved.value,
                "loss_se": solved.se,
                "solved": solved.value,
                "solved_lo": solved.interval[0],
                "solved_hi": solved.interval[1],
                "seeds": self.starts,
                "k": self.k,
                "seconds": time.monotonic() - started,
            }
        )


def solve_chebyshev(
    k: int, stack: Stack, starts: int, *, kicks: int = 10, size: float = 0.3, steps: int = 100
) -> Estimate:
    """The share of starts from which a stack learns the Chebyshev polynomial of degree k.

    Fitted on 200 points, judged on 2,000 others.
    """
    dtype = torch.float64
    rng = torch.Generator().manual_seed(1)
    x, fresh = (2 * torch.rand(n, 2, generator=rng, dtype=dtype) - 1 for n in (200, 2000))
    teacher = high_rank_functions.chebyshev(k)
    y, truth = teacher(x), teacher(fresh)
    nets = [
        stack.made(2, False, torch.Generator().manual_seed(s)).to(dtype) for s in range(starts)
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
    """Requests for small stacks on Chebyshev 9 and 8; loopholes where T_3 is among the chosen.

    Args:
        chosen: Of `STACKS`; only T_2 and T_3 have a stack of six forms.
        starts: Of every stack.
        kicks: Of every start.
        size: Of the kicks.
        steps: Of each fit.
    """
    cases = [
        (9, "T_2"),
        (9, "T_3"),
        (9, "half cubic"),
        (9, "tied cubes"),
        (8, "T_2"),
        (8, "T_3"),
        (8, "T_2 wide"),
        (8, "T_3 wide"),
    ]
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
