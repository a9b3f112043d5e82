"""Autoencoders against PCA, probabilistic PCA, exact posteriors and exact masses."""

import math

import numpy as np
import pytest
import torch
from scipy import linalg

from allometry.models import autoencoders as ae
from allometry.train import objectives


def data(n=400, d=6, seed=0):
    rng = torch.Generator().manual_seed(seed)
    A = torch.randn(d, d, generator=rng) * torch.tensor([3.0, 2.0, 1.0, 0.4, 0.3, 0.2])[:d]
    return torch.randn(n, d, generator=rng) @ A.T + torch.randn(d, generator=rng)


def settle(model, loss):
    """To the minimum of a loss without noise."""
    optimiser = torch.optim.LBFGS(
        model.parameters(), max_iter=400, line_search_fn="strong_wolfe", tolerance_change=1e-13
    )

    def closure():
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    optimiser.step(closure)


def test_a_linear_autoencoder_finds_the_principal_subspace():
    x = data()
    x = x - x.mean(0)
    model = ae.linear(6, 2)
    settle(model, lambda: objectives.reconstruction(model, x))
    _, s, vt = torch.linalg.svd(x, full_matrices=False)
    best = s[2:].square().sum().item() / len(x)
    assert objectives.reconstruction(model, x).item() == pytest.approx(best, rel=1e-3)
    decoder = model.decoder.layers[0].weight.detach().numpy()
    assert linalg.subspace_angles(decoder, vt[:2].T.numpy()).max() < 0.02


def test_the_contractive_norm_is_the_jacobians():
    model = ae.deep((5,), 3, (7,))
    x = data(9, 5)
    plain = objectives.reconstruction(model, x)
    with_norm = objectives.contractive(model, x, 0.5)
    jacobian = torch.stack(
        [torch.autograd.functional.jacobian(lambda v: model.encode(v[None])[0], row) for row in x]
    )
    expected = plain + 0.5 * jacobian.square().sum((1, 2)).mean()
    torch.testing.assert_close(with_norm, expected)
    torch.autograd.grad(with_norm, list(model.encoder.parameters()))


def test_sparse_and_denoising_are_what_they_say():
    model = ae.deep((5,), 3, (7,))
    x = data(9, 5)
    code = model.encode(x)
    expected = objectives.reconstruction(model, x) + 0.1 * code.abs().sum(1).mean()
    torch.testing.assert_close(objectives.sparse(model, x, 0.1), expected)
    zero = torch.zeros_like(x)
    torch.testing.assert_close(
        objectives.denoising(model, x, zero), objectives.reconstruction(model, x)
    )


def test_convolutions_keep_the_shape():
    model = ae.convolutional((1, 8, 8), 4, 8, 2)
    x = torch.rand(3, 1, 8, 8)
    assert model.encode(x).shape == (3, 4, 2, 2)
    assert model(x).shape == x.shape


def exact_elbo(model, x):
    """Without noise: a linear decoder's log likelihood is quadratic in z, and four points with the
    mean and covariance of the standard normal average any quadratic exactly."""
    sigma = math.sqrt(2) * torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    terms = [model.elbo_terms(x, point.expand(len(x), 2)) for point in sigma]
    return torch.stack([fit - kl for fit, kl in terms]).mean(0)


@pytest.fixture(scope="module")
def linear_vae():
    """A linear VAE trained to its optimum, with the data and probabilistic PCA."""
    x = data(300, 5, seed=3)
    model = ae.dense_vae((5,), 2, ae.Gaussian(1.0), hidden=())
    settle(model, lambda: -exact_elbo(model, x).mean())
    return model, x, ae.fit_linear_gaussian(x, 2)


def test_a_linear_vae_reaches_probabilistic_pca(linear_vae):
    model, x, truth = linear_vae
    elbo = exact_elbo(model, x).mean().item()
    assert elbo == pytest.approx(truth.log_prob(x).mean().item(), abs=0.01)
    # And it is a bound on the best of its family.
    assert elbo <= truth.log_prob(x).mean().item() + 1e-9


def exact(model):
    """The linear-Gaussian model that a linear decoder is."""
    layer = model.decoder.layers[0]
    sigma2 = (2 * model.likelihood.log_sigma).exp().item()
    return ae.LinearGaussian(layer.weight.detach(), layer.bias.detach(), sigma2)


