"""Diffusion models and flow matching against closed forms.

The truth is torch's mixtures of Gaussians: noised data of a mixture are again a mixture, so its
score, its posterior mean and its density at every angle are known.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import distributions, nn

from allometry._core.errors import InputError
from allometry.models import diffusion, flows
from allometry.models.diffusion.denoiser import _angle_at

WEIGHTS = torch.tensor([0.5, 0.3, 0.2])
MEANS = torch.tensor([[-1.0, 0.5], [1.2, 0.3], [0.2, -1.4]])
SCALES = torch.tensor([0.3, 0.2, 0.5])


def mixture(cosine=1.0, sine=0.0):
    """The data's mixture, or its distribution at an angle."""
    means, scale = cosine * MEANS, (cosine**2 * SCALES**2 + sine**2).sqrt()
    parts = distributions.Independent(distributions.Normal(means, scale[:, None].expand(3, 2)), 1)
    return distributions.MixtureSameFamily(distributions.Categorical(WEIGHTS), parts)


def true_score(y, angle):
    """By automatic differentiation of torch's density, one angle per row."""
    rows = []
    for row, a in zip(y, angle.tolist(), strict=True):
        x = row[None].clone().requires_grad_(True)
        density = mixture(math.cos(a), math.sin(a)).log_prob(x).sum()
        rows.append(torch.autograd.grad(density, x)[0])
    return torch.cat(rows)


class ExactNetwork(nn.Module):
    """Posterior means of the mixture at angles that all rows share, as any of the predictions."""

    def __init__(self, prediction):
        super().__init__()
        self.prediction = prediction
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, y, level, context=None):
        # The level has one value for all rows; invert it with the public function's inverse.
        ratio = torch.exp(4 * level)
        angle = torch.atan2(ratio - 1e-3, 1 - 1e-3 * ratio)[:, None]
        cosine, sine = angle.cos(), angle.sin()
        variance = cosine**2 * SCALES**2 + sine**2
        gaps = y[:, None] - cosine[:, :, None] * MEANS
        logits = WEIGHTS.log() - variance.log() - 0.5 * gaps.square().sum(2) / variance
        gain = cosine * SCALES**2 / variance
        each = MEANS + gain[:, :, None] * gaps
        data = (logits.softmax(1)[:, :, None] * each).sum(1)
        score_noise = (logits.softmax(1)[:, :, None] * gaps / variance[:, :, None]).sum(1) * sine
        return {
            "data": data,
            "noise": score_noise,
            "velocity": score_noise - data,
            "angle": cosine * score_noise - sine * data,
        }[self.prediction]


CASES = [
    (diffusion.EDM(), "angle"),
    (diffusion.VP(), "noise"),
    (diffusion.VE(), "data"),
    (diffusion.Cosine(), "angle"),
    (diffusion.Straight(), "velocity"),
]


def exact(schedule, prediction, **more):
    return diffusion.Diffusion(ExactNetwork(prediction), schedule, prediction, **more)


# Schedules


@pytest.mark.parametrize("schedule", [case[0] for case in CASES], ids=lambda s: type(s).__name__)
def test_times_and_angles_are_inverses(schedule):
    t = torch.linspace(schedule.low + 1e-3, schedule.high - 1e-3, 50)
    torch.testing.assert_close(schedule.time(schedule.angle(t)), t, rtol=1e-7, atol=1e-9)
    ratio = schedule.sigma(t) / schedule.alpha(t)
    torch.testing.assert_close(schedule.log_snr(t), -2 * ratio.log(), rtol=1e-9, atol=1e-9)
    assert (schedule.angle(t).diff() > 0).all()
    u = torch.linspace(0.01, 0.99, 50)
    times = schedule.training_time(u)
    assert ((times >= schedule.low) & (times <= schedule.high)).all()
    angles = schedule.grid(10)
    assert angles == sorted(angles, reverse=True)
    assert len(angles) == 11


