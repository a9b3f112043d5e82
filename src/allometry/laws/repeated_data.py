"""A scaling law for repeated data: later epochs contribute less than the first.

Letters: m parameter vectors at once, p parameters, n runs.
"""

from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry.laws.forms import Additive, Draws, Form, differences

_PLAIN = Additive("chinchilla", ("N", "D"))


@final
class Repeated(Form):
    r"""$L = E + A/N'^\alpha + B/D'^\beta$ with effective data and size under repetition.

    $D' = U_D + U_D R_D^* (1 - e^{-R_D/R_D^*})$ with $U_D$ the unique data and $R_D = D/U_D - 1$
    the repetitions; $N' = U_N + U_N R_N^* (1 - e^{-R_N/R_N^*})$ likewise with $U_N$ the smaller of
    N and the size that is compute-optimal for $U_D$, and $R_N = N/U_N - 1$ the excess.

    Differs from the paper: all seven parameters are fitted at once, where the paper fits the five
    of unique data first.

    References:
        `muennighoff2023` Eqs. (5) and (6).
    """

    name = "repeated"
    variables = ("N", "D", "D_unique")
    letters = ("E", "A", "alpha", "B", "beta", "R_D", "R_N")
    equation = "L = E + A/N'^alpha + B/D'^beta, N' and D' effective under repetition"
    centred = False

    def value(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> Float[ndarray, "m n"]:
        """Log loss alone."""
        e, a, log_alpha, b, log_beta, rd, rn = (theta[:, i, None] for i in range(7))
        alpha, beta = np.exp(log_alpha), np.exp(log_beta)
        n, d, u = X[0], X[1], np.minimum(X[2], X[1])
        # Compute-optimal for the unique data: alpha A/N^alpha = beta B/D^beta.
        best = (log_alpha - log_beta + a - b + beta * u) / alpha
        own = np.minimum(n, best)
        size = own + np.log1p(_effective(np.expm1(np.minimum(n - own, 50.0)), np.exp(rn)))
        data = u + np.log1p(_effective(np.expm1(d - u), np.exp(rd)))
        terms = np.stack([np.broadcast_to(e, size.shape), a - alpha * size, b - beta * data])
        top = terms.max(0)
        return top + np.log(np.exp(terms - top).sum(0))

    def evaluate(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m p n"]]:
        """Log loss and its derivative by central differences (the optimal size has a kink)."""
        return differences(self, theta, X)

    def starts(
        self,
        X: Float[ndarray, "v n"],
        y: Float[ndarray, " n"],
        count: int,
        rng: np.random.Generator,
    ) -> Float[ndarray, "m p"]:
        """Starts of the additive law in the units of the data; repetitions around 10."""
        centre = X[:2].mean(1, keepdims=True)
        t = _PLAIN.starts(X[:2] - centre, y, count, rng)
        a, b = t[:, 1] + t[:, 2] * centre[0], t[:, 3] + t[:, 4] * centre[1]
        scales = np.log(10.0) + rng.normal(0, 0.7, (count, 2))
        return np.stack([t[:, 0], a, np.log(t[:, 2]), b, np.log(t[:, 4]), *scales.T], 1)

    def prior(
        self, X: Float[ndarray, "v n"], y: Float[ndarray, " n"]
    ) -> tuple[Float[ndarray, " p"], Float[ndarray, " p"]]:
        """The values of the paper for repetition; weakly informative for the rest."""
        mid = float(np.median(y)) - 1.0
        a, b = mid + 0.35 * X[0].mean(), mid + 0.35 * X[1].mean()
        mean = np.array([y.min() - 0.5, a, np.log(0.35), b, np.log(0.35), np.log(15), np.log(5)])
        return mean, np.array([0.7, 8.0, 0.8, 8.0, 0.8, 1.0, 1.0])

    def public(self, theta: Float[ndarray, "m p"], centre: Float[ndarray, " v"]) -> Draws:
        """The parameters by the letters of the paper."""
        with np.errstate(over="ignore"):
            return dict(zip(self.letters, np.exp(theta).T, strict=True))


def _effective(
    repeats: Float[ndarray, "..."], scale: Float[ndarray, "m 1"]
) -> Float[ndarray, "..."]:
    """Effective repetitions R* (1 - exp(-R / R*)), in units of first passes."""
    return -scale * np.expm1(-np.maximum(repeats, 0.0) / scale)
