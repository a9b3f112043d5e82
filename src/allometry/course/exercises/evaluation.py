"""Exercises of the lesson on evaluation."""

import math

from allometry.course.exercise import Exercise

EXERCISES = (
    Exercise(
        "A classifier has two classes. It gives half of the samples the probabilities (1, 0) and "
        "the other half (0.5, 0.5). What is their inception score?",
        # exp(H(0.75, 0.25) - (0 + log 2) / 2).
        lambda: math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25) - 0.5 * math.log(2)),
        "It is the exponential of the entropy of the mean minus the mean of the entropies.",
        """
import torch
from allometry.measure import inception_score

p = torch.tensor([[1.0, 0.0], [0.5, 0.5]], dtype=torch.float64).repeat(4000, 1)
answer = inception_score(p)
""",
        tolerance=5e-3,
    ),
    Exercise(
        "What is the Fréchet distance between $\\mathcal N(0, I)$ and $\\mathcal N(m, 4 I)$ in "
        "the plane, for $|m| = 1$?",
        # |m|^2 + tr(I + 4 I - 2 * 2 I).
        lambda: 1.0 + 2 * (1 + 4 - 4),
        "It is the squared distance of the means plus tr(A + B - 2 (A B)^(1/2)).",
        """
import torch
from allometry.measure import frechet_distance

corners = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1]], dtype=torch.float64)
x = corners.repeat(5000, 1)  # mean 0, covariance I
answer = frechet_distance(x, 2 * x + torch.tensor([1.0, 0.0]))
""",
        tolerance=5e-3,
    ),
    Exercise(
        "Among 500 samples there are 12 pairs of equal images. If all images were equally "
        "probable, how many different images would the model make?",
        lambda: 500 * 499 / 2 / 12,
        "Each of the 500 * 499 / 2 pairs agrees with probability 1 / N.",
        """
import math

answer = math.comb(500, 2) / 12
""",
        tolerance=5e-3,
    ),
)
