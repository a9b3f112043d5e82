"""Forms in which size and data are coupled: the scarcer of the two limits the loss.

Letters: m parameter vectors at once, p parameters, n runs; X holds the
centred logs of size and data.
"""

from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry.laws.forms import Additive, Draws, Form

_PLAIN = Additive("chinchilla", ("N", "D"))


def _bottleneck(
    first: Float[ndarray, "m n"], second: Float[ndarray, "m n"], gamma: Float[ndarray, "m 1"]
) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m n"], Float[ndarray, "m n"]]:
    """`gamma log(exp(first/gamma) + exp(second/gamma))`, its slope in the first and in gamma."""
    t, s = first / gamma, second / gamma
    both = np.logaddexp(t, s)
    share = np.exp(t - both)
    return gamma * both, share, both - share * t - (1 - share) * s


@final
class Coupled(Form):
    r"""$L(N, D) = E + (A/N^\alpha + B/D^\beta)^\gamma$.

    $\gamma = 1$ is the additive law; $\gamma < 1$ makes the scarcer of size and data matter more.
    The parameters describe the terms $(A/N^\alpha)^\gamma$ and $(B/D^\beta)^\gamma$, so that
    $\gamma$ affects only how they combine and has a prior of its own.

    References:
        `rosenfeld2020` (joint forms of size and data), `hoffmann2022` Eq. (2) for $\gamma = 1$.
    """

    name = "coupled"
    variables = ("N", "D")
    letters = ("E", "A", "alpha", "B", "beta", "gamma")
    equation = "L = E + (A/N^alpha + B/D^beta)^gamma"

    def evaluate(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m p n"]]:
        """Log loss and its derivative."""
        e, a, alpha, b, beta, g = (theta[:, i, None] for i in range(6))
        gamma = np.exp(g)
        rest, share, bend = _bottleneck(a - alpha * X[0], b - beta * X[1], gamma)
        f = np.logaddexp(e, rest)
        w = np.exp(rest - f)
        J = np.empty((len(theta), 6, X.shape[-1]))
        J[:, 0] = 1 - w
        J[:, 1] = w * share
        J[:, 2] = -J[:, 1] * X[0]
        J[:, 3] = w * (1 - share)
        J[:, 4] = -J[:, 3] * X[1]
        J[:, 5] = w * gamma * bend
        return f, J

    def value(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> Float[ndarray, "m n"]:
        """Log loss alone."""
        e, a, alpha, b, beta, g = (theta[:, i, None] for i in range(6))
        gamma = np.exp(g)
        rest = gamma * np.logaddexp((a - alpha * X[0]) / gamma, (b - beta * X[1]) / gamma)
        return np.logaddexp(e, rest)

    def starts(
        self,
        X: Float[ndarray, "v n"],
        y: Float[ndarray, " n"],
        count: int,
        rng: np.random.Generator,
    ) -> Float[ndarray, "m p"]:
        """Starts of the additive law, with couplings around 1."""
        plain = _PLAIN.starts(X, y, count, rng)
        return np.concatenate([plain, rng.normal(0.0, 0.4, (count, 1))], 1)

    def prior(
        self, X: Float[ndarray, "v n"], y: Float[ndarray, " n"]
    ) -> tuple[Float[ndarray, " p"], Float[ndarray, " p"]]:
        """The prior of the additive law, and a log coupling of 0 with deviation 0.4."""
        mean, sd = _PLAIN.prior(X, y)
        return np.append(mean, 0.0), np.append(sd, 0.4)

    def public(self, theta: Float[ndarray, "m p"], centre: Float[ndarray, " v"]) -> Draws:
        """The parameters by the letters of the paper, in the units of the data."""
        e, a, alpha, b, beta, g = theta.T
        gamma = np.exp(g)
        with np.errstate(over="ignore"):
            return {
                "E": np.exp(e),
                "A": np.exp((a + alpha * centre[0]) / gamma),
                "alpha": alpha / gamma,
                "B": np.exp((b + beta * centre[1]) / gamma),
                "beta": beta / gamma,
                "gamma": gamma,
            }


@final
class Tied(Form):
    r"""$L(N, D) = E + A/N^\alpha + B/D^\alpha$: size and data share one exponent.

    One parameter less than the additive law, which suits few runs.

    References:
        `gadre2024` Eq. (4) (with $D = M N$).
    """

    name = "tied"
    variables = ("N", "D")
    letters = ("E", "A", "B", "alpha")
    equation = "L = E + A/N^alpha + B/D^alpha"

    def additive(self, theta: Float[ndarray, "m p"]) -> Float[ndarray, "m q"]:
        """The parameters of the additive law."""
        return theta[:, [0, 1, 3, 2, 3]]

    def evaluate(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m p n"]]:
        """Log loss and its derivative."""
        f, J = _PLAIN.evaluate(self.additive(theta), X)
        return f, np.stack([J[:, 0], J[:, 1], J[:, 3], J[:, 2] + J[:, 4]], 1)

    def value(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> Float[ndarray, "m n"]:
        """Log loss alone."""
        return _PLAIN.value(self.additive(theta), X)

    def starts(
        self,
        X: Float[ndarray, "v n"],
        y: Float[ndarray, " n"],
        count: int,
        rng: np.random.Generator,
    ) -> Float[ndarray, "m p"]:
        """Starts of the additive law, with the geometric mean of its exponents."""
        wide = _PLAIN.starts(X, y, count, rng)
        both = np.sqrt(wide[:, 2] * wide[:, 4])
        return np.stack([wide[:, 0], wide[:, 1], wide[:, 3], both], 1)

    def prior(
        self, X: Float[ndarray, "v n"], y: Float[ndarray, " n"]
    ) -> tuple[Float[ndarray, " p"], Float[ndarray, " p"]]:
        """The prior of the additive law."""
        mean, sd = _PLAIN.prior(X, y)
        return mean[[0, 1, 3, 2]], sd[[0, 1, 3, 2]]

    def public(self, theta: Float[ndarray, "m p"], centre: Float[ndarray, " v"]) -> Draws:
        """The parameters by the letters of the paper, in the units of the data."""
        wide = _PLAIN.public(self.additive(theta), centre)
        return {letter: wide[letter] for letter in self.letters}


@final
class Kaplan(Form):
    r"""$L(N, D) = [(N_c/N)^{\alpha_N/\alpha_D} + D_c/D]^{\alpha_D}$, without irreducible loss.

    References:
        `kaplan2020` Eq. (1.5).
    """

    name = "kaplan"
    variables = ("N", "D")
    letters = ("alpha_N", "alpha_D", "N_c", "D_c")
    equation = "L = ((N_c/N)^(alpha_N/alpha_D) + D_c/D)^alpha_D"

    def evaluate(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m p n"]]:
        """Log loss and its derivative with respect to (alpha_N, log alpha_D, levels)."""
        alpha, log_gamma, a, b = (theta[:, i, None] for i in range(4))
        gamma = np.exp(log_gamma)
        f, share, bend = _bottleneck(a - alpha * X[0], b - gamma * X[1], gamma)
        turned = gamma * (bend - (1 - share) * X[1])
        return f, np.stack([-share * X[0], turned, share, 1 - share], 1)

    def value(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> Float[ndarray, "m n"]:
        """Log loss alone."""
        alpha, log_gamma, a, b = (theta[:, i, None] for i in range(4))
        gamma = np.exp(log_gamma)
        return gamma * np.logaddexp((a - alpha * X[0]) / gamma, (b - gamma * X[1]) / gamma)

    def starts(
        self,
        X: Float[ndarray, "v n"],
        y: Float[ndarray, " n"],
        count: int,
        rng: np.random.Generator,
    ) -> Float[ndarray, "m p"]:
        """Exponents from 0.02 to 0.5; each term is a random share of the median loss."""
        slopes = rng.uniform(np.log(0.02), np.log(0.5), (count, 2))
        level = float(np.median(y)) + np.log(rng.uniform(0.2, 0.9, (count, 2)))
        return np.stack([np.exp(slopes[:, 0]), slopes[:, 1], level[:, 0], level[:, 1]], 1)

    def prior(
        self, X: Float[ndarray, "v n"], y: Float[ndarray, " n"]
    ) -> tuple[Float[ndarray, " p"], Float[ndarray, " p"]]:
        """Exponents around 0.1: without an irreducible loss they are small."""
        level = float(np.median(y))
        return np.array([0.1, np.log(0.1), level, level]), np.array([0.2, 1.0, 5.0, 5.0])

    def public(self, theta: Float[ndarray, "m p"], centre: Float[ndarray, " v"]) -> Draws:
        """The parameters by the letters of the paper, in the units of the data."""
        alpha, log_gamma, a, b = theta.T
        gamma = np.exp(log_gamma)
        with np.errstate(over="ignore"):
            return {
                "alpha_N": alpha,
                "alpha_D": gamma,
                "N_c": np.exp(a / alpha + centre[0]),
                "D_c": np.exp(b / gamma + centre[1]),
            }


_STEPS = Additive("steps", ("N", "S"), irreducible=False)


@final
class Steps(Form):
    r"""$L(N, S_{min}) = (N_c/N)^{\alpha_N} + (S_c/S_{min})^{\alpha_S}$.

    S is the number of steps at an unlimited batch size (`kaplan.least_steps`).

    References:
        `kaplan2020` Eqs. (1.6) and (5.6).
    """

    name = "steps"
    variables = ("N", "S")
    letters = ("alpha_N", "N_c", "alpha_S", "S_c")
    equation = "L = (N_c/N)^alpha_N + (S_c/S)^alpha_S"

    def evaluate(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m p n"]]:
        """Log loss and its derivative."""
        return _STEPS.evaluate(theta, X)

    def value(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> Float[ndarray, "m n"]:
        """Log loss alone."""
        return _STEPS.value(theta, X)

    def starts(
        self,
        X: Float[ndarray, "v n"],
        y: Float[ndarray, " n"],
        count: int,
        rng: np.random.Generator,
    ) -> Float[ndarray, "m p"]:
        """As for a sum of powers."""
        return _STEPS.starts(X, y, count, rng)

    def prior(
        self, X: Float[ndarray, "v n"], y: Float[ndarray, " n"]
    ) -> tuple[Float[ndarray, " p"], Float[ndarray, " p"]]:
        """As for a sum of powers."""
        return _STEPS.prior(X, y)

    def public(self, theta: Float[ndarray, "m p"], centre: Float[ndarray, " v"]) -> Draws:
        """The parameters by the letters of the paper, in the units of the data."""
        a, alpha, b, beta = theta.T
        with np.errstate(over="ignore", divide="ignore"):
            return {
                "alpha_N": alpha,
                "N_c": np.exp(a / alpha + centre[0]),
                "alpha_S": beta,
                "S_c": np.exp(b / beta + centre[1]),
            }