def rough_vae():
    """A linear VAE with a wrong posterior, so that the bounds lie apart."""
    rng = torch.Generator().manual_seed(5)
    model = ae.dense_vae((5,), 2, ae.Gaussian(0.8), hidden=(), rng=rng)
    with torch.no_grad():
        model.encoder.layers[0].weight.mul_(0.3)
        model.encoder.layers[0].bias.copy_(torch.tensor([0.2, -0.1, -1.0, -0.5]))
    truth = exact(model)
    z = torch.randn(200, 2, generator=rng)
    x = z @ truth.W.T + truth.mean + 0.8 * torch.randn(200, 5, generator=rng)
    return model, truth, x


def test_the_gap_of_the_elbo_is_the_kl_to_the_posterior():
    model, truth, x = rough_vae()
    mean, log_var = (t.detach() for t in model.posterior(x))
    right, cov = truth.posterior(x)
    # KL between Gaussians in closed form.
    precision = torch.linalg.inv(cov)
    away = right - mean
    kl = 0.5 * (
        (precision.diagonal() * log_var.exp()).sum(1)
        + (away @ precision * away).sum(1)
        - 2
        + torch.logdet(cov)
        - log_var.sum(1)
    )
    with torch.no_grad():
        gap = truth.log_prob(x) - exact_elbo(model, x)
    torch.testing.assert_close(gap, kl, rtol=1e-9, atol=1e-9)


def test_bounds_come_in_order():
    model, truth, x = rough_vae()
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        elbo = model.iwae(x, torch.randn(1, 200, 2, generator=rng)).mean().item()
        iwae = model.iwae(x, torch.randn(16, 200, 2, generator=rng)).mean().item()
    ais = ae.annealed_importance(model, x, chains=8, temperatures=300, rng=rng)
    true = truth.log_prob(x)
    assert elbo < iwae < ais.mean().item()
    # In expectation it is below; this one's own error is what its chains leave.
    se = (ais - true).std().item() / 200**0.5
    assert ais.mean().item() <= true.mean().item() + 5 * se
    assert ais.mean().item() == pytest.approx(true.mean().item(), abs=0.05)


def test_iwae_tends_to_the_likelihood():
    model, truth, x = rough_vae()
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        means = [
            model.iwae(x, torch.randn(s, 200, 2, generator=rng)).mean().item() for s in (1, 8, 512)
        ]
    assert means == sorted(means)
    assert means[-1] == pytest.approx(truth.log_prob(x).mean().item(), abs=0.1)


@pytest.mark.parametrize("levels", [2, 5, 17])
def test_masses_of_discrete_likelihoods_sum_to_one(levels):
    for likelihood in (ae.DiscretisedLogistic(levels), ae.Categorical(levels)):
        rng = torch.Generator().manual_seed(0)
        out = (6, levels) if likelihood.each > 1 else (6,)
        numbers = 2 * torch.randn(out, generator=rng)[:, None]
        x = torch.arange(levels)
        total = sum(likelihood.log_prob(numbers, torch.full((6, 1), float(v))).exp() for v in x)
        torch.testing.assert_close(total, torch.ones(6))
        drawn = likelihood.sample(numbers.repeat_interleave(50, 0), rng)
        assert drawn.min() >= 0
        assert drawn.max() <= levels - 1


def test_bernoulli_and_gaussian_against_torch():
    rng = torch.Generator().manual_seed(0)
    numbers, x = torch.randn(4, 3, generator=rng), torch.randint(2, (4, 3), generator=rng)
    theirs = torch.distributions.Bernoulli(logits=numbers).log_prob(x.double()).sum(1)
    torch.testing.assert_close(ae.Bernoulli().log_prob(numbers, x.double()), theirs)
    theirs = torch.distributions.Normal(numbers, 0.7).log_prob(x.double()).sum(1)
    torch.testing.assert_close(ae.Gaussian(0.7).log_prob(numbers, x.double()), theirs)


