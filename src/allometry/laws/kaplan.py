r"""The scaling laws of Kaplan et al. 2020 with their constants, in N, D, C, S and B.

Letters: N parameters without embeddings, D tokens, S steps, B batch in tokens, C compute in
PF-days ($8.64 \times 10^{19}$ FLOPs).
"""

from typing import Any, final

import numpy as np
from numpy import ndarray

from allometry._core.errors import require

PF_DAY = 8.64e19
"""FLOPs in a petaflop-day."""


def _positive(**values: Any) -> list[ndarray]:
    out = []
    for name, value in values.items():
        array = np.asarray(value, dtype=float)
        require(bool((array > 0).all()), f"kaplan.{name}", "be positive", value)
        out.append(array)
    return out


def loss_of_size(N: Any, alpha_N: float = 0.076, N_c: float = 8.8e13) -> ndarray:
    r"""$L(N) = (N_c/N)^{\alpha_N}$ with unlimited data and training time.

    References:
        `kaplan2020` Eq. (1.1).
    """
    (n,) = _positive(N=N)
    return np.asarray((N_c / n) ** alpha_N)


def loss_of_data(D: Any, alpha_D: float = 0.095, D_c: float = 5.4e13) -> ndarray:
    r"""$L(D) = (D_c/D)^{\alpha_D}$ with unlimited size and early stopping.

    References:
        `kaplan2020` Eq. (1.2).
    """
    (d,) = _positive(D=D)
    return np.asarray((D_c / d) ** alpha_D)


def loss_of_compute(C_min: Any, alpha_C: float = 0.050, C_c: float = 3.1e8) -> ndarray:
    r"""$L(C_{min}) = (C_c^{min}/C_{min})^{\alpha_C^{min}}$ in PF-days, optimally allocated.

    References:
        `kaplan2020` Eq. (1.3).
    """
    (c,) = _positive(C_min=C_min)
    return np.asarray((C_c / c) ** alpha_C)


def loss(
    N: Any,
    D: Any,
    *,
    alpha_N: float = 0.076,
    alpha_D: float = 0.103,
    N_c: float = 6.4e13,
    D_c: float = 1.8e13,
) -> ndarray:
    r"""$L(N, D) = [(N_c/N)^{\alpha_N/\alpha_D} + D_c/D]^{\alpha_D}$.

    References:
        `kaplan2020` Eqs. (1.5) and (4.1), Table 2.
    """
    n, d = _positive(N=N, D=D)
    return np.asarray(((N_c / n) ** (alpha_N / alpha_D) + D_c / d) ** alpha_D)


def loss_of_steps(
    N: Any,
    S_min: Any,
    *,
    alpha_N: float = 0.077,
    alpha_S: float = 0.76,
    N_c: float = 6.5e13,
    S_c: float = 2.1e3,
) -> ndarray:
    r"""$L(N, S_{min}) = (N_c/N)^{\alpha_N} + (S_c/S_{min})^{\alpha_S}$.

    References:
        `kaplan2020` Eqs. (1.6) and (5.6), Table 3.
    """
    n, s = _positive(N=N, S_min=S_min)
    return np.asarray((N_c / n) ** alpha_N + (S_c / s) ** alpha_S)


def critical_batch(L: Any, B_star: float = 2.1e8, alpha_B: float = 0.21) -> ndarray:
    r"""$B_{crit}(L) = B_* / L^{1/\alpha_B}$ in tokens.

    References:
        `kaplan2020` Eqs. (1.4) and (5.3).
    """
    (loss_,) = _positive(L=L)
    return np.asarray(B_star / loss_ ** (1 / alpha_B))


def least_steps(S: Any, B: Any, L: Any) -> ndarray:
    r"""$S_{min} = S / (1 + B_{crit}(L)/B)$: steps at an unlimited batch size.

    References:
        `kaplan2020` Eq. (5.4).
    """
    s, b = _positive(S=S, B=B)
    return np.asarray(s / (1 + critical_batch(L) / b))


def least_compute(C: Any, B: Any, L: Any) -> ndarray:
    r"""$C_{min} = C / (1 + B/B_{crit}(L))$: compute at a small batch size.

    References:
        `kaplan2020` Eq. (5.5).
    """
    c, b = _positive(C=C, B=B)
    return np.asarray(c / (1 + b / critical_batch(L)))


def data_against_overfitting(N: Any, constant: float = 5e3, exponent: float = 0.74) -> ndarray:
    r"""$D \gtrsim 5 \times 10^3 N^{0.74}$: data for which overfitting stays within noise (2 %).

    References:
        `kaplan2020` Eq. (4.4).
    """
    (n,) = _positive(N=N)
    return np.asarray(constant * n**exponent)


def overfitting(
    N: Any,
    D: Any,
    *,
    alpha_N: float = 0.076,
    alpha_D: float = 0.103,
    N_c: float = 6.4e13,
    D_c: float = 1.8e13,
) -> ndarray:
    r"""$\delta L = (1 + (N/N_c)^{\alpha_N/\alpha_D} D_c/D)^{\alpha_D} - 1$.

    The relative excess of $L(N, D)$ over $L(N, \infty)$, a function of
    $N^{\alpha_N/\alpha_D}/D = N^{0.74}/D$ alone.

    References:
        `kaplan2020` Eqs. (4.2) and (4.3).
    """
    n, d = _positive(N=N, D=D)
    return np.asarray((1 + (n / N_c) ** (alpha_N / alpha_D) * D_c / d) ** alpha_D - 1)


def compute_exponent(
    alpha_N: float = 0.077, alpha_S: float = 0.76, alpha_B: float = 0.21
) -> float:
    r"""$\alpha_C^{min} = 1 / (1/\alpha_S + 1/\alpha_B + 1/\alpha_N)$.

    References:
        `kaplan2020` Eqs. (1.8) and (6.4).
    """
    return 1 / (1 / alpha_S + 1 / alpha_B + 1 / alpha_N)


@final
class KaplanAllocation:
    r"""Compute-optimal size, batch, steps and data as functions of compute.

    $N = N_e C^{0.73}$, $B = B_e C^{0.24}$, $S = S_e C^{0.03}$, $D = D_e C^{0.27}$, C in PF-days.

    References:
        `kaplan2020` Table 6 and section 6.1.
    """

    N = (1.3e9, 0.73)
    B = (2.0e6, 0.24)
    S = (5.4e3, 0.03)
    D = (2.0e10, 0.27)

    @classmethod
    def at(cls, C_min: Any) -> dict[str, ndarray]:
        """Each quantity at `C_min` PF-days."""
        (c,) = _positive(C_min=C_min)
        pairs = {"N": cls.N, "B": cls.B, "S": cls.S, "D": cls.D}
        return {name: np.asarray(level * c**power) for name, (level, power) in pairs.items()}


def effective_data_transferred(
    D_F: Any, N: Any, *, k: float = 1.9e4, alpha: float = 0.18, beta: float = 0.38
) -> ndarray:
    r"""$D_T = k D_F^\alpha N^\beta$: effective data transferred from pre-training.

    The defaults are text to Python; pre-training on a mixture of text and code has k = 2.1e5,
    alpha = 0.096, beta = 0.38.

    References:
        `hernandez2021` Eqs. (1.1) and (1.2).
    """
    d, n = _positive(D_F=D_F, N=N)
    return np.asarray(k * d**alpha * n**beta)
