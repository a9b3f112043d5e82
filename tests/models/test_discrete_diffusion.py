"""Discrete diffusion against sources whose probabilities are known exactly."""

import itertools
import math

import pytest
import torch
from torch.nn import functional as F

from allometry._core.errors import InputError
from allometry.models import diffusion
from allometry.train.loop import minimise

CHAIN = torch.tensor([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.3, 0.1, 0.6]])
START = torch.linalg.matrix_power(CHAIN, 200)[0]


def chain_log_prob(tokens):
    rows = START[tokens[:, 0]].log()
    for i in range(1, tokens.shape[1]):
        rows = rows + CHAIN[tokens[:, i - 1], tokens[:, i]].log()
    return rows


def draw_chain(b, n, rng):
    tokens = torch.multinomial(START, b, True, generator=rng)[:, None]
    for _ in range(n - 1):
        after = torch.multinomial(CHAIN[tokens[:, -1]], 1, generator=rng)
        tokens = torch.cat([tokens, after], 1)
    return tokens


def entropy(n):
    """Entropy of a window of the chain, in nats."""
    rate = -(START[:, None] * CHAIN * CHAIN.log()).sum()
    return float(-(START * START.log()).sum() + (n - 1) * rate)


def everything(n, v=3):
    return torch.tensor(list(itertools.product(range(v), repeat=n)))


def conditionals(n, weights):
    """p(x_i = y | x_seen) of a table of probabilities of all windows, for windows with masks."""
    table = everything(n)

    def predict(tokens):
        fits = ((tokens[:, None] == table) | (tokens[:, None] == 3)).all(2)
        mass = fits * weights
        each = torch.einsum("bw,wnv->bnv", mass, F.one_hot(table, 3).double())
        return (each / mass.sum(1)[:, None, None]).clamp(min=1e-30).log()

    return predict


def posterior(n, weights):
    """p(x_0 | x_t) of every position under uniform noise of a table of probabilities."""
    table = everything(n)

    def predict(tokens, t):
        alpha = (1 - (1 - 1e-3) * t)[:, None, None]
        like = torch.where(tokens[:, None] == table, alpha + (1 - alpha) / 3, (1 - alpha) / 3)
        mass = like.prod(2) * weights
        each = torch.einsum("bw,wnv->bnv", mass, F.one_hot(table, 3).double())
        return (each / mass.sum(1)[:, None, None]).clamp(min=1e-30).log()

    return predict


def exact(n, noise, weights):
    model = diffusion.DiscreteDiffusion(3, 8, 1, 1, n, noise)
    make = conditionals if noise == "masked" else posterior
    predict = make(n, weights)
    model.logits = (lambda x, t=None: predict(x)) if noise == "masked" else predict
    return model


@pytest.mark.parametrize("noise", ["masked", "uniform"])
def test_the_bound_of_the_exact_network_is_the_entropy(noise):
    n, b = 4, 40_000
    weights = chain_log_prob(everything(n)).exp()
    rng = torch.Generator().manual_seed(0)
    tokens = draw_chain(b, n, rng)
    model = exact(n, noise, weights)
    u, draws = diffusion.even_levels(b, rng), torch.rand(b, n, 2, generator=rng)
    gap = model.bound(tokens, u, draws) + chain_log_prob(tokens)
    se = (gap.std() / math.sqrt(b)).item()
    # The exact network has the exact distribution in any order: the bound is tight.
    assert abs(gap.mean().item()) < 5 * se
    assert se < 0.06
    # Another network has a larger bound: here that of a uniform source.
    other = exact(n, noise, torch.full((3**n,), 3.0**-n))
    assert (other.bound(tokens, u, draws) + chain_log_prob(tokens)).mean() > 10 * se