def test_reparameterised_gradients_vary_less():
    rng = torch.Generator().manual_seed(0)
    mean, log_sd = torch.tensor([1.0, -0.5]), torch.zeros(2)
    found = ae.gradient_variances(lambda z: z.square().sum(1), mean, log_sd, 40_000, rng)
    for average, variance in found.values():
        # The gradient of E z^2 in the mean is twice the mean.
        assert ((average - 2 * mean).abs() < 5 * (variance / 40_000).sqrt()).all()
    assert (found["reparameterised"][1] < 0.3 * found["score function"][1]).all()


def test_info_vae_contains_its_special_cases():
    model = ae.dense_vae((5,), 2, ae.Gaussian(), hidden=(6,))
    rng = torch.Generator().manual_seed(0)
    x, noise, prior = (
        data(20, 5),
        torch.randn(20, 2, generator=rng),
        torch.randn(20, 2, generator=rng),
    )
    vae = objectives.info_vae(model, x, noise, prior, alpha=0.0, lambda_=1.0)
    torch.testing.assert_close(vae, objectives.negative_elbo(model, x, noise))
    beta = objectives.info_vae(model, x, noise, prior, alpha=-3.0, lambda_=4.0)
    torch.testing.assert_close(beta, objectives.negative_elbo(model, x, noise, beta=4.0))


def test_mmd_is_unbiased_and_separates_distributions():
    rng = torch.Generator().manual_seed(0)
    from allometry.train.autoencoder_objectives import mmd

    same = torch.stack(
        [
            mmd(torch.randn(30, 2, generator=rng), torch.randn(30, 2, generator=rng))
            for _ in range(200)
        ]
    )
    assert abs(same.mean().item()) < 5 * same.std().item() / 200**0.5
    far = mmd(torch.randn(200, 2, generator=rng) + 2, torch.randn(200, 2, generator=rng))
    assert far.item() > 0.2


def test_mutual_information_of_a_known_channel():
    """One unit, q(z | x) = N(x, s^2), x standard normal: I = log(1 + 1/s^2) / 2."""
    x = torch.randn(1500, 1, generator=torch.Generator().manual_seed(7))
    model = ae.dense_vae((1,), 1, ae.Gaussian(), hidden=())
    with torch.no_grad():
        model.encoder.layers[0].weight.copy_(torch.tensor([[1.0], [0.0]]))
        model.encoder.layers[0].bias.copy_(torch.tensor([0.0, math.log(0.25)]))
    found = ae.mutual_information(model, x)
    # The mixture over 1,500 examples stands for the law of x: a bias of about 1 / 1500.
    assert abs(found.value - 0.5 * math.log(5)) < 5 * found.se + 0.01
    assert ae.active_units(model, x).value == 1
    with torch.no_grad():
        model.encoder.layers[0].weight.zero_()
    assert ae.active_units(model, x).value == 0
    assert abs(ae.mutual_information(model, x).value) < 1e-9