def test_levels_and_angles_are_inverses_and_finite_at_both_ends():
    angle = torch.tensor([0.0, 1e-4, 0.3, 1.2, math.pi / 2]).requires_grad_(True)
    level = diffusion.noise_level(angle)
    (slope,) = torch.autograd.grad(level.sum(), angle)
    for a, value, rate in zip(angle.tolist(), level.tolist(), slope.tolist(), strict=True):
        back, inverse_rate = _angle_at(value)
        assert back == pytest.approx(a, abs=1e-12)
        assert inverse_rate == pytest.approx(1 / rate, rel=1e-9)


def test_vp_is_the_limit_of_the_markov_chain_of_ddpm():
    # The chain multiplies by sqrt(1 - beta / T) in each of T steps.
    schedule, T = diffusion.VP(), 100_000
    beta = schedule.beta_min + (schedule.beta_max - schedule.beta_min) * torch.arange(T) / T
    chain = torch.log1p(-beta / T).sum().mul(0.5).exp()
    torch.testing.assert_close(schedule.alpha(torch.ones(())), chain, rtol=2e-3, atol=0.0)


# Predictions


def test_the_angle_prediction_is_the_preconditioning_of_edm():
    network = nn.Module()
    network.forward = lambda y, level, context=None: torch.sin(3 * y) + level[:, None]
    model = diffusion.Diffusion(network)
    x = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    sigma = torch.tensor([0.01, 0.1, 0.5, 1.0, 5.0, 40.0])
    skip, out = 1 / (1 + sigma**2), sigma / (1 + sigma**2).sqrt()
    scale = 1 / (1 + sigma**2).sqrt()
    level = diffusion.noise_level(sigma.atan()) / 4
    F = -network.forward(scale[:, None] * x, level)
    data, _ = model.predict(scale[:, None] * x, sigma.atan())
    torch.testing.assert_close(data, skip[:, None] * x + out[:, None] * F)
    # c_noise is a quarter of log sigma, but for the smallest and largest levels.
    torch.testing.assert_close(level[1:-1], sigma[1:-1].log() / 4, atol=3e-3, rtol=0.0)


@pytest.mark.parametrize(("schedule", "prediction"), CASES)
def test_every_prediction_has_the_score_of_the_mixture(schedule, prediction):
    model = exact(schedule, prediction)
    angle = torch.linspace(0.05, 1.5, 20)
    y = torch.randn(20, 2, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(model.score(y, angle), true_score(y, angle), rtol=1e-7, atol=1e-7)
    data, noise = model.predict(y, angle)
    torch.testing.assert_close(angle.cos()[:, None] * data + angle.sin()[:, None] * noise, y)


def nodes(degree):
    x, w = np.polynomial.hermite_e.hermegauss(degree)
    return torch.from_numpy(x), torch.from_numpy(w / w.sum())


@pytest.mark.parametrize("u", [0.1, 0.5, 0.9])
def test_flow_matching_of_gaussian_pairs_has_the_closed_form_field(u):
    # x_t = (1 - t) x_0 + t eps: E[eps - x_0 | x_t] is linear for Gaussian pairs, and there the
    # expected gradient of the loss vanishes. The expectation is exact by Gauss quadrature.
    mean, sd, t = 0.7, 0.4, u
    x, w = nodes(8)
    data, noise = (mean + sd * x).repeat_interleave(8), x.repeat(8)
    weight = (w[:, None] * w[None]).flatten()
    slope = (t - (1 - t) * sd**2) / ((1 - t) ** 2 * sd**2 + t**2)
    scale = math.hypot(1 - t, t)  # the network sees x_t / scale

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.tensor(slope * scale))
            self.b = nn.Parameter(torch.tensor(-mean - slope * (1 - t) * mean))

        def forward(self, y, level, context=None):
            return self.a * y + self.b

    model = diffusion.Diffusion(Linear(), diffusion.Straight(), "velocity")
    losses = model.loss(data[:, None], torch.full_like(data, u), noise[:, None])
    gradient = torch.autograd.grad((weight * losses).sum(), list(model.parameters()))
    assert max(abs(g.item()) for g in gradient) < 1e-12