def test_the_masked_bound_is_the_mean_over_all_orders():
    # The definition by enumeration: the chain rule in every order of the positions.
    n = 3
    model = diffusion.DiscreteDiffusion(3, 8, 1, 1, n)
    for p in model.parameters():
        p.data.normal_(0, 0.5, generator=torch.Generator().manual_seed(1))
    x = torch.tensor([[2, 0, 1]])
    total = 0.0
    for order in itertools.permutations(range(n)):
        window = torch.full((1, n), model.mask)
        for i in order:
            total -= model.logits(window).log_softmax(-1)[0, i, x[0, i]].item()
            window[0, i] = x[0, i]
    wanted = total / math.factorial(n)
    ranks = torch.tensor(list(itertools.permutations([0.1, 0.4, 0.8])))
    rows = [(u, r) for u in (0.1, 0.5, 0.9) for r in ranks]
    u = torch.tensor([u for u, _ in rows])
    draws = torch.stack([r for _, r in rows])[..., None].expand(-1, -1, 2)
    got = model.bound(x.expand(len(rows), n), u, draws).mean().item()
    assert got == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("noise", ["masked", "uniform"])
def test_samples_of_the_exact_network_have_the_chains_distribution(noise):
    n, b = 3, 6000
    probabilities = chain_log_prob(everything(n)).exp()
    model = exact(n, noise, probabilities)
    tokens = model.sample(b, steps=n if noise == "masked" else 100)
    codes = (tokens * torch.tensor([9, 3, 1])).sum(1)
    shares = codes.bincount(minlength=27) / b
    se = (probabilities * (1 - probabilities) / b).sqrt()
    # Uniform diffusion in a hundred steps has a small error of its own.
    assert ((shares - probabilities).abs() < 5 * se + (0.01 if noise == "uniform" else 0)).all()


@pytest.mark.parametrize("order", ["random", "left", "confident"])
def test_every_order_fills_the_window(order):
    model = diffusion.DiscreteDiffusion(5, 8, 1, 1, 7)
    for steps in (1, 3, 7, 12):
        tokens = model.sample(4, steps=steps, order=order)
        assert tokens.shape == (4, 7)
        assert (tokens < 5).all()


def test_the_next_token_is_the_prediction_at_the_first_mask():
    model = diffusion.DiscreteDiffusion(5, 8, 1, 1, 6)
    tokens = torch.tensor([[1, 2, 3]])
    window = torch.tensor([[1, 2, 3, 5, 5, 5]])
    torch.testing.assert_close(model(tokens), model.logits(window)[:, 3])
    assert model(torch.zeros(2, 40, dtype=torch.int64)).shape == (2, 5)


def trained_gap(noise, steps, width=32):
    n, b = 8, 128
    torch.set_default_dtype(torch.float32)
    try:
        model = diffusion.DiscreteDiffusion(3, width, 2, 2, n, noise)
        rng = torch.Generator().manual_seed(0)

        def loss(step):
            draws = torch.rand(b, n, 2, generator=rng)
            tokens = draw_chain(b, n, rng)
            return model.bound(tokens, diffusion.even_levels(b, rng), draws).mean() / n

        minimise(model, loss, steps=steps, lr=0.01)
        rng = torch.Generator().manual_seed(1)
        tokens, draws = draw_chain(20_000, n, rng), torch.rand(20_000, n, 2, generator=rng)
        with torch.no_grad():
            bounds = model.bound(tokens, diffusion.even_levels(20_000, rng), draws) / n
    finally:
        torch.set_default_dtype(torch.float64)
    return bounds.mean().item() - entropy(n) / n, bounds.std().item() / math.sqrt(20_000)


@pytest.mark.parametrize("noise", ["masked", "uniform"])
def test_a_short_training_comes_near_the_entropy_from_above(noise):
    gap, se = trained_gap(noise, 120)
    # A uniform source has 0.28 nats more.
    assert -5 * se < gap < 0.25


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["masked", "uniform"])
def test_a_training_comes_within_five_hundredths_of_the_entropy(noise):
    gap, se = trained_gap(noise, 1500)
    assert -5 * se < gap < 0.05


def test_mistakes_are_named():
    with pytest.raises(InputError, match=r"noise must be one of .*; got 'gaussian'"):
        diffusion.DiscreteDiffusion(5, 8, 1, 1, 6, "gaussian")
    model = diffusion.DiscreteDiffusion(5, 8, 1, 1, 6)
    with pytest.raises(InputError, match="order must be one of random, left, confident"):
        model.sample(1, order="sorted")