def test_the_terms_of_a_vqvae_are_the_papers():
    model = ae.convolutional_vqvae((1, 4, 4), 8, 3, 6, decay=None)
    x = torch.rand(5, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    z = model.encoder(x)
    e, _ = model.quantise(z)
    terms = (model.decoder(e) - x).square().sum() + 1.25 * (z - e).square().sum()
    torch.testing.assert_close(objectives.vector_quantised(model, x, 0.25), terms / 5)
    loss = objectives.vector_quantised(model, x, 0.25)
    grads = torch.autograd.grad(loss, [model.codebook.vectors, z_weight(model)])
    # The codebook's gradient comes from its own term alone: 2 (e - z) summed over each cell.
    code = model.encode(x).flatten()
    flat = z.detach().permute(0, 2, 3, 1).reshape(-1, 3)
    expected = torch.zeros(8, 3).index_add(0, code, 2 * (model.codebook.vectors[code] - flat) / 5)
    torch.testing.assert_close(grads[0], expected.detach())
    assert grads[1].abs().sum() > 0


def z_weight(model):
    return model.encoder.layers[-1].weight


def test_codebooks_follow_means_and_revive():
    rng = torch.Generator().manual_seed(0)
    book = ae.Codebook(6, 2, decay=0.8, revive=0.1, rng=rng)
    with torch.no_grad():
        book.vectors[3:] = 100.0
        book.sums.copy_(book.vectors)
    centres = torch.tensor(
        [[0.0, 0.0], [5.0, 0.0], [0.0, 5.0], [5.0, 5.0], [9.0, 9.0], [-5.0, 0.0]]
    )
    for _ in range(150):
        x = centres.repeat(20, 1) + 0.1 * torch.randn(120, 2, generator=rng)
        book.update(x, book.find(x), rng)
    # Three began far from everything; all are among the data now, and in use.
    assert book.vectors.abs().max() < 20
    assert len(book.find(x).unique()) == 6
    assert ae.perplexity(torch.arange(8).repeat(3), 8) == pytest.approx(8)
    assert ae.perplexity(torch.zeros(9, dtype=torch.long), 8) == pytest.approx(1)


def test_traversals_and_interpolations_have_the_data_s_shape():
    model = ae.dense_vae((1, 4, 4), 3, ae.Bernoulli(), hidden=(8,))
    x = torch.rand(2, 1, 4, 4)
    assert model.traverse(x, 1, np.linspace(-2, 2, 5).tolist()).shape == (5, 1, 4, 4)
    way = model.interpolate(x, 4)
    ends = model.likelihood.mean(model.decoder(model.posterior(x)[0]))
    torch.testing.assert_close(way[[0, -1]], ends.detach())
    assert model.sample(7).shape == (7, 1, 4, 4)


def test_conditional_laws_are_the_likelihoods():
    """torch's laws and our own formulas: the same log probabilities and means."""
    rng = torch.Generator().manual_seed(0)
    for likelihood, levels in (
        (ae.Gaussian(0.4), None),
        (ae.Bernoulli(), 2),
        (ae.Categorical(5), 5),
        (ae.DiscretisedLogistic(5), 5),
    ):
        out = (7, 2, 3, levels) if likelihood.each > 1 else (7, 2, 3)
        numbers = torch.randn(out, generator=rng)
        x = torch.randn(7, 2, 3, generator=rng)
        if levels is not None:
            x = torch.randint(levels, (7, 2, 3), generator=rng).double()
        law = likelihood.law(numbers)
        assert law.event_shape == (2, 3)
        torch.testing.assert_close(law.log_prob(x), likelihood.log_prob(numbers, x))
        assert law.sample().shape == x.shape


def test_a_vae_is_its_graph_of_factors():
    model = ae.dense_vae((3,), 2, ae.Gaussian(0.5), hidden=(4,))
    graph = model.directed()
    drawn = graph.sample(6, seed=1)
    fit = model.log_likelihood(drawn["x"], drawn["z"])
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(drawn["z"]).sum(1)
    torch.testing.assert_close(graph.log_prob(drawn), fit + prior)
    law = model.encoder_law(drawn["x"])
    standard = torch.distributions.Normal(torch.zeros(6, 2), torch.ones(6, 2))
    kl = torch.distributions.kl_divergence(law, torch.distributions.Independent(standard, 1))
    torch.testing.assert_close(model.elbo_terms(drawn["x"], torch.zeros(6, 2))[1], kl)
    assert graph.diagram().count("<circle") == 2


def test_the_divergence_splits_into_information_and_the_rest():
    """One unit, q(z | x) = N(x, s^2) and x ~ N(0, 1): q(z) = N(0, 1 + s^2), all in closed form."""
    x = torch.randn(1500, 1, generator=torch.Generator().manual_seed(7))
    model = ae.dense_vae((1,), 1, ae.Gaussian(), hidden=())
    with torch.no_grad():
        model.encoder.layers[0].weight.copy_(torch.tensor([[1.0], [0.0]]))
        model.encoder.layers[0].bias.copy_(torch.tensor([0.0, math.log(0.25)]))
    found = ae.kl_split(model, x)
    marginal = 0.5 * (1.25 - 1 - math.log(1.25))
    # Besides the error of the mean, the mixture over 1,500 examples stands for the law of x.
    assert abs(found["marginal_kl"].value - marginal) < 5 * found["marginal_kl"].se + 0.01
    assert found["mutual_information"].value == ae.mutual_information(model, x).value


def test_the_adversarial_divergence_is_kl_at_the_critics_best():
    """Codes N(1, 1) against N(0, 1): the best critic is z - 1/2, and the divergence 1/2."""
    rng = torch.Generator().manual_seed(0)
    z, prior = torch.randn(4000, 1, generator=rng) + 1, torch.randn(4000, 1, generator=rng)
    critic = torch.nn.Linear(1, 1)
    settle(critic, lambda: objectives.critic_loss(critic, z, prior))
    # Logistic regression on 8,000 points: standard errors of its two numbers are below .04.
    assert critic.weight.item() == pytest.approx(1, abs=0.2)
    assert critic.bias.item() == pytest.approx(-0.5, abs=0.2)
    assert objectives.adversarial(critic)(z, prior).item() == pytest.approx(0.5, abs=0.2)
    model = ae.dense_vae((5,), 1, ae.Gaussian(), hidden=(6,))
    noise, drawn = torch.randn(2, 20, 1, generator=rng)
    x = data(20, 5)
    plain = objectives.info_vae(model, x, noise, drawn, 0.0, 1.0)
    more = objectives.info_vae(model, x, noise, drawn, 0.0, 3.0, objectives.adversarial(critic))
    mean, log_var = model.posterior(x)
    codes = mean + (0.5 * log_var).exp() * noise
    torch.testing.assert_close(more - plain, 2 * critic(codes).mean())


def generative():
    model = ae.generative_vqvae((1, 4, 4), 5, 8, 3, 6, 1, 8, 1)
    x = torch.randint(5, (40, 1, 4, 4), generator=torch.Generator().manual_seed(0))
    model.initialise(x)
    return model, x


def test_a_learned_prior_is_a_law_of_codes():
    """Over all codes of a grid of two places its probabilities sum to 1."""
    from allometry.models import Transformer

    book = ae.Codebook(5, 2)
    ends = (ae.Down(1, 2, 4, 1), ae.Up(2, 1, 4, 1))
    prior = Transformer(6, 8, 1, 2, context=2, outputs=5)
    model = ae.GenerativeVQVAE(
        ae.VQVAE(*ends, book), prior, ae.DiscretisedLogistic(3), (1, 2, 4), (1, 2)
    )
    every = torch.cartesian_prod(torch.arange(5), torch.arange(5)).view(25, 1, 2)
    with torch.no_grad():
        p = model.log_prior(every).exp()
    torch.testing.assert_close(p.sum(), torch.tensor(1.0))
    drawn = model.sample_codes(4000, rng=torch.Generator().manual_seed(1)).flatten(1)
    seen = torch.bincount(drawn[:, 0] * 5 + drawn[:, 1], minlength=25) / 4000
    assert ((seen - p).abs() < 5 * (p * (1 - p) / 4000).sqrt()).all()
    assert model.sample(3).shape == (3, 1, 2, 4)


def test_the_bound_of_a_generative_vqvae_is_its_two_terms():
    model, x = generative()
    model.eval()
    rng = torch.Generator().manual_seed(0)
    noise = model.draw_noise(x.shape, rng)
    with torch.no_grad():
        z = model.vqvae.encoder(model.seen(x))
        e, code = model.vqvae.quantise(z)
        bound = model.likelihood.log_prob(model.vqvae.decoder(e), x) + model.log_prior(code)
        torch.testing.assert_close(model.log_prob(x), bound)
        commitment = 0.25 * (z - e).square().sum() / len(x)
        loss = objectives.quantised_bound(model, x, noise, rng)
    torch.testing.assert_close(loss, commitment - bound.mean())


def test_the_priors_gradient_stops_at_the_codes():
    model, x = generative()
    rng = torch.Generator().manual_seed(0)
    noise = model.draw_noise(x.shape, rng)
    weights = list(model.vqvae.encoder.parameters())
    before = model.vqvae.codebook.vectors.clone()
    grads = torch.autograd.grad(objectives.quantised_bound(model, x, noise, rng), weights)
    # In training the codebook has followed; what it was gives the same gradients again.
    assert not torch.equal(before, model.vqvae.codebook.vectors)
    model.vqvae.codebook.vectors.data.copy_(before)
    model.eval()
    with torch.no_grad():
        model.prior.table.mul_(3.0)
    again = torch.autograd.grad(objectives.quantised_bound(model, x, noise, rng), weights)
    for a, b in zip(grads, again, strict=True):
        torch.testing.assert_close(a, b)


def test_ways_between_examples_end_at_their_copies():
    model, x = generative()
    way = model.interpolate(x[:2], 5)
    torch.testing.assert_close(way[[0, -1]], model.decode(model.encode(x[:2])).detach())