@pytest.mark.parametrize(("schedule", "prediction"), CASES)
def test_the_loss_is_least_at_the_closed_form_of_a_mixture(schedule, prediction):
    # E[(F - target) g(y)] = 0 for every g at the best F.
    model = exact(schedule, prediction)
    x, w = nodes(16)
    u = torch.tensor([0.8])
    angle = schedule.angle(schedule.training_time(u))
    total = torch.zeros(2)
    for part in range(3):
        for i, j in itertools.product(range(16), repeat=2):
            data = MEANS[part] + SCALES[part] * torch.stack([x[i], x[j]])
            noise = torch.stack(torch.meshgrid(x, x, indexing="ij"), -1).flatten(0, 1)
            weight = WEIGHTS[part] * w[i] * w[j] * (w[:, None] * w[None]).flatten()
            rows = data.expand(len(noise), 2)
            y = angle.cos() * rows + angle.sin() * noise
            at = angle.expand(len(noise))
            level = diffusion.noise_level(at) / 4
            gap = model.network(y, level) - model.target(rows, noise, at)
            total += (weight[:, None] * gap * torch.sin(y)).sum(0)
        if part == 0:
            assert total.abs().max() > 1e-4  # one component alone has another best prediction
    assert total.abs().max() < 1e-6


# Likelihoods


@pytest.mark.parametrize(("schedule", "prediction"), CASES)
def test_the_probability_flow_has_the_likelihood_of_the_mixture(schedule, prediction):
    truth = mixture()
    torch.manual_seed(0)
    x = truth.sample((100,))
    flow = flows.Flow([exact(schedule, prediction)], (2,))
    gap = flow.log_prob(x) - truth.log_prob(x)
    # Issue: 0.01 nats. What remains is the noise at the smallest angle.
    assert gap.abs().mean() < 0.005
    assert abs(gap.mean()) < 0.002


def test_hutchinsons_estimate_agrees_with_the_exact_trace():
    x = mixture().sample((200,))
    exactly = exact(diffusion.EDM(), "angle", steps=12)
    estimated = exact(diffusion.EDM(), "angle", steps=12, probes=4)
    gap = estimated(x)[1] - exactly(x)[1]
    assert gap.std() > 1e-4
    assert abs(gap.mean()) < 5 * gap.std() / math.sqrt(len(gap))


def test_one_direction_has_the_trace_and_the_gradients_of_forward_mode(monkeypatch):
    # One direction is taken in backward mode. Twice the same, at half the weight, is forward mode.
    body = exact(diffusion.Straight(), "velocity", steps=8, probes=1)
    x = mixture().sample((20,)).requires_grad_()
    (single,) = body._directions(x)
    moved, backward = body(x)
    monkeypatch.setattr(body, "_directions", lambda _: torch.stack([single, single]) / 2**0.5)
    again, forward = body(x)
    torch.testing.assert_close(moved, again)
    torch.testing.assert_close(backward, forward)
    slopes = [torch.autograd.grad(values.sum(), x)[0] for values in (backward, forward)]
    assert slopes[0].abs().max() > 0.1
    torch.testing.assert_close(*slopes)


def test_a_diffusion_model_is_a_normalised_density():
    model = diffusion.points(2, 8, 2, rng=torch.Generator().manual_seed(3))
    body = model.transforms[1]
    for p in body.parameters():
        p.data.normal_(0, 0.4, generator=torch.Generator().manual_seed(1))
    grid = torch.linspace(-7, 7, 57)
    x = torch.cartesian_prod(grid, grid)
    mass = model.log_prob(x).detach().exp().sum() * (grid[1] - grid[0]) ** 2
    assert mass.item() == pytest.approx(1, abs=2e-3)
    z, _ = model(x[::120])
    torch.testing.assert_close(model.inverse(z), x[::120], rtol=0.0, atol=2e-3)


