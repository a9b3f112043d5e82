"""Densities under a change of variables, and expectations.

Shapes: n points, d dimensions, k branches.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from allometry._core.errors import require
from allometry._core.estimate import Estimate

Map = Callable[[Tensor], Tensor]


def linear_log_density(log_density: Map, A: Float[Tensor, "d d"], b: Float[Tensor, " d"]) -> Map:
    r"""$\log p_Y(y) = \log p_X(A^{-1}(y - b)) - \log |\det A|$ for Y = A X + b."""
    sign, logdet = torch.linalg.slogdet(A)
    require(bool(sign != 0), "linear_log_density.A", "be invertible", A.tolist())

    def of(y: Tensor) -> Tensor:
        return log_density(torch.linalg.solve(A, (y - b).T).T) - logdet

    return of


def mapped_log_density(log_density: Map, inverse: Map) -> Map:
    r"""$\log p_Y(y) = \log p_X(h(y)) + \log |\det \partial h / \partial y|$, h the map's inverse.

    The Jacobian is computed by torch at every point.
    """
    return many_to_one_log_density(log_density, [inverse])


def many_to_one_log_density(log_density: Map, branches: Sequence[Map]) -> Map:
    r"""$p_Y(y) = \sum_i p_X(h_i(y)) |\det \partial h_i / \partial y|$ over the branches.

    Args:
        log_density: $\log p_X$ on (n, d).
        branches: The inverses $h_i$, each from (n, d) to (n, d). A branch without a preimage of y
            returns NaN there and is skipped.
    """
    require(len(branches) >= 1, "branches", "have at least one", len(branches))

    def of(y: Tensor) -> Tensor:
        parts = []
        for h in branches:
            x = h(y)
            J = torch.func.vmap(torch.func.jacrev(lambda v, h=h: h(v[None])[0]))(y)
            part = log_density(x) + torch.linalg.slogdet(J).logabsdet
            parts.append(torch.where(x.isnan().any(1), -torch.inf, part))
        return torch.stack(parts).logsumexp(0)

    return of


def expectation(g: Callable[[ndarray], ndarray], draws: Float[ndarray, "n d"]) -> Estimate:
    r"""$\mathbb E\,g(X)$ from draws of X, without the distribution of g(X) (LOTUS).

    Args:
        g: From (n, d) to (n,).
        draws: Independent.
    """
    values = np.asarray(g(draws), dtype=np.float64)
    require(
        values.shape == (len(draws),), "expectation.g", "give one number per draw", values.shape
    )
    require(len(values) >= 2, "expectation.draws", "be at least 2", len(values))
    se = float(values.std(ddof=1)) / len(values) ** 0.5
    return Estimate(float(values.mean()), se, n=len(values), method="mean over draws")
