import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg, signal

from allometry import InputError
from allometry.models import linear_process as lp

TRUTH = lp.Autoregression(np.array([0.6, -0.4, 0.2]), 1.7)


@pytest.fixture(scope="module")
def x():
    return TRUTH.sample(3000, np.random.default_rng(0))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("p", [1, 2, 5, 20])
def test_fits_are_those_of_statsmodels(x, p):
    from statsmodels.regression import linear_model
    from statsmodels.tsa.ar_model import AutoReg

    phi, sigma = linear_model.yule_walker(x, p, method="mle", result_object=False)
    ours = lp.yule_walker(x, p)
    np.testing.assert_allclose(ours.phi, phi, atol=1e-8)
    assert ours.sigma2 == pytest.approx(sigma**2, abs=1e-8)
    phi, sigma2 = linear_model.burg(x, p)
    ours = lp.burg(x, p)
    np.testing.assert_allclose(ours.phi, phi, atol=1e-8)
    assert ours.sigma2 == pytest.approx(sigma2, abs=1e-8)
    fitted = AutoReg(x, p, trend="n").fit()
    ours = lp.least_squares(x, p)
    np.testing.assert_allclose(ours.phi, fitted.params, atol=1e-8)
    assert ours.sigma2 == pytest.approx(fitted.sigma2, abs=1e-8)


def test_levinson_is_statsmodels_and_solves_the_normal_equations(x):
    from statsmodels.tsa.stattools import levinson_durbin

    r = lp.autocovariance(x, 12)
    made, reflections = lp.levinson(r)
    sigma2, phi, pacf, *_ = levinson_durbin(r, nlags=12, isacov=True)
    np.testing.assert_allclose(made.phi, phi, atol=1e-10)
    np.testing.assert_allclose(reflections, pacf[1:], atol=1e-10)
    assert made.sigma2 == pytest.approx(sigma2, abs=1e-10)
    np.testing.assert_allclose(made.phi, linalg.solve_toeplitz(r[:-1], r[1:]), atol=1e-10)


reflections = st.lists(st.floats(-0.9, 0.9), min_size=1, max_size=6)


@given(reflections)
def test_the_most_random_extension_is_the_autocovariance_of_the_autoregression(ks):
    # Any reflection coefficients below one in size make a stable process: build one from them.
    phi, sigma2 = np.empty(0), 1.0
    for k in ks:
        phi = np.concatenate([phi - k * phi[::-1], [k]])
    made = lp.Autoregression(phi, sigma2)
    assert made.stable
    p = len(phi)
    r = made.autocovariance(p + 15)
    scale = r[0]
    extended = lp.maximum_entropy(r[: p + 1], p + 15)
    np.testing.assert_allclose(extended / scale, r / scale, atol=1e-10)
    # Its values at the first lags are those of a long impulse response, squared and summed.
    # What is cut off falls as the slowest root to twice the length: here to exp(-24) or less.
    slowest = np.abs(np.roots(made.polynomial)).max(initial=0.0)
    length = max(4000, int(12 / (1 - slowest)))
    h = signal.lfilter([1.0], made.polynomial, np.eye(1, length)[0])
    direct = np.array([h[: length - k] @ h[k:] for k in range(p + 1)])
    np.testing.assert_allclose(r[: p + 1] / scale, direct / scale, atol=1e-6)
    # Least mean-square prediction from a longer past is no better than sigma2: they are one.
    m = p + 8
    best = linalg.solve(linalg.toeplitz(r[:m]), r[1 : m + 1])
    assert (r[0] - best @ r[1 : m + 1]) == pytest.approx(sigma2, rel=1e-6)


def test_another_extension_is_less_random():
    r = TRUTH.autocovariance(5)
    top = lp.levinson(r)[0].sigma2
    for change in (-0.05, 0.05):
        other = r.copy()
        other[5] += change
        assert lp.levinson(other)[0].sigma2 < top


def test_whitening_leaves_white_noise_and_the_loss_is_the_entropy_rate(x):
    e = TRUTH.innovations(x)
    r = lp.autocovariance(e, 20) / lp.autocovariance(e, 0)
    assert np.abs(r[1:]).max() < 5 / np.sqrt(len(e))
    loss = -TRUTH.log_prob(x).mean()
    assert loss == pytest.approx(TRUTH.entropy_rate, abs=5 * np.sqrt(0.5 / len(e)))
    np.testing.assert_allclose(TRUTH.predict(x) + e, x[3:])


def test_a_sample_is_stationary_from_its_first_value():
    rng = np.random.default_rng(1)
    many = np.stack([TRUTH.sample(6, rng) for _ in range(8000)])
    r0 = TRUTH.autocovariance(0)[0]
    for t in range(6):
        assert many[:, t].var() == pytest.approx(r0, abs=5 * r0 * np.sqrt(2 / 8000))


def test_the_spectrum_is_the_transform_of_the_autocovariance():
    omega = 2 * np.pi * np.arange(64) / 64
    r = TRUTH.autocovariance(400)
    k = np.arange(1, 401)
    direct = r[0] + 2 * (r[1:, None] * np.cos(np.outer(k, omega))).sum(0)
    np.testing.assert_allclose(TRUTH.spectrum(omega), direct, rtol=1e-9)


def test_spectral_factors_of_autoregressions_and_moving_averages():
    omega = 2 * np.pi * np.arange(1024) / 1024
    S = TRUTH.spectrum(omega)
    L = lp.spectral_factor(S)
    np.testing.assert_allclose(np.abs(np.fft.fft(L)) ** 2, S, rtol=1e-10)
    # L is sigma / A(z), and its first tap squared is Szego's innovations variance.
    h = signal.lfilter([TRUTH.sigma2**0.5], TRUTH.polynomial, np.eye(1, 60)[0])
    np.testing.assert_allclose(L[:60], h, atol=1e-10)
    assert lp.szego(S) == pytest.approx(TRUTH.sigma2, rel=1e-10)
    # A moving average with its zero outside comes back with it inside: minimum phase.
    outside = np.array([1.0, -2.0])
    assert not lp.minimum_phase(outside)
    S = np.abs(np.fft.fft(outside, 256)) ** 2
    L = lp.spectral_factor(S)
    np.testing.assert_allclose(L[:3], [2.0, -1.0, 0.0], atol=1e-10)
    assert lp.minimum_phase(L[:2])


def test_paley_and_wiener_s_condition():
    S = np.ones(64)
    S[10:20] = 0.0  # a gap in the spectrum: deterministic given its past
    assert lp.szego(S) == 0
    with pytest.raises(InputError, match="vanishes"):
        lp.spectral_factor(S)


def test_misuse_is_reported():
    with pytest.raises(InputError, match="not positive"):
        lp.levinson(np.array([1.0, 1.1]))
    with pytest.raises(InputError, match="stationary"):
        lp.Autoregression(np.array([1.2]), 1.0).autocovariance(3)