def test_the_variational_bound_is_tight_for_the_exact_score():
    truth, n = mixture(), 20_000
    x = truth.sample((n,))
    rng = torch.Generator().manual_seed(0)
    u, noise = diffusion.even_levels(n, rng), torch.randn(n, 2, generator=rng)
    model = exact(diffusion.VE(), "angle")
    entropy = -truth.log_prob(x)
    gaps = {}
    for steps in (None, 16, 64, 256):
        gap = -diffusion.variational_bound(model, x, u, noise, steps=steps) - entropy
        gaps[steps] = gap.mean().item(), 5 * (gap.std() / math.sqrt(n)).item()
    assert -gaps[None][1] < gaps[None][0] < 0.01 + gaps[None][1]
    # Coarser chains have looser bounds, which fall like one over the number of steps.
    assert gaps[16][0] > 2 * gaps[64][0] > 4 * gaps[256][0] > 0.0


# Samplers


def gaussian(sd):
    """The exact model of N(0, sd^2)."""
    network = nn.Module()
    network.register_parameter("unused", nn.Parameter(torch.zeros(1)))

    def forward(y, level, context=None):
        ratio = torch.exp(4 * level)
        angle = torch.atan2(ratio - 1e-3, 1 - 1e-3 * ratio)[:, None]
        variance = angle.cos() ** 2 * sd**2 + angle.sin() ** 2
        return angle.cos() * angle.sin() * (1 - sd**2) / variance * y

    network.forward = forward
    return diffusion.Diffusion(network, diffusion.EDM(low=1e-3))


@pytest.mark.parametrize(("name", "order"), [("ddim", 1), ("heun", 2)])
def test_deterministic_samplers_converge_at_their_order(name, order):
    model, sd = gaussian(0.5), 0.5
    y = torch.ones(1, 1)
    rng = torch.Generator().manual_seed(0)
    if name == "ddim":
        model.schedule = diffusion.Cosine(model.low / (math.pi / 2), model.high / (math.pi / 2))
    errors = []
    for steps in (64, 128):
        x = diffusion.SAMPLERS[name](model, y, steps, rng)
        errors.append(abs(x.item() - sd))
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.35)
    assert model.inverse(y).item() == pytest.approx(sd, abs=1e-3)


@pytest.mark.parametrize(("method", "options"), [("ancestral", {}), ("heun", {"churn": 20.0})])
def test_stochastic_samplers_have_the_mixtures_moments(method, options):
    flow = flows.Flow([exact(diffusion.Cosine(), "angle")], (2,))
    x = diffusion.sample(flow, 4000, method, 100, **options)
    truth = mixture()
    se = 5 * truth.variance.sqrt() / math.sqrt(4000)
    assert ((x.mean(0) - truth.mean).abs() < se).all()
    torch.testing.assert_close(x.var(0), truth.variance, rtol=0.12, atol=0.0)
    shares = (x[:, None] - MEANS).square().sum(2).argmin(1).bincount(minlength=3) / 4000
    assert (shares - WEIGHTS).abs().max() < 0.05


def test_every_sampler_is_reproducible_and_refuses_nonsense():
    model = diffusion.points(2, 8, 2)
    for method in diffusion.SAMPLERS:
        first, second = (diffusion.sample(model, 3, method, 4) for _ in range(2))
        assert torch.equal(first, second)
        assert first.shape == (3, 2)
    with pytest.raises(InputError, match=r"sample.method must be one of ancestral, ddim, heun"):
        diffusion.sample(model, 3, "euler")
    with pytest.raises(InputError, match="steps must be at least 1; got 0"):
        diffusion.sample(model, 3, "ddim", 0)
    with pytest.raises(InputError, match=r"prediction must not be noise at pure noise"):
        diffusion.points(2, schedule="straight", prediction="noise")
    with pytest.raises(InputError, match=r"sample.model must be a diffusion model"):
        diffusion.sample(flows.linear(2), 3)


