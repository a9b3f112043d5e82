"""Functional forms of scaling laws in size, data and compute.

Letters: m parameter vectors at once, p parameters, n runs, v variables.

A form works on logarithms. Its input is the logs of its variables, shifted to mean zero so that
its parameters are nearly uncorrelated. Its output is the log of the loss with its Jacobian.
"""

from abc import ABC, abstractmethod
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

WIDE = 3.0
"""Prior standard deviation of the log of a level: a factor of twenty, weakly informative."""

IRREDUCIBLE = (-0.5, 0.5)
"""Prior mean and standard deviation of the log irreducible loss relative to the lowest loss."""

Draws = dict[str, Float[ndarray, " m"]]


class Form(ABC):
    """A functional form. Abstract; every subclass is final."""

    name: str
    variables: tuple[str, ...]
    letters: tuple[str, ...]
    equation: str
    centred: bool = True
    """Whether the logs of the variables are shifted to mean zero."""

    @property
    @final
    def p(self) -> int:
        """Number of parameters."""
        return len(self.letters)

    @abstractmethod
    def evaluate(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m p n"]]:
        """Log loss and its derivative with respect to `theta`."""

    @abstractmethod
    def value(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> Float[ndarray, "m n"]:
        """Log loss alone."""

    @abstractmethod
    def starts(
        self,
        X: Float[ndarray, "v n"],
        y: Float[ndarray, " n"],
        count: int,
        rng: np.random.Generator,
    ) -> Float[ndarray, "m p"]:
        """Random starting points in the range of the data."""

    @abstractmethod
    def prior(
        self, X: Float[ndarray, "v n"], y: Float[ndarray, " n"]
    ) -> tuple[Float[ndarray, " p"], Float[ndarray, " p"]]:
        """Means and standard deviations of a normal prior of the parameters.

        Forecasts shrink towards it, which matters only for few runs. A fit of a named form does
        not use it.
        """

    @abstractmethod
    def public(self, theta: Float[ndarray, "m p"], centre: Float[ndarray, " v"]) -> Draws:
        """The parameters by the letters of the paper, in the units of the data."""


def differences(
    form: Form, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m p n"]]:
    """A form's log loss and its derivative by central differences with step 1e-6."""
    J = np.empty((len(theta), form.p, X.shape[-1]))
    for j in range(form.p):
        step = np.zeros(form.p)
        step[j] = 1e-6
        J[:, j] = (form.value(theta + step, X) - form.value(theta - step, X)) / 2e-6
    return form.value(theta, X), J


@final
class Additive(Form):
    r"""Irreducible loss and one power per variable: $L = E + \sum_v A_v / v^{\alpha_v}$.

    With $(N, D)$ and an irreducible loss this is the parametric law of Hoffmann et al.,
    $L(N, D) = E + A/N^\alpha + B/D^\beta$; with one variable it is the power law with irreducible
    loss; without the irreducible loss it is the allometric law $y = k x^a$, $k = A$,
    $a = -\alpha$.

    The logarithm of the sum is taken as `logsumexp` of $(e, a - \alpha \log N, b - \beta \log D)$,
    so that $E, A, B > 0$ without bounds.

    References:
        `hoffmann2022` Eq. (2) and section 3.3.
    """

    def __init__(self, name: str, variables: tuple[str, ...], *, irreducible: bool = True) -> None:
        self.name = name
        self.variables = variables
        self.irreducible = irreducible
        if name == "power":
            self.letters = ("k", "a")
            self.equation = f"L = k {variables[0]}^a"
        else:
            pairs = (("A", "alpha"), ("B", "beta"))[: len(variables)]
            self.letters = ("E",) * irreducible + tuple(
                letter for pair in pairs for letter in pair
            )
            self.equation = "L = " + " + ".join(
                ["E"] * irreducible
                + [f"{a}/{v}^{b}" for v, (a, b) in zip(variables, pairs, strict=True)]
            )

    def _terms(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m n"], Float[ndarray, "m k n"]]:
        """Log of the largest term, and the terms and their sum relative to it."""
        k, first = len(X) + self.irreducible, int(self.irreducible)
        z = np.empty((len(theta), k, X.shape[-1]))
        if self.irreducible:
            z[:, 0] = theta[:, :1]
        for v, x in enumerate(X):
            level, slope = theta[:, first + 2 * v, None], theta[:, first + 2 * v + 1, None]
            z[:, first + v] = level - slope * x
        top = z.max(1)
        z -= top[:, None]
        np.exp(z, out=z)
        return top, z.sum(1), z

    def value(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> Float[ndarray, "m n"]:
        """Log loss alone."""
        top, total, _ = self._terms(theta, X)
        return top + np.log(total)

    def evaluate(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m p n"]]:
        """Log loss and its derivative: each term's share, times minus the log of its variable."""
        top, total, share = self._terms(theta, X)
        share /= total[:, None]
        f = top + np.log(total)
        first = int(self.irreducible)
        J = np.empty((len(theta), self.p, X.shape[-1]))
        if self.irreducible:
            J[:, 0] = share[:, 0]
        for v, x in enumerate(X):
            J[:, first + 2 * v] = share[:, first + v]
            np.multiply(share[:, first + v], -x, out=J[:, first + 2 * v + 1])
        return f, J

    def starts(
        self,
        X: Float[ndarray, "v n"],
        y: Float[ndarray, " n"],
        count: int,
        rng: np.random.Generator,
    ) -> Float[ndarray, "m p"]:
        """Random exponents from 0.03 to 2, and levels by linear least squares given them."""
        slopes = np.exp(rng.uniform(np.log(0.03), np.log(2.0), (count, len(X))))
        basis = np.exp(-slopes[:, :, None] * X - y)  # each term relative to the loss
        if self.irreducible:
            basis = np.concatenate([np.broadcast_to(np.exp(-y), (count, 1, len(y))), basis], 1)
        gram = basis @ basis.transpose(0, 2, 1)
        trace = np.einsum("mii->m", gram)[:, None, None]
        ridge = 1e-6 * trace * np.eye(gram.shape[1])
        level = np.linalg.solve(gram + ridge, basis.sum(2)[:, :, None])[:, :, 0]
        # A negative level is replaced by a small random share of the loss.
        share = rng.uniform(0.01, 0.2, level.shape) / basis.mean(2)
        level = np.log(np.maximum(level, share))
        columns = [level[:, 0]] if self.irreducible else []
        for v in range(len(X)):
            columns += [level[:, v + int(self.irreducible)], slopes[:, v]]
        return np.stack(columns, 1)

    def prior(
        self, X: Float[ndarray, "v n"], y: Float[ndarray, " n"]
    ) -> tuple[Float[ndarray, " p"], Float[ndarray, " p"]]:
        """Irreducible loss at 0.6 of the lowest loss, exponents of 0.4 with deviation 0.4."""
        mean, sd = ([y.min() + IRREDUCIBLE[0]], [IRREDUCIBLE[1]]) if self.irreducible else ([], [])
        for _ in X:
            mean += [float(np.median(y)) - 1.0 * self.irreducible, 0.4]
            sd += [WIDE, 0.4]
        return np.array(mean), np.array(sd)

    def public(self, theta: Float[ndarray, "m p"], centre: Float[ndarray, " v"]) -> Draws:
        """The parameters by the letters of the paper, in the units of the data."""
        first = int(self.irreducible)
        columns = [np.exp(theta[:, 0])] if self.irreducible else []
        for v, shift in enumerate(centre):
            level, slope = theta[:, first + 2 * v], theta[:, first + 2 * v + 1]
            with np.errstate(over="ignore"):
                columns += [np.exp(level + slope * shift), slope]
        if self.name == "power":
            columns[1] = -columns[1]
        return dict(zip(self.letters, columns, strict=True))


def power(x: str = "N") -> Form:
    r"""The power law $L = k x^a$ in one variable."""
    return Additive("power", (x,), irreducible=False)


def floor(x: str = "N") -> Form:
    r"""A power law with irreducible loss: $L = E + A x^{-\alpha}$."""
    return Additive("floor", (x,))


def chinchilla() -> Form:
    r"""$L(N, D) = E + A/N^\alpha + B/D^\beta$.

    References:
        `hoffmann2022` Eq. (2).
    """
    return Additive("chinchilla", ("N", "D"))
