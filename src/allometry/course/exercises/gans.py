"""Exercises of the lesson on GANs."""

import itertools
import math

from allometry.course.exercise import Exercise


def _transport() -> float:
    # On the line W_1 is the area between the distribution functions.
    first = {0: 0.5, 1: 0.3, 3: 0.2}
    second = {2: 0.5, 5: 0.5}
    places = sorted({*first, *second})
    area = gap = 0.0
    for here, there in itertools.pairwise(places):
        gap += first.get(here, 0.0) - second.get(here, 0.0)
        area += abs(gap) * (there - here)
    return area


EXERCISES = (
    Exercise(
        "Data are normal with mean 0 and variance 1, samples with mean 2 and variance 1. What "
        "does the optimal discriminator answer at $x = 0.5$?",
        # log p - log q = -0.125 + 1.125 = 1.
        lambda: 1 / (1 + math.exp(-1)),
        "Its logit is the log ratio of both densities.",
        """
import torch
from torch.distributions import Normal
from allometry.train.gan_costs import optimal_discriminator

x = torch.tensor([0.5])
answer = optimal_discriminator(Normal(0.0, 1.0).log_prob(x), Normal(2.0, 1.0).log_prob(x)).item()
""",
        tolerance=1e-3,
    ),
    Exercise(
        "What is the Wasserstein distance $W_1$ between mass 0.5, 0.3, 0.2 at the points 0, 1, 3 "
        "and mass 0.5, 0.5 at the points 2, 5?",
        _transport,
        "On a line it is the area between the two distribution functions.",
        """
import numpy as np
from allometry.measure.transport_duality import kantorovich_rubinstein

x, y = np.array([[0.0], [1.0], [3.0]]), np.array([[2.0], [5.0]])
answer, critic = kantorovich_rubinstein(x, y, np.array([0.5, 0.3, 0.2]), np.array([0.5, 0.5]))
""",
        tolerance=1e-3,
    ),
    Exercise(
        "The data are uniform on 25 modes, the samples on 20 of them. What is the total variation "
        "between packs of 3 independent points of each?",
        lambda: 1 - (20 / 25) ** 3,
        "Packs of data that touch a missing mode never occur among packs of samples.",
        """
import numpy as np

p, q = np.full(25, 1 / 25), np.append(np.full(20, 1 / 20), np.zeros(5))
packs = [np.einsum("i,j,k->ijk", each, each, each) for each in (p, q)]
answer = abs(packs[0] - packs[1]).sum() / 2
""",
        tolerance=1e-3,
    ),
)
