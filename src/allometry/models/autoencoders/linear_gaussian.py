"""The linear-Gaussian model, where posterior and likelihood of a VAE are exact.

Shapes: n examples, d dimensions, k size of the code.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.errors import require


@final
@dataclass(frozen=True)
class LinearGaussian:
    r"""$x = W z + \mu + \sigma \epsilon$ with z and $\epsilon$ standard normal: probabilistic PCA.

    Args:
        W: (d, k).
        mean: $\mu$.
        sigma2: $\sigma^2$.
    """

    W: Float[Tensor, "d k"]
    mean: Float[Tensor, " d"]
    sigma2: float

    def log_prob(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        r"""The marginal likelihood $\mathcal N(x; \mu, W W^T + \sigma^2 I)$, exactly."""
        d = len(self.mean)
        eye = torch.eye(d, dtype=self.W.dtype)
        C = self.W @ self.W.T + self.sigma2 * eye
        away = x - self.mean
        squares = (away * torch.linalg.solve(C, away.T).T).sum(1)
        return -0.5 * (squares + torch.logdet(C) + d * math.log(2 * math.pi))

    def posterior(
        self, x: Float[Tensor, "n d"]
    ) -> tuple[Float[Tensor, "n k"], Float[Tensor, "k k"]]:
        r"""Mean and covariance of z given x: $M^{-1} W^T (x - \mu)$, $\sigma^2 M^{-1}$."""
        k = self.W.shape[1]
        M = self.W.T @ self.W + self.sigma2 * torch.eye(k, dtype=self.W.dtype)
        mean = torch.linalg.solve(M, self.W.T @ (x - self.mean).T).T
        return mean, self.sigma2 * torch.linalg.inv(M)


def fit_linear_gaussian(x: Float[Tensor, "n d"], k: int) -> LinearGaussian:
    r"""The maximum likelihood estimate, in closed form.

    $\sigma^2$ is the mean of the d - k smallest eigenvalues of the covariance and
    $W = U_k (\Lambda_k - \sigma^2 I)^{1/2}$.

    References: `tipping1999` Eqs. (7), (8).
    """
    n, d = x.shape
    require(1 <= k < d, "fit_linear_gaussian.k", f"be 1 to {d - 1}", k)
    mean = x.mean(0)
    values, vectors = torch.linalg.eigh((x - mean).T @ (x - mean) / n)
    sigma2 = values[: d - k].mean().item()
    W = vectors[:, d - k :] * (values[d - k :] - sigma2).clamp(min=0).sqrt()
    return LinearGaussian(W.flip(1), mean, sigma2)
