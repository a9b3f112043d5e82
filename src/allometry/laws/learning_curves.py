"""Forms of learning curves in one variable: sigmoidal and broken power laws.

Letters: m parameter vectors at once, p parameters, n points, u the centred log of the variable.
"""

from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from allometry.laws.forms import IRREDUCIBLE, WIDE, Draws, Form


def softplus(x: Float[ndarray, "..."]) -> tuple[Float[ndarray, "..."], Float[ndarray, "..."]]:
    """`log(1 + exp(x))` without overflow, and its slope, from one exponential."""
    slope = np.minimum(x, 700.0)
    np.exp(slope, out=slope)
    above = slope + 1.0
    slope /= above
    np.log(above, out=above)
    return np.maximum(above, x, out=above), slope


def add_irreducible(
    e: Float[ndarray, "m 1"], z: Float[ndarray, "m n"]
) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m n"]]:
    """Log of the irreducible loss plus a term with log z, and the share of that term."""
    above, share = softplus(z - e)
    return e + above, share


def irreducible_starts(
    y: Float[ndarray, " n"], count: int, rng: np.random.Generator
) -> Float[ndarray, " m"]:
    """Log irreducible losses from 2 % to 98 % of the lowest loss."""
    return y.min() + np.log(rng.uniform(0.02, 0.98, count))


