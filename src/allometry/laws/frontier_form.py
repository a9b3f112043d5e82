"""A form whose exponent along the compute-optimal frontier is free.

Letters: m parameter vectors at once, p parameters, n runs; X holds the centred logs of size and
data.
"""

from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry.laws.forms import IRREDUCIBLE, WIDE, Additive, Draws, Form

_PLAIN = Additive("chinchilla", ("N", "D"))


def _log_sum(
    first: Float[ndarray, "m n"], second: Float[ndarray, "m *n"]
) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m n"]]:
    """Log of the sum of two exponentials, and the share of the first: half the time of numpy's."""
    ahead = first - second
    small = np.exp(-np.abs(ahead))
    total = 1.0 + small
    share = np.where(ahead >= 0, 1.0, small) / total
    return np.maximum(first, second) + np.log(total), share


@final
class Frontier(Form):
    r"""$L = E + K (ND)^{-\gamma}\, \frac{b\,u^{-a} + a\,u^b}{a + b}$.

    Here $u = N / (G\,(ND)^{b/(a+b)})$. At a fixed compute the loss is lowest at $u = 1$, where it
    is $E + K (ND)^{-\gamma}$. The exponents a and b say how fast it rises where size or data are
    too small. The additive law is the case $\gamma = a b/(a + b)$ with $a = \alpha$, $b = \beta$:
    there the curvature at a fixed compute decides how fast the loss falls along the frontier, and
    here it does not.

    Args:
        irreducible: Whether there is an irreducible loss E.

    References:
        `hoffmann2022` Eqs. (2) and (4) (the additive law and its frontier).
    """

    variables = ("N", "D")

    def __init__(self, *, irreducible: bool = True) -> None:
        self.irreducible = irreducible
        self.name = "frontier" if irreducible else "frontier_power"
        self.letters = ("E",) * irreducible + ("K", "gamma", "G", "a", "b")
        self.equation = (
            "L = " + "E + " * irreducible + "K (N D)^-gamma (b u^-a + a u^b)/(a + b), "
            "u = N/(G (N D)^(b/(a + b)))"
        )

    def _terms(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m n"], Float[ndarray, "m n"]]:
        """Log of the reducible loss, the share of its term in size, and log u."""
        k, gamma, g, log_a, log_b = (theta[:, i, None] for i in range(-5, 0))
        a, b = np.exp(log_a), np.exp(log_b)
        both = X[0] + X[1]
        v = X[0] - g - both * (b / (a + b))
        first = log_b - a * v
        top, share = _log_sum(first, log_a + b * v)
        return k - gamma * both + top - np.log(a + b), share, v

    def value(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> Float[ndarray, "m n"]:
        """Log loss alone."""
        rest = self._terms(theta, X)[0]
        return _log_sum(rest, theta[:, :1])[0] if self.irreducible else rest

    def evaluate(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m p n"]]:
        """Log loss and its derivative."""
        rest, share, v = self._terms(theta, X)
        a, b, both = np.exp(theta[:, -2, None]), np.exp(theta[:, -1, None]), X[0] + X[1]
        J = np.empty((len(theta), self.p, X.shape[-1]))
        f, w = rest, np.ones_like(rest)
        if self.irreducible:
            f, w = _log_sum(rest, theta[:, :1])
            J[:, 0] = 1 - w
        slope = b * (1 - share) - a * share  # with respect to v
        turn = slope * both * a * b / (a + b) ** 2  # u itself depends on a and b
        J[:, -5] = w
        J[:, -4] = -w * both
        J[:, -3] = -w * slope
        J[:, -2] = w * (1 - share - a * share * v - a / (a + b) + turn)
        J[:, -1] = w * (share + b * (1 - share) * v - b / (a + b) - turn)
        return f, J

    def starts(
        self,
        X: Float[ndarray, "v n"],
        y: Float[ndarray, " n"],
        count: int,
        rng: np.random.Generator,
    ) -> Float[ndarray, "m p"]:
        """Starts of the additive law, with other exponents along the frontier."""
        plain = _PLAIN.starts(X, y, count, rng)
        e, A, a, B, b = plain.T
        a, b = np.clip(a, 0.03, 2.0), np.clip(b, 0.03, 2.0)
        g = (A - B + np.log(a / b)) / (a + b)
        k = A - a * g - np.log(b / (a + b))
        gamma = a * b / (a + b) * np.exp(rng.normal(0.0, 0.3, count))
        if not self.irreducible:
            # The level of the whole loss, and a slower fall.
            k = np.full(count, float(np.median(y)))
            gamma = np.exp(rng.uniform(np.log(0.02), np.log(0.3), count))
        columns = [k, gamma, np.clip(g, -8.0, 8.0), np.log(a), np.log(b)]
        return np.stack([e, *columns] if self.irreducible else columns, 1)

    def prior(
        self, X: Float[ndarray, "v n"], y: Float[ndarray, " n"]
    ) -> tuple[Float[ndarray, " p"], Float[ndarray, " p"]]:
        """The irreducible loss of the additive law, and half of its exponent along the frontier.

        Without an irreducible loss the exponents are small, as in the form of Kaplan et al.
        """
        level = float(np.median(y))
        if not self.irreducible:
            small = float(np.log(0.1))
            return np.array([level, 0.05, 0.0, small, small]), np.array(
                [WIDE, 0.1, WIDE, 1.0, 1.0]
            )
        usual = float(np.log(0.4))
        mean = [y.min() + IRREDUCIBLE[0], level - 1.0, 0.2, 0.0, usual, usual]
        return np.array(mean), np.array([IRREDUCIBLE[1], WIDE, 0.2, WIDE, 1.0, 1.0])

    def public(self, theta: Float[ndarray, "m p"], centre: Float[ndarray, " v"]) -> Draws:
        """The parameters by their letters, in the units of the data."""
        k, gamma, g, log_a, log_b = theta[:, -5:].T
        a, b = np.exp(log_a), np.exp(log_b)
        both = centre[0] + centre[1]
        with np.errstate(over="ignore"):
            found = {
                "K": np.exp(k + gamma * both),
                "gamma": gamma,
                "G": np.exp(g + centre[0] - both * b / (a + b)),
                "a": a,
                "b": b,
            }
            return {"E": np.exp(theta[:, 0]), **found} if self.irreducible else found
