"""Exercises of the lesson on latent variables."""

import math

from allometry.course.exercise import Exercise

EXERCISES = (
    Exercise(
        "The model is $z \\sim \\mathcal N(0, 1)$, $x = 2z + $ noise of variance 1. For $x = 3$ "
        "the density $q$ has the mean of the true posterior and standard deviation 0.5. By how "
        "many nats is the ELBO below $\\log p(x)$?",
        # The posterior variance is 1 / (1 + 4) = 0.2.
        lambda: 0.5 * (0.25 / 0.2 - 1 - math.log(0.25 / 0.2)),
        "The gap is the KL divergence of q from the posterior, whose variance is 1 / (1 + 4).",
        """
import torch
from torch.distributions import Normal, kl_divergence
from allometry.models import autoencoders as ae

x = torch.tensor([[3.0]])
exact = ae.LinearGaussian(torch.tensor([[2.0]]), torch.zeros(1), 1.0)
m = exact.posterior(x)[0].item()
q = Normal(m, 0.5)
fit = Normal(2 * m, 1.0).log_prob(x) - 4 * 0.25 / 2  # the mean of log p(x|z) under q
answer = exact.log_prob(x) - fit + kl_divergence(q, Normal(0.0, 1.0))
""",
        tolerance=1e-3,
    ),
    Exercise(
        "The encoder answers $q(z|x) = \\mathcal N(1.5, 0.5^2)$. How many nats is the KL term of "
        "the ELBO?",
        lambda: 0.5 * (1.5**2 + 0.5**2 - 1 - math.log(0.5**2)),
        "The prior is standard normal; both densities are normal, so there is a formula.",
        """
from torch.distributions import Normal, kl_divergence

answer = kl_divergence(Normal(1.5, 0.5), Normal(0.0, 1.0)).item()
""",
        tolerance=1e-3,
    ),
    Exercise(
        "The covariance of the data has the eigenvalues 2.5, 1.3, 0.7 and 0.3. A linear VAE with "
        "four units has a Gaussian likelihood of fixed variance 1. How many units are active at "
        "its optimum?",
        lambda: sum(value > 1 for value in (2.5, 1.3, 0.7, 0.3)),
        "A unit is useful only if its direction varies more than the noise.",
        """
import torch
from allometry.models import autoencoders as ae
from allometry.train import minimise, objectives

corners = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 4)
x = corners * torch.tensor([2.5, 1.3, 0.7, 0.3]).sqrt()
model = ae.dense_vae((4,), 4, ae.Gaussian(1.0, learnt=False), hidden=())
rng = torch.Generator().manual_seed(0)
many = x.repeat(16, 1)
noise = lambda: torch.randn(256, 4, generator=rng)
minimise(model, lambda step: objectives.negative_elbo(model, many, noise()), steps=800, lr=0.02)
answer = ae.active_units(model, x, threshold=0.02).value
""",
        tolerance=0.0,
    ),
)
