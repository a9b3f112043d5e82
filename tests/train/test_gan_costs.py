"""Costs against the divergences they stand for, on laws whose densities are known."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from torch import nn

from allometry._core.errors import InputError
from allometry.train.f_divergences import (
    DIVERGENCES,
    HELLINGER,
    JENSEN_SHANNON,
    KL,
    PEARSON,
    REVERSE_KL,
    TOTAL_VARIATION,
    Divergence,
    variational_estimate,
)
from allometry.train.gan_costs import (
    HINGE,
    LEAST_SQUARES,
    MAXIMUM_LIKELIHOOD,
    MINIMAX,
    NON_SATURATING,
    WASSERSTEIN,
    cross_entropy,
    density_ratio,
    f_gan,
    gradient_penalty,
    optimal_discriminator,
)

SHIFT = 0.8
P, Q = stats.norm(SHIFT, 1), stats.norm(0, 1)


def js_twice():
    def integrand(x):
        p, q = P.pdf(x), Q.pdf(x)
        m = (p + q) / 2
        return p * np.log(p / m) + q * np.log(q / m)

    return integrate.quad(integrand, -9, 10)[0]


KNOWN = {
    KL.name: SHIFT**2 / 2,
    REVERSE_KL.name: SHIFT**2 / 2,
    JENSEN_SHANNON.name: js_twice(),
    PEARSON.name: math.exp(SHIFT**2) - 1,
    HELLINGER.name: 2 - 2 * math.exp(-(SHIFT**2) / 8),
    TOTAL_VARIATION.name: 2 * stats.norm.cdf(SHIFT / 2) - 1,
}


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: d.name)
def test_f_is_the_divergence(divergence):
    def integrand(x):
        u = torch.tensor(P.pdf(x) / Q.pdf(x))
        return Q.pdf(x) * float(divergence.f(u))

    value = integrate.quad(integrand, -9, 10, points=[SHIFT / 2], limit=200)[0]
    assert value == pytest.approx(KNOWN[divergence.name], rel=1e-6)
    assert float(divergence.f(torch.tensor(1.0))) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: d.name)
@given(u=st.floats(0.05, 20), raw=st.floats(-3, 3))
def test_conjugates_meet_fenchel_and_young(divergence, u, raw):
    """f(u) + f*(t) >= u t, with equality where u is the ratio that t stands for."""
    u, t = torch.tensor(u), divergence.critic(torch.tensor(raw))
    gap = divergence.f(u) + divergence.conjugate(t) - u * t
    assert float(gap) >= -1e-9
    if divergence.ratio is not None:
        at = divergence.density_ratio(torch.tensor(raw))
        touch = divergence.f(at) + divergence.conjugate(t) - at * t
        assert float(touch) == pytest.approx(0, abs=1e-9 * (1 + float(at) ** 2))


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: d.name)
def test_a_trained_critic_finds_the_divergence(divergence):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    real = torch.tensor(P.rvs((100_000, 1), random_state=rng)).float()
    fake = torch.tensor(Q.rvs((100_000, 1), random_state=rng)).float()
    critic = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)).float()
    found = variational_estimate(divergence, critic, real, fake, steps=400, batch=1000)
    wanted = KNOWN[divergence.name]
    # Judged on the laws themselves, by quadrature, so that only the critic can be at fault.
    x = torch.linspace(-6, 7, 4001)
    with torch.no_grad():
        t = divergence.critic(critic(x[:, None].float())[:, 0].double())
        p, q = (torch.tensor(law.pdf(x.numpy())) for law in (P, Q))
        bound = float((p * t - q * divergence.conjugate(t)).sum() * (x[1] - x[0]))
    assert 0.95 * wanted < bound < wanted * (1 + 1e-6)
    assert abs(found.value - bound) < 5 * found.se


def test_a_divergence_of_ones_own():
    """Neyman's chi-squared, (1 - u)^2 / u, whose conjugate is 2 - 2 sqrt(1 - t)."""
    own = Divergence(
        "Neyman",
        f=lambda u: (1 - u) ** 2 / u,
        conjugate=lambda t: 2 - 2 * (1 - t).sqrt(),
        activation=lambda v: 1 - (-v).exp(),
    )
    real, fake = torch.zeros(5), torch.zeros(5)
    assert float(own.bound(real, fake)) == 0
    assert float(f_gan(own).discriminator(real, fake)) == 0
    with pytest.raises(InputError, match="no density ratio"):
        own.density_ratio(real)


