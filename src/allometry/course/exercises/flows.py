"""Exercises of the lesson on flows."""

import math
from statistics import NormalDist

from allometry.course.exercise import Exercise

EXERCISES = (
    Exercise(
        "A planar layer is $f(x) = x + u \\tanh(w^T x + b)$ with $w = (1, 0.5)$, "
        "$u = (0.8, 0.4)$ and $b = 0.2$. What is its log-determinant at $x = (0.5, -1)$?",
        # w.x + b = 0.2 and w.u = 1, so the determinant is 1 + (1 - tanh^2 0.2).
        lambda: math.log(2 - math.tanh(0.2) ** 2),
        "The Jacobian is the identity plus a matrix of rank one: det(I + u v^T) = 1 + u.v.",
        """
import torch

w, u = torch.tensor([1.0, 0.5]), torch.tensor([0.8, 0.4])
J = torch.func.jacrev(lambda x: x + u * torch.tanh(w @ x + 0.2))(torch.tensor([0.5, -1.0]))
answer = J.slogdet().logabsdet.item()
""",
        tolerance=1e-3,
    ),
    Exercise(
        "Points in three dimensions follow $\\dot x = -x$ from $t = 0$ to $t = 2$. By which "
        "factor does the density at a moving point change?",
        # The divergence is -3, so the log density grows by 3 per unit of time.
        lambda: math.exp(6),
        "Along a path the log density changes by minus the integral of the divergence.",
        """
import torch
from allometry.models.flows.ode_solver import integrate

one = torch.ones(1, dtype=torch.float64)
(log_density,) = integrate(lambda t, state: (3 * one,), (0 * one,), 0.0, 2.0, 1e-9)
answer = log_density.exp().item()
""",
        tolerance=1e-3,
    ),
    Exercise(
        "Two classes have noise with means at distance 3 and the same temperature $\\tau$, and "
        "one flow maps both to data. At which $\\tau$ is the Bayes error 10 %?",
        lambda: 3 / (2 * NormalDist().inv_cdf(0.9)),
        "The map does not matter: solve Phi(-3 / (2 tau)) = 0.1.",
        """
from scipy import optimize, stats

answer = optimize.brentq(lambda tau: stats.norm.cdf(-3 / (2 * tau)) - 0.1, 0.1, 10)
""",
        tolerance=2e-3,
    ),
)
