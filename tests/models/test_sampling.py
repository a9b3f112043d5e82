"""Sampling against scipy.stats, closed forms and known chains."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from allometry import InputError
from allometry.models import sampling
from allometry.targets import points

LAWS = [
    stats.norm(1, 2),
    stats.expon(scale=3),
    stats.cauchy(),
    stats.beta(2, 5),
    stats.poisson(4.2),
    stats.geom(0.3),
    stats.binom(9, 0.25),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.dist.name)
def test_inverse_transform_is_scipys_quantile(law):
    u = np.linspace(0.001, 0.999, 333)
    # Both are right to where the CDF itself is, a few units in the last place.
    np.testing.assert_allclose(
        sampling.inverse_transform(law.cdf, u), law.ppf(u), rtol=1e-9, atol=1e-12
    )


def test_a_table_is_inverted_at_its_jumps():
    p = np.array([0.2, 0.0, 0.5, 0.3, 0.0])
    u = np.array([1e-9, 0.2, 0.2000001, 0.7, 0.71, 1.0])
    assert sampling.inverse_transform_table(p, u).tolist() == [0, 0, 2, 2, 3, 3]


def test_box_muller_gives_independent_normals():
    rng = np.random.default_rng(0)
    x, y = sampling.box_muller(1 - rng.uniform(size=20_000), rng.uniform(size=20_000))
    for z in (x, y):
        # sqrt(n) times the distance is below 1.95 in all but .1 % of samples.
        assert stats.kstest(z, "norm").statistic < 1.95 / math.sqrt(20_000)
    assert abs(np.corrcoef(x, y)[0, 1]) < 5 / math.sqrt(20_000)
    assert abs(np.corrcoef(x**2, y**2)[0, 1]) < 5 / math.sqrt(20_000)


def test_gumbel_max_draws_from_the_softmax():
    logits = np.array([0.0, 1.0, -2.0, 0.5])
    p = np.exp(logits) / np.exp(logits).sum()
    drawn = sampling.gumbel_max(np.broadcast_to(logits, (20_000, 4)), np.random.default_rng(0))
    share = np.bincount(drawn, minlength=4) / 20_000
    assert (np.abs(share - p) < 5 * np.sqrt(p * (1 - p) / 20_000)).all()


def test_rejection_has_its_acceptance_rate_and_law():
    law, M = stats.beta(2.7, 6.3), 2.67
    made = sampling.rejection(
        law.logpdf,
        lambda n, rng: rng.uniform(size=n),
        lambda x: np.zeros(len(x)),
        math.log(M),
        5000,
        np.random.default_rng(0),
    )
    assert abs(made.acceptance.value - 1 / M) < 5 * made.acceptance.se
    assert stats.kstest(made.draws, law.cdf).statistic < 1.95 / math.sqrt(5000)
    with pytest.raises(InputError, match="log_bound must be at least"):
        sampling.rejection(
            law.logpdf,
            lambda n, rng: rng.uniform(size=n),
            lambda x: np.zeros(len(x)),
            0.0,
            100,
            np.random.default_rng(0),
        )


def test_effective_sample_size_of_an_ar1_is_the_known_one():
    phi, n, m = 0.8, 4000, 4
    rng = np.random.default_rng(0)
    x = np.empty((n, m, 1))
    x[0] = rng.normal(size=(m, 1)) / math.sqrt(1 - phi**2)
    for t in range(1, n):
        x[t] = phi * x[t - 1] + rng.normal(size=(m, 1))
    truth = n * m * (1 - phi) / (1 + phi)
    # The estimate's own spread over seeds is about 6 %.
    assert sampling.effective_sample_size(x)[0] == pytest.approx(truth, rel=0.3)
    assert sampling.rhat(x)[0] == pytest.approx(1, abs=0.02)
    assert sampling.rhat(x + 5 * np.arange(m)[:, None])[0] > 1.5


@pytest.mark.parametrize("which", ["metropolis", "hamiltonian"])
def test_chains_reach_the_law(which):
    law = points.Banana(bend=0.3, scale=1.5)
    rng = torch.Generator().manual_seed(0)
    start = law.sample(16, seed=1)
    if which == "metropolis":
        chains = sampling.metropolis(law.log_prob, start, 2500, 1.3, rng, warmup=200)
    else:
        chains = sampling.hamiltonian(law.log_prob, start, 250, 0.35, rng, warmup=50)
    assert 0.2 < chains.acceptance < 0.99
    assert (chains.rhat() < 1.1).all()
    for mean in chains.mean():
        assert abs(mean.value) < 5 * mean.se
    # Var x1 = s^2; its error from as many independent squares as the chains are worth.
    worth = chains.effective_sample_size()[0]
    spread = chains.draws[..., 0].square().mean().item()
    assert abs(spread - 2.25) < 5 * 2.25 * math.sqrt(2 / worth) * 1.5


def test_linear_maps_change_the_density_as_scipy_says():
    A, b = torch.tensor([[2.0, 0.3], [-0.5, 1.1]]), torch.tensor([1.0, -2.0])
    ours = sampling.linear_log_density(
        lambda x: -0.5 * x.square().sum(1) - math.log(2 * math.pi), A, b
    )
    y = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    theirs = stats.multivariate_normal(b.numpy(), (A @ A.T).numpy()).logpdf(y.numpy())
    np.testing.assert_allclose(ours(y).numpy(), theirs, rtol=1e-10)


def test_the_exponential_of_a_normal_is_lognormal():
    normal = lambda x: -0.5 * x.square().sum(1) - 0.5 * math.log(2 * math.pi)  # noqa: E731
    y = torch.linspace(0.1, 6, 40)[:, None]
    ours = sampling.mapped_log_density(normal, torch.log)(y)
    np.testing.assert_allclose(ours.numpy(), stats.lognorm(1).logpdf(y[:, 0].numpy()), rtol=1e-10)


def test_the_square_of_a_normal_is_chi_square():
    """Two branches: the roots."""
    normal = lambda x: -0.5 * x.square().sum(1) - 0.5 * math.log(2 * math.pi)  # noqa: E731
    branches = [torch.sqrt, lambda y: -torch.sqrt(y)]
    y = torch.linspace(0.1, 6, 40)[:, None]
    ours = sampling.many_to_one_log_density(normal, branches)(y)
    np.testing.assert_allclose(ours.numpy(), stats.chi2(1).logpdf(y[:, 0].numpy()), rtol=1e-10)


def test_expectations_need_no_density():
    draws = np.random.default_rng(0).normal(size=(20_000, 1))
    found = sampling.expectation(lambda x: np.exp(x[:, 0]), draws)
    assert abs(found.value - stats.lognorm(1).mean()) < 5 * found.se


def test_good_turing_finds_the_missing_mass():
    p = 1 / np.arange(1, 2001)
    p /= p.sum()
    for seed in range(3):
        drawn = np.random.default_rng(seed).choice(2000, size=1500, p=p)
        counts = np.bincount(drawn, minlength=2000)
        missing = p[counts == 0].sum()
        found = sampling.good_turing(counts)
        assert abs(found.value - missing) < 5 * found.se


def test_laplaces_rule():
    np.testing.assert_allclose(sampling.laplace(np.array([3, 0]), 4), [4 / 7, 1 / 7, 1 / 7, 1 / 7])
