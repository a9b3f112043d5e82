r"""The Bayes factor of an effect in a linear model whose noise may change with scale.

Letters: n observations, k nuisances, m rows of a prior.

With weights $w_i = e^{-\kappa (x_i - \bar x)}$, the noise is $\sigma / w_i$. Given $\kappa$, the
marginal likelihood under flat nuisances and a right-Haar $\sigma$ is
$p_0(\kappa) \propto \prod w_i\, |Z^T W^2 Z|^{-1/2}\, T^{-f/2}$ with the sum of squares T and f
degrees of freedom. `ScaledFits` averages both hypotheses over `CHANGES` of the noise. With
constant noise, 7 % of equal pairs whose noise quadruples over the sizes got a verdict.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import special

CHANGES = {-0.4: 0.05, -0.2: 0.2, 0.0: 0.5, 0.2: 0.2, 0.4: 0.05}
"""Changes of the log noise per e-fold of scale, with their prior probabilities."""

DECISIVE = 20.0
"""Least e-value of a verdict: one error in twenty."""

MOST_MORE = 1000.0
"""Largest factor of further runs that is reported."""

WIDTHS = (1.0, 10.0, 100.0)
"""Prior variances g of a standardised difference."""


@final
@dataclass(frozen=True)
class LinearFit:
    """Sums of squares of a linear model after its nuisance columns are projected out.

    `square` is that of the effect's column, `unit` its mean square before, `total` that of the
    response. `log_weights` is the sum of the logs of the weights, and `log_root` half the log
    determinant of the nuisances. `nuisances` is the number of nuisance columns without a prior,
    and `added` the sum of squares that a known noise adds; it counts as `degrees` observations.
    """

    estimate: float
    square: float
    unit: float
    total: float
    least: float
    n: int
    nuisances: int
    added: float = 0.0
    degrees: float = 0.0
    log_weights: float = 0.0
    log_root: float = 0.0

    @classmethod
    def of(
        cls,
        y: Float[ndarray, " n"],
        effect: Float[ndarray, " n"],
        nuisance: Float[ndarray, "n k"],
        prior: tuple[Float[ndarray, "m k"], Float[ndarray, " m"]] | None = None,
        *,
        added: float = 0.0,
        degrees: float = 0.0,
        weights: Float[ndarray, " n"] | None = None,
    ) -> "LinearFit | None":
        """The sums; `None` if they leave no freedom for the noise or for the effect.

        Args:
            y: Response.
            effect: Column of the effect.
            nuisance: Columns of the nuisances.
            prior: Rows of the nuisances' columns and of the response that stand for a prior.
            added: Sum of squares of a known noise.
            degrees: Number of observations that it counts as.
            weights: Inverse of the relative noise of each observation.
        """
        n, rows = len(y), 0
        most = np.maximum(np.abs(nuisance).max(0, initial=1e-300), 1e-300)
        w = np.ones(n) if weights is None else weights
        y, effect, nuisance = y * w, effect * w, nuisance * w[:, None]
        if prior is not None:
            rows = len(prior[1])
            nuisance, y = np.vstack([nuisance, prior[0]]), np.append(y, prior[1])
            effect = np.append(effect, np.zeros(rows))
        basis, values, _ = np.linalg.svd(nuisance / most, full_matrices=False)
        kept = values > 1e-7 * values.max(initial=0)
        basis = basis[:, kept]
        z = effect - basis @ (basis.T @ effect)
        r = y - basis @ (basis.T @ y)
        square, total = float(z @ z), float(r @ r)
        # Rounding leaves this much where noise is zero.
        least = n * (1e-9 * max(float(np.abs(y).max()), 1e-9)) ** 2
        used = basis.shape[1] - rows
        free = n - used + degrees
        if free < 2 or square <= 1e-14 * float(effect @ effect) or total + added <= least:
            return None
        unit = float(effect @ effect) / n
        return cls(
            float(z @ r) / square, square, unit, total, least, n, used, added, degrees,
            float(np.log(w).sum()), float(np.log(values[kept]).sum()),
        )  # fmt: skip

    def log_null(self, times: float = 1.0) -> float:
        """The log marginal likelihood of no effect, up to a constant of all weights."""
        free = times * self.n - self.nuisances + self.degrees
        total = max(self.total + self.added / times, self.least)
        return times * self.log_weights - self.log_root - free / 2 * float(np.log(total))

    def log_e_value(self, times: float = 1.0) -> float:
        """The log e-value of no effect, as expected if there were `times` as many observations."""
        free = times * self.n - self.nuisances + self.degrees
        explained = self.estimate**2 * self.square
        total = self.total + self.added / times
        logs = []
        for width in WIDTHS:
            ratio = width * times * self.square / self.unit
            remaining = max(total - explained * ratio / (1 + ratio), self.least)
            logs.append(-0.5 * np.log1p(ratio) + free / 2 * np.log(total / remaining))
        return float(special.logsumexp(logs) - np.log(len(WIDTHS)))


@final
@dataclass(frozen=True)
class ScaledFits:
    """Linear models that differ in how the noise changes with scale, and their probabilities."""

    fits: tuple[LinearFit, ...]
    shares: tuple[float, ...]

    @classmethod
    def of(
        cls,
        y: Float[ndarray, " n"],
        effect: Float[ndarray, " n"],
        nuisance: Float[ndarray, "n k"],
        x: Float[ndarray, " n"],
        prior: tuple[Float[ndarray, "m k"], Float[ndarray, " m"]] | None = None,
        *,
        added: float = 0.0,
        degrees: float = 0.0,
        constant: bool = False,
    ) -> "ScaledFits | None":
        """The models; `None` if there is no freedom for the noise or for the effect.

        Args:
            y: Response.
            effect: Column of the effect.
            nuisance: Columns of the nuisances.
            x: Log scale.
            prior: As for `LinearFit.of`.
            added: As for `LinearFit.of`.
            degrees: As for `LinearFit.of`.
            constant: Whether the noise is the same at all scales.
        """
        away = x - x.mean()
        alike = constant or float(np.ptp(x)) < 1e-9
        found = []
        for change, share in ({0.0: 1.0} if alike else CHANGES).items():
            weights = np.exp(-change * away)
            fit = LinearFit.of(
                y, effect, nuisance, prior, added=added, degrees=degrees, weights=weights
            )
            if fit is not None:
                found.append((fit, share))
        if not found:
            return None
        fits, shares = zip(*found, strict=True)
        return cls(fits, shares)

    @property
    def sign(self) -> int:
        """The sign of the effect in the likeliest model."""
        logs = self._logs(1.0)
        best = int(np.argmax(logs[0] + logs[1]))
        return int(np.sign(self.fits[best].estimate))

    def _logs(self, times: float) -> tuple[ndarray, ndarray]:
        """Logs of share times marginal likelihood, and of the e-value, of each model."""
        nulls = [
            np.log(s) + f.log_null(times) for f, s in zip(self.fits, self.shares, strict=True)
        ]
        return np.array(nulls), np.array([f.log_e_value(times) for f in self.fits])

    def e_value(self, times: float = 1.0) -> float:
        """The e-value of no effect, as expected if there were `times` as many observations."""
        nulls, values = self._logs(times)
        log = special.logsumexp(nulls + values) - special.logsumexp(nulls)
        return float(np.exp(min(log, 600.0)))

    def repetitions(self) -> float | None:
        """How many times as many observations are expected to decide; `None` if too many."""
        if self.e_value(MOST_MORE) < DECISIVE:
            return None
        low, high = 0.0, np.log(MOST_MORE)
        for _ in range(40):
            middle = (low + high) / 2
            decided = self.e_value(float(np.exp(middle))) >= DECISIVE
            low, high = (low, middle) if decided else (middle, high)
        return float(np.exp(high))
