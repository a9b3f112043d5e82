"""Exercises of the lesson on sampling."""

import math

from allometry.course.exercise import Exercise

EXERCISES = (
    Exercise(
        "What does the inverse transform of the Poisson distribution with mean 6.5 give for "
        "$u = 0.8$?",
        lambda: _poisson_quantile(6.5, 0.8),
        "It is the smallest count whose distribution function reaches 0.8.",
        """
import numpy as np
from scipy import stats
from allometry.models import sampling

answer = sampling.inverse_transform(stats.poisson(6.5).cdf, np.array([0.8]))[0]
""",
        tolerance=1e-6,
    ),
    Exercise(
        "A standard normal is sampled by rejection from the Laplace density "
        "$\\frac12 e^{-|x|}$. What is the highest possible acceptance rate?",
        # The ratio p/q = sqrt(2/pi) exp(|x| - x^2/2) is largest at |x| = 1.
        lambda: math.sqrt(math.pi / (2 * math.e)),
        "Find the largest ratio of the two densities; its reciprocal is the rate.",
        """
import numpy as np
from scipy import stats

x = np.linspace(-5, 5, 100_001)
answer = 1 / (stats.norm.pdf(x) / stats.laplace.pdf(x)).max()
""",
        tolerance=1e-3,
    ),
    Exercise(
        "What is the density of $Y = e^X$ at $y = 2.5$, for $X$ normal with mean 0.3 and standard "
        "deviation 0.5?",
        lambda: (
            math.exp(-0.5 * ((math.log(2.5) - 0.3) / 0.5) ** 2)
            / (0.5 * math.sqrt(2 * math.pi) * 2.5)
        ),
        "The inverse is the logarithm, whose derivative is 1 / y.",
        """
import torch
from allometry.models import sampling

normal = torch.distributions.Normal(0.3, 0.5)
density = sampling.mapped_log_density(lambda x: normal.log_prob(x).sum(1), torch.log)
answer = density(torch.tensor([[2.5]])).exp().item()
""",
        tolerance=1e-3,
    ),
)


def _poisson_quantile(mean: float, u: float) -> int:
    total, count = math.exp(-mean), 0
    while total < u:
        count += 1
        total += math.exp(-mean + count * math.log(mean) - math.lgamma(count + 1))
    return count