def test_the_optimal_discriminator_is_recovered():
    torch.manual_seed(0)
    x = torch.randn(20_000, 1) + SHIFT
    y = torch.randn(20_000, 1)
    D = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    optimiser = torch.optim.Adam(D.parameters(), lr=1e-2)
    for _ in range(300):
        i = torch.randint(20_000, (1000,))
        loss = cross_entropy(D(x[i])[:, 0], D(y[i])[:, 0])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    at = torch.linspace(-1.5, 2.5, 9)
    log_p, log_q = -((at - SHIFT) ** 2) / 2, -(at**2) / 2
    found = torch.sigmoid(D(at[:, None])[:, 0])
    torch.testing.assert_close(found, optimal_discriminator(log_p, log_q), atol=0.03, rtol=0)
    ratio = density_ratio(D(at[:, None])[:, 0])
    torch.testing.assert_close(ratio, (log_p - log_q).exp(), atol=0.05, rtol=0.15)


def test_the_minimax_value_is_jensen_shannon():
    """At the optimal D: -J_D = JS - log 2 (textbook's JS, half of the paper's)."""
    x = torch.linspace(-8, 9, 20_001)
    p, q = (torch.tensor(law.pdf(x.numpy())) for law in (P, Q))
    D = optimal_discriminator(p.log(), q.log())
    value = ((p * D.log() + q * (1 - D).log()).sum() * (x[1] - x[0])).item() / 2
    assert value == pytest.approx(js_twice() / 2 - math.log(2), abs=1e-6)


@pytest.mark.parametrize("theta", [-0.5, 0.1, 0.6])
def test_the_maximum_likelihood_cost_has_half_the_slope_of_kl(theta):
    """Q = N(theta, 1), P = N(.3, 1.2^2): d KL(P || Q)/d theta = theta - .3, exactly."""
    z = torch.tensor(stats.norm.ppf((np.arange(400_000) + 0.5) / 400_000))
    own = torch.tensor(theta, requires_grad=True)
    made = own + z
    # D is optimal and fixed: its logit is the log ratio at today's Q.
    at = torch.tensor(theta)
    logits = -((made - 0.3) ** 2) / (2 * 0.36) - math.log(0.6) + (made - at) ** 2 / 2
    (slope,) = torch.autograd.grad(MAXIMUM_LIKELIHOOD.generator(logits), own)
    assert 2 * float(slope) == pytest.approx(theta - 0.3, abs=2e-4)


def test_costs_at_known_logits():
    real, fake = torch.tensor([0.0, 2.0]), torch.tensor([0.0, -2.0])
    s = math.log1p(math.exp(-2))
    both = (math.log(2) + s) / 2
    assert float(cross_entropy(real, fake)) == pytest.approx(both)
    assert float(MINIMAX.generator(fake)) == pytest.approx(-both / 2)
    assert float(NON_SATURATING.generator(fake)) == pytest.approx((math.log(2) + 2 + s) / 4)
    assert float(LEAST_SQUARES.discriminator(real, fake)) == 1.5  # (1 + 1)/4 + (0 + 4)/4
    assert float(LEAST_SQUARES.generator(fake)) == 2.5
    assert float(HINGE.discriminator(real, fake)) == 1
    assert float(WASSERSTEIN.discriminator(real, fake)) == -2


def test_the_penalty_is_zero_for_unit_slopes_alone():
    x, y = torch.randn(50, 3), torch.randn(50, 3)
    plane = nn.Linear(3, 1)
    with torch.no_grad():
        plane.weight.copy_(torch.tensor([[0.6, 0.8, 0.0]]))
    assert gradient_penalty(plane, x, y).item() == pytest.approx(0, abs=1e-9)
    with torch.no_grad():
        plane.weight.mul_(3)
    assert gradient_penalty(plane, x, y).item() == pytest.approx(4)
