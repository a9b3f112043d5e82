"""Exercises of the lesson on autoencoders."""

import math

from allometry.course.exercise import Exercise

EXERCISES = (
    Exercise(
        "The covariance of some data has the eigenvalues 5, 3, 1 and 0.5. What is the smallest "
        "mean squared error of a linear autoencoder with a code of two numbers?",
        lambda: 1 + 0.5,
        "The error is the variance that the code leaves out.",
        """
import torch
from allometry.models import autoencoders as ae
from allometry.train import minimise, objectives

x = torch.cat([torch.eye(4), -torch.eye(4)]) * 2  # covariance: the identity
x = x * torch.tensor([5, 3, 1, 0.5]).sqrt()
model = ae.linear(4, 2)
minimise(model, lambda step: objectives.reconstruction(model, x), steps=400, lr=0.05)
answer = objectives.reconstruction(model, x)
""",
        tolerance=0.01,
    ),
    Exercise(
        "$X$ is normal with mean 0 and variance 4. A denoiser sees $\\tilde x = X + $ noise of "
        "variance 1. What does the best denoiser answer for $\\tilde x = 3$?",
        lambda: 3 * 4 / (4 + 1),
        "Noisy values have variance 5. Use Tweedie's formula with their density.",
        """
import torch
from allometry.targets import points

noisy = points.Mixture([[0.0]], sd=5**0.5)
x = torch.tensor([[3.0]], requires_grad=True)
(score,) = torch.autograd.grad(noisy.log_prob(x).sum(), x)
answer = (x + 1.0 * score).item()
""",
        tolerance=1e-3,
    ),
    Exercise(
        "The encoder is $E(x) = \\tanh(W x)$ with $W = ((1, 2), (0, -1))$. What is the "
        "contractive penalty $\\|\\partial E/\\partial x\\|_F^2$ at $x = (0.3, -0.1)$?",
        # Row j of the Jacobian is (1 - tanh^2) W_j; the products W x are 0.1 and 0.1.
        lambda: (1 - math.tanh(0.1) ** 2) ** 2 * (1 + 4 + 0 + 1),
        "Each row of W is scaled by 1 - tanh^2 of its product with x.",
        """
import torch
from torch import nn
from allometry.models import autoencoders as ae
from allometry.train import objectives

first = nn.Linear(2, 2, bias=False)
first.weight.data = torch.tensor([[1.0, 2.0], [0.0, -1.0]])
model = ae.Autoencoder(nn.Sequential(first, nn.Tanh()), nn.Linear(2, 2))
x = torch.tensor([[0.3, -0.1]])
answer = objectives.contractive(model, x, weight=1.0) - objectives.reconstruction(model, x)
""",
        tolerance=1e-3,
    ),
)