@final
class Shifted(Form):
    r"""M3: $\varepsilon(x) = \beta (x^{-1} + \gamma)^c + \varepsilon_\infty$.

    References:
        `alabdulmohsin2022` section 3 (M3).
    """

    name = "m3"
    letters = ("eps_inf", "beta", "c", "gamma")

    def __init__(self, x: str = "D") -> None:
        self.variables = (x,)
        self.equation = f"L = beta ({x}^-1 + gamma)^c + eps_inf"

    def evaluate(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m p n"]]:
        """Log loss and its derivative with respect to (log eps_inf, log beta, c, log gamma)."""
        e, b, c, g = (theta[:, i, None] for i in range(4))
        above, beyond = softplus(-X[0] - g)
        t = above + g
        f, share = add_irreducible(e, b + c * t)
        J = np.empty((len(theta), 4, X.shape[-1]))
        np.subtract(1.0, share, out=J[:, 0])
        J[:, 1] = share
        np.multiply(share, t, out=J[:, 2])
        np.multiply(c * share, 1.0 - beyond, out=J[:, 3])
        return f, J

    def value(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> Float[ndarray, "m n"]:
        """Log loss alone."""
        e, b, c, g = (theta[:, i, None] for i in range(4))
        return add_irreducible(e, b + c * (g + softplus(-X[0] - g)[0]))[0]

    def starts(
        self,
        X: Float[ndarray, "v n"],
        y: Float[ndarray, " n"],
        count: int,
        rng: np.random.Generator,
    ) -> Float[ndarray, "m p"]:
        """Random irreducible losses and exponents; the bend lies beyond the middle of the data."""
        e = irreducible_starts(y, count, rng)
        c = np.exp(rng.uniform(np.log(0.05), np.log(2.0), count))
        g = -rng.uniform(X[0].mean(), X[0].max() + 3, count)
        level = np.log(np.exp(np.median(y)) - np.exp(e))
        return np.stack([e, level - c * np.logaddexp(0, g), c, g], 1)

    def prior(
        self, X: Float[ndarray, "v n"], y: Float[ndarray, " n"]
    ) -> tuple[Float[ndarray, " p"], Float[ndarray, " p"]]:
        """Irreducible loss and exponent as for a power law; the bend lies beyond the data."""
        mid = float(np.median(y))
        mean = np.array([y.min() + IRREDUCIBLE[0], mid - 1.0, 0.4, -float(X[0].max())])
        return mean, np.array([IRREDUCIBLE[1], WIDE, 0.4, 2.0])

    def public(self, theta: Float[ndarray, "m p"], centre: Float[ndarray, " v"]) -> Draws:
        """The parameters by the letters of the paper, in the units of the data."""
        e, b, c, g = theta.T
        shift = centre[0]
        with np.errstate(over="ignore"):
            return {
                "eps_inf": np.exp(e),
                "beta": np.exp(b + c * shift),
                "c": c,
                "gamma": np.exp(g - shift),
            }


@final
class Sigmoid(Form):
    r"""M4, the sigmoid-like form of Alabdulmohsin et al.

    $(\varepsilon_x - \varepsilon_\infty) / (\varepsilon_0 - \varepsilon_x)^\alpha = \beta x^c$.

    With $s = (\varepsilon_x - \varepsilon_\infty)/(\varepsilon_0 - \varepsilon_\infty)$ this reads
    $\log s - \alpha \log(1 - s) = q$ with q linear in $\log x$. Newton's method solves it for the
    logit of s; the derivatives are those of the implicit function.

    References:
        `alabdulmohsin2022` Eq. (2) (M4).
    """

    name = "m4"
    letters = ("eps_inf", "eps_0", "alpha", "beta", "c")

    def __init__(self, x: str = "D") -> None:
        self.variables = (x,)
        self.equation = f"(L - eps_inf) / (eps_0 - L)^alpha = beta {x}^c"

    def _share(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m n"], Float[ndarray, "m n"]]:
        """The logit of s, minus the log of 1 - s, and s itself."""
        alpha, b, c = np.exp(theta[:, 2, None]), theta[:, 3, None], theta[:, 4, None]
        q = b + c * X[0]
        v = np.where(q < 0, q, q / alpha)
        # A search may try an alpha that overflows: its value is NaN, and the step is rejected.
        with np.errstate(divide="ignore", invalid="ignore"):
            for _ in range(12):
                up, s = softplus(v)
                move = (v + (alpha - 1) * up - q) / (1 + (alpha - 1) * s)
                v = v - move
                # Newton squares the error: after so small a step only rounding remains.
                if np.abs(move).max(initial=0.0) < 1e-7:
                    break
        return v, *softplus(v)

    def evaluate(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m p n"]]:
        """Log loss and its derivative: by log eps_inf, log gap, log alpha, log beta and c."""
        v, up, s = self._share(theta, X)
        f, share = add_irreducible(theta[:, 0, None], theta[:, 1, None] + v - up)
        alpha = np.exp(theta[:, 2, None])
        pull = share * (1 - s) / (1 + (alpha - 1) * s)  # d f / d q
        J = np.empty((len(theta), 5, X.shape[-1]))
        np.subtract(1.0, share, out=J[:, 0])
        J[:, 1] = share
        np.multiply(pull * -alpha, up, out=J[:, 2])
        J[:, 3] = pull
        np.multiply(pull, X[0], out=J[:, 4])
        return f, J

    def value(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> Float[ndarray, "m n"]:
        """Log loss alone."""
        v, up, _ = self._share(theta, X)
        return add_irreducible(theta[:, 0, None], theta[:, 1, None] + v - up)[0]

    def starts(
        self,
        X: Float[ndarray, "v n"],
        y: Float[ndarray, " n"],
        count: int,
        rng: np.random.Generator,
    ) -> Float[ndarray, "m p"]:
        """Irreducible losses below the data, ceilings above, a line through transformed points."""
        e = irreducible_starts(y, count, rng)
        top = y.max() + rng.exponential(0.3, count) + 0.01
        gap = np.log(np.exp(top) - np.exp(e))
        log_alpha = rng.normal(0.0, 0.5, count)
        s = np.exp(np.log(np.exp(y) - np.exp(e)[:, None]) - gap[:, None])
        s = np.clip(s, 1e-6, 1 - 1e-6)
        q = np.log(s) - np.exp(log_alpha)[:, None] * np.log1p(-s)
        u = X[0] - X[0].mean()
        c = (q * u).sum(1) / max(float(u @ u), 1e-12)
        return np.stack([e, gap, log_alpha, q.mean(1) - c * X[0].mean(), c], 1)

    def prior(
        self, X: Float[ndarray, "v n"], y: Float[ndarray, " n"]
    ) -> tuple[Float[ndarray, " p"], Float[ndarray, " p"]]:
        """A ceiling near the highest loss, a slope of about -0.6."""
        mean = np.array([y.min() + IRREDUCIBLE[0], y.max(), 0.0, 0.0, -0.6])
        return mean, np.array([IRREDUCIBLE[1], 0.5, 0.7, WIDE, 0.6])

    def public(self, theta: Float[ndarray, "m p"], centre: Float[ndarray, " v"]) -> Draws:
        """The parameters by the letters of the paper, in the units of the data."""
        e, gap, log_alpha, b, c = theta.T
        alpha = np.exp(log_alpha)
        with np.errstate(over="ignore"):
            beta = np.exp(b - c * centre[0] + (1 - alpha) * gap)
            return {
                "eps_inf": np.exp(e),
                "eps_0": np.exp(e) + np.exp(gap),
                "alpha": alpha,
                "beta": beta,
                "c": c,
            }


@final
class Broken(Form):
    r"""$y = a + b x^{-c_0} \prod_i (1 + (x/d_i)^{1/f_i})^{-c_i f_i}$, a power law with breaks.

    With `flat=True`, $c_0 = 0$: the curve starts level and bends once (generalised logistic).

    References:
        `caballero2023` Eq. (1).
    """

    def __init__(self, x: str = "D", breaks: int = 1, *, flat: bool = False) -> None:
        self.name = "logistic" if flat else f"broken{breaks if breaks > 1 else ''}"
        self.variables = (x,)
        self.breaks = breaks
        self.flat = flat
        each = [f"{c}{i}" for i in range(1, breaks + 1) for c in ("c", "d", "f")]
        self.letters = ("a", "b", *(() if flat else ("c0",)), *each)
        first = "" if flat else f" {x}^-c0"
        self.equation = f"L = a + b{first} prod_i (1 + ({x}/d_i)^(1/f_i))^(-c_i f_i)"

    def _rest(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], list[tuple[ndarray, ndarray, ndarray]]]:
        """Log of the reducible loss; scaled distance, bend and slope of each break."""
        z, j = theta[:, 1, None], 2
        if not self.flat:
            z, j = z - theta[:, 2, None] * X[0], 3
        bends = []
        for _ in range(self.breaks):
            c, d, f = theta[:, j, None], theta[:, j + 1, None], np.exp(theta[:, j + 2, None])
            w = (X[0] - d) / f
            bend, on = softplus(w)
            z = z - c * f * bend
            bends.append((w, bend, on))
            j += 3
        return z, bends

    def evaluate(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> tuple[Float[ndarray, "m n"], Float[ndarray, "m p n"]]:
        """Log loss and its derivative: by log a, log b, c0, then c_i, log d_i, log f_i."""
        z, bends = self._rest(theta, X)
        f, share = add_irreducible(theta[:, 0, None], z)
        J = np.empty((len(theta), self.p, X.shape[-1]))
        np.subtract(1, share, out=J[:, 0])
        J[:, 1] = share
        j = 2
        if not self.flat:
            np.multiply(-share, X[0], out=J[:, 2])
            j = 3
        for w, bend, on in bends:
            c, scale = theta[:, j, None], np.exp(theta[:, j + 2, None])
            np.multiply(share, -scale * bend, out=J[:, j])
            np.multiply(share, c * on, out=J[:, j + 1])
            np.multiply(share, (-c * scale) * (bend - w * on), out=J[:, j + 2])
            j += 3
        return f, J

    def value(
        self, theta: Float[ndarray, "m p"], X: Float[ndarray, "v *each n"]
    ) -> Float[ndarray, "m n"]:
        """Log loss alone."""
        return add_irreducible(theta[:, 0, None], self._rest(theta, X)[0])[0]

    def starts(
        self,
        X: Float[ndarray, "v n"],
        y: Float[ndarray, " n"],
        count: int,
        rng: np.random.Generator,
    ) -> Float[ndarray, "m p"]:
        """Breaks anywhere in the range of the data, random slopes."""
        e = irreducible_starts(y, count, rng)
        u = X[0]
        columns = [e]
        slopes = []
        if not self.flat:
            slopes.append(np.exp(rng.uniform(np.log(0.02), np.log(1.0), count)))
        for _ in range(self.breaks):
            c = rng.uniform(0.02, 1.0, count) * (
                1 if self.flat else rng.choice([1, 1, -0.3], count)
            )
            slopes += [
                c,
                rng.uniform(u.min() - 1, u.max() + 1, count),
                rng.normal(-0.3, 0.7, count),
            ]
        level = np.log(np.maximum(np.exp(np.median(y)) - np.exp(e), 1e-3 * np.exp(np.median(y))))
        columns += [level, *slopes]
        theta = np.stack(columns, 1)
        # The level makes the curve pass near the median loss.
        rest = self._rest(theta, np.array([[float(np.median(u))]]))[0][:, 0]
        theta[:, 1] += level - rest
        return theta

    def prior(
        self, X: Float[ndarray, "v n"], y: Float[ndarray, " n"]
    ) -> tuple[Float[ndarray, " p"], Float[ndarray, " p"]]:
        """Slopes of a few tenths and a smooth break in the range of the data."""
        u = X[0]
        mean, sd = [float(y.min()) + IRREDUCIBLE[0], float(y.max())], [IRREDUCIBLE[1], 0.5]
        if not self.flat:
            mean, sd = [*mean[:1], float(np.median(y)) - 1.0, 0.2], [IRREDUCIBLE[1], WIDE, 0.3]
        slope = (0.6, 0.6) if self.flat else (0.3, 0.4)
        for _ in range(self.breaks):
            mean += [slope[0], float(u.mean()), 0.0]
            sd += [slope[1], float(np.ptp(u)) / 2 + 0.5, 0.7]
        return np.array(mean), np.array(sd)

    def public(self, theta: Float[ndarray, "m p"], centre: Float[ndarray, " v"]) -> Draws:
        """The parameters by the letters of the paper, in the units of the data."""
        shift = centre[0]
        columns = list(theta.T)
        with np.errstate(over="ignore"):
            columns[0] = np.exp(columns[0])
            j = 2
            if not self.flat:
                columns[1] = columns[1] + columns[2] * shift
                j = 3
            columns[1] = np.exp(columns[1])
            for _ in range(self.breaks):
                columns[j + 1] = np.exp(columns[j + 1] + shift)
                columns[j + 2] = np.exp(columns[j + 2])
                j += 3
        return dict(zip(self.letters, columns, strict=True))
