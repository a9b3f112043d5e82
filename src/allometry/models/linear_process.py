r"""Linear processes: autoregressions, their innovations and spectra.

Conventions: $x_t = \sum_k \phi_k x_{t-k} + e_t$ with $e$ white of variance $\sigma^2$;
$r_k = E[x_t x_{t+k}]$; $S(\omega) = \sum_k r_k e^{-i\omega k}$.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import linalg

from allometry._core.errors import InputError, require

Vector = Float[ndarray, " n"]


@final
@dataclass(frozen=True)
class Autoregression:
    r"""A Gaussian AR(p): $x_t = \sum_{k=1}^p \phi_k x_{t-k} + e_t$.

    Args:
        phi: The coefficients.
        sigma2: Variance of the innovations.
    """

    phi: Float[ndarray, " p"]
    sigma2: float

    def __post_init__(self) -> None:
        require(self.sigma2 >= 0, "Autoregression.sigma2", "be at least 0", self.sigma2)

    @property
    def N(self) -> int:
        """Parameters: the coefficients and the variance."""
        return len(self.phi) + 1

    @property
    def polynomial(self) -> Float[ndarray, " p_plus_1"]:
        r"""$A(z) = 1 - \phi_1 z^{-1} - \dots$: the whitening filter."""
        return np.concatenate([[1.0], -self.phi])

    @property
    def stable(self) -> bool:
        """Whether there is a stationary process with these coefficients."""
        return minimum_phase(self.polynomial)

    def innovations(self, x: Vector) -> Float[ndarray, " m"]:
        """The prediction error of each value from the p before it: the whitened series."""
        return np.convolve(x, self.polynomial, mode="valid")

    def predict(self, x: Vector) -> Float[ndarray, " m"]:
        """The best prediction of every value from the p before it, from the (p+1)-th on."""
        return x[len(self.phi) :] - self.innovations(x)

    def log_prob(self, x: Vector) -> Float[ndarray, " m"]:
        """Gaussian log-density of every value given those before it, from the (p+1)-th on."""
        e = self.innovations(x)
        return -0.5 * (np.log(2 * np.pi * self.sigma2) + e**2 / self.sigma2)

    @property
    def entropy_rate(self) -> float:
        r"""$\tfrac12 \log 2\pi e \sigma^2$, nats per value."""
        return 0.5 * float(np.log(2 * np.pi * np.e * self.sigma2))

    def spectrum(self, omega: Vector) -> Float[ndarray, " n"]:
        r"""$\sigma^2 / |A(e^{i\omega})|^2$."""
        from scipy import signal  # slow to import

        return self.sigma2 / np.abs(signal.freqz(self.polynomial, 1, worN=omega)[1]) ** 2

    def autocovariance(self, lags: int) -> Float[ndarray, " lags_plus_1"]:
        r"""$r_0, \dots, r_{\text{lags}}$, from the Yule-Walker equations."""
        if not self.stable:
            raise InputError("phi must be stationary; a root lies outside the unit circle.")
        p = len(self.phi)
        # r_k - sum_j phi_j r_|k-j| = sigma2 [k = 0], for k = 0..p.
        lhs = np.zeros((p + 1, p + 1))
        for k in range(p + 1):
            for j, a in enumerate(self.polynomial):
                lhs[k, abs(k - j)] += a
        rhs = np.zeros(p + 1)
        rhs[0] = self.sigma2
        return maximum_entropy(np.linalg.solve(lhs, rhs), lags)

    def sample(self, n: int, rng: np.random.Generator) -> Float[ndarray, " n"]:
        """A sample path of the stationary process."""
        from scipy import signal  # slow to import

        require(n >= 1, "Autoregression.sample.n", "be at least 1", n)
        p = len(self.phi)
        noise = rng.normal(scale=self.sigma2**0.5, size=n)
        if p == 0:
            return noise
        # Begin with p values of the stationary distribution, then filter.
        first = np.linalg.cholesky(linalg.toeplitz(self.autocovariance(p - 1))) @ rng.normal(
            size=p
        )
        state = signal.lfiltic([1.0], self.polynomial, first[::-1])
        rest = signal.lfilter([1.0], self.polynomial, noise, zi=state)[0]
        return np.concatenate([first, rest])[:n]


def autocovariance(x: Vector, lags: int) -> Float[ndarray, " lags_plus_1"]:
    r"""$\hat r_k = \frac1n \sum_t x_t x_{t+k}$, mean removed: biased, but positive definite."""
    require(0 <= lags < len(x), "autocovariance.lags", f"be 0 to {len(x) - 1}", lags)
    x = x - x.mean()
    size = 1 << (2 * len(x) - 1).bit_length()
    power = np.abs(np.fft.rfft(x, size)) ** 2
    return np.fft.irfft(power, size)[: lags + 1] / len(x)


def levinson(r: Float[ndarray, " lags"]) -> tuple[Autoregression, Float[ndarray, " p"]]:
    """The AR(p) with autocovariance $r_0..r_p$, and its reflection coefficients.

    References: `levinson1946`; `durbin1960`.
    """
    require(len(r) >= 1 and bool(r[0] > 0), "levinson.r", "begin with a positive variance", r[:1])
    phi, sigma2, reflections = np.empty(0), float(r[0]), []
    for k in range(1, len(r)):
        reflection = (r[k] - phi @ r[k - 1 : 0 : -1]) / sigma2
        phi = np.concatenate([phi - reflection * phi[::-1], [reflection]])
        sigma2 *= 1 - reflection**2
        if not sigma2 > 0:
            raise InputError(f"r must be an autocovariance; at lag {k} it is not positive.")
        reflections.append(reflection)
    return Autoregression(phi, float(sigma2)), np.array(reflections)


def yule_walker(x: Vector, p: int) -> Autoregression:
    """The AR(p) with the (biased) autocovariance of the series; always stable."""
    return levinson(autocovariance(x, p))[0]


def burg(x: Vector, p: int) -> Autoregression:
    """The AR(p) by Burg's method: minimal forward and backward errors at each order; stable.

    The variance is the mean square of both errors at the last order.

    References: `burg1975`.
    """
    require(0 <= p < len(x), "burg.p", f"be 0 to {len(x) - 1}", p)
    x = x - x.mean()
    forward, backward = x[1:], x[:-1]
    phi, sigma2 = np.empty(0), float(x @ x) / len(x)
    for _ in range(p):
        total = forward @ forward + backward @ backward
        reflection = 2 * (forward @ backward) / total
        phi = np.concatenate([phi - reflection * phi[::-1], [reflection]])
        sigma2 = (1 - reflection**2) * total / (2 * len(forward))
        forward, backward = (
            (forward - reflection * backward)[1:],
            (backward - reflection * forward)[:-1],
        )
    return Autoregression(phi, float(sigma2))


def least_squares(x: Vector, p: int) -> Autoregression:
    """The AR(p) with the smallest squared prediction error; the mean is not removed."""
    require(0 <= p < len(x) / 2, "least_squares.p", f"be below {len(x) / 2:g}", p)
    if p == 0:
        return Autoregression(np.empty(0), float(np.mean(x**2)))
    past = np.lib.stride_tricks.sliding_window_view(x[:-1], p)[:, ::-1]
    phi, *_ = np.linalg.lstsq(past, x[p:], rcond=None)
    return Autoregression(phi, float(np.mean((x[p:] - past @ phi) ** 2)))


def maximum_entropy(r: Float[ndarray, " lags"], lags: int) -> Float[ndarray, " lags_plus_1"]:
    r"""Burg's maximum entropy extension of $r_0..r_p$ to more lags.

    It is the autocovariance of the AR(p) that $r_0..r_p$ determine: among processes with these
    lags it has the largest prediction error, hence the maximum entropy.

    References: `burg1975`.
    """
    p = len(r) - 1
    if lags <= p:
        return r[: lags + 1].copy()
    phi = levinson(r)[0].phi
    out = np.concatenate([r, np.empty(lags - p)])
    for k in range(p + 1, lags + 1):
        out[k] = phi @ out[k - 1 : k - p - 1 : -1] if p else 0.0
    return out


def minimum_phase(b: Float[ndarray, " taps"]) -> bool:
    r"""Whether $b_0 + b_1 z^{-1} + \dots$ has its zeros inside the unit circle."""
    first = len(b) >= 1 and bool(b[0] != 0)
    require(first, "minimum_phase.b", "have a first tap that is not 0", b[:1])
    return bool((np.abs(np.roots(b)) < 1).all())


def szego(spectrum: Float[ndarray, " n"]) -> float:
    r"""Innovations variance $\exp \frac1{2\pi}\int \log S\,d\omega$, from S on an even grid.

    Zero if the Paley-Wiener condition $\int \log S > -\infty$ fails: the process is deterministic.

    References: `kolmogorov1941`.
    """
    require(bool((spectrum >= 0).all()), "szego.spectrum", "be at least 0", spectrum.min())
    if (spectrum == 0).any():
        return 0.0
    return float(np.exp(np.log(spectrum).mean()))


def spectral_factor(spectrum: Float[ndarray, " n"]) -> Float[ndarray, " n"]:
    r"""The minimum-phase L with $S(z) = L(z) L(1/z)$, as taps $l_0, l_1, \dots$.

    Computed from the cepstrum: the causal part of half of log S, exponentiated. `spectrum` is S at
    $\omega = 2\pi k/n$ for k = 0..n-1, of a real process; the grid must be fine enough for the
    cepstrum to decay.

    Raises:
        InputError: The Paley-Wiener condition fails: S vanishes somewhere.

    References: `oppenheim2010` Sec. 13.5.
    """
    n = len(spectrum)
    require(n >= 2 and n % 2 == 0, "spectral_factor.spectrum", "have an even length", n)
    if not bool((spectrum > 0).all()):
        raise InputError("spectrum must be positive for a spectral factor; it vanishes somewhere.")
    cepstrum = np.fft.ifft(np.log(spectrum)).real
    causal = np.zeros(n)
    causal[0] = cepstrum[0] / 2
    causal[1 : n // 2] = cepstrum[1 : n // 2]
    causal[n // 2] = cepstrum[n // 2] / 2
    return np.fft.ifft(np.exp(np.fft.fft(causal))).real
