import itertools

import numpy as np
import pytest
import torch

from allometry import InputError
from allometry.models import HiddenMarkov


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)

    def rows(*shape):
        return torch.from_numpy(rng.dirichlet(np.ones(shape[-1]), size=shape[:-1] or None))

    return HiddenMarkov(rows(3), rows(3, 3), rows(3, 4))


X = torch.tensor([0, 3, 1, 1, 2])


def everything(model):
    """The joint probability of every path of states with X: enumeration, not recursion."""
    A, B, pi = (m.exp() for m in (model.log_transition, model.log_emission, model.log_initial))
    table = {}
    for z in itertools.product(range(3), repeat=len(X)):
        p = pi[z[0]] * B[z[0], X[0]]
        for t in range(1, len(X)):
            p = p * A[z[t - 1], z[t]] * B[z[t], X[t]]
        table[z] = p.item()
    return table


def test_likelihood_posterior_and_viterbi_are_those_of_enumeration(model):
    table = everything(model)
    total = sum(table.values())
    assert model.log_prob(X).sum().exp().item() == pytest.approx(total, rel=1e-12)
    for t in range(len(X)):
        for s in range(3):
            want = sum(p for z, p in table.items() if z[t] == s) / total
            assert model.posterior(X)[t, s].item() == pytest.approx(want, rel=1e-10)
    best = max(table, key=table.get)
    states, score = model.viterbi(X)
    assert tuple(states.tolist()) == best
    assert np.exp(score) == pytest.approx(table[best], rel=1e-12)


def test_samples_have_the_model_s_frequencies(model):
    n = 40_000
    x, z = model.sample(n, torch.Generator().manual_seed(0))
    assert len(x) == len(z) == n
    seen = torch.bincount(z, minlength=3) / n
    # States are correlated over a few steps: 5 se with a factor 3 for that.
    assert (seen - model.stationary()).abs().max() < 3 * 5 * 0.5 / n**0.5
    symbols = torch.bincount(x, minlength=4) / n
    want = model.stationary() @ model.log_emission.exp()
    assert (symbols - want).abs().max() < 3 * 5 * 0.5 / n**0.5
    loss = -model.log_prob(x[:2000]).mean()
    assert 0 < loss < np.log(4) + 0.1


def test_entropy_rate_of_a_two_state_chain():
    p, q = 0.1, 0.4
    A = torch.tensor([[1 - p, p], [q, 1 - q]])
    chain = HiddenMarkov(torch.tensor([0.5, 0.5]), A, torch.eye(2))

    def h(x):
        return -x * np.log(x) - (1 - x) * np.log(1 - x)

    assert chain.stationary().tolist() == pytest.approx([q / (p + q), p / (p + q)])
    assert chain.chain_entropy_rate() == pytest.approx((q * h(p) + p * h(q)) / (p + q))


def test_rows_that_are_no_distribution_are_refused():
    with pytest.raises(InputError, match="rows that sum to 1"):
        HiddenMarkov(torch.tensor([0.5, 0.5]), torch.ones(2, 2), torch.eye(2))