def test_guidance_extrapolates_from_the_unconditional_prediction():
    model = diffusion.points(2, 8, 2, context=3).transforms[1]
    for p in model.parameters():
        p.data.normal_(0, 0.5, generator=torch.Generator().manual_seed(1))
    y, angle = torch.randn(4, 2), torch.full((4,), 0.7)
    context = torch.eye(4, 3)
    free, bound = model.turn(y, angle), model.turn(y, angle, context)
    assert (free - bound).abs().max() > 1e-3
    torch.testing.assert_close(model.turn(y, angle, context, 0.0), free)
    torch.testing.assert_close(model.turn(y, angle, context, 3.0), free + 3 * (bound - free))


# Pairs


def test_optimal_pairs_have_the_least_cost_of_all_orders():
    x, noise = torch.randn(6, 2), torch.randn(6, 2)
    best = min(
        (x - noise[list(order)]).square().sum().item()
        for order in itertools.permutations(range(6))
    )
    assert (x - diffusion.optimal_pairs(x, noise)).square().sum().item() == pytest.approx(best)


def test_reflow_pairs_lie_on_the_models_own_paths():
    model = exact(diffusion.Straight(), "velocity", tolerance=1e-5)
    data, noise = diffusion.reflow_pairs(model, 4, (2,), torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(data)[0], noise, rtol=0.0, atol=1e-3)


def test_even_levels_fill_every_interval_once():
    u = diffusion.even_levels(50, torch.Generator().manual_seed(0))
    assert sorted((u * 50).long().tolist()) == list(range(50))


# Images


@pytest.mark.parametrize("network", ["dense", "unet", "dit"])
def test_networks_of_images_keep_the_shape_and_depend_on_level_and_context(network):
    model = diffusion.images((2, 4, 6), 5, 8, 2, network=network, context=3)
    body = model.flow.transforms[1]
    rng = torch.Generator().manual_seed(0)
    for p in body.parameters():
        p.data.normal_(0, 0.2, generator=rng)
    y, context = torch.randn(3, 2, 4, 6, generator=rng), torch.eye(3)
    outs = [
        body.network(y, torch.full((3,), 0.1)),
        body.network(y, torch.full((3,), 0.9)),
        body.network(y, torch.full((3,), 0.1), context),
    ]
    assert all(out.shape == y.shape for out in outs)
    assert (outs[0] - outs[1]).abs().max() > 1e-3
    assert (outs[0] - outs[2]).abs().max() > 1e-3
    # Rows do not mix.
    torch.testing.assert_close(body.network(y[:1], torch.full((1,), 0.1)), outs[0][:1])


def test_patches_of_a_dit_are_put_back_where_they_were():
    # Without blocks and with inverse input and output maps the network is the identity.
    model = diffusion.DiT((1, 4, 6), width=4, depth=1, heads=1, patch=2)
    y = torch.randn(2, 1, 4, 6)
    model.blocks = nn.ModuleList()
    model.position_table.data.zero_()
    model.first.weight.data.copy_(torch.eye(4))
    model.last.weight.data.copy_(torch.eye(4))
    tokens = model(y, torch.zeros(2))
    # The norm of each patch is the only change.
    patches = y.unfold(2, 2, 2).unfold(3, 2, 2)
    wanted = nn.functional.layer_norm(patches.reshape(2, 1, 2, 3, 4), (4,))
    got = tokens.unfold(2, 2, 2).unfold(3, 2, 2).reshape(2, 1, 2, 3, 4)
    torch.testing.assert_close(got, wanted)


def test_an_untrained_model_of_images_has_the_likelihood_of_the_histogram():
    x = torch.randint(0, 5, (60, 1, 4, 4), generator=torch.Generator().manual_seed(0))
    model = diffusion.images((1, 4, 4), 5, 8, 2, network="unet", probes=0)
    model.initialise(x)
    counts = torch.stack([(x == value).sum(0) for value in range(5)]).double() + 1
    shares = counts / counts.sum(0)
    picked = shares.gather(0, x)
    gap = model.log_prob(x).detach() - picked.log().flatten(1).sum(1)
    assert gap.abs().max() < 1e-3
