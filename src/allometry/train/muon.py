"""Muon: momentum whose update of each hidden matrix is made orthogonal; AdamW for the rest.

Shapes: r rows, c columns; leading axes are a batch of matrices.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn, optim

from allometry._core.errors import require
from allometry.train.optimiser import hidden_and_other

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration: singular values from 0.01 to 1 reach 0.7 to 1.2 in five steps."""

STEPS = 5
"""Iterations."""

RATE_RATIO = 2.5
"""Rate of hidden matrices divided by the rate of everything else.

At the transformer recipe's default of 0.016 hidden matrices get 0.04.
"""


def orthogonalise(matrix: Float[Tensor, "*batch r c"], steps: int = STEPS) -> Tensor:
    r"""The nearest orthogonal matrix $U V^T$ of $U \Sigma V^T$, approximately.

    Newton-Schulz iteration $X \leftarrow aX + (bA + cA^2)X$ with $A = X X^T$, from
    $X = G / \lVert G \rVert_F$. The coefficients favour speed: singular values end between 0.7
    and 1.2 instead of at 1.

    Args:
        matrix: G; leading axes are a batch.
        steps: Iterations.

    Example:
        >>> G = torch.diag(torch.tensor([3.0, 0.5]))
        >>> bool((orthogonalise(G).diagonal() - 1).abs().max() < 0.35)
        True

    References: `jordan2024`, section "Definition".
    """
    a, b, c = COEFFICIENTS
    tall = matrix.shape[-2] > matrix.shape[-1]
    X = matrix.mT if tall else matrix
    X = X / (torch.linalg.matrix_norm(X, keepdim=True) + 1e-7)
    for _ in range(steps):
        A = X @ X.mT
        X = a * X + (b * A + c * (A @ A)) @ X
    return X.mT if tall else X


def update(
    gradient: Float[Tensor, "*batch r c"], momentum: Float[Tensor, "*batch r c"], beta: float
) -> Float[Tensor, "*batch r c"]:
    r"""The update of matrices at rate 1; `momentum` is changed in place.

    $M \leftarrow \beta M + (1 - \beta) G$, then the orthogonal part of Nesterov's
    $\beta M + (1 - \beta) G$, times $\sqrt{\max(1, r / c)}$. The factor gives every shape an
    update of the same operator norm between root mean squares, so that one rate fits all widths.
    """
    momentum.lerp_(gradient, 1 - beta)
    r, c = gradient.shape[-2:]
    return orthogonalise(gradient.lerp(momentum, beta)) * math.sqrt(max(1.0, r / c))


@final
class Muon(optim.Optimizer):
    """Muon on the groups with `orthogonal=True`, AdamW on the others.

    Args:
        groups: Parameter groups; see `muon`.
        lr: Rate of groups without one.
        momentum: Decay rate of Muon's momentum.
        betas: Decay rates of AdamW's moments.
        eps: Added to the root of AdamW's second moment.
        weight_decay: Decoupled.

    References: `jordan2024`; `loshchilov2019` Algorithm 2.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        lr: float = 0.02,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "betas": betas, "eps": eps}
        super().__init__(groups, defaults | {"weight_decay": weight_decay, "orthogonal": False})
        for group in self.param_groups:
            matrices = all(p.ndim >= 2 for p in group["params"])
            require(not group["orthogonal"] or matrices, "Muon", "have matrices", "a vector")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.mul_(1 - group["lr"] * group["weight_decay"])
                if group["orthogonal"]:
                    self._orthogonal(p, group)
                else:
                    self._adam(p, group)
        return loss

    def _orthogonal(self, p: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state["momentum"] = torch.zeros_like(p)
        assert p.grad is not None
        p.add_(update(p.grad, state["momentum"], group["momentum"]), alpha=-group["lr"])

    def _adam(self, p: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        assert p.grad is not None
        state["step"] += 1
        t, (b1, b2) = float(state["step"]), group["betas"]
        state["exp_avg"].lerp_(p.grad, 1 - b1)
        state["exp_avg_sq"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
        below = (state["exp_avg_sq"] / (1 - b2**t)).sqrt_().add_(group["eps"])
        p.addcdiv_(state["exp_avg"], below, value=-group["lr"] / (1 - b1**t))


def muon(
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float = 0.0,
    ratio: float = RATE_RATIO,
) -> Muon:
    """Muon over the hidden matrices of `model`, AdamW over tables, readout, biases and gains.

    The rate of an orthogonal update does not depend on the width: its operator norm is the rate
    itself. Tables, biases and gains have AdamW's rate under muP, which does not either.

    Args:
        model: The model.
        lr: Peak rate of AdamW.
        weight_decay: Of hidden matrices, as for `adamw`: they shrink by `lr * weight_decay`.
        ratio: Rate of the matrices divided by `lr`.

    References: `jordan2024`.
    """
    hidden, rest = hidden_and_other(model)
    groups = [
        {"params": hidden, "lr": lr * ratio, "weight_decay": weight_decay / ratio},
        {"params": rest, "lr": lr, "weight_decay": 0.0},
    ]
    made: list[dict[str, Any]] = [
        group | {"peak_lr": group["lr"], "orthogonal": group is groups[0]}
        for group in groups
        if group["params"]
    ]
    return Muon(made)
